//! What the actions of a step cost.

use super::SimulationError;
use crate::schedule::Pipeline;

/// Seconds that one chunk of one stage takes for one micro batch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ChunkSeconds {
    /// Forward.
    pub forward: f64,
    /// Gradient of its input, with what is recomputed for it.
    pub backward_input: f64,
    /// Gradients of its weights. A whole backward takes this and `backward_input`.
    pub backward_weight: f64,
}

impl ChunkSeconds {
    /// Seconds of a whole backward.
    pub fn backward(&self) -> f64 {
        self.backward_input + self.backward_weight
    }

    /// By `ActionKind`, in its order.
    pub(super) fn by_kind(&self) -> [f64; 4] {
        [self.forward, self.backward(), self.backward_input, self.backward_weight]
    }
}

/// Seconds of every action of a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StageCosts {
    /// Of every chunk of every stage: chunk `c` of stage `s` is at `s * chunks + c`.
    pub chunks: Vec<ChunkSeconds>,
    /// Seconds of one transfer between two stages.
    pub transfer: f64,
    /// Share of a transfer in which its sender can't compute: 1 where sends are not overlapped.
    pub exposed: f64,
}

impl StageCosts {
    /// Equal chunks on all stages.
    pub fn uniform(pipeline: &Pipeline, seconds: ChunkSeconds) -> StageCosts {
        let count = pipeline.virtual_stages() as usize;
        StageCosts { chunks: vec![seconds; count], transfer: 0.0, exposed: 0.0 }
    }

    /// Refuses what does not fit the pipeline or is no duration.
    pub(super) fn check(&self, pipeline: &Pipeline) -> Result<(), SimulationError> {
        let wanted = pipeline.stages.saturating_mul(pipeline.chunks);
        let found = self.chunks.len() as u64;
        if found != wanted {
            return Err(SimulationError::Costs { wanted, found });
        }
        let all = self.chunks.iter().flat_map(|chunk| chunk.by_kind()).chain([self.transfer, self.exposed]);
        match all.into_iter().find(|seconds| !seconds.is_finite() || *seconds < 0.0) {
            Some(seconds) => Err(SimulationError::Seconds { seconds }),
            None => Ok(()),
        }
    }
}
