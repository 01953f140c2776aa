//! GPUs that a plan has to do without.

use serde::de::{Deserializer, Error, Unexpected};
use serde::{Deserialize, Serialize};

use crate::json::by_field::by_field;

/// A failed GPU, by its place in the cluster, by its rank or by its coordinates in the layout: by one of the three, with no
/// other field beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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

/// What an error says that a failed GPU is.
pub(crate) const WANTED: &str = "a failed GPU";

/// The fields of all ways to name a failed GPU.
#[derive(Default)]
struct Named {
    node: Option<u64>,
    gpu: Option<u64>,
    rank: Option<u64>,
    dp: Option<u64>,
    cp: Option<u64>,
    pp: Option<u64>,
    tp: Option<u64>,
}

by_field! { Named { node, gpu, rank, dp, cp, pp, tp } }

impl<'de> Deserialize<'de> for FailedGpu {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FailedGpu, D::Error> {
        let Named { node, gpu, rank, dp, cp, pp, tp } = Named::deserialize(deserializer)?;
        match ((node, gpu), rank, (dp, cp, pp, tp)) {
            ((Some(node), Some(gpu)), None, (None, None, None, None)) => Ok(FailedGpu::Place { node, gpu }),
            ((None, None), Some(rank), (None, None, None, None)) => Ok(FailedGpu::Rank { rank }),
            ((None, None), None, (Some(dp), Some(cp), Some(pp), Some(tp))) => {
                Ok(FailedGpu::Coordinates { dp, cp, pp, tp })
            }
            _ => Err(D::Error::invalid_value(Unexpected::Map, &WANTED)),
        }
    }
}
