//! Hostile values in every field of a script, more than the test command has: the same test, with another number.

use anyhow::Result;

use crate::console::timed;
use crate::place::{Place, Target};
use crate::{build, process};

/// Tries `cases` random values in every field; whether none was executed and none was changed.
pub fn run(place: &Place, cases: u32) -> Result<bool> {
    let _lock = place.lock_target(Target::Native)?;
    let mut cargo = build::cargo(place, Target::Native);
    cargo
        .args(["test", "--package", "system-tests", "--test", "processes"])
        .args(["--", "--nocapture", "scripts::hostile::no_value"])
        .env("PROPTEST_CASES", cases.to_string());
    timed(format!("{cases} hostile values in every field of a script"), || process::watch(&mut cargo, |_| {}))
}
