//! Settings of FSDP runtimes.

use crate::settings::Strategy;
use crate::units::Dtype;

use crate::layout::Style;

/// Whether a unit's parameters are given back between its forward and its backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reshard {
    /// True for all modules of a list but the last, false for the root; never with a pipeline.
    #[default]
    Default,
    /// All units but the root.
    Always,
    /// No unit.
    Never,
    /// To groups of so many ranks instead of the whole sharding group.
    To(u64),
}

/// Settings of FSDP runtimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsdpSettings {
    /// What is split over the sharding group.
    pub strategy: Strategy,
    /// Whether optimizer state is split over the outer group too (Megatron-FSDP).
    pub outer_optim: bool,
    /// When gathered parameters are given back.
    pub reshard: Reshard,
    /// Type of the sharded parameters, their gradients and moments (FSDP2).
    pub sharded_dtype: Dtype,
    /// Type in which gradients are reduced (FSDP2).
    pub reduce_dtype: Dtype,
    /// Whether shards and optimizer state live on the host (FSDP2).
    pub offload: bool,
    /// Whether the language model's layers are within the scope of activation checkpoints.
    pub checkpoints_language: bool,
    /// Persistent buffers for two units (Megatron-FSDP).
    pub double_buffer: bool,
    /// Whether communication buffers are registered with NCCL (Megatron-FSDP).
    pub nccl_ub: bool,
    /// Whether the optimizer works on fp32 copies of the parameters (Megatron-FSDP).
    pub preserve_fp32_weights: bool,
    /// Whether 8-bit parameters keep their transpose between uses (Megatron-FSDP).
    pub keep_fp8_transpose: bool,
    /// Whether the model is made without memory and materialised unit by unit (Megatron-FSDP).
    pub init_meta: bool,
    /// Type that the model's output is cast to (FSDP2).
    pub output_dtype: Dtype,
    /// Elements that are gathered ahead and queued for reduction at most; none for the framework's own number
    /// (Megatron-FSDP).
    pub communication_unit: Option<u64>,
    /// Whether embedding, and norm with output layer, are units of their own instead of parts of the root (FSDP2).
    pub outer_apart: bool,
    /// Whether gradients are reduced after the last micro batch only, and kept whole until then (FSDP2).
    pub sync_last: bool,
    /// Type in which the loss is computed (FSDP2).
    pub loss_dtype: Dtype,
    /// Whether the training loop holds the logits through backward (FSDP2).
    pub keeps_logits: bool,
    /// Whether selective checkpoints keep every second matrix product instead of leaving modules out (FSDP2).
    pub checkpoints_matmuls: bool,
    /// Whether layers go through torch.compile (FSDP2).
    pub compiled: bool,
}

impl FsdpSettings {
    /// Ranks that gathered parameters stay split over between forward and backward, where a number of them is said.
    pub(crate) fn post_forward_ranks(&self) -> Option<u64> {
        match self.reshard {
            Reshard::To(ranks) => Some(ranks),
            Reshard::Default | Reshard::Always | Reshard::Never => None,
        }
    }
}

impl Default for FsdpSettings {
    fn default() -> Self {
        FsdpSettings {
            strategy: Strategy::USUAL,
            outer_optim: false,
            reshard: Reshard::default(),
            sharded_dtype: Dtype::Fp32,
            reduce_dtype: Dtype::Fp32,
            offload: false,
            checkpoints_language: true,
            double_buffer: false,
            nccl_ub: false,
            preserve_fp32_weights: true,
            keep_fp8_transpose: false,
            init_meta: false,
            output_dtype: Dtype::Bf16,
            communication_unit: None,
            outer_apart: false,
            sync_last: false,
            loss_dtype: Dtype::Fp32,
            keeps_logits: false,
            checkpoints_matmuls: false,
            compiled: false,
        }
    }
}

/// Where the tensor-parallel plan of an FSDP runtime comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TpPlanSource {
    /// The runtime's own: per class, else the default.
    #[default]
    Own,
    /// The one that the model's class brings along in transformers.
    HuggingFace,
    /// The user's: module patterns and styles.
    Map(Vec<(String, Style)>),
}
