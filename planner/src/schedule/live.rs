//! Micro batches in flight, counted from the list and in closed form.
//!
//! A chunk of a micro batch is live from its forward to the end of its backward. Where backward is split it is live
//! until its weight gradients are made: input gradients alone free a part only, which `peak_bytes` knows. So the counts
//! of ZB-H1 and ZBV are of micro batches of which anything is kept: for ZB-H1 that is the same number on every stage
//! (the paper's "memory of 1F1B" is the largest of 1F1B's stages), not 1F1B's number of that stage.

use super::lists::actions;
use super::{Action, ActionKind, Pipeline};

/// Chunks that are live after some actions of a stage.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Live {
    now: u64,
    /// The most at once.
    pub most: u64,
}

impl Live {
    /// The next action.
    pub(super) fn see(&mut self, action: &Action) {
        match action.kind {
            ActionKind::Forward => self.now += 1,
            ActionKind::Backward | ActionKind::BackwardWeight => self.now = self.now.saturating_sub(1),
            ActionKind::BackwardInput => {}
        }
        self.most = self.most.max(self.now);
    }
}

/// The most chunks that are live at once in a list.
#[cfg(test)]
pub(crate) fn peak_live(list: &[Action]) -> u64 {
    let mut live = Live::default();
    list.iter().for_each(|action| live.see(action));
    live.most
}

/// What `peak_live` counts in the list of `stage`, without making the list.
pub(crate) fn live_chunks(pipeline: &Pipeline, stage: u64) -> u64 {
    let Pipeline { stages, chunks, microbatches, .. } = *pipeline;
    if stages <= 1 && chunks <= 1 {
        return microbatches.min(1);
    }
    (pipeline.schedule.kind().live)(pipeline, stage)
}

/// The most micro batches of which the model's last chunk, with the loss, is live at once: one where its backward follows
/// its forward. That is not so in GPipe, in ZB-H1, whose last stage puts weight gradients off, and in the interleaved
/// schedule's last group when it is smaller than the others: then forwards run ahead.
pub(crate) fn live_heads(pipeline: &Pipeline) -> u64 {
    (pipeline.schedule.kind().heads)(pipeline)
}

/// What one chunk of a stage keeps for one micro batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkBytes {
    /// From its forward on.
    pub saved: u128,
    /// From its `BackwardInput` to its `BackwardWeight`: inputs of matrices, and gradients of their outputs.
    pub kept_for_weights: u128,
}

/// The most bytes that the live chunks of a stage keep together, over the whole list; `chunks` are the stage's, in order.
pub fn peak_bytes(pipeline: &Pipeline, stage: u64, chunks: &[ChunkBytes]) -> u128 {
    let of = |action: &Action| chunks.get(action.chunk as usize).copied().unwrap_or_default();
    let (mut live, mut most) = (0u128, 0);
    for action in actions(&pipeline.shortened(), stage) {
        let bytes = of(&action);
        match action.kind {
            ActionKind::Forward => live += bytes.saved,
            ActionKind::Backward => live = live.saturating_sub(bytes.saved),
            ActionKind::BackwardInput => live = live.saturating_sub(bytes.saved) + bytes.kept_for_weights,
            ActionKind::BackwardWeight => live = live.saturating_sub(bytes.kept_for_weights),
        }
        most = most.max(live);
    }
    most
}

impl Pipeline {
    /// The same pipeline with as few micro batches as show all that a longer step does: warm-up, two rounds of the
    /// steady state, cool-down. GPipe has no steady state and is not shortened.
    pub(crate) fn shortened(&self) -> Pipeline {
        let microbatches = (self.schedule.kind().telling)(self);
        Pipeline { microbatches, ..*self }
    }
}

impl Pipeline {
    /// Micro batches that go through a chunk before the next chunk's first does.
    pub fn round(&self) -> u64 {
        (self.schedule.kind().round)(self).max(1)
    }
}
