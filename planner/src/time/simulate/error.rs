//! Why a step can't be simulated.

use super::MAX_ACTIONS;
use crate::schedule::{Action, ActionKind, Pipeline};

/// Why a step can't be simulated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// More actions than are simulated.
    #[error(
        "the step has {actions} actions and {MAX_ACTIONS} are simulated at most; use fewer micro batches"
    )]
    TooLong {
        /// Actions of all stages.
        actions: u64,
    },
    /// Costs for another number of chunks.
    #[error("costs are given for {found} chunks and the pipeline has {wanted}")]
    Costs {
        /// Virtual stages of the pipeline.
        wanted: u64,
        /// Entries given.
        found: u64,
    },
    /// A duration that is none.
    #[error("{seconds} is no duration; seconds are finite and not negative")]
    Seconds {
        /// The value.
        seconds: f64,
    },
    /// Lists for another number of stages.
    #[error("{found} lists are given and the pipeline has {wanted} stages")]
    Lists {
        /// Stages of the pipeline.
        wanted: u64,
        /// Lists given.
        found: u64,
    },
    /// An action on a micro batch or chunk that the step does not have.
    #[error(
        "action {position} of stage {stage} is {}, and the step has {microbatches} micro batches and {chunks} chunks a stage",
        words(.action)
    )]
    Outside {
        /// The stage.
        stage: u64,
        /// Its place in the list.
        position: u64,
        /// The action.
        action: Action,
        /// Micro batches of the step.
        microbatches: u64,
        /// Chunks of a stage.
        chunks: u64,
    },
    /// A list that waits for ever.
    #[error(
        "stage {stage} waits for ever before action {position} of its list, {}: what it needs is never made before it",
        words(.action)
    )]
    Deadlock {
        /// The first stage that waits.
        stage: u64,
        /// Place of the action in its list.
        position: u64,
        /// The action that can't start.
        action: Action,
    },
}

/// An action in words: `forward of micro batch 3, chunk 0`.
fn words(action: &Action) -> String {
    let kind = match action.kind {
        ActionKind::Forward => "forward",
        ActionKind::Backward => "backward",
        ActionKind::BackwardInput => "backward of the input",
        ActionKind::BackwardWeight => "backward of the weights",
    };
    format!("{kind} of micro batch {}, chunk {}", action.microbatch, action.chunk)
}

/// Refuses lists that name what the step does not have.
pub(super) fn check_lists(pipeline: &Pipeline, lists: &[Vec<Action>]) -> Result<(), SimulationError> {
    let (wanted, found) = (pipeline.stages, lists.len() as u64);
    if wanted != found {
        return Err(SimulationError::Lists { wanted, found });
    }
    let Pipeline { microbatches, chunks, .. } = *pipeline;
    for (stage, list) in lists.iter().enumerate() {
        let outside = |action: &Action| action.microbatch >= microbatches || action.chunk >= chunks;
        if let Some(position) = list.iter().position(outside) {
            let action = list[position];
            let (stage, position) = (stage as u64, position as u64);
            return Err(SimulationError::Outside { stage, position, action, microbatches, chunks });
        }
    }
    Ok(())
}
