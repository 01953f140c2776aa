//! Kills of one of eight ranks, more than the test command does: the same test, with other numbers.

use anyhow::Result;

use crate::console::timed;
use crate::lock::Lock;
use crate::place::{Place, Target};
use crate::{build, process};

/// Kills a rank `kills` times; whether every run ended in time and named it.
pub fn run(place: &Place, kills: u32, seed: u32) -> Result<bool> {
    let torch = build::rank_tools(place)?;
    let _lock = Lock::acquire(&place.target_lock(Target::Rank))?;
    let mut cargo = build::cargo_with(place, &torch);
    cargo
        .args(["test", "--release", "--package", "shardplan-rank", "--test", "executor"])
        .args(["--", "--nocapture", "kills::"])
        .env("SHARDPLAN_KILLS", kills.to_string())
        .env("SHARDPLAN_SEED", seed.to_string());
    timed(format!("killing one of eight ranks {kills} times"), || process::watch(&mut cargo, |_| {}))
}
