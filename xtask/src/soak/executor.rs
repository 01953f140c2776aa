//! Tests of the executor with larger numbers than the test command's: kills of one of eight ranks, what measuring
//! costs, layouts of eight processes, and worlds of thousands of ranks.

use anyhow::Result;

use crate::console::timed;
use crate::place::{Place, Target};
use crate::{build, process};

/// Kills a rank `kills` times; whether every run ended in time and named it, and whether a training that saves lost nothing.
pub fn kill(place: &Place, kills: u32, seed: u32) -> Result<bool> {
    let numbers = [("SHARDPLAN_KILLS", kills), ("SHARDPLAN_SEED", seed)];
    let named = run(place, format!("killing one of eight ranks {kills} times"), "kills::", &numbers)?;
    let what = format!("killing ranks of a training that saves {kills} times");
    Ok(run(place, what, "checkpoints::a_kill", &numbers)? && named)
}

/// Runs `pairs` of runs, one that measures and one that does not; whether their numbers were the same.
pub fn measure(place: &Place, pairs: u32) -> Result<bool> {
    let what = format!("what measuring costs, by {pairs} pairs of runs");
    run(place, what, "life::measuring_", &[("SHARDPLAN_PAIRS", pairs)])
}

/// Trains layouts of up to eight processes: those that cover all pairs of settings, and `layouts` random ones; whether all
/// train the model of one process.
pub fn layouts(place: &Place, layouts: u32, seed: u32) -> Result<bool> {
    let numbers = [("SHARDPLAN_WORLD", 8), ("SHARDPLAN_LAYOUTS", layouts), ("SHARDPLAN_SEED", seed)];
    run(place, format!("layouts of up to eight ranks, {layouts} of them random"), "layouts::", &numbers)
}

/// Lets as many ranks join as a large cluster has, and one of them fail; whether each had few links and all learnt of it.
pub fn world(place: &Place) -> Result<bool> {
    run(place, "2,048 ranks".to_owned(), "control::", &[("SHARDPLAN_RANKS", 2048)])
}

fn run(place: &Place, what: String, tests: &str, numbers: &[(&str, u32)]) -> Result<bool> {
    let torch = build::rank_tools(place)?;
    let _lock = place.lock_target(Target::Rank)?;
    let mut cargo = build::cargo_with(place, &torch);
    cargo
        .args(["test", "--release", "--package", "shardplan-rank", "--test", "executor"])
        .args(["--", "--nocapture", tests])
        .envs(numbers.iter().map(|(name, value)| (name, value.to_string())));
    timed(what, || process::watch(&mut cargo, |_| {}))
}
