//! Checkpoints: what ranks keep, on disk, each element once, so that any layout can go on from it.
//!
//! A rank copies what it answers for to the host and trains on; a thread writes it. When the files of all ranks are on the
//! disk, rank 0 makes them a checkpoint (`run_folder::Checkpoints`). A disk that refuses costs that checkpoint, and not the
//! training.

mod elements;
mod find;
mod load;
mod save;

pub use find::{Found, find};
pub use load::Source;
pub use save::Saver;

use planner::wire::OptimizerKind;
use tch::Kind;

/// What is saved of a parameter: the weight as the optimizer updates it.
const WEIGHT: &str = "weight";
/// What is saved of a router beside its weight.
const EXPERT_BIAS: &str = "expert_bias";

/// Names of an optimizer's moments, as PyTorch's optimizers have them.
fn moment_names(optimizer: OptimizerKind) -> &'static [&'static str] {
    match optimizer {
        OptimizerKind::Adam => &["exp_avg", "exp_avg_sq"],
        OptimizerKind::Sgd | OptimizerKind::Muon => &["momentum_buffer"],
    }
}

/// Types that a checkpoint has, as safetensors and as libtorch name them.
const TYPES: [(safetensors::Dtype, Kind); 4] = [
    (safetensors::Dtype::F64, Kind::Double),
    (safetensors::Dtype::F32, Kind::Float),
    (safetensors::Dtype::BF16, Kind::BFloat16),
    (safetensors::Dtype::F16, Kind::Half),
];

/// The name of a router's bias, from that of its weight.
fn bias_name(weight: &str) -> String {
    weight.strip_suffix(".weight").unwrap_or(weight).to_owned()
}
