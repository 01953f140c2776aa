//! The tables, one file for each framework, with excerpts written for the tests.

mod automodel;
mod bridge;
mod composer;
mod deepspeed;
mod gpt_neox;
mod huggingface;
mod lightning;
mod litgpt;
mod llm_c;
mod maxtext;
mod megatron;
mod nanogpt;
mod nanotron;
mod nemo;
mod olmo_core;
mod other;
mod torchtitan;
mod torchtune;

use super::format::Format;

/// The frameworks' tables, in the order in which a line is tried.
pub const NAMED: &[&[Format]] = &[
    gpt_neox::FORMATS,
    megatron::FORMATS,
    bridge::FORMATS,
    nemo::FORMATS,
    torchtitan::FORMATS,
    automodel::FORMATS,
    nanotron::FORMATS,
    deepspeed::FORMATS,
    olmo_core::FORMATS,
    composer::FORMATS,
    litgpt::FORMATS,
    llm_c::FORMATS,
    maxtext::FORMATS,
    torchtune::FORMATS,
    lightning::FORMATS,
    huggingface::FORMATS,
    nanogpt::FORMATS,
];

/// Name of the framework of lines that are nobody's.
pub const UNKNOWN: &str = "other";

/// Lines of no framework.
pub const OTHER: &[Format] = other::FORMATS;
