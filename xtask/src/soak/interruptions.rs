//! Trainings that are interrupted: every framework in every way, which waits for minutes; the test command has a few of them.

use anyhow::Result;

use crate::build;
use crate::console::timed;
use crate::place::{Place, Target};
use crate::process;
use crate::test::Surroundings;

/// Interrupts them on a Slurm of two nodes; whether each went on from its own folder with nothing lost.
pub fn run(place: &Place) -> Result<bool> {
    Surroundings::find(place)?;
    let _lock = place.lock_target(Target::Native)?;
    let mut cargo = build::cargo(place, Target::Native);
    cargo
        .args(["test", "--package", "system-tests", "--test", "slurm"])
        .args(["--", "--nocapture", "goes_on::"])
        .env("SHARDPLAN_INTERRUPTIONS", "all");
    timed("trainings of every framework, interrupted in every way", || process::watch(&mut cargo, |_| {}))
}
