//! The answer of a search: ranked rows, the front, counts, and what stands in the way of better ones.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::own::Own;
use super::room::{FitGroup, Margin};
use super::scope::Scope;
use super::settings::Settings;
use crate::json::by_field::by_field;
use crate::wire::{Chosen, Objective, PlanFile, Verdict};

/// The answer, version 1.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SearchAnswer {
    /// Format version: 1.
    pub version: u32,
    /// What was wanted.
    pub objective: Objective,
    /// Days within which all tokens should be trained, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_days: Option<f64>,
    /// What must stay free of a GPU's memory, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin: Option<Margin>,
    /// What was free, and what all plans have alike.
    pub scope: Scope,
    /// The best plans that fit, then the best tight ones, and the other way where the best that fits takes over twice as long. Within a group the best first: those that were simulated, and those
    /// whose steps have too many actions for it by the closed form, then others. Of plans that differ in nothing that is shown of them but a setting only the first.
    pub rows: Vec<Row>,
    /// Plans that fit (tight ones where none does) and that no other beats in step time, memory left and cost; fastest first.
    pub front: Vec<Row>,
    /// How many candidates there were, and what became of them.
    pub counts: Counts,
    /// The nearest plan that is faster than the best and does not fit, with what it lacks; none where only the first row was
    /// wanted.
    pub nearest: Option<Beyond>,
    /// Where nothing fits, or only just, what would; where no plan meets the deadline, on how many GPUs one does.
    pub relief: Option<Relief>,
    /// Of the first row, what was free, and what another value would cost; empty while the search goes on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chosen: Vec<Chosen>,
    /// Where the plan stands that was asked for, where that was looked up ([`SearchAnswer::own_of`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<Own>,
    /// What to know before the rows are trusted, each in a sentence.
    pub notes: Vec<String>,
    /// What was not looked at because the space is too large, in words.
    pub left_out: Vec<String>,
}

by_field! { open SearchAnswer { version, objective, rows, front, counts, left_out; deadline_days, margin, scope, nearest, relief, chosen, own, notes } }

impl SearchAnswer {
    /// What to look at first: the fastest, the one that costs least, the one with the most memory left, the one on fewest GPUs;
    /// of those that are the same plan only the first, the last only where the numbers of GPUs differ, and none that misses a deadline.
    /// A tight plan may be one where a tight one stands first; for memory and fewest GPUs only where nothing fits for sure, as objectives
    /// have it.
    pub fn bests(&self) -> Vec<(Objective, &Row)> {
        let in_time = |row: &&Row| row.missed(self.objective, self.deadline_days).is_none();
        let all = || self.rows.iter().chain(&self.front).filter(in_time);
        let fits = |row: &Row| row.group == FitGroup::Fits;
        let [speed, memory] = [self.rows.first().is_some_and(|first| !fits(first)), !all().any(fits)];
        let least = |tight: bool, of: fn(&Row) -> f64| {
            let allowed = all().filter(|row| tight || fits(row));
            allowed.min_by(|one, other| {
                of(one).total_cmp(&of(other)).then(one.step_seconds.total_cmp(&other.step_seconds))
            })
        };
        let alike = all().all(|row| self.rows.first().is_some_and(|first| first.gpus == row.gpus));
        let found = [
            (Objective::Fastest, self.rows.first()),
            (Objective::Cheapest, least(speed, |row| row.cost.unwrap_or(row.gpu_hours))),
            (Objective::MostHeadroom, least(memory, |row| -(row.headroom_bytes.unwrap_or_default() as f64))),
            (Objective::FewestGpus, least(memory, |row| row.gpus as f64).filter(|_| !alike)),
        ];
        let mut bests: Vec<(Objective, &Row)> = Vec::new();
        for (objective, row) in found.into_iter().filter_map(|(objective, row)| Some((objective, row?))) {
            if bests.iter().all(|(_, known)| known.settings != row.settings) {
                bests.push((objective, row));
            }
        }
        bests
    }

    /// Rows by group, in their order, each with the sentence that stands above it: what makes rows tight, and where those stand first,
    /// that others fit.
    pub fn by_group(&self) -> Vec<(Option<String>, &[Row])> {
        let groups = self.rows.chunk_by(|one, next| one.group == next.group).enumerate();
        groups
            .map(|(place, rows)| match rows.first().map(|row| row.group) {
                Some(FitGroup::Tight) => (Some(self.tight_in_words()), rows),
                _ if place > 0 => (Some("these fit for sure".to_owned()), rows),
                _ => (None, rows),
            })
            .collect()
    }

    /// What makes rows tight, in a sentence.
    pub fn tight_in_words(&self) -> String {
        let free = self.margin.map_or_else(String::new, |margin| {
            format!(", or less than the margin of {} stays free", margin.in_words())
        });
        let first = self.rows.first().is_some_and(|row| row.group == FitGroup::Tight);
        let only = match (self.counts.fitting, first) {
            (0, _) => "nothing fits for sure; these are tight",
            (_, true) => "tight, and first, for the best that fits for sure takes over twice as long",
            _ => "tight",
        };
        format!(
            "{only}: the predicted peak is within the GPU's memory, but the upper end of its likely range is not{free}"
        )
    }
}

/// A plan of an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Row {
    /// Place, from 1; places of the front are those by seconds.
    pub place: u64,
    /// Whether it is among the plans that fit, or among tight ones.
    pub group: FitGroup,
    /// What was chosen.
    pub settings: Settings,
    /// GPUs.
    pub gpus: u64,
    /// Seconds of a step: the simulation's where it was simulated, else the closed form's.
    pub step_seconds: f64,
    /// Whether it was simulated. One stage needs no simulation: there it is the closed form.
    pub simulated: bool,
    /// Seconds of a step by the closed form.
    pub closed_form_seconds: f64,
    /// Likely range of `step_seconds`: the closed form's, in proportion.
    pub interval_seconds: [f64; 2],
    /// Tokens per second and GPU.
    pub tokens_per_second_per_gpu: f64,
    /// Model FLOPs utilisation, where the GPU's peak is known.
    pub mfu: Option<f64>,
    /// Bytes that the fullest rank takes.
    pub peak_bytes: u64,
    /// Likely range of them.
    pub interval_bytes: [u64; 2],
    /// Bytes of the GPU that are left; none where its memory is not known.
    pub headroom_bytes: Option<i64>,
    /// The estimate's verdict: fits, or tight where the peak fits and the upper end of its likely range does not.
    pub verdict: Verdict,
    /// GPU hours of a step.
    pub gpu_hours: f64,
    /// Cost of a step, where a price is known.
    pub cost: Option<f64>,
    /// Days of training, where the plan says how many tokens.
    pub days: Option<f64>,
}

by_field! { open Row { place, group, settings, gpus, step_seconds, simulated, closed_form_seconds, interval_seconds, tokens_per_second_per_gpu, peak_bytes, interval_bytes, verdict, gpu_hours; mfu, headroom_bytes, cost, days } }

impl Row {
    /// Share of the GPU's memory that is left; none where its memory is not known.
    pub fn left_share(&self) -> Option<f64> {
        let left = self.headroom_bytes? as f64;
        Some(left / (self.peak_bytes as f64 + left))
    }

    /// Days that all tokens take, and those within which they should be trained; none where they are, or nobody asks for it.
    pub fn missed(&self, objective: Objective, deadline_days: Option<f64>) -> Option<[f64; 2]> {
        let wanted = deadline_days.filter(|_| objective == Objective::Deadline)?;
        let days = self.days.filter(|days| *days > wanted)?;
        Some([days, wanted])
    }

    /// The full plan file of this row, from the one that was searched for.
    pub fn apply(&self, file: &PlanFile) -> PlanFile {
        self.settings.apply(file)
    }
}

/// How many candidates there were.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Counts {
    /// In all: refused and valid.
    pub candidates: u64,
    /// Refused by a rule.
    pub refused: u64,
    /// By which, the most first.
    pub rules: Vec<RuleCount>,
    /// Valid by every rule. Each has its memory and step computed, or bounds on them that something beats.
    pub valid: u64,
    /// Of them, those that don't fit into the GPU's memory.
    pub too_large: u64,
    /// Of them, those whose step would never end.
    pub endless: u64,
    /// Of them, those that fit.
    pub fitting: u64,
    /// Of them, tight ones.
    pub tight: u64,
    /// Of them, those that were simulated.
    pub simulated: u64,
}

by_field! { open Counts { candidates, refused, rules, valid, too_large, endless, fitting, tight, simulated;  } }

/// Candidates that one rule refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RuleCount {
    /// The rule, and where it comes from.
    pub rule: String,
    /// How many.
    pub candidates: u64,
}

by_field! { open RuleCount { rule, candidates; } }

/// A plan that does not fit.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Beyond {
    /// What would have to be chosen.
    pub settings: Settings,
    /// Seconds of a step.
    pub step_seconds: f64,
    /// The best row's seconds over these.
    pub speedup: f64,
    /// Bytes that its fullest rank takes.
    pub peak_bytes: u64,
    /// Bytes that it lacks.
    pub missing_bytes: u64,
    /// What it would need, in a sentence.
    pub needs: String,
}

by_field! { open Beyond { settings, step_seconds, speedup, peak_bytes, missing_bytes, needs; } }

/// What would fit, where nothing does or only just.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Relief {
    /// The valid plan that takes the least memory; none where no candidate is valid, or some are tight.
    pub smallest: Option<Beyond>,
    /// Fields of which no plan has all these values, and of which none can be left out; empty where some plan is valid, or none
    /// is whatever they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contradiction: Vec<Pin>,
    /// Changes that help, each with a plan that works; the least change first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<Remedy>,
    /// All of it, each in a sentence; at least one, once it was looked for.
    pub suggestions: Vec<String>,
}

by_field! { open Relief { suggestions; smallest, contradiction, remedies } }

/// A field of the plan file and its value.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Pin {
    /// Path of the field.
    pub field: String,
    /// Its value.
    pub value: Value,
}

by_field! { open Pin { field, value; } }

/// A change with which some plan fits, or where nothing was valid is valid.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Remedy {
    /// What it is, in a sentence.
    pub said: String,
    /// What changes beside the layout.
    pub changes: Vec<Pin>,
    /// The best plan then.
    pub settings: Settings,
    /// Bytes that its fullest rank takes; none where only its validity was asked for.
    pub peak_bytes: Option<u64>,
    /// Seconds of its step, as its estimate says them; none where only its validity was asked for.
    pub step_seconds: Option<f64>,
    /// Whether the numbers that training computes change.
    pub changes_training: bool,
}

by_field! { open Remedy { said, changes, settings, changes_training; peak_bytes, step_seconds } }

/// Why a plan is not the best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhyNot {
    /// The best plan of those that were asked about; none where none is valid.
    pub settings: Option<Settings>,
    /// Seconds of a step, where it is valid.
    pub step_seconds: Option<f64>,
    /// Bytes that its fullest rank takes, where it is valid.
    pub peak_bytes: Option<u64>,
    /// What stands in the way or how far it is behind, each in a sentence.
    pub reasons: Vec<String>,
}
