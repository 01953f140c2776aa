//! What programs do that no framework stands for: a plan names them by their software profile.

use crate::runtime::Facts;
use crate::settings::{AttentionBackend, Granularity};

/// A program, known by the names of its software profiles. What is none, or nothing, is as in Megatron-Core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Program {
    /// Its profiles.
    pub profiles: &'static [&'static str],
    /// What it recomputes where a plan does not say.
    pub recompute: Option<Granularity>,
    /// Whether it can split sequences over tensor-parallel ranks.
    pub splits_sequences: bool,
    /// Whether its optimizer's state is split where a plan does not say.
    pub distributed: Option<bool>,
    /// Whether gradients of fp16 are summed in fp16 where a plan does not say.
    pub half_gradients: bool,
    /// Its kernel of attention.
    pub attention: Option<AttentionBackend>,
    /// Whether multiplications add to gradients themselves.
    pub fuses_gradients: Option<bool>,
    /// Whether an MLP's activation is one kernel.
    pub fuses_activation: Option<bool>,
    /// Bytes for each logit at its unfused loss.
    pub loss: Option<u64>,
    /// Whether stages are cut by what their blocks cost.
    pub cuts_by_cost: bool,
    /// Whether its layers and its pipeline are its own, without TransformerEngine and without Megatron-Core's schedule.
    pub own_modules: bool,
    /// What it keeps beside weights, gradients and optimizer state.
    pub keeps: Keeps,
}

/// What a program keeps from step to step that Megatron-Core does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Keeps {
    /// Bytes of each weight's place in buckets of gradients, with data parallelism.
    pub bucket: u64,
    /// Bytes for each weight, and once more for each of the slice that a rank updates, where optimizer state is split.
    pub split_copies: u64,
    /// Tensors of the micro batch's whole inputs, with sequence parallelism.
    pub gathered_inputs: u64,
}

const MEGATRON: Program = Program {
    profiles: &[],
    recompute: None,
    splits_sequences: true,
    distributed: None,
    half_gradients: false,
    attention: None,
    fuses_gradients: None,
    fuses_activation: None,
    loss: None,
    cuts_by_cost: false,
    own_modules: false,
    keeps: Keeps { bucket: 0, split_copies: 0, gathered_inputs: 0 },
};

/// The programs.
pub(crate) const PROGRAMS: [Program; 3] = [
    // Sequence parallelism and the distributed optimizer came with Megatron-LM v3.0 (2022); fp16's gradients are reduced in fp16 unless
    // `--accumulate-allreduce-grads-in-fp32` is given, which bf16 sets (`megatron/arguments.py`, v2.5).
    Program {
        profiles: &["megatron-deepspeed-2021"],
        recompute: Some(Granularity::Full),
        splits_sequences: false,
        distributed: Some(false),
        half_gradients: true,
        ..MEGATRON
    },
    Program { profiles: &["megatron-2022"], recompute: Some(Granularity::Selective), ..MEGATRON },
    // huggingface/nanotron of January 2025, files under `src/nanotron`: fp32 gradients in one buffer, beside which torch's DDP keeps
    // buckets of two bytes (`optim`, `trainer.py`); ZeRO-1's lists of parts (`optim/zero.py`); two buffers of gathered inputs, forward
    // and backward, and a loss that works on a copy of fp32 logits while its caller has them (`parallel/tensor_parallel/functional.py`); what is gathered is
    // gathered again (`tp_recompute_allgather`, on unless said); flash attention; gate and up projection activated operator by operator
    // (`models/llama.py`); blocks go to stages by cumulated cost (`models/base.py`).
    Program {
        profiles: &["nanotron-2024", "nanotron-2024-slow-network"],
        attention: Some(AttentionBackend::Flash),
        fuses_gradients: Some(false),
        fuses_activation: Some(false),
        loss: Some(8),
        cuts_by_cost: true,
        own_modules: true,
        keeps: Keeps { bucket: 2, split_copies: 2, gathered_inputs: 2 },
        ..MEGATRON
    },
];

/// The program of a software profile, where a runtime trains as Megatron does; others have their own ways.
pub(crate) fn program(profile: Option<&str>, runtime: &Facts) -> Option<&'static Program> {
    let profile = profile.filter(|_| runtime.trains_megatron_core && !runtime.shards_parameters)?;
    PROGRAMS.iter().find(|program| program.profiles.contains(&profile))
}
