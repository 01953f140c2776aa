//! The timeline of a step as ranks executed it.

use std::collections::BTreeMap;

use super::simulate::{Span, StageTimeline, Timeline};
use crate::schedule::{Pipeline, StageStep};
use crate::wire::Trace;

/// The timeline of the last step that the traces have of every stage, from one trace of each stage; none without
/// any. Each rank's clock starts at its own start of the step, so stages are as far apart as their starts were.
pub fn measured<'a>(pipeline: &Pipeline, traces: impl IntoIterator<Item = &'a Trace>) -> Option<Timeline> {
    let mut steps: BTreeMap<u64, BTreeMap<u64, &Trace>> = BTreeMap::new();
    for trace in traces.into_iter().filter(|trace| trace.stage < pipeline.stages) {
        steps.entry(trace.step).or_default().entry(trace.stage).or_insert(trace);
    }
    let most = steps.values().map(BTreeMap::len).max()?;
    let (_, stages) = steps.into_iter().rev().find(|(_, stages)| stages.len() == most)?;
    let mut lines = vec![StageTimeline::default(); usize::try_from(pipeline.stages).ok()?];
    for (stage, trace) in stages {
        lines[stage as usize] = stage_line(pipeline, trace);
    }
    let last = |line: &StageTimeline| line.spans.last().map_or(0.0, |span| span.free);
    let seconds = lines.iter().map(last).fold(0.0, f64::max);
    Some(Timeline { pipeline: *pipeline, stages: lines, seconds, transfer: 0.0 })
}

/// What a stage computed, each action with the sends that follow it. Times that are none, or go back, are left out.
fn stage_line(pipeline: &Pipeline, trace: &Trace) -> StageTimeline {
    let mut line = StageTimeline::default();
    let mut clock = 0.0f64;
    for step in &trace.steps {
        let (start, end) = (step.start, step.start + step.seconds);
        if !(start >= clock && end >= start && end.is_finite()) {
            continue;
        }
        match step.did {
            StageStep::Compute(action) if action.chunk < pipeline.chunks => {
                line.computing += end - start;
                line.spans.push(Span { action, start, end, free: end });
            }
            StageStep::Send(_) => {
                if let Some(span) = line.spans.last_mut() {
                    line.sending += end - start;
                    span.free = end;
                }
            }
            StageStep::Compute(_) | StageStep::Expect(_) | StageStep::Receive(_) => continue,
        }
        clock = end;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Action, ActionKind, Payload, Transfer};
    use crate::settings::Schedule;
    use crate::wire::TracedStep;

    fn trace(step: u64, stage: u64, steps: &[(StageStep, f64, f64)]) -> Trace {
        let traced = |&(did, start, seconds): &(StageStep, f64, f64)| TracedStep { did, start, seconds };
        Trace { step, stage, steps: steps.iter().map(traced).collect(), left_out: 0 }
    }

    #[test]
    fn traces_of_all_stages_are_a_timeline() {
        let pipeline =
            Pipeline { schedule: Schedule::OneFOneB, stages: 2, chunks: 1, microbatches: 1, group_size: 2 };
        let forward = StageStep::Compute(Action { kind: ActionKind::Forward, microbatch: 0, chunk: 0 });
        let backward = StageStep::Compute(Action { kind: ActionKind::Backward, microbatch: 0, chunk: 0 });
        let transfer = |peer| Transfer { payload: Payload::Activation, microbatch: 0, chunk: 0, peer };
        let first = [
            (forward, 0.0, 1.0),
            (StageStep::Send(transfer(1)), 1.0, 0.5),
            (StageStep::Receive(transfer(1)), 1.5, 3.5),
            (backward, 5.0, 2.0),
        ];
        let second = [(StageStep::Receive(transfer(0)), 0.0, 1.5), (forward, 1.5, 1.0), (backward, 2.5, 2.0)];
        // Of step 2, stage 1 has not written its trace yet.
        let traces = [trace(1, 0, &first), trace(1, 1, &second), trace(2, 0, &first), trace(1, 9, &first)];
        let line = measured(&pipeline, &traces).unwrap();
        assert_eq!((line.seconds, line.stages[0].spans[0].free, line.stages[0].sending), (7.0, 1.5, 0.5));
        assert_eq!((line.stages[1].spans.len(), line.idle(1)), (2, 4.0));
        assert_eq!(measured(&pipeline, &[]), None);
        let broken = [trace(1, 0, &[(forward, f64::NAN, 1.0), (forward, 2.0, -1.0), (forward, 1.0, 1.0)])];
        assert_eq!(measured(&pipeline, &broken).unwrap().stages[0].spans.len(), 1);
    }
}
