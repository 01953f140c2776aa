//! Attention of every shape.

mod parameters;

use serde::{Deserialize, Serialize};

use super::{Core, Groups, LowRanks, SavedElements};
use crate::json::by_field::by_field;
use crate::json::tagged::tagged;
use crate::model::Scores;
use crate::model::params::List;

tagged! {
    tag = "kind", serde(rename_all = "snake_case", deny_unknown_fields);

    /// How tokens attend.
    #[derive(Debug, Clone, PartialEq)]
    pub enum Attention {
        /// Grouped-query attention; multi-head when `kv_heads` = `heads`.
        Gqa {
            /// Query heads.
            heads: u64,
            /// Key and value heads.
            kv_heads: u64,
            /// Width of a head.
            head_dim: u64,
            /// Width of a head that is rotated; all of it when absent.
            #[serde(default)]
            rotary_dim: Option<u64>,
            /// Norm of queries and keys.
            #[serde(default)]
            qk_norm: QkNorm,
            /// Biases of the query, key and value projections.
            #[serde(default)]
            qkv_bias: bool,
            /// Bias of the output projection.
            #[serde(default)]
            out_bias: bool,
            /// A learned sink per head in the softmax (gpt-oss).
            #[serde(default)]
            sinks: bool,
            /// A gate on the output, as wide as the queries (Qwen3-Next).
            #[serde(default)]
            output_gate: bool,
            /// Whether values are the keys (Gemma 4's full attention).
            #[serde(default)]
            values_are_keys: bool,
            /// Whether values have a norm of single heads without a weight (Gemma 4).
            #[serde(default, skip_serializing_if = "crate::model::no")]
            value_norm: bool,
            /// Whether keys and values are those of an earlier layer, so that there are only queries (Gemma 3n).
            #[serde(default, skip_serializing_if = "crate::model::no")]
            shared_kv: bool,
            /// Width of a value head; a query head's where absent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            value_dim: Option<u64>,
            /// A gate on the output of each head, one number (Laguna).
            #[serde(default, skip_serializing_if = "crate::model::no")]
            head_gate: bool,
            /// Windows, positions, scales, caps.
            #[serde(default, skip_serializing_if = "Scores::is_default")]
            scores: Scores,
        },
        /// Multi-head latent attention (DeepSeek-V2 and later).
        Mla {
            /// Heads.
            heads: u64,
            /// Rank of the query's down projection; none for a full projection.
            #[serde(default)]
            q_lora_rank: Option<u64>,
            /// Rank of the key and value down projection.
            kv_lora_rank: u64,
            /// Width of a head without rotation.
            qk_nope_dim: u64,
            /// Width of a head with rotation.
            qk_rope_dim: u64,
            /// Width of a value head.
            v_dim: u64,
            /// Whether what the down projections give has norms.
            #[serde(default = "crate::model::yes", skip_serializing_if = "crate::model::set")]
            qk_norm: bool,
            /// What chooses the tokens that are attended to (DeepSeek sparse attention); none for all.
            #[serde(default)]
            indexer: Option<Indexer>,
            /// A gate on the output, as wide as the values (Kimi-K3).
            #[serde(default)]
            output_gate: bool,
            /// Whether queries and that gate are one matrix, over the query's low rank before and behind its norm (A.X-K2).
            #[serde(default, skip_serializing_if = "crate::model::no")]
            joint_gate: bool,
            /// A learned sink per head in the softmax.
            #[serde(default, skip_serializing_if = "crate::model::no")]
            sinks: bool,
            /// A gate on the output of each head, one number.
            #[serde(default, skip_serializing_if = "crate::model::no")]
            head_gate: bool,
            /// Windows, positions, scales, caps.
            #[serde(default, skip_serializing_if = "Scores::is_default")]
            scores: Scores,
        },
        /// Queries by a low rank, one key that is its own value for all heads, output by groups (DeepSeek-V4).
        Shared {
            /// Query heads.
            heads: u64,
            /// Width of a head.
            head_dim: u64,
            /// Rank of the query's down projection.
            q_lora_rank: u64,
            /// Groups of heads with an output projection each.
            out_groups: u64,
            /// Width of a group's output before the last projection.
            out_lora_rank: u64,
            /// Width of a head that is rotated.
            qk_rope_dim: u64,
            /// Tokens that are compressed into one key, as learned; none for a plain window of tokens.
            #[serde(default)]
            compressed: Option<u64>,
            /// What chooses the compressed keys that are attended to; its keys are compressed likewise.
            #[serde(default)]
            indexer: Option<Indexer>,
            /// Windows, positions, scales, caps.
            #[serde(default, skip_serializing_if = "Scores::is_default")]
            scores: Scores,
        },
    }
}

impl Attention {
    /// Grouped-query attention without extras.
    pub fn grouped(heads: u64, kv_heads: u64, head_dim: u64) -> Attention {
        Attention::Gqa {
            heads,
            kv_heads,
            head_dim,
            rotary_dim: None,
            qk_norm: QkNorm::None,
            qkv_bias: false,
            out_bias: false,
            sinks: false,
            output_gate: false,
            values_are_keys: false,
            value_norm: false,
            shared_kv: false,
            value_dim: None,
            head_gate: false,
            scores: Scores::default(),
        }
    }

    /// What it does beside its matrices.
    pub fn core(&self) -> Core {
        let span = self.scores().span();
        match *self {
            Attention::Gqa {
                heads,
                kv_heads,
                head_dim,
                qk_norm,
                output_gate,
                shared_kv,
                value_norm,
                value_dim,
                head_gate,
                ..
            } => {
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
                    head_norms: qk_norm,
                    value_norm,
                    output_gate: output_gate || head_gate,
                    low: None,
                    kept: None,
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
                output_gate,
                head_gate,
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
                head_norms: QkNorm::None,
                value_norm: false,
                output_gate: output_gate || head_gate,
                low: Some(LowRanks {
                    beside: qk_rope_dim
                        + if qk_norm { q_lora_rank.unwrap_or(0) + 2 * kv_lora_rank } else { 0 },
                    read: q_lora_rank.unwrap_or(0) + kv_lora_rank,
                }),
                kept: None,
            },
            // One key that is its own value, for so many tokens together.
            Attention::Shared {
                heads, head_dim, q_lora_rank, out_groups, out_lora_rank, compressed, ..
            } => Core {
                heads,
                kv_heads: 1,
                query_dim: head_dim,
                value_dim: head_dim,
                normed: true,
                gathered: Some(q_lora_rank + head_dim),
                cached_heads: 1,
                cached_width: head_dim.div_ceil(compressed.unwrap_or(1).max(1)),
                span,
                head_norms: QkNorm::None,
                value_norm: false,
                output_gate: false,
                low: None,
                // From the sizes of what is projected and not from readings.
                kept: Some(SavedElements {
                    of_stream: 2 * q_lora_rank + 2 * head_dim,
                    split: 3 * heads * head_dim + out_groups * out_lora_rank,
                    ..SavedElements::default()
                }),
            },
        }
    }

    /// Its projections of the stream and of low ranks in the order in which they run, where each is a matrix of its own: heads that
    /// tensor parallelism divides, and outputs of each; none where that is not known.
    pub fn products(&self) -> Option<Vec<[u64; 2]>> {
        match *self {
            Attention::Gqa {
                heads,
                kv_heads,
                head_dim,
                output_gate,
                values_are_keys,
                shared_kv,
                value_dim,
                ..
            } => {
                // One matrix makes queries and their gates.
                let queries = [heads, head_dim * (1 + u64::from(output_gate))];
                let own = [[kv_heads, head_dim], [kv_heads, value_dim.unwrap_or(head_dim)]];
                let own = own.into_iter().take(if shared_kv { 0 } else { 2 - usize::from(values_are_keys) });
                Some([queries].into_iter().chain(own).collect())
            }
            Attention::Mla {
                heads,
                q_lora_rank,
                kv_lora_rank,
                qk_nope_dim,
                qk_rope_dim,
                v_dim,
                indexer: None,
                output_gate: false,
                ..
            } => {
                let low = q_lora_rank.map(|rank| [1, rank]).into_iter();
                let others = [
                    [heads, qk_nope_dim + qk_rope_dim],
                    [1, kv_lora_rank + qk_rope_dim],
                    [heads, qk_nope_dim + v_dim],
                ];
                Some(low.chain(others).collect())
            }
            Attention::Mla { .. } | Attention::Shared { .. } => None,
        }
    }

    /// Its parameters.
    pub(in crate::model) fn parameters(&self, list: &mut List<'_>) {
        parameters::parameters(list, self);
    }

    /// Sizes of which none may be 0 or very large.
    pub(super) fn sizes(&self) -> Vec<(&'static str, u64)> {
        let of_indexer = |indexer: &Option<Indexer>| match indexer {
            Some(indexer) => {
                vec![("number of indexer heads", indexer.heads), ("indexer head width", indexer.head_dim)]
            }
            None => Vec::new(),
        };
        match self {
            Attention::Gqa { heads, kv_heads, head_dim, rotary_dim, value_dim, .. } => vec![
                ("number of heads", *heads),
                ("number of kv heads", *kv_heads),
                ("head width", *head_dim),
                ("rotated head width", rotary_dim.unwrap_or(*head_dim)),
                ("width of values", value_dim.unwrap_or(*head_dim)),
            ],
            Attention::Mla {
                heads,
                q_lora_rank,
                kv_lora_rank,
                qk_nope_dim,
                qk_rope_dim,
                v_dim,
                indexer,
                ..
            } => {
                let mut sizes = vec![
                    ("number of heads", *heads),
                    ("q_lora_rank", q_lora_rank.unwrap_or(1)),
                    ("kv_lora_rank", *kv_lora_rank),
                    ("qk_nope_dim", *qk_nope_dim),
                    ("qk_rope_dim", *qk_rope_dim),
                    ("v_dim", *v_dim),
                ];
                sizes.extend(of_indexer(indexer));
                sizes
            }
            Attention::Shared {
                heads,
                head_dim,
                q_lora_rank,
                out_groups,
                out_lora_rank,
                qk_rope_dim,
                compressed,
                indexer,
                scores: _,
            } => {
                let mut sizes = vec![
                    ("number of heads", *heads),
                    ("head width", *head_dim),
                    ("q_lora_rank", *q_lora_rank),
                    ("out_groups", *out_groups),
                    ("out_lora_rank", *out_lora_rank),
                    ("qk_rope_dim", *qk_rope_dim),
                    ("number of compressed tokens", compressed.unwrap_or(1)),
                ];
                sizes.extend(of_indexer(indexer));
                sizes
            }
        }
    }

    /// What its heads are a multiple of.
    pub(super) fn groups(&self) -> Groups {
        match *self {
            Attention::Shared { heads, out_groups, .. } => {
                Groups { heads, of: out_groups, what: "output groups", rule: "grouped output projection" }
            }
            Attention::Gqa { heads, .. } | Attention::Mla { heads, .. } => {
                let rule = "grouped-query attention";
                Groups { heads, of: self.kv_heads(), what: "key-value heads", rule }
            }
        }
    }

    /// Width of a head that may be rotated, and how much of it is; none where rotation is not planned.
    pub(in crate::model) fn rotated(&self) -> Option<(u64, u64)> {
        match *self {
            Attention::Gqa { head_dim, rotary_dim, .. } => Some((head_dim, rotary_dim.unwrap_or(head_dim))),
            Attention::Mla { qk_rope_dim, .. } => Some((qk_rope_dim, qk_rope_dim)),
            Attention::Shared { .. } => None,
        }
    }

    /// What becomes of its scores.
    pub fn scores(&self) -> &Scores {
        match self {
            Attention::Gqa { scores, .. }
            | Attention::Mla { scores, .. }
            | Attention::Shared { scores, .. } => scores,
        }
    }

    /// The same, to be set.
    pub(crate) fn scores_mut(&mut self) -> &mut Scores {
        match self {
            Attention::Gqa { scores, .. }
            | Attention::Mla { scores, .. }
            | Attention::Shared { scores, .. } => scores,
        }
    }

    /// Whether another differs in nothing but what becomes of its scores.
    pub fn is_but_for_scores(&self, other: &Attention) -> bool {
        let mut same = self.clone();
        *same.scores_mut() = other.scores().clone();
        same == *other
    }

    /// Query heads.
    pub fn heads(&self) -> u64 {
        match *self {
            Attention::Gqa { heads, .. } | Attention::Mla { heads, .. } | Attention::Shared { heads, .. } => {
                heads
            }
        }
    }

    /// What it is, in words.
    pub fn name(&self) -> &'static str {
        match self {
            Attention::Gqa { .. } => "attention",
            Attention::Mla { .. } => "latent attention",
            Attention::Shared { .. } => "attention with one key for all heads",
        }
    }

    /// Heads that hold keys and values of their own, as tensor parallelism sees them: keys that all heads share are
    /// on every rank, so they never stand in its way.
    pub fn kv_heads(&self) -> u64 {
        match *self {
            Attention::Gqa { kv_heads, .. } => kv_heads,
            Attention::Mla { heads, .. } | Attention::Shared { heads, .. } => heads,
        }
    }
}

/// Norm of queries and keys before attention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QkNorm {
    /// None.
    #[default]
    None,
    /// One weight vector for all heads (Qwen3).
    PerHead,
    /// The same with a bias vector: LayerNorm.
    PerHeadLayer,
    /// A norm over all heads together, with a weight for each channel (MiniMax-M2).
    Full,
    /// LayerNorm of each head with weights of its own (Cohere, StableLM).
    EachHead,
    /// Norms without weights (Llama 4, nanochat).
    Plain,
}

impl QkNorm {
    /// Norms of single heads, or none; Megatron-Core's are of the kind of the layers' norms.
    pub fn per_head(there: bool, layer_norm: bool) -> QkNorm {
        match (there, layer_norm) {
            (false, _) => QkNorm::None,
            (true, false) => QkNorm::PerHead,
            (true, true) => QkNorm::PerHeadLayer,
        }
    }
}

/// A small attention that only scores tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Indexer {
    /// Its heads.
    pub heads: u64,
    /// Width of one.
    pub head_dim: u64,
}

by_field! { Indexer { heads, head_dim; } }
