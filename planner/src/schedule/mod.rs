//! Pipeline schedules: what every stage computes, in which order, and what it sends to whom.
//!
//! A model is cut into virtual stages, `stages` x `chunks` of them; a stage holds one chunk of each round. A micro batch
//! goes forward through the virtual stages in order and backward through them in reverse. A schedule is one ordered list
//! of actions for each stage. Memory in flight, bubble, timeline and execution all come from these lists.
//!
//! Where the lists come from: 1F1B and interleaved from Megatron-Core (`pipeline_parallel/schedules.py`), GPipe, ZB-H1
//! and ZBV from torch (`torch.distributed.pipelining.schedules`) and the paper (Zero Bubble Pipeline Parallelism).

mod kinds;
mod lists;
mod live;
#[cfg(test)]
mod tests;
mod transfers;

pub use crate::wire::stage_step::{Action, ActionKind, Payload, StageStep, Transfer};
pub use kinds::{Chunks, ScheduleKind};
pub use lists::actions;
pub use live::{ChunkBytes, peak_bytes};
pub(crate) use live::{live_chunks, live_heads};
pub use transfers::{forward_steps, steps};

use crate::settings::Schedule;

/// What a schedule is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pipeline {
    /// The schedule.
    pub schedule: Schedule,
    /// Stages (pp).
    pub stages: u64,
    /// Model chunks of a stage (vpp); 2 for ZBV.
    pub chunks: u64,
    /// Micro batches of a step.
    pub microbatches: u64,
    /// Micro batches that the interleaved schedule takes through a chunk in a row.
    pub group_size: u64,
}

impl Pipeline {
    /// Virtual stages of the whole model.
    pub(crate) fn virtual_stages(&self) -> u64 {
        self.stages * self.chunks
    }

    /// The virtual stage that chunk `chunk` of `stage` is. Chunk 0 of all stages comes first, then chunk 1; under ZBV
    /// chunk 1 comes back in a V: the last stage holds the two in the middle, the first stage the first and the last.
    pub(crate) fn virtual_stage(&self, stage: u64, chunk: u64) -> u64 {
        virtual_stage(self.schedule, self.stages, stage, chunk)
    }

    /// The stage and the chunk that a virtual stage is.
    pub fn place(&self, virtual_stage: u64) -> (u64, u64) {
        let stages = self.stages.max(1);
        let (chunk, slot) = (virtual_stage / stages, virtual_stage % stages);
        let back = self.schedule.kind().in_v && !chunk.is_multiple_of(2);
        (if back { stages - 1 - slot } else { slot }, chunk)
    }
}

/// The virtual stage that chunk `chunk` of `stage` is, of `stages` stages.
pub(crate) fn virtual_stage(schedule: Schedule, stages: u64, stage: u64, chunk: u64) -> u64 {
    let back = schedule.kind().in_v && !chunk.is_multiple_of(2);
    chunk * stages + if back { stages.saturating_sub(stage + 1) } else { stage }
}
