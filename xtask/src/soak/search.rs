//! Searches and choices in the page: how long they take, and what they keep the page from.

use anyhow::Result;

use crate::console::timed;
use crate::place::{Place, Target};
use crate::{build, process};

/// Searches each of the largest spaces so many times in a browser; whether they came to the same and stayed small.
pub fn run(place: &Place, searches: u32) -> Result<bool> {
    let what = format!("{searches} searches of each of the largest spaces");
    in_page(place, &what, "search::what_searches_cost", ("SHARDPLAN_SEARCHES", searches.to_string()))
}

/// Has the page choose a plan for each model on each cluster, and prints how soon; whether each was answered.
pub fn choices(place: &Place, gpus: &[String], nodes: &[u64]) -> Result<bool> {
    let clusters = gpus.iter().flat_map(|gpu| nodes.iter().map(move |nodes| format!("{gpu}:{nodes}")));
    let clusters = clusters.collect::<Vec<_>>().join(",");
    in_page(place, "choices in the page", "choose::what_choices_take", ("SHARDPLAN_CHOICES", clusters))
}

/// Runs a test of the browser's in the page as it is published, told what it is to do.
fn in_page(place: &Place, what: &str, test: &str, told: (&str, String)) -> Result<bool> {
    build::page(place, build::Build::Full)?;
    build::worker(place, build::Build::Full)?;
    let _lock = place.lock_target(Target::Native)?;
    let mut cargo = build::cargo(place, Target::Native);
    cargo
        .args(["test", "--package", "system-tests", "--test", "browser"])
        .args(["--", "--nocapture", test])
        .env("SHARDPLAN_BIN_DIR", place.programs())
        .env(told.0, told.1);
    timed(what, || process::watch(&mut cargo, |_| {}))
}
