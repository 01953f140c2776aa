//! Where the plan that a search was asked for stands among its rows.

use serde::{Deserialize, Serialize};

use super::Search;
use super::answer::SearchAnswer;
use crate::memory;
use crate::plan::Plan;
use crate::time;
use crate::wire::{LayoutFile, PlanFile, Verdict};

/// Where the request's own plan stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

impl Search {
    /// Where the request's own plan stands; none where it says no layout, or there is no row that it could be held against.
    pub fn own(&self, answer: &SearchAnswer) -> Option<Own> {
        let file = &self.request.plan;
        let first = answer.rows.first().filter(|_| file.layout != LayoutFile::default())?;
        let Some(own) = Plan::resolve(file).plan else {
            let verdict = Verdict::Invalid;
            return Some(Own { place: None, verdict, step_seconds: None, peak_bytes: None, behind: None });
        };
        let is_own = |file: &PlanFile| {
            Plan::resolve(file).plan.is_some_and(|row| {
                (&row.layout, &row.training, &row.runtime) == (&own.layout, &own.training, &own.runtime)
                    && (row.cluster.gpu.id, row.cluster.nodes) == (own.cluster.gpu.id, own.cluster.nodes)
            })
        };
        let row = answer.rows.iter().find(|row| is_own(&row.apply(file)));
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
