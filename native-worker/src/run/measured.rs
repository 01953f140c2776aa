//! What the ranks of a run measured.

use planner::run::Done;
use run_folder::RunFolder;
use serde::Serialize;

/// What a run's ranks took at most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeasuredRun {
    /// Bytes that the fullest rank had allocated; 0 where that is not measured.
    pub peak_bytes: u64,
    /// Seconds of the last step.
    pub step_seconds: f64,
}

impl MeasuredRun {
    /// Of a run; none of one that did no step.
    pub fn of(folder: &RunFolder, world_size: u64) -> Option<MeasuredRun> {
        let ranks = (0..world_size).map(|rank| folder.rank(rank).done);
        let of_rank = |done: Done| {
            Some(MeasuredRun { peak_bytes: done.most_allocated_bytes, step_seconds: done.last_seconds? })
        };
        ranks.filter_map(of_rank).reduce(|one, other| MeasuredRun {
            peak_bytes: one.peak_bytes.max(other.peak_bytes),
            step_seconds: one.step_seconds.max(other.step_seconds),
        })
    }
}
