//! The length of a step without looking at all of it: once every stage takes as long for some groups of micro batches as for as many
//! before, so it goes on until no forward is left.

use super::{SimulationError, Span, StageCosts, Timeline, action_count, simulate};
use crate::schedule::{ActionKind, Pipeline};

/// Difference of starts that rounding makes, as a share of the step.
const ROUNDING: f64 = 1e-12;
/// Groups after which a rhythm is looked for at least, where one is of as many micro batches as there are stages.
const LEAST_LONGEST: u64 = 4;

/// From the start of the first action to the end of the last, as [`simulate`] has it but for rounding. Of `most` actions at most:
/// a step of more has to have a rhythm that shows in as many.
///
/// # Errors
/// As [`simulate`], and when the step has more than `most` actions that would have to be looked at.
pub(crate) fn simulated_length(
    pipeline: &Pipeline,
    costs: &StageCosts,
    most: u64,
) -> Result<f64, SimulationError> {
    if let Some(seconds) = Rhythm::of(pipeline).and_then(|rhythm| rhythm.length(pipeline, costs, most)) {
        return Ok(seconds);
    }
    let actions = action_count(pipeline);
    if actions > most {
        return Err(SimulationError::TooLong { actions });
    }
    Ok(simulate(pipeline, costs)?.seconds)
}

/// What comes again and again in the lists of a schedule of one forward and one backward in turn.
pub(super) struct Rhythm {
    /// Micro batches of a group.
    group: u64,
    /// Forwards of a stage in it.
    forwards: u64,
    /// Most forwards before the first backward of a stage.
    ahead: u64,
    /// Most groups after which it is looked for to come again: transfers make it as many micro batches as there are stages.
    longest: u64,
}

impl Rhythm {
    /// None for a schedule that has none.
    pub(super) fn of(pipeline: &Pipeline) -> Option<Rhythm> {
        let Pipeline { stages, chunks, .. } = *pipeline;
        let group = (pipeline.schedule.kind().rhythm?)(pipeline);
        let ahead = stages.saturating_mul(2).saturating_add(chunks.saturating_sub(1).saturating_mul(group));
        let forwards = group.saturating_mul(chunks).max(1);
        Some(Rhythm { group, forwards, ahead, longest: stages.div_ceil(group.max(1)).max(LEAST_LONGEST) })
    }

    /// By fewer micro batches, as many as it takes to find the rhythm; none where that is no less work, or takes more than `most`
    /// actions.
    pub(super) fn length(&self, pipeline: &Pipeline, costs: &StageCosts, most: u64) -> Option<f64> {
        let all = pipeline.microbatches / self.group;
        let needed = self.ahead.saturating_mul(2).saturating_add(self.group);
        let mut groups = needed.div_ceil(self.forwards).saturating_add(3).saturating_add(self.longest / 2);
        let of = |groups: u64| {
            let microbatches = pipeline.microbatches - (all - groups) * self.group;
            let short = Pipeline { microbatches, ..*pipeline };
            (action_count(&short) <= most).then(|| simulate(&short, costs).ok()).flatten()
        };
        while groups.saturating_mul(2) <= all {
            let timeline = of(groups)?;
            let found = (1..=self.longest)
                .find_map(|period| Some((period, self.seconds_of_period(&timeline, groups, period)?)));
            if let Some((period, seconds)) = found {
                // A whole number of periods is left out.
                let rest = (all - groups) % period;
                if rest == 0 {
                    return Some(timeline.seconds + ((all - groups) / period) as f64 * seconds);
                }
                let timeline = of(groups + rest)?;
                if let Some(seconds) = self.seconds_of_period(&timeline, groups + rest, period) {
                    return Some(timeline.seconds + ((all - groups - rest) / period) as f64 * seconds);
                }
            }
            groups += groups / 2;
        }
        None
    }

    /// Seconds of a period of so many groups of micro batches, where all stages take the same for the last ones before no forward is
    /// left. What an action waits for began at most `ahead` forwards and a group before it; so if all of these come as long after
    /// those of the period before, what follows does too.
    fn seconds_of_period(&self, timeline: &Timeline, groups: u64, period: u64) -> Option<f64> {
        let end = (groups * self.forwards) as usize;
        let first = end.checked_sub((self.ahead + self.group + 2) as usize)?;
        let before = (2 * self.forwards * period) as usize;
        let mut seconds = None;
        for stage in &timeline.stages {
            let spans = &stage.spans;
            let is_forward = |span: &&Span| span.action.kind == ActionKind::Forward;
            let warmup = spans.iter().take_while(is_forward).count().checked_sub(1)?;
            // A pair is a forward and the backward after it.
            let from = warmup + 2 * first.checked_sub(warmup)?;
            let to = warmup + 2 * end.checked_sub(warmup)?;
            // Before the steady state there is no period to compare with.
            let earlier = from.checked_sub(before).filter(|at| *at >= warmup)?;
            for (one, other) in spans.get(earlier..)?.iter().zip(spans.get(from..to)?) {
                let between = other.start - one.start;
                if (*seconds.get_or_insert(between) - between).abs() > ROUNDING * timeline.seconds {
                    return None;
                }
            }
        }
        seconds
    }
}
