//! Replays the corpora of the fuzz targets: every file under `tests/corpus/TARGET` goes through the property that the
//! target of this name checks.

// Tests read files and the clock, and print; planner itself does neither.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

#[path = "corpus/properties.rs"]
mod properties;

use std::path::Path;
use std::time::{Duration, Instant};

/// Longest that one file may take. A usual one takes milliseconds; this leaves room for a slow, busy machine.
const LONGEST: Duration = Duration::from_secs(20);

fn replay(target: &str, property: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        // Shown when the property fails.
        println!("{}", file.display());
        let start = Instant::now();
        property(&bytes);
        assert!(start.elapsed() < LONGEST, "{} takes {:?}", file.display(), start.elapsed());
    }
}

#[test]
fn hf_config() {
    replay("hf_config", properties::hf_config);
}

#[test]
fn layout_string() {
    replay("layout_string", properties::layout_string);
}

#[test]
fn plan_file() {
    replay("plan_file", properties::plan_file);
}

#[test]
fn link() {
    replay("link", properties::link);
}

#[test]
fn diagnose() {
    replay("diagnose", properties::diagnose);
}

#[test]
fn lint() {
    replay("lint", properties::lint);
}
