//! Replays the corpora of the fuzz targets: every file under `tests/corpus/TARGET` goes through the property that the
//! target of this name checks.

// Tests read files and the clock, and print; what they test does neither.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

#[path = "corpus/properties.rs"]
mod properties;
#[path = "../../../tests/src/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn diagnose() {
    replay("diagnose", properties::diagnose);
}
