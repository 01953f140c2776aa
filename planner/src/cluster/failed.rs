//! GPUs that a plan has to do without.

use serde::{Deserialize, Serialize};

/// A failed GPU, by its place in the cluster, by its rank or by its coordinates in the layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FailedGpu {
    /// Node and GPU on it, from 0.
    Place {
        /// Node.
        node: u64,
        /// GPU on the node.
        gpu: u64,
    },
    /// Rank.
    Rank {
        /// Rank.
        rank: u64,
    },
    /// Coordinates.
    Coordinates {
        /// Data-parallel coordinate.
        dp: u64,
        /// Context-parallel coordinate.
        cp: u64,
        /// Pipeline stage.
        pp: u64,
        /// Tensor-parallel slot.
        tp: u64,
    },
}
