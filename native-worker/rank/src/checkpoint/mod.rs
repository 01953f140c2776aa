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

use std::time::{Duration, Instant};

use planner::settings::OptimizerKind;
use tch::{Kind, Tensor};
use tensor_files::{EXPERT_BIAS, WEIGHT};

use crate::collectives::{Collectives, GroupId, Reduce};

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

/// How long a rank that has nothing to do waits before it asks the others again.
const ROUND: Duration = Duration::from_millis(500);
/// How often it looks meanwhile whether it is done itself.
const LOOK: Duration = Duration::from_millis(5);

/// Returns on all ranks once none is at work any more, as `works` says of this one. However long one takes, no other waits in a
/// collective for longer than a round.
///
/// # Errors
/// When a collective fails.
fn together(world: &dyn Collectives, everyone: GroupId, works: impl Fn() -> bool) -> anyhow::Result<()> {
    loop {
        let until = Instant::now() + ROUND;
        while works() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        let mut any = Tensor::f_from_slice(&[i64::from(works())])?;
        world.all_reduce(everyone, Reduce::Max, &mut any)?;
        if any.f_int64_value(&[0])? == 0 {
            return Ok(());
        }
    }
}
