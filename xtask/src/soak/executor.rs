//! Tests of the executor with larger numbers than the test command's: kills of one of eight ranks, and what measuring
//! costs.

use anyhow::Result;

use crate::console::timed;
use crate::lock::Lock;
use crate::place::{Place, Target};
use crate::{build, process};

/// Kills a rank `kills` times; whether every run ended in time and named it.
pub fn kill(place: &Place, kills: u32, seed: u32) -> Result<bool> {
    let numbers = [("SHARDPLAN_KILLS", kills), ("SHARDPLAN_SEED", seed)];
    run(place, format!("killing one of eight ranks {kills} times"), "kills::", &numbers)
}

/// Runs `pairs` of runs, one that measures and one that does not; whether their numbers were the same.
pub fn measure(place: &Place, pairs: u32) -> Result<bool> {
    let what = format!("what measuring costs, by {pairs} pairs of runs");
    run(place, what, "life::measuring_", &[("SHARDPLAN_PAIRS", pairs)])
}

fn run(place: &Place, what: String, tests: &str, numbers: &[(&str, u32)]) -> Result<bool> {
    let torch = build::rank_tools(place)?;
    let _lock = Lock::acquire(&place.target_lock(Target::Rank))?;
    let mut cargo = build::cargo_with(place, &torch);
    cargo
        .args(["test", "--release", "--package", "shardplan-rank", "--test", "executor"])
        .args(["--", "--nocapture", tests])
        .envs(numbers.iter().map(|(name, value)| (name, value.to_string())));
    timed(what, || process::watch(&mut cargo, |_| {}))
}
