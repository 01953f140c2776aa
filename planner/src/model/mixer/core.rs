//! What attention does beside its matrices, in numbers: FLOPs, seconds, saved tensors and caches follow from this one list.

use super::{QkNorm, SavedElements};
use crate::model::Reach;

/// Scores of queries over keys and the values that they weigh, of all heads; tensor parallelism divides them by heads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Core {
    /// Query heads.
    pub heads: u64,
    /// Heads with keys and values of their own, as kernels see them.
    pub kv_heads: u64,
    /// Width of a query and key head.
    pub query_dim: u64,
    /// Width of a value head.
    pub value_dim: u64,
    /// Whether queries and keys have norms.
    pub normed: bool,
    /// What tensor parallelism gathers instead of the stream, where it gathers low ranks.
    pub gathered: Option<u64>,
    /// Heads whose keys and values are kept of every token that is decoded; none where they are an earlier layer's.
    pub cached_heads: u64,
    /// Elements that are kept of each.
    pub cached_width: u64,
    /// How far a token sees.
    pub span: Reach,
    /// Norms of heads of queries and keys.
    pub head_norms: QkNorm,
    /// Whether heads of values have norms.
    pub value_norm: bool,
    /// Whether the output has a gate.
    pub output_gate: bool,
    /// What of queries, keys and values is made of low ranks; none where projections of the stream give them.
    pub low: Option<LowRanks>,
    /// An approximation of all that is kept, in place of what follows from these sizes.
    pub kept: Option<SavedElements>,
}

impl Core {
    /// Elements of a token's queries, keys and values, of all heads.
    pub fn projected(&self) -> u64 {
        self.heads * self.query_dim + self.kv_heads * (self.query_dim + self.value_dim)
    }

    /// Whether projections of the stream give all of these at once.
    pub fn is_projected_at_once(&self) -> bool {
        self.low.is_none() && self.kept.is_none()
    }
}

/// Low ranks of a token, on each tensor-parallel rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LowRanks {
    /// Elements that are kept beside what up projections read: before their norms, and rotated keys.
    pub beside: u64,
    /// Elements that up projections read.
    pub read: u64,
}
