//! The length of a step without looking at all of it: once every stage takes as long for a group of micro batches as for the group
//! before, so it goes on until no forward is left.

use super::{MAX_ACTIONS, SimulationError, Span, StageCosts, Timeline, action_count, simulate};
use crate::schedule::{ActionKind, Pipeline};

/// Difference of starts that rounding makes, as a share of the step.
const ROUNDING: f64 = 1e-12;

/// From the start of the first action to the end of the last, as [`simulate`] has it but for rounding.
///
/// # Errors
/// As [`simulate`].
pub fn simulated_length(pipeline: &Pipeline, costs: &StageCosts) -> Result<f64, SimulationError> {
    let few = action_count(pipeline) <= MAX_ACTIONS;
    match Rhythm::of(pipeline).filter(|_| few).and_then(|rhythm| rhythm.length(pipeline, costs)) {
        Some(seconds) => Ok(seconds),
        None => Ok(simulate(pipeline, costs)?.seconds),
    }
}

/// What comes again and again in the lists of a schedule of one forward and one backward in turn.
pub(super) struct Rhythm {
    /// Micro batches of a group.
    group: u64,
    /// Forwards of a stage in it.
    forwards: u64,
    /// Most forwards before the first backward of a stage.
    ahead: u64,
}

impl Rhythm {
    /// None for a schedule that has none.
    pub(super) fn of(pipeline: &Pipeline) -> Option<Rhythm> {
        let Pipeline { stages, chunks, .. } = *pipeline;
        let group = (pipeline.schedule.kind().rhythm?)(pipeline);
        let ahead = stages.saturating_mul(2).saturating_add(chunks.saturating_sub(1).saturating_mul(group));
        Some(Rhythm { group, forwards: group.saturating_mul(chunks).max(1), ahead })
    }

    /// By fewer micro batches, as many as it takes to find the rhythm; none where that is no less work.
    pub(super) fn length(&self, pipeline: &Pipeline, costs: &StageCosts) -> Option<f64> {
        let all = pipeline.microbatches / self.group;
        let needed = self.ahead.saturating_mul(2).saturating_add(self.group);
        let mut groups = needed.div_ceil(self.forwards).saturating_add(3);
        while groups.saturating_mul(2) <= all {
            let left_out = all - groups;
            let microbatches = pipeline.microbatches - left_out * self.group;
            let timeline = simulate(&Pipeline { microbatches, ..*pipeline }, costs).ok()?;
            if let Some(seconds) = self.seconds_of_group(&timeline, groups) {
                return Some(timeline.seconds + left_out as f64 * seconds);
            }
            groups *= 2;
        }
        None
    }

    /// Seconds of a group of micro batches, where all stages take the same for the last groups before no forward is left. What an
    /// action waits for began at most `ahead` forwards and a group before it; so if all of these come as long after those of the
    /// group before, what follows does too.
    fn seconds_of_group(&self, timeline: &Timeline, groups: u64) -> Option<f64> {
        let end = (groups * self.forwards) as usize;
        let first = end.checked_sub((self.ahead + self.group + 2) as usize)?;
        let mut seconds = None;
        for stage in &timeline.stages {
            let spans = &stage.spans;
            let is_forward = |span: &&Span| span.action.kind == ActionKind::Forward;
            let warmup = spans.iter().take_while(is_forward).count().checked_sub(1)?;
            // A pair is a forward and the backward after it.
            let from = warmup + 2 * first.checked_sub(warmup)?;
            let to = warmup + 2 * end.checked_sub(warmup)?;
            // Before the steady state there is no group to compare with.
            let earlier = from.checked_sub(2 * self.forwards as usize).filter(|at| *at >= warmup)?;
            for (one, other) in spans.get(earlier..)?.iter().zip(spans.get(from..to)?) {
                let (known, between) =
                    (*seconds.get_or_insert(other.start - one.start), other.start - one.start);
                if (known - between).abs() > ROUNDING * timeline.seconds {
                    return None;
                }
            }
        }
        seconds
    }
}
