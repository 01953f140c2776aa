//! Replays the corpora of the fuzz targets: every file under `tests/corpus/TARGET` goes through the property that the
//! target of this name checks.

// Tests read files and the clock, and print; what they test does neither.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

#[path = "corpus/properties.rs"]
mod properties;
#[path = "../../tests/src/replay.rs"]
mod replay;

use replay::replay;

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
