//! The tables, one file for each framework, with excerpts written for the tests; of frameworks whose jobs are plans they stand with
//! their options.

mod composer;
mod deepspeed;
mod gpt_neox;
mod huggingface;
mod lightning;
mod litgpt;
mod llm_c;
mod maxtext;
mod nanogpt;
mod nanotron;
mod nemo;
mod olmo_core;
mod other;
mod torchtune;

use crate::log_format::Format;
use crate::{automodel, bridge, megatron_lm, torchtitan};

/// The frameworks' tables, in the order in which a line is tried.
pub(super) const NAMED: &[&[Format]] = &[
    gpt_neox::FORMATS,
    megatron_lm::log::FORMATS,
    bridge::log::FORMATS,
    nemo::FORMATS,
    torchtitan::log::FORMATS,
    automodel::log::FORMATS,
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
pub(super) const OTHER: &[Format] = other::FORMATS;
