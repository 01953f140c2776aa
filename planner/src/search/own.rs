//! Where the plan that a search was asked for stands among its rows.

use serde::Serialize;

use super::answer::SearchAnswer;
use crate::json::by_field::by_field;
use crate::memory;
use crate::plan::Plan;
use crate::time;
use crate::units::Bytes;
use crate::wire::{LayoutFile, PlanFile, Verdict};

/// Where a plan stands, such as the one that a search was asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Own {
    /// Place of the row that is this plan; none where no row is.
    pub place: Option<u64>,
    /// Whether it fits.
    pub verdict: Verdict,
    /// Seconds of its step, as its row says them, else as a simulation does; none where they are not known.
    pub step_seconds: Option<f64>,
    /// Bytes that its fullest rank takes; none where the plan is invalid.
    pub peak_bytes: Option<u64>,
    /// Share of the first row's seconds that its step takes longer; below 0 where it takes less.
    pub behind: Option<f64>,
}

by_field! { open Own { verdict; place, step_seconds, peak_bytes, behind } }

impl SearchAnswer {
    /// Where a plan stands; none where it says no layout, or there is no row that it could be held against.
    pub fn own_of(&self, file: &PlanFile) -> Option<Own> {
        let first = self.rows.first().filter(|_| file.layout != LayoutFile::default())?;
        let Some(own) = Plan::judge(file).plan else {
            let verdict = Verdict::Invalid;
            return Some(Own { place: None, verdict, step_seconds: None, peak_bytes: None, behind: None });
        };
        let is_own = |file: &PlanFile| {
            Plan::judge(file).plan.is_some_and(|row| {
                (&row.layout, &row.training, &row.runtime) == (&own.layout, &own.training, &own.runtime)
                    && (row.cluster.gpu.id, row.cluster.nodes) == (own.cluster.gpu.id, own.cluster.nodes)
            })
        };
        let row = self.rows.iter().find(|row| is_own(&row.apply(file)));
        let (step_seconds, peak_bytes, verdict) = match row {
            Some(row) => (Some(row.step_seconds), row.peak_bytes, row.verdict),
            None => {
                let memory = memory::answer(&own);
                let step_seconds = time::simulated_answer(&own).0.map(|time| time.step_seconds);
                (step_seconds, memory.peak_bytes, memory.verdict)
            }
        };
        let behind = step_seconds.map(|seconds| seconds / first.step_seconds - 1.0);
        let place = row.map(|row| row.place);
        Some(Own { place, verdict, step_seconds, peak_bytes: Some(peak_bytes), behind })
    }
}

impl Own {
    /// In words, such as `row 3, 1.2 % slower than row 1`.
    pub fn in_words(&self) -> String {
        let percent = 100.0 * self.behind.unwrap_or(0.0);
        match self.place {
            Some(1) => "row 1".to_owned(),
            Some(place) if percent < 0.0 && self.verdict == Verdict::Tight => {
                format!(
                    "row {place}, {:.1} % faster than row 1, but tight: plans that fit stand first",
                    -percent
                )
            }
            Some(place) if percent < 0.0 => format!(
                "row {place}, {:.1} % faster than row 1, which is less than the time model can tell: of such plans the simplest stands first",
                -percent
            ),
            Some(place) => format!("row {place}, {percent:.1} % slower than row 1"),
            None => {
                let room = match self.verdict {
                    Verdict::Invalid => return "none of these rows: it is invalid".to_owned(),
                    Verdict::No => ", which does not fit",
                    Verdict::Tight => ", which is tight",
                    Verdict::Fits => "",
                };
                let seconds = match self.step_seconds {
                    Some(seconds) if percent < 0.0 => {
                        format!("{seconds:.3} s, {:.1} % faster than row 1", -percent)
                    }
                    Some(seconds) => format!("{seconds:.3} s, {percent:.1} % slower than row 1"),
                    None => "a step of unknown length".to_owned(),
                };
                let peak = self
                    .peak_bytes
                    .map_or_else(String::new, |bytes| format!(", {}", Bytes(bytes).in_words()));
                format!("none of these rows: {seconds}{peak}{room}")
            }
        }
    }
}
