//! Training settings of a plan, every default filled: `wire/training_file.rs` has them beside their rows. What is installed.

use crate::settings::{Granularity, OptimizerKind};
use crate::software::{Framework, Named, Product};
use crate::units::Dtype;
use crate::wire::Setting;
pub use crate::wire::{LossScale, MoeTraining, Offload, Optimizer, Overlap, Training};

impl Training {
    /// Layers of each chunk that method `block` computes again, from its first; none under another method. More than a chunk has are all.
    pub fn block_layers(&self) -> Option<u64> {
        let is_block =
            self.recompute == Granularity::Full && self.recompute_method.as_deref() == Some("block");
        is_block.then(|| self.recompute_layers.unwrap_or(1))
    }
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

    /// Types of masters and of moments where nobody says, of a training in `dtype`, with the types of gradients and masters that may be
    /// said.
    pub fn usual_types(dtype: Dtype, grad_dtype: Option<Dtype>, masters: Option<Dtype>) -> [Dtype; 2] {
        let wide = dtype.exact();
        let moments = match masters {
            // Who keeps no wider weights keeps no wider moments.
            Some(Dtype::Bf16) => Dtype::Bf16,
            _ => grad_dtype.filter(|grad_dtype| grad_dtype.size() >= wide.size()).unwrap_or(wide),
        };
        [wide, moments]
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
    /// Of a release of Megatron-LM that the plan names, its minor number: 12 of `megatron-lm core_v0.12.0`.
    pub megatron_release: Option<u32>,
    /// What its recipe sets where the layout leaves room for it.
    pub where_possible: WherePossible,
    /// Whether its recipe was made for another model, GPU or release than the plan's, or the plan does not say which release.
    pub others_recipe: bool,
    /// Paths of the settings of layout and training that its recipe set.
    pub set: Vec<&'static str>,
    /// Bytes of cuBLAS's workspace per handle and stream.
    pub cublas_workspace_bytes: Option<u64>,
    /// Whether torch's allocator grows segments.
    pub expandable_segments: bool,
}

impl Software {
    /// Whether an optimizer is NeMo's `distributed_fused_adam`. It keeps of an fp32 master weight what the bf16 weight lacks, or state in
    /// bf16 alone beside the weights (`setup_optimization` of `megatron_base_model.py`), and reads gradients in their own type
    /// (`_local_step` of NVIDIA/apex, `contrib/optimizers/distributed_fused_adam.py`).
    pub(crate) fn updates_by_fused_adam(&self, optimizer: &Optimizer) -> bool {
        self.named.is_some_and(Named::has_fused_adam)
            && optimizer.distributed
            && optimizer.kind == OptimizerKind::Adam
            && !optimizer.precision_aware
    }

    /// Whether the framework that the plan names trains modules of Megatron-Core, whatever shards them.
    pub(crate) fn builds_on_megatron_core(&self) -> bool {
        self.named.as_ref().is_some_and(|named| {
            matches!(named.product, Product::MegatronLm | Product::Bridge | Product::Nemo)
        })
    }

    /// Whether NeMo Automodel trains the plan, by its name.
    pub(crate) fn is_automodels(&self) -> bool {
        self.named.is_some_and(|named| named.product == Product::Automodel)
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
    /// Tensor-parallel communication hides under sequence parallelism, within an NVLink domain.
    pub tp: bool,
    /// The all-to-all of experts hides.
    pub ep: bool,
    /// Tokens go to experts on other ranks by the flex dispatcher.
    pub flex: bool,
}
