//! Micro batches in flight, counted from the list and in closed form.
//!
//! A chunk of a micro batch is live from its forward to the end of its backward. Where backward is split it is live
//! until its weight gradients are made: input gradients alone free a part only, which `peak_bytes` knows. So the counts
//! of ZB-H1 and ZBV are of micro batches of which anything is kept: for ZB-H1 that is the same number on every stage
//! (the paper's "memory of 1F1B" is the largest of 1F1B's stages), not 1F1B's number of that stage.

use super::lists::{actions, interleaved_warmup};
use super::{Action, ActionKind, Pipeline};
use crate::wire::Schedule;

/// The most chunks that are live at once in a list.
pub fn peak_live(list: &[Action]) -> u64 {
    let (mut live, mut most) = (0u64, 0);
    for action in list {
        match action.kind {
            ActionKind::Forward => live += 1,
            ActionKind::Backward | ActionKind::BackwardWeight => live = live.saturating_sub(1),
            ActionKind::BackwardInput => {}
        }
        most = most.max(live);
    }
    most
}

/// What `peak_live` counts in the list of `stage`, without making the list.
pub fn live_chunks(pipeline: &Pipeline, stage: u64) -> u64 {
    let Pipeline { stages, chunks, microbatches, .. } = *pipeline;
    if stages <= 1 && chunks <= 1 {
        return microbatches.min(1);
    }
    let total = microbatches.saturating_mul(chunks);
    match pipeline.schedule {
        Schedule::Gpipe => microbatches,
        Schedule::OneFOneB => microbatches.min(stages.saturating_sub(stage)),
        Schedule::Interleaved => total.min(interleaved_warmup(pipeline, stage) + 1),
        Schedule::ZbH1 => microbatches.min(stages),
        // Of fewer micro batches than the V is made for, the list is short and irregular.
        Schedule::Zbv if microbatches + 1 < 2 * stages => peak_live(&actions(pipeline, stage)),
        Schedule::Zbv => 2 * stages,
    }
}

/// The most micro batches of which the model's last chunk, with the loss, is live at once: one where its backward follows
/// its forward. That is not so in GPipe, in ZB-H1, whose last stage puts weight gradients off, and in the interleaved
/// schedule's last group when it is smaller than the others: then forwards run ahead.
pub fn live_heads(pipeline: &Pipeline) -> u64 {
    let Pipeline { stages, chunks, microbatches, group_size, .. } = *pipeline;
    match pipeline.schedule {
        Schedule::Interleaved if microbatches > group_size => {
            let rest = microbatches.checked_rem(group_size).unwrap_or(0);
            rest.min(chunks.saturating_sub(1).saturating_mul(group_size - rest) + 1).max(1)
        }
        Schedule::Gpipe if stages > 1 => microbatches,
        Schedule::ZbH1 => microbatches.min(stages),
        _ => microbatches.min(1),
    }
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
    pub fn shortened(&self) -> Pipeline {
        let microbatches = match self.schedule {
            Schedule::Gpipe if self.stages > 1 => self.microbatches,
            Schedule::Interleaved => {
                let group = self.group_size.max(1);
                let rounds = 4 + (2 * self.stages).div_ceil(group);
                self.microbatches.min(rounds.saturating_mul(group).saturating_add(self.microbatches % group))
            }
            _ => self.microbatches.min(4 * self.stages),
        };
        Pipeline { microbatches, ..*self }
    }
}
