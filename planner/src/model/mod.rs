//! What is trained: the architecture, where it can come from, and its list of parameters.

mod catalogue;
mod hf;
#[cfg(test)]
mod hf_tests;
mod megatron;
mod params;

pub use catalogue::{Preset, presets};
pub use hf::{Imported, import_hf, supported_model_types};
pub use megatron::{Beside, import_megatron};
pub use params::{LayerKind, Parameter, Role, count, layer_parameters, mtp_parameters, outer_parameters};

use serde::{Deserialize, Serialize};

/// A decoder-only transformer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    /// Transformer layers.
    pub num_layers: u64,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Width of a dense MLP.
    pub ffn_hidden_size: u64,
    /// Words, before padding.
    pub vocab_size: u64,
    /// Attention.
    pub attention: Attention,
    /// Mixture of experts; none for a dense model.
    #[serde(default)]
    pub moe: Option<Moe>,
    /// Whether MLPs have a gate beside the up projection.
    #[serde(default = "yes")]
    pub gated: bool,
    /// The MLP's activation function.
    #[serde(default)]
    pub activation: Activation,
    /// Whether MLPs have biases.
    #[serde(default)]
    pub mlp_bias: bool,
    /// Kind of norm.
    #[serde(default)]
    pub norm: Norm,
    /// Epsilon of the norms.
    #[serde(default = "norm_eps")]
    pub norm_eps: f64,
    /// Base of the rotary position embedding.
    #[serde(default = "rope_theta")]
    pub rope_theta: f64,
    /// Whether the output layer is the embedding.
    #[serde(default)]
    pub tied_embeddings: bool,
    /// Positions with a learned embedding (GPT-2 and 3); none for rotary positions.
    #[serde(default)]
    pub learned_positions: Option<u64>,
    /// Multi-token-prediction modules after the last layer.
    #[serde(default)]
    pub mtp_layers: u64,
}

fn yes() -> bool {
    true
}

fn norm_eps() -> f64 {
    1e-5
}

fn rope_theta() -> f64 {
    10_000.0
}

/// How tokens attend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
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
    },
}

impl Attention {
    /// Query heads.
    pub fn heads(&self) -> u64 {
        match *self {
            Attention::Gqa { heads, .. } | Attention::Mla { heads, .. } => heads,
        }
    }

    /// Heads that hold keys and values of their own.
    pub fn kv_heads(&self) -> u64 {
        match *self {
            Attention::Gqa { kv_heads, .. } => kv_heads,
            Attention::Mla { heads, .. } => heads,
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
    /// A weight for each head (MiniMax-M2).
    Full,
}

/// Kind of norm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// RMSNorm: a weight.
    #[default]
    Rms,
    /// LayerNorm: a weight and a bias.
    Layer,
}

/// The MLP's activation function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// SiLU (with a gate: SwiGLU).
    #[default]
    Silu,
    /// GELU.
    Gelu,
}

/// Mixture of experts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moe {
    /// Routed experts of a layer.
    pub experts: u64,
    /// Experts that a token is sent to.
    pub top_k: u64,
    /// Width of one expert's MLP.
    pub ffn_hidden_size: u64,
    /// Width of all shared experts together; 0 for none.
    #[serde(default)]
    pub shared_ffn_hidden_size: u64,
    /// Whether the shared experts' output has a learned gate.
    #[serde(default)]
    pub shared_gate: bool,
    /// Whether the router has a trained bias.
    #[serde(default)]
    pub router_bias: bool,
    /// Layers (from 0) that have a dense MLP instead.
    #[serde(default)]
    pub dense_layers: Vec<u64>,
    /// Elements of the router's balancing bias per layer, a buffer that is not trained by gradients; 0 for none.
    #[serde(default)]
    pub router_bias_buffer: u64,
}

impl Architecture {
    /// Whether `layer` (from 0) has experts.
    pub fn layer_kind(&self, layer: u64) -> LayerKind {
        match &self.moe {
            Some(moe) if !moe.dense_layers.contains(&layer) => LayerKind::Moe,
            _ => LayerKind::Dense,
        }
    }

    /// Layers with experts.
    pub fn moe_layers(&self) -> u64 {
        (0..self.num_layers).filter(|&layer| self.layer_kind(layer) == LayerKind::Moe).count() as u64
    }
}
