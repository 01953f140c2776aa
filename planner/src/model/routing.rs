//! How a router chooses experts, weighs them and keeps them busy alike.

use serde::{Deserialize, Serialize};

use crate::json::by_field::by_field;

/// Step of the balancing bias (Megatron-Core `moe_router_bias_update_rate`).
const BIAS_UPDATE_RATE: f64 = 1e-3;

/// Routing of tokens to experts; which sizes it has is `Moe`'s matter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Routing {
    /// From logits to scores.
    pub score: Score,
    /// Whether the weights of the chosen experts sum to 1. Of softmax scores this is the softmax over the chosen
    /// alone, so what Megatron-Core calls post-softmax; not normalised is its pre-softmax.
    pub normalize: bool,
    /// What weights are multiplied by.
    pub scale: f64,
    /// Groups of experts, of which a token may use `group_top_k`.
    pub groups: u64,
    /// Groups that a token may use: those whose best experts score highest together.
    pub group_top_k: u64,
    /// How many of a group's experts that are; none for `top_k / group_top_k`, as Megatron-Core has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_experts: Option<u64>,
    /// Loss that balances experts.
    pub balance: Balance,
    /// Its coefficient.
    pub aux_coefficient: f64,
    /// Coefficient of the loss on the size of logits: the mean over tokens of their squared log-sum-exp (z-loss).
    pub z_coefficient: f64,
    /// What a step adds to, or takes from, the balancing bias of experts with few or many tokens.
    pub bias_update_rate: f64,
}

by_field! { Routing { score, normalize, scale, groups, group_top_k, group_experts, balance, aux_coefficient, z_coefficient, bias_update_rate } }

impl Default for Routing {
    fn default() -> Routing {
        Routing {
            score: Score::Softmax,
            normalize: true,
            scale: 1.0,
            groups: 1,
            group_top_k: 1,
            group_experts: None,
            balance: Balance::None,
            aux_coefficient: 0.0,
            z_coefficient: 0.0,
            bias_update_rate: BIAS_UPDATE_RATE,
        }
    }
}

impl Routing {
    /// How many of a group's experts say its score where a token goes to `top_k`.
    pub fn scored_together(&self, top_k: u64) -> u64 {
        self.group_experts.unwrap_or_else(|| self.usual_together(top_k))
    }

    /// The same by Megatron-Core's rule.
    pub fn usual_together(&self, top_k: u64) -> u64 {
        (top_k / self.group_top_k.max(1)).max(1)
    }

    /// Whether everything has its default.
    pub fn is_default(&self) -> bool {
        *self == Routing::default()
    }
}

/// From logits to scores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// Softmax over all experts.
    #[default]
    Softmax,
    /// Each expert by itself.
    Sigmoid,
    /// Root of the softplus of each (DeepSeek-V4).
    SqrtSoftplus,
    /// The best two, each against those near it (Phi-3.5-MoE).
    SparseMixer,
}

/// What keeps experts busy alike (Megatron-Core `moe_router_load_balancing_type`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// Nothing, or the bias alone.
    #[default]
    None,
    /// A loss over the tokens of a micro batch.
    AuxLoss,
    /// A loss over the tokens of each sequence.
    SeqAuxLoss,
    /// A loss against the tokens of all micro batches of the step so far, over all replicas.
    GlobalAuxLoss,
    /// Tokens take experts in turn, whatever their scores: for measurements of speed.
    Forced,
}
