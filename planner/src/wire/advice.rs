//! What would make a plan fit, and what the room of one that fits could buy.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Verdict;

/// Changes of a plan, each computed as the plan itself is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AdviceAnswer {
    /// Whether the plan fits as it is, with the margin free where one was asked for.
    pub fits: bool,
    /// Single changes that make the plan fit, the fastest first; of one that fits, those that lower its peak.
    pub savings: Vec<Advice>,
    /// Where no single change is enough, or each costs much time: several together that make it fit, the fastest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Advice>,
    /// Where no single change is enough: more GPUs on which it fits, by themselves or with one more change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_gpus: Vec<Advice>,
    /// Of a plan that does not fit: changes that lower its peak, and are not enough; the most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short: Vec<Advice>,
    /// For a plan that fits: changes that shorten its step and leave it fitting, the fastest first.
    pub headroom: Vec<Advice>,
}

/// A list of changes that have something in common.
#[derive(Debug, Clone, Copy)]
pub struct AdviceList<'a> {
    /// What it holds, in words.
    pub title: &'static str,
    /// Its changes.
    pub rows: &'a [Advice],
    /// Whether it is what this plan asks for: what makes it fit, or what its room could buy.
    pub wanted: bool,
}

impl AdviceList<'_> {
    /// Whether its changes take memory instead of saving some.
    pub fn takes(&self) -> bool {
        self.rows.iter().all(|advice| advice.saved_bytes <= 0)
    }
}

impl AdviceAnswer {
    /// The lists that hold something, each under a title that says what; what is wanted first.
    pub fn lists(&self) -> Vec<AdviceList<'_>> {
        let single = if self.fits { "What lowers the peak" } else { "Changes that make it fit" };
        let together = match self.savings.is_empty() {
            true => "No single change is enough: changes that together make it fit",
            false => "Changes that together make it fit, and cost less time",
        };
        let all: [(&str, &[Advice], bool); 5] = [
            ("What the room could buy", &self.headroom, true),
            (single, &self.savings, !self.fits),
            (together, &self.together, true),
            ("More GPUs that make it fit", &self.more_gpus, true),
            ("What lowers the peak, but is not enough", &self.short, false),
        ];
        let list = |(title, rows, wanted)| AdviceList { title, rows, wanted };
        all.into_iter().filter(|(_, rows, _)| !rows.is_empty()).map(list).collect()
    }

    /// Whether some change makes a plan fit that does not.
    pub fn makes_it_fit(&self) -> bool {
        !self.fits && [&self.savings, &self.together, &self.more_gpus].iter().any(|list| !list.is_empty())
    }

    /// Everything that lowers the peak, what makes the plan fit first.
    pub fn lowering(&self) -> impl Iterator<Item = &Advice> {
        self.savings.iter().chain(&self.together).chain(&self.more_gpus).chain(&self.short)
    }
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
    /// Whether it fits then, with the margin free where one was asked for.
    pub verdict: Verdict,
    /// GPUs that it has then.
    pub gpus: u64,
    /// Seconds of a step then, as the changed plan's answer says them; none where none can be told.
    pub step_seconds: Option<f64>,
    /// Likely range of them.
    pub interval_seconds: Option<[f64; 2]>,
    /// Those over the plan's own, as a factor.
    pub step_ratio: Option<f64>,
    /// Parts of the step that get longer by a thousandth of it or more, the longest first.
    pub costs: Vec<StepCost>,
    /// FLOPs that a rank computes again in a step beyond what it does now.
    pub extra_flops_per_rank: f64,
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
