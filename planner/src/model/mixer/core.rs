//! What attention does beside its matrices, in numbers: FLOPs, seconds, saved tensors and caches follow from this one list.

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
}
