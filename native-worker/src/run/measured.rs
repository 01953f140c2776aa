//! What the ranks of a run measured.

use planner::run::{RankRecord, StepParts};
use planner::wire::Communication;
use run_folder::RunFolder;
use serde::Serialize;

/// What a run's ranks took at most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeasuredRun {
    /// Bytes that the fullest rank had allocated at most, in the attempt that it was started for last; 0 where that is not measured.
    pub peak_bytes: u64,
    /// Seconds of the last step.
    pub step_seconds: f64,
    /// Communication of the last step, on the rank whose computing waited for it longest; none where that is not measured.
    pub communication: Option<Communication>,
    /// Where the last step's time went on the rank that computed longest; none where that is not measured.
    pub parts: Option<StepParts>,
}

impl MeasuredRun {
    /// Of these ranks of a run, those that were started last; none where they did no step.
    pub fn of(folder: &RunFolder, ranks: Vec<u64>) -> Option<MeasuredRun> {
        let of_rank = |rank| {
            let RankRecord { done, last_step, .. } = folder.rank(rank);
            let last_step = last_step?;
            Some(MeasuredRun {
                peak_bytes: done.most_allocated_bytes,
                step_seconds: done.last_seconds?,
                communication: last_step.communication,
                parts: StepParts::measured(&last_step),
            })
        };
        ranks.into_iter().filter_map(of_rank).reduce(|one, other| MeasuredRun {
            peak_bytes: one.peak_bytes.max(other.peak_bytes),
            step_seconds: one.step_seconds.max(other.step_seconds),
            communication: most(one.communication, other.communication, |of| of.exposed_seconds),
            parts: one.parts.into_iter().chain(other.parts).reduce(StepParts::longest),
        })
    }
}

/// That of two ranks of which there is more.
fn most<T>(one: Option<T>, other: Option<T>, of: fn(&T) -> f64) -> Option<T> {
    one.into_iter().chain(other).max_by(|one, other| of(one).total_cmp(&of(other)))
}
