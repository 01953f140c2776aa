//! Micro batches whose activations are alive at once, chunk by chunk of a stage.

use crate::plan::Plan;
use crate::schedule::{self, Pipeline};

/// Model chunks (of layers / (pp vpp) each) whose activations are alive at once on `stage`, and chunks of a stage.
pub(crate) fn live_chunks(plan: &Plan, stage: u64) -> (u64, u64) {
    (schedule::live_chunks(&plan.pipeline(), stage), plan.layout.vpp.max(1))
}

/// Micro batches of chunk `chunk` of a stage among so many live chunks: those whose forward comes first.
pub(crate) fn live_of_chunk(pipeline: &Pipeline, live: u64, chunk: u64) -> u64 {
    let chunks = pipeline.chunks.max(1);
    let group = pipeline.round();
    let (rounds, rest) = (live / (group * chunks), live % (group * chunks));
    rounds * group + rest.saturating_sub(chunk * group).min(group)
}
