//! Words of `training`.

use super::words;
use crate::units::{Dtype, LowPrecision};

words! {
    /// A compute type, or a low-precision recipe on top of bf16.
    #[derive(Default)]
    pub enum Precision {
        /// bfloat16.
        #[default]
        Bf16 = "bf16",
        /// IEEE half precision.
        Fp16 = "fp16",
        /// IEEE single precision.
        Fp32 = "fp32",
        /// IEEE double precision.
        Fp64 = "fp64",
        /// 8-bit GEMMs, a scale per tensor from past maxima.
        Fp8Delayed = "fp8_delayed",
        /// 8-bit GEMMs, a scale per tensor from the tensor itself.
        Fp8Current = "fp8_current",
        /// 8-bit GEMMs, a scale per block of 128 (x 128) values.
        Fp8Blockwise = "fp8_blockwise",
        /// 8-bit GEMMs, a scale per 32 values.
        Mxfp8 = "mxfp8",
        /// 4-bit GEMMs, a scale per 16 values.
        Nvfp4 = "nvfp4",
    }
}

impl Precision {
    /// Type of what is not quantized.
    pub const fn dtype(self) -> Dtype {
        match self {
            Precision::Fp16 => Dtype::Fp16,
            Precision::Fp32 => Dtype::Fp32,
            Precision::Fp64 => Dtype::Fp64,
            _ => Dtype::Bf16,
        }
    }

    /// The recipe, where there is one.
    pub(crate) const fn low_precision(self) -> Option<LowPrecision> {
        match self {
            Precision::Fp8Delayed => Some(LowPrecision::Fp8Delayed),
            Precision::Fp8Current => Some(LowPrecision::Fp8Current),
            Precision::Fp8Blockwise => Some(LowPrecision::Fp8Blockwise),
            Precision::Mxfp8 => Some(LowPrecision::Mxfp8),
            Precision::Nvfp4 => Some(LowPrecision::Nvfp4),
            _ => None,
        }
    }
}

words! {
    /// Kind of optimizer.
    pub enum OptimizerKind {
        /// Adam or AdamW: two moments.
        Adam = "adam",
        /// SGD with momentum: one.
        Sgd = "sgd",
        /// Muon: one for hidden matrices, Adam's two for the rest.
        Muon = "muon",
    }
}

impl OptimizerKind {
    /// State values per element of a buffer that it updates, besides the master weight.
    pub const fn moments(self) -> u64 {
        match self {
            OptimizerKind::Adam => 2,
            OptimizerKind::Sgd | OptimizerKind::Muon => 1,
        }
    }
}

words! {
    /// How much is recomputed.
    pub enum Granularity {
        /// Nothing.
        None = "none",
        /// Named modules.
        Selective = "selective",
        /// Whole layers.
        Full = "full",
    }
}

words! {
    /// Kernel of attention.
    pub enum AttentionBackend {
        /// The framework chooses.
        Auto = "auto",
        /// FlashAttention.
        Flash = "flash",
        /// cuDNN's.
        Fused = "fused",
        /// Two GEMMs and a softmax, with the scores in memory.
        Unfused = "unfused",
    }
}

words! {
    /// Whose layers are used.
    pub enum Implementation {
        /// TransformerEngine's.
        TransformerEngine = "transformer_engine",
        /// Megatron-Core's own, on plain torch.
        Local = "local",
    }
}

words! {
    /// Kernel of the loss.
    pub enum CrossEntropy {
        /// Operation by operation, in fp32.
        Unfused = "unfused",
        /// Fused by Megatron-Core (jit).
        Native = "native",
        /// TransformerEngine's, in place in the logits' type.
        Te = "te",
    }
}

words! {
    /// What is captured as CUDA graphs.
    pub enum CudaGraphs {
        /// Nothing.
        None = "none",
        /// Named modules of a layer.
        Scoped = "scoped",
        /// Forward and backward of a whole step.
        Iteration = "iteration",
    }
}

words! {
    /// How tokens get to their experts.
    pub enum Dispatcher {
        /// All-to-all of the chosen tokens.
        AllToAll = "alltoall",
        /// All-gather of all tokens.
        AllGather = "allgather",
        /// A library's kernel over etp x ep.
        Flex = "flex",
    }
}

words! {
    /// Library of the flex dispatcher.
    pub enum FlexBackend {
        /// DeepEP.
        DeepEp = "deepep",
        /// HybridEP.
        HybridEp = "hybridep",
    }
}

/// Modules that selective recomputation knows.
pub(crate) const RECOMPUTE_MODULES: &[&str] = &[
    "core_attn",
    "layernorm",
    "mlp",
    "moe",
    "moe_act",
    "shared_experts",
    "mla_up_proj",
    "gdn_norm_out",
    "mhc",
];

/// Modules whose activations can wait on the host.
pub(crate) const OFFLOAD_MODULES: &[&str] =
    &["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"];

/// Modules that can be captured (Megatron-Core `CudaGraphModule`).
pub(crate) const GRAPH_MODULES: &[&str] = &["attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"];
