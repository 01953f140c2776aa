//! What is said of a parameter, however it is split.

use serde::Serialize;

/// What a parameter belongs to; decides which grid of ranks it lives on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Module {
    /// Word embedding.
    Embedding,
    /// Attention projections.
    Attention,
    /// Norms: of layers, of the output, of queries and keys.
    Norm,
    /// Dense MLP.
    Mlp,
    /// MoE router.
    Router,
    /// Routed experts.
    Expert,
    /// Shared experts.
    SharedExpert,
    /// Output layer.
    Head,
    /// Projection of a multi-token-prediction module.
    Mtp,
}

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// All ones.
    Ones,
    /// All zeros.
    Zeros,
    /// All this number.
    Constant(f64),
}
