//! Calibration: what a machine was measured to do, as factors on the constants of the time model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::by_field::by_field;
use crate::settings::Precision;

/// A calibration profile: what `shardplan calibrate` writes. Unknown fields are refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationFile {
    /// Format version: 1.
    pub version: u32,
    /// What a plan carries of it (`software.calibration`).
    pub calibration: Calibration,
    /// How well it fits.
    pub fit: CalibrationFit,
    /// What it was fitted to.
    pub points: Vec<CalibrationPoint>,
}

/// Factors on the constants of the time model, and what they hold for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// What was measured, in words.
    pub name: String,
    /// GPU of the catalogue, or `cpu`.
    pub gpu: String,
    /// Software profile whose constants the factors are on.
    pub profile: String,
    /// Compute type that was measured.
    pub dtype: Precision,
    /// Cores of a node where ranks are CPU processes, which share them; 0 on GPUs.
    pub cores: u64,
    /// By name of a part of the machine: what multiplies its constants.
    pub factors: BTreeMap<String, f64>,
    /// Spread of the logarithm of measured over predicted on steps that the fit had not seen.
    pub spread: f64,
}

/// How well factors fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationFit {
    /// Measured steps.
    pub points: u64,
    /// Median of |predicted / measured - 1| before.
    pub median_before: f64,
    /// The same with the factors.
    pub median: f64,
    /// The largest.
    pub max: f64,
    /// The same for steps that were left out, each predicted by factors fitted to the others; none with one point.
    pub median_held_out: Option<f64>,
    /// The largest of those.
    pub max_held_out: Option<f64>,
}

/// One measured layout.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CalibrationPoint {
    /// Which.
    pub name: String,
    /// Ranks.
    pub ranks: u64,
    /// Seconds of a step: the median of the later half of its steps.
    pub measured: f64,
    /// Predicted without the factors.
    pub before: f64,
    /// Predicted with them.
    pub fitted: f64,
    /// Predicted by factors fitted to the other points; none with one point.
    pub held_out: Option<f64>,
}

by_field! { CalibrationPoint { name, ranks, measured, before, fitted; held_out } }
