//! Training settings of a plan, every default filled.

use crate::settings::{
    AttentionBackend, CrossEntropy, CudaGraphs, Dispatcher, FlexBackend, Granularity, Implementation,
    OptimizerKind,
};
use crate::software::{Framework, Named, Product};
use crate::units::{Dtype, LowPrecision};
use crate::wire::Setting;

/// Batch, precision, optimizer, recomputation, and how layers are computed.
#[derive(Debug, Clone, PartialEq)]
pub struct Training {
    /// Tokens of a sequence.
    pub seq_len: u64,
    /// Sequences of a micro batch.
    pub micro_batch_size: u64,
    /// Sequences of a step.
    pub global_batch_size: u64,
    /// Compute type of what is not quantized.
    pub dtype: Dtype,
    /// The recipe that runs GEMMs in 8 or 4 bits, if one does.
    pub low_precision: Option<LowPrecision>,
    /// Whether parameters are kept and gathered in the recipe's type.
    pub fp8_param_gather: bool,
    /// First layers that the recipe leaves in the compute type.
    pub bf16_first_layers: u64,
    /// Last layers that the recipe leaves in the compute type.
    pub bf16_last_layers: u64,
    /// Whether the recipe multiplies within attention.
    pub fp8_attention: bool,
    /// Whether the recipe runs the output layer.
    pub fp8_output: bool,
    /// Type of the main gradient buffers.
    pub grad_dtype: Dtype,
    /// Optimizer.
    pub optimizer: Optimizer,
    /// What losses are multiplied by; none but for fp16.
    pub loss_scale: Option<LossScale>,
    /// How much is recomputed.
    pub recompute: Granularity,
    /// Modules recomputed when selective.
    pub recompute_modules: Vec<String>,
    /// `uniform` or `block` when full.
    pub recompute_method: Option<String>,
    /// Layers per checkpoint when full.
    pub recompute_layers: Option<u64>,
    /// Whether what full recomputation saves is split over tensor-parallel ranks.
    pub distribute_saved_activations: bool,
    /// Activations that wait on the host.
    pub offload: Offload,
    /// Probability of dropout on attention weights.
    pub attention_dropout: f64,
    /// Probability of dropout on the residual stream.
    pub hidden_dropout: f64,
    /// Kernel of attention.
    pub attention_backend: AttentionBackend,
    /// Whose layers are used.
    pub implementation: Implementation,
    /// Kernel of the loss.
    pub cross_entropy: CrossEntropy,
    /// Whether weight gradients are added into the main gradient by the GEMM that makes them.
    pub fused_gradient_accumulation: bool,
    /// What is captured as CUDA graphs.
    pub cuda_graphs: CudaGraphs,
    /// Modules that are captured when scoped.
    pub cuda_graph_modules: Vec<String>,
    /// Communication that hides behind compute.
    pub overlap: Overlap,
    /// MoE settings.
    pub moe: MoeTraining,
    /// Whether the dataloader makes a boolean attention mask.
    pub attention_mask: bool,
    /// Whether kernels that give the same bits every time are asked for.
    pub deterministic: bool,
    /// Whether masks and softmax of explicit scores are one kernel.
    pub fused_softmax: bool,
    /// Micro batches whose weight gradient of the output layer waits for the end of the step, 0 for all of them.
    pub deferred_head_gradients: Option<u64>,
}

/// Optimizer and the types of its state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Optimizer {
    /// Kind.
    pub kind: OptimizerKind,
    /// Whether its state is split over data parallelism.
    pub distributed: bool,
    /// Whether the kernel reads and writes state in the types below.
    pub precision_aware: bool,
    /// Type of the master weights, where there are any.
    pub master_dtype: Dtype,
    /// Type of the first moment.
    pub exp_avg_dtype: Dtype,
    /// Type of the second moment.
    pub exp_avg_sq_dtype: Dtype,
    /// Part of the state that lives on the host, 0 to 1.
    pub offload_fraction: f64,
    /// Groups into which data parallelism is divided, each with a whole set of state.
    pub instances: u64,
    /// Whether Megatron-Core keeps fp32 master weights of a precision-aware optimizer, where the plan says so.
    pub core_master: Option<bool>,
    /// Decay of Adam's first moment.
    pub beta1: f64,
    /// Decay of Adam's second moment.
    pub beta2: f64,
    /// What Adam adds to the root of the second moment.
    pub eps: f64,
    /// Momentum of SGD or of Muon.
    pub momentum: f64,
}

impl Optimizer {
    /// Constants of an update by their names in a plan file, where nobody says; none that the kind does not have.
    pub fn usual(kind: OptimizerKind) -> [(&'static str, Option<f64>); 4] {
        let adam = kind != OptimizerKind::Sgd;
        let momentum = match kind {
            OptimizerKind::Adam => None,
            OptimizerKind::Sgd => Some(0.9),
            OptimizerKind::Muon => Some(0.95),
        };
        [
            ("beta1", adam.then(|| Setting::usual_of("training.optimizer.beta1"))),
            ("beta2", adam.then(|| Setting::usual_of("training.optimizer.beta2"))),
            ("eps", adam.then(|| Setting::usual_of("training.optimizer.eps"))),
            ("momentum", momentum),
        ]
    }

    /// Whether a constant is the usual one, or none of this kind.
    pub fn has_usual(&self, name: &str) -> bool {
        let own = [self.beta1, self.beta2, self.eps, self.momentum];
        Optimizer::usual(self.kind)
            .into_iter()
            .zip(own)
            .all(|((known, usual), own)| known != name || usual.is_none_or(|usual| usual == own))
    }
}

/// What losses are multiplied by, so that their gradients are not too small for fp16 (Megatron-Core `ConstantGradScaler` and
/// `DynamicGradScaler`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossScale {
    /// The same in every step.
    Fixed(f64),
    /// Halved after overflows, doubled after a while without.
    Dynamic {
        /// Of the first step.
        initial: f64,
        /// The smallest.
        min: f64,
        /// Steps without an overflow after which it doubles.
        window: u64,
        /// Overflows before it halves.
        hysteresis: u64,
    },
}

impl LossScale {
    /// Where nobody says anything.
    pub fn usual() -> LossScale {
        LossScale::Dynamic {
            initial: Setting::usual_of("training.loss_scale.initial"),
            min: Setting::usual_of("training.loss_scale.min"),
            window: Setting::usual_of("training.loss_scale.window"),
            hysteresis: Setting::usual_of("training.loss_scale.hysteresis"),
        }
    }
}

/// Saved activations that wait on the host between forward and backward.
#[derive(Debug, Clone, PartialEq)]
pub struct Offload {
    /// Modules whose saved tensors are moved.
    pub modules: Vec<String>,
    /// Part of their bytes that is moved, 0 to 1.
    pub fraction: f64,
    /// First layers of which all that is saved is moved.
    pub layers: u64,
}

/// Communication that hides behind compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// Reduction of gradients behind backward.
    pub grad_reduce: bool,
    /// Gathering of parameters behind forward.
    pub param_gather: bool,
    /// Collectives of tensor parallelism behind the GEMMs next to them.
    pub tp: bool,
    /// All-to-all of expert parallelism behind another micro batch.
    pub ep: bool,
    /// Sends between pipeline stages.
    pub p2p: bool,
    /// Weight gradients wait until the all-to-all has something to hide behind.
    pub delay_wgrad: bool,
}

/// MoE settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MoeTraining {
    /// How tokens get to their experts.
    pub dispatcher: Dispatcher,
    /// Library of the flex dispatcher.
    pub backend: FlexBackend,
    /// Tokens of the busiest expert rank over the mean.
    pub load_imbalance: f64,
    /// Whether more tokens may come to a rank than that.
    pub load_may_grow: bool,
    /// Tokens that an expert takes over the mean; none drops none.
    pub capacity_factor: Option<f64>,
    /// Whether every expert's input is padded to its capacity.
    pub pad_to_capacity: bool,
    /// Whether a rank's experts run as one grouped GEMM.
    pub grouped_gemm: bool,
    /// Whether shared experts run while tokens travel to the routed ones.
    pub shared_expert_overlap: bool,
    /// Whether the experts' activation, its gate and the weight of each token are one kernel.
    pub fused_activation: bool,
    /// Whether sorting of tokens is one kernel.
    pub permute_fusion: bool,
}

/// What is installed where the plan runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Software {
    /// Name of a software profile.
    pub profile: Option<String>,
    /// Version of torch.
    pub torch: Option<String>,
    /// The framework, with the version whose names of options scripts have; none for the newest release.
    pub framework: Option<Framework>,
    /// The framework that the plan names, whose recipe holds.
    pub named: Option<Named>,
    /// What its recipe sets where the layout leaves room for it.
    pub where_possible: WherePossible,
    /// Whether its recipe was made for another model or GPU than the plan's.
    pub others_recipe: bool,
    /// Paths of the training settings that its recipe set.
    pub set: Vec<&'static str>,
    /// Bytes of cuBLAS's workspace per handle and stream.
    pub cublas_workspace_bytes: Option<u64>,
    /// Whether torch's allocator grows segments.
    pub expandable_segments: bool,
}

impl Software {
    /// Whether the framework that the plan names trains modules of Megatron-Core, whatever shards them.
    pub(crate) fn builds_on_megatron_core(&self) -> bool {
        self.named.as_ref().is_some_and(|named| {
            matches!(named.product, Product::MegatronLm | Product::Bridge | Product::Nemo)
        })
    }

    /// Major and minor version of torch, where it is known and reads like one.
    pub fn torch_version(&self) -> Option<(u64, u64)> {
        let mut parts = self.torch.as_deref()?.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.chars().take_while(char::is_ascii_digit).collect::<String>();
        Some((major, minor.parse().ok()?))
    }
}

/// What a recipe sets where the layout leaves room for it, however the layout turns out: the framework itself leaves it off
/// elsewhere. A plan's own settings show what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WherePossible {
    /// Tensor-parallel communication hides under sequence parallelism.
    pub tp: bool,
    /// The all-to-all of experts hides.
    pub ep: bool,
    /// Tokens go to experts on other ranks by the flex dispatcher.
    pub flex: bool,
}
