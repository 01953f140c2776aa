//! The largest searches in the page: how long they take, what they keep the page from, what they hold in memory.

use anyhow::Result;

use crate::console::timed;
use crate::place::{Place, Target};
use crate::{build, process};

/// Searches each of the largest spaces so many times in a browser; whether they came to the same and stayed small.
pub fn run(place: &Place, searches: u32) -> Result<bool> {
    build::page(place, build::Build::Full)?;
    build::worker(place, build::Build::Full)?;
    let _lock = place.lock_target(Target::Native)?;
    let mut cargo = build::cargo(place, Target::Native);
    cargo
        .args(["test", "--package", "system-tests", "--test", "browser"])
        .args(["--", "--nocapture", "search::what_searches_cost"])
        .env("SHARDPLAN_BIN_DIR", place.programs())
        .env("SHARDPLAN_SEARCHES", searches.to_string());
    timed(format!("{searches} searches of each of the largest spaces"), || process::watch(&mut cargo, |_| {}))
}
