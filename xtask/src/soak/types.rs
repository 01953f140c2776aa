//! Every causal language model type of transformers, recorded anew: some ten minutes.

use anyhow::Result;

use crate::console::timed;
use crate::place::{Place, Target};
use crate::{build, process, tools};

/// Records them all; whether each is what planner's test compares with.
pub fn run(place: &Place) -> Result<bool> {
    let torch = build::rank_tools(place)?;
    tools::transformers(place, &torch)?;
    let _lock = place.lock_target(Target::Native)?;
    let mut cargo = build::cargo(place, Target::Native);
    cargo
        .args(["test", "--package", "system-tests", "--test", "processes"])
        .args(["--", "--nocapture", "types::"])
        .env("SHARDPLAN_TORCH", &torch.python)
        .env("SHARDPLAN_TYPES", "all");
    timed("every type of transformers, recorded anew", || process::watch(&mut cargo, |_| {}))
}
