//! The training part of a plan file: batch, precision, optimizer, recomputation, offload, overlap, experts.
//!
//! What few plans set is left out of a written file where it is absent; a filled plan shows every field.

use serde::{Deserialize, Serialize};

use crate::settings::{
    AttentionBackend, CrossEntropy, CudaGraphs, Dispatcher, FlexBackend, Granularity, Implementation,
    OptimizerKind, Precision,
};
use crate::units::Dtype;

/// Batch, precision, optimizer, recomputation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainingFile {
    /// Tokens of a sequence; 4096.
    pub seq_len: Option<u64>,
    /// Sequences of a micro batch; 1.
    pub micro_batch_size: Option<u64>,
    /// Sequences of a step; 256.
    pub global_batch_size: Option<u64>,
    /// Compute type, or a low-precision recipe on top of bf16; bf16.
    pub dtype: Option<Precision>,
    /// Type of the main gradient buffers; fp32 (fp64 with dtype fp64).
    pub grad_dtype: Option<Dtype>,
    /// Whether parameters are gathered and kept in 8 bits (with a recipe of 8 bits); false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp8_param_gather: Option<bool>,
    /// First layers that a low-precision recipe leaves in bf16; 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bf16_first_layers: Option<u64>,
    /// Last layers that a low-precision recipe leaves in bf16; 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bf16_last_layers: Option<u64>,
    /// Whether a low-precision recipe multiplies in 8 bits within attention too; false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp8_attention: Option<bool>,
    /// Whether a low-precision recipe runs the output layer too; false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp8_output: Option<bool>,
    /// Optimizer.
    pub optimizer: OptimizerFile,
    /// What losses are multiplied by before their gradients are made in fp16.
    #[serde(skip_serializing_if = "LossScaleFile::is_empty")]
    pub loss_scale: LossScaleFile,
    /// Recomputation.
    pub recompute: RecomputeFile,
    /// Activations that wait on the host.
    #[serde(skip_serializing_if = "OffloadFile::is_empty")]
    pub offload: OffloadFile,
    /// Probability of dropout on attention weights; 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_dropout: Option<f64>,
    /// Probability of dropout on the residual stream; 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_dropout: Option<f64>,
    /// Kernel of attention; auto.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_backend: Option<AttentionBackend>,
    /// Whose layers are used; transformer_engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub implementation: Option<Implementation>,
    /// Kernel of the loss; unfused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_entropy: Option<CrossEntropy>,
    /// Whether weight gradients are added into the main gradient by the GEMM that makes them; true (false under FSDP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fused_gradient_accumulation: Option<bool>,
    /// What is captured as CUDA graphs; none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda_graphs: Option<CudaGraphs>,
    /// Modules that are captured when scoped; none named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda_graph_modules: Option<Vec<String>>,
    /// Communication that hides behind compute.
    #[serde(skip_serializing_if = "OverlapFile::is_empty")]
    pub overlap: OverlapFile,
    /// MoE settings.
    pub moe: MoeFile,
    /// Whether the dataloader makes a boolean attention mask; false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_mask: Option<bool>,
    /// Whether kernels that give the same bits every time are asked for, which some models have in plain operators only;
    /// false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deterministic: Option<bool>,
    /// Whether masks and softmax of explicit scores are one kernel; true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fused_softmax: Option<bool>,
    /// Micro batches whose weight gradient of the output layer waits for the end of the step, 0 for all of them; none wait
    /// when it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred_head_gradients: Option<u64>,
    /// Multi-token-prediction modules trained with the model; 0 (those of an own architecture, when it has some).
    pub mtp_layers: Option<u64>,
    /// Tokens of the whole training, for days and cost.
    pub train_tokens: Option<f64>,
}

/// Optimizer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerFile {
    /// Kind; adam.
    pub kind: Option<OptimizerKind>,
    /// Whether its state is split over the data-parallel group; true.
    pub distributed: Option<bool>,
    /// Whether the optimizer kernel reads and writes state in the types below (TransformerEngine's FusedAdam); false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision_aware: Option<bool>,
    /// Type of the master weights; fp32 (fp64 with dtype fp64).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_dtype: Option<Dtype>,
    /// Type of the first moment; that of the gradients, at least fp32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp_avg_dtype: Option<Dtype>,
    /// Type of the second moment; that of the gradients, at least fp32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp_avg_sq_dtype: Option<Dtype>,
    /// Part of the optimizer's state that lives on the host, 0 to 1; 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload_fraction: Option<f64>,
    /// Groups into which data parallelism is divided, each with a whole set of optimizer state; 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<u64>,
    /// Whether Megatron-Core, not a precision-aware optimizer, keeps fp32 master weights and hands over gradients in
    /// fp32; true with 8-bit recipes but delayed scaling. Megatron Bridge does so in bf16 runs too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_master: Option<bool>,
    /// Decay of the first moment; 0.9. Of Adam, and of what Muon does not update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta1: Option<f64>,
    /// Decay of the second moment; 0.95. Of Adam, and of what Muon does not update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta2: Option<f64>,
    /// What is added to the root of the second moment; 1e-8. Of Adam, and of what Muon does not update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eps: Option<f64>,
    /// Momentum of SGD, 0.9, and of Muon, 0.95.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f64>,
}

/// What losses are multiplied by, so that their gradients are not too small for fp16. Where `fixed` is not said, the scale
/// halves when gradients overflow, and such a step changes no weight.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LossScaleFile {
    /// The scale of every step; none, and it follows what overflows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<f64>,
    /// The first step's scale; 65,536.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<f64>,
    /// The smallest; 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Steps without an overflow after which it doubles; 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Overflows before it halves; 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hysteresis: Option<u64>,
}

impl LossScaleFile {
    /// True when nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == LossScaleFile::default()
    }
}

/// Recomputation of activations.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecomputeFile {
    /// none, selective or full.
    pub granularity: Option<Granularity>,
    /// Modules recomputed when selective.
    pub modules: Option<Vec<String>>,
    /// `uniform` or `block` when full.
    pub method: Option<String>,
    /// Layers per checkpoint (uniform) or checkpointed layers per chunk (block).
    pub num_layers: Option<u64>,
    /// Whether what full recomputation saves is split over tensor-parallel ranks; false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribute_saved_activations: Option<bool>,
}

/// Saved activations that wait on the host between forward and backward.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OffloadFile {
    /// Modules whose saved tensors are moved; none.
    pub modules: Option<Vec<String>>,
    /// Part of their bytes that is moved, 0 to 1; 1.
    pub fraction: Option<f64>,
    /// First layers of which all that is saved is moved; 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<u64>,
}

impl OffloadFile {
    /// True when nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == OffloadFile::default()
    }
}

/// Communication that hides behind compute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OverlapFile {
    /// Reduction of gradients behind backward; true.
    pub grad_reduce: Option<bool>,
    /// Gathering of parameters behind forward; true (false without a distributed optimizer).
    pub param_gather: Option<bool>,
    /// Collectives of tensor parallelism behind the GEMMs next to them; false.
    pub tp: Option<bool>,
    /// All-to-all of expert parallelism behind another micro batch; false.
    pub ep: Option<bool>,
    /// Sends between pipeline stages; true.
    pub p2p: Option<bool>,
    /// Weight gradients wait until the all-to-all has something to hide behind; false.
    pub delay_wgrad: Option<bool>,
}

impl OverlapFile {
    /// True when nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == OverlapFile::default()
    }
}

/// MoE settings.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MoeFile {
    /// How tokens get to their experts; alltoall.
    pub dispatcher: Option<Dispatcher>,
    /// Library of the flex dispatcher; deepep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<FlexBackend>,
    /// Tokens of the busiest rank over the mean; 1.0.
    pub load_imbalance: Option<f64>,
    /// Whether more tokens may come to a rank than `load_imbalance` says, so that the likely range allows for them; true
    /// where neither that nor `force_balance` is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_may_grow: Option<bool>,
    /// Whether the router spreads tokens evenly whatever it has learned, as benchmarks do; the model's routing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_balance: Option<bool>,
    /// Tokens that an expert takes over the mean; null drops none.
    pub capacity_factor: Option<f64>,
    /// Whether every expert's input is padded to its capacity; false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pad_to_capacity: Option<bool>,
    /// Whether a rank's experts run as one grouped GEMM; true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grouped_gemm: Option<bool>,
    /// Whether shared experts run while tokens travel to the routed ones; false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_expert_overlap: Option<bool>,
    /// Whether the experts' activation, its gate and the weight of each token are one kernel; true for gated experts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fused_activation: Option<bool>,
    /// Whether sorting of tokens is one kernel; false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permute_fusion: Option<bool>,
}
