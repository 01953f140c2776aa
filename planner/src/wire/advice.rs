//! What would make a plan fit, and what the room of one that fits could buy.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Verdict;

/// Changes of a plan, each computed as the plan itself is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AdviceAnswer {
    /// Changes that lower the fullest rank's peak: first those after which the plan fits, the fastest first.
    pub savings: Vec<Advice>,
    /// For a plan that fits: changes that shorten its step and leave it fitting, the fastest first.
    pub headroom: Vec<Advice>,
}

/// One change, or several that are needed together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What it does, in words.
    pub title: String,
    /// The fields of the plan file to set, as they are read by a plan file's rules; null is a field's default.
    pub changes: Vec<Change>,
    /// Bytes that the fullest rank takes less; negative when it takes more.
    pub saved_bytes: i64,
    /// What the fullest rank takes then.
    pub peak_bytes: u64,
    /// Likely range of that.
    pub interval_bytes: [u64; 2],
    /// Stage of the rank that is the fullest then.
    pub stage: u64,
    /// Whether it fits then.
    pub verdict: Verdict,
    /// Seconds of a step then, without copies to and from the host; none where none can be told.
    pub step_seconds: Option<f64>,
    /// Those over the plan's own, as a factor.
    pub step_ratio: Option<f64>,
    /// Parts of the step that get longer by a thousandth of it or more, the longest first.
    pub costs: Vec<StepCost>,
    /// FLOPs that a rank computes again in a step beyond what it does now.
    pub extra_flops_per_rank: f64,
    /// Bytes that a rank copies to or from its host in a step beyond what it does now.
    pub host_bytes: u64,
    /// Seconds of those copies when nothing hides them.
    pub host_seconds: f64,
    /// Whether the numbers that training computes change: rounding, dropped tokens.
    pub changes_training: bool,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// A field of the plan file and its new value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Path of the field.
    pub field: String,
    /// What it is now, with its default filled in.
    pub from: Value,
    /// What it would be; null for the default.
    pub to: Value,
}

/// A part of the step that a change makes longer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepCost {
    /// Name of the part, as in the breakdown.
    pub part: String,
    /// Seconds that it takes longer.
    pub seconds: f64,
}
