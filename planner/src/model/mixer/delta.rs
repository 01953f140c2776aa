//! Delta rules: a recurrent state instead of attention.

use serde::Serialize;

use super::{CHUNK, Groups, SavedElements, Scan};
use crate::json::by_field::by_field;
use crate::model::params::{List, of_mixer as name};
use crate::model::{Init, Norm, Role};

/// FLOPs that the chunked scan spends on a token and channel of keys and values, and on an element of the state: the study's
/// count of the delta rule's Triton kernels.
const CHANNEL_FLOPS: f64 = 192.0;
const STATE_FLOPS: f64 = 6.0;
/// Bytes that it moves for a token and channel.
const TRAFFIC: [f64; 2] = [32.0, 56.0];

/// Gated delta rule (Qwen3-Next): a recurrent state instead of attention.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DeltaNet {
    /// Query and key heads.
    pub key_heads: u64,
    /// Value heads, a multiple of the key heads.
    pub value_heads: u64,
    /// Width of a key head.
    pub key_dim: u64,
    /// Width of a value head.
    pub value_dim: u64,
    /// Tokens that the convolution before it sees.
    pub conv_kernel: u64,
}

by_field! { DeltaNet { key_heads, value_heads, key_dim, value_dim, conv_kernel; } }

impl DeltaNet {
    /// Its parameters.
    pub(in crate::model) fn parameters(&self, list: &mut List<'_>) {
        let &DeltaNet { key_heads, value_heads, key_dim, value_dim, conv_kernel } = self;
        let hidden = list.architecture.hidden_size;
        let values = value_heads / key_heads.max(1);
        // Of each key head: query, key, its value heads, their gates, and two scalars of each value head.
        let rows = 2 * key_dim + 2 * values * value_dim + 2 * values;
        list.column("in_proj.weight", &[key_heads, rows, hidden]);
        list.column("conv.weight", &[key_heads, 2 * key_dim + values * value_dim, conv_kernel]);
        list.per_head("decay", &[value_heads], Init::Zeros);
        list.per_head("step_bias", &[value_heads], Init::Ones);
        list.norm(&name("out_norm"), Role::SharedByHeads, &[value_dim], Norm::Rms);
        list.out("proj.weight", &[hidden, value_heads, value_dim]);
    }

    /// Sizes of which none may be 0 or very large.
    pub(super) fn sizes(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("number of key heads", self.key_heads),
            ("number of value heads", self.value_heads),
            ("key head width", self.key_dim),
            ("value head width", self.value_dim),
            ("convolution", self.conv_kernel),
        ]
    }

    /// What its heads are a multiple of.
    pub(super) fn groups(&self) -> Groups {
        let rule = "value heads are a multiple of key heads (Megatron-Core gated_delta_net)";
        Groups { heads: self.value_heads, of: self.key_heads, what: "key heads", rule }
    }

    /// As Megatron-Core and transformers call its kernels (`core/ssm/gated_delta_net`). Kept are the output of the projection,
    /// which the convolution reads, normed queries and keys, these spread over the value heads, values, each chunk's triangle,
    /// output before the gated norm, behind the norm and behind the gate, and the gate. Convolution and chunk states are made
    /// again.
    pub fn scan(&self) -> Scan {
        let &DeltaNet { key_heads, value_heads: heads, key_dim: key, value_dim: value, conv_kernel } = self;
        let (keys, values) = (key_heads * key, heads * value);
        let convolved = 2 * keys + values;
        let projected = convolved + values + 2 * heads;
        let around = projected + 2 * keys + 2 * values;
        let spread = if heads > key_heads { 2 * heads * key } else { 0 };
        let kept = SavedElements {
            split: around + spread + values + heads * CHUNK,
            exact: 2 * heads,
            ..SavedElements::default()
        };
        // The convolution's input transposed and its output before the activation besides.
        let operators = SavedElements {
            split: around + 2 * convolved,
            exact: heads * kept_by_operators(key, value),
            ..SavedElements::default()
        };
        Scan {
            kept,
            kept_of_operators: Some(operators),
            gated: values,
            read: values,
            ..scan([heads, key, value], [convolved, conv_kernel])
        }
    }
}

/// Values in fp32 for each token and head that torch's own operators keep of the delta rule
/// (`torch_chunk_gated_delta_rule`): seven of a key's width, three of a value's, six of a chunk's, the rows and squares of
/// the triangle that is solved row by row, and a state for each chunk.
fn kept_by_operators(key: u64, value: u64) -> u64 {
    let solved: u64 = (1..CHUNK).map(|row| row + row * row).sum();
    7 * key + 3 * value + 6 * CHUNK + (solved + key * value) / CHUNK
}

/// The rule over heads with keys and values of these widths, behind a convolution; nothing of it is kept.
fn scan([heads, key, value]: [u64; 3], [convolved, conv_kernel]: [u64; 2]) -> Scan {
    let [count, of_key, of_value] = [heads, key, value].map(|size| size as f64);
    let channels = heads * value;
    let convolution = conv_kernel as f64 * convolved as f64;
    Scan {
        heads,
        channels,
        state: key,
        convolved,
        conv_kernel,
        flops: count * (STATE_FLOPS * of_key * of_value + CHANNEL_FLOPS * (of_key + of_value)),
        counted_flops: 2.0 * (convolution + 4.0 * (channels * value) as f64),
        traffic: TRAFFIC,
        kept: SavedElements::default(),
        kept_of_operators: None,
        gated: 0,
        read: 0,
    }
}

/// Kimi delta attention: a delta rule with a decay for every channel.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct KimiDelta {
    /// Heads.
    pub heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Tokens that the convolutions before it see.
    pub conv_kernel: u64,
    /// Whether the output gate is one full matrix instead of two of rank `head_dim`.
    pub full_rank_gate: bool,
    /// Whether the decay is one full matrix likewise (Ling 3).
    #[serde(skip_serializing_if = "crate::model::no")]
    pub full_rank_decay: bool,
}

by_field! { KimiDelta { heads, head_dim, conv_kernel; full_rank_gate, full_rank_decay } }

impl KimiDelta {
    /// Its parameters.
    pub(in crate::model) fn parameters(&self, list: &mut List<'_>) {
        let &KimiDelta { heads, head_dim, conv_kernel, full_rank_gate, full_rank_decay } = self;
        let hidden = list.architecture.hidden_size;
        // Of each head: query, key, value.
        list.column("qkv.weight", &[heads, 3, head_dim, hidden]);
        list.column("conv.weight", &[heads, 3, head_dim, conv_kernel]);
        if full_rank_decay {
            list.column("decay_proj.weight", &[heads, head_dim, hidden]);
        } else {
            list.whole("decay_down.weight", &[head_dim, hidden]);
            list.column("decay_up.weight", &[heads, head_dim, head_dim]);
        }
        list.per_head("decay", &[heads], Init::Zeros);
        list.per_head("step_bias", &[heads, head_dim], Init::Ones);
        list.column("beta.weight", &[heads, hidden]);
        if full_rank_gate {
            list.column("gate.weight", &[heads, head_dim, hidden]);
        } else {
            list.whole("gate_down.weight", &[head_dim, hidden]);
            list.column("gate_up.weight", &[heads, head_dim, head_dim]);
        }
        list.norm(&name("out_norm"), Role::SharedByHeads, &[head_dim], Norm::Rms);
        list.out("proj.weight", &[hidden, heads, head_dim]);
    }

    /// Sizes of which none may be 0 or very large.
    pub(super) fn sizes(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("number of delta heads", self.heads),
            ("delta head width", self.head_dim),
            ("convolution", self.conv_kernel),
        ]
    }

    /// What is kept is an approximation: ten tensors as wide as all heads, and the states of chunks.
    pub fn scan(&self) -> Scan {
        let &KimiDelta { heads, head_dim, conv_kernel, .. } = self;
        let width = heads * head_dim;
        Scan {
            kept: SavedElements { split: 10 * width, of_chunk: width * head_dim, ..SavedElements::default() },
            ..scan([heads, head_dim, head_dim], [3 * width, conv_kernel])
        }
    }
}
