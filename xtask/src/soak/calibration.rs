//! How far a calibration of this machine carries: ten shapes that no probe has, predicted by the profile that the probes
//! gave. Figures are worth something on a machine that does nothing else.

use std::process::Command;

use anyhow::Result;

use crate::console::timed;
use crate::place::Place;
use crate::{build, process};

/// Measures, fits, measures again and prints; it takes about two minutes.
pub fn run(place: &Place) -> Result<()> {
    build::page(place, build::Build::Quick)?;
    build::worker(place, build::Build::Quick)?;
    let torch = build::rank(place)?;
    let mut calibrate = Command::new(place.programs().join("shardplan"));
    calibrate
        .args(["calibrate", "--ranks", "1", "--check", "--output"])
        .arg(place.programs().join("calibration.json"));
    calibrate.arg("--torch").arg(&torch.python);
    timed("calibrating, and predicting what no probe has", || process::run(&mut calibrate))
}
