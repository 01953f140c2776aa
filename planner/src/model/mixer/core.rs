//! What attention does beside its matrices, in numbers: FLOPs, seconds, saved tensors and caches follow from this one list.

use super::{Attention, QkNorm};
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

impl Attention {
    /// What it does beside its matrices.
    pub fn core(&self) -> Core {
        let span = self.scores().span();
        match *self {
            Attention::Gqa { heads, kv_heads, head_dim, qk_norm, shared_kv, value_dim, .. } => {
                let value_dim = value_dim.unwrap_or(head_dim);
                Core {
                    heads,
                    kv_heads,
                    query_dim: head_dim,
                    value_dim,
                    normed: qk_norm != QkNorm::None,
                    gathered: None,
                    cached_heads: if shared_kv { 0 } else { kv_heads },
                    cached_width: head_dim + value_dim,
                    span,
                }
            }
            // One latent vector and one rotated key for all heads, on every rank.
            Attention::Mla {
                heads,
                q_lora_rank,
                kv_lora_rank,
                qk_nope_dim,
                qk_rope_dim,
                v_dim,
                qk_norm,
                ..
            } => Core {
                heads,
                kv_heads: heads,
                query_dim: qk_nope_dim + qk_rope_dim,
                value_dim: v_dim,
                normed: qk_norm,
                gathered: q_lora_rank.map(|rank| rank + kv_lora_rank + qk_rope_dim),
                cached_heads: 1,
                cached_width: kv_lora_rank + qk_rope_dim,
                span,
            },
            // One key that is its own value, for so many tokens together.
            Attention::Shared { heads, head_dim, q_lora_rank, compressed, .. } => Core {
                heads,
                kv_heads: 1,
                query_dim: head_dim,
                value_dim: head_dim,
                normed: true,
                gathered: Some(q_lora_rank + head_dim),
                cached_heads: 1,
                cached_width: head_dim.div_ceil(compressed.unwrap_or(1).max(1)),
                span,
            },
        }
    }
}
