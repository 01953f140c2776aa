//! What the ranks of a run measured.

use planner::run::RankRecord;
use planner::wire::Communication;
use run_folder::RunFolder;
use serde::Serialize;

/// What a run's ranks took at most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeasuredRun {
    /// Bytes that the fullest rank had allocated; 0 where that is not measured.
    pub peak_bytes: u64,
    /// Seconds of the last step.
    pub step_seconds: f64,
    /// Communication of the last step, on the rank whose computing waited for it longest; none where that is not measured.
    pub communication: Option<Communication>,
}

impl MeasuredRun {
    /// Of these ranks of a run, those that were started last; none where they did no step.
    pub fn of(folder: &RunFolder, ranks: Vec<u64>) -> Option<MeasuredRun> {
        let of_rank = |rank| {
            let RankRecord { done, last_step, .. } = folder.rank(rank);
            Some(MeasuredRun {
                peak_bytes: done.most_allocated_bytes,
                step_seconds: done.last_seconds?,
                communication: last_step?.communication,
            })
        };
        ranks.into_iter().filter_map(of_rank).reduce(|one, other| MeasuredRun {
            peak_bytes: one.peak_bytes.max(other.peak_bytes),
            step_seconds: one.step_seconds.max(other.step_seconds),
            communication: longer(one.communication, other.communication),
        })
    }
}

fn longer(one: Option<Communication>, other: Option<Communication>) -> Option<Communication> {
    let exposed = |of: &Communication| of.exposed_seconds;
    one.into_iter().chain(other).max_by(|one, other| exposed(one).total_cmp(&exposed(other)))
}
