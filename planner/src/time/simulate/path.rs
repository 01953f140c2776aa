//! The critical path: the chain of actions that makes the step as long as it is.

use super::{Span, Timeline};
use crate::schedule::{Action, ActionKind};

/// An action on the critical path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathStep {
    /// Its stage.
    pub stage: usize,
    /// Its place in the stage's list.
    pub position: usize,
}

impl Timeline {
    /// The chain of actions that ends with the step, from its start: each starts when the one before it allows it. Where
    /// an action waited for nothing but the one before it on its stage, that is the one.
    pub fn critical_path(&self) -> Vec<PathStep> {
        let places = Places::of(self);
        let ends = self.stages.iter().enumerate().filter_map(|(stage, line)| {
            Some((stage, line.spans.len().checked_sub(1)?, line.spans.last()?.free))
        });
        let mut last: Option<(usize, usize, f64)> = None;
        for end in ends {
            if last.is_none_or(|last| end.2 > last.2) {
                last = Some(end);
            }
        }
        let mut path = Vec::new();
        let mut here = last.map(|(stage, position, _)| PathStep { stage, position });
        while let Some(link) = here {
            path.push(link);
            let spans = &self.stages[link.stage].spans;
            let span = &spans[link.position];
            let before =
                link.position.checked_sub(1).map(|position| PathStep { stage: link.stage, position });
            let waited = before.is_none_or(|before| spans[before.position].free < span.start);
            here = if waited { self.waited_for(link, span, &places) } else { before };
        }
        path.reverse();
        path
    }

    /// The action of a neighbour that this one waited for.
    fn waited_for(&self, link: PathStep, span: &Span, places: &Places) -> Option<PathStep> {
        let after = match span.action.kind {
            ActionKind::Forward => false,
            ActionKind::Backward | ActionKind::BackwardInput => true,
            ActionKind::BackwardWeight => return None,
        };
        let (stage, chunk) = self.pipeline.neighbour(link.stage as u64, span.action.chunk, after)?;
        let table = if after { &places.backwards } else { &places.forwards };
        let position = *table.get(places.index(stage, chunk, span.action.microbatch))?;
        (position != Places::NONE).then_some(PathStep { stage: stage as usize, position: position as usize })
    }
}

/// Where each forward and each backward stands in its stage's list.
struct Places {
    chunks: u64,
    microbatches: u64,
    forwards: Vec<u32>,
    backwards: Vec<u32>,
}

impl Places {
    const NONE: u32 = u32::MAX;

    fn of(timeline: &Timeline) -> Places {
        let pipeline = &timeline.pipeline;
        let count = (pipeline.virtual_stages() * pipeline.microbatches) as usize;
        let mut places = Places {
            chunks: pipeline.chunks,
            microbatches: pipeline.microbatches,
            forwards: vec![Places::NONE; count],
            backwards: vec![Places::NONE; count],
        };
        for (stage, line) in timeline.stages.iter().enumerate() {
            for (position, span) in line.spans.iter().enumerate() {
                let Action { kind, microbatch, chunk } = span.action;
                let index = places.index(stage as u64, chunk, microbatch);
                match kind {
                    ActionKind::Forward => places.forwards[index] = position as u32,
                    ActionKind::Backward | ActionKind::BackwardInput => {
                        places.backwards[index] = position as u32;
                    }
                    ActionKind::BackwardWeight => {}
                }
            }
        }
        places
    }

    fn index(&self, stage: u64, chunk: u64, microbatch: u64) -> usize {
        ((stage * self.chunks + chunk) * self.microbatches + microbatch) as usize
    }
}
