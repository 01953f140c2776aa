//! Experts: their sizes and how they are computed.

use serde_json::Value;

use crate::Kind::{Alone, Asked, AtLeast, Beside, Flag, Number, Own, Real};
use crate::Row;
use crate::kind::Options;
use planner::model::{Activation, Moe};
use planner::plan::Plan;
use planner::settings::Dispatcher;

use super::{MODEL, has_experts, on, row, says, unless, whole};

const SIZE: &str = "experts: parameters, routed tokens, permutation";
const SHARED: &str = "shared experts and their gate";
const TOKENS: &str = "buffer of gathered tokens (allgather); nothing for the others";
const CAPACITY: &str = "tokens that reach an expert";
const KEPT: &str = "which tensors the activation of experts keeps";

/// Something of the experts of a plan.
pub(super) fn moe(plan: &Plan, of: fn(&Moe) -> bool) -> bool {
    plan.model.moe.as_ref().is_some_and(of)
}

fn is_shared(plan: &Plan) -> bool {
    moe(plan, |moe| moe.shared_ffn_hidden_size > 0)
}

pub(super) const EXPERTS: &[Row] = &[
    row("num-experts", "model.moe.experts", AtLeast(1.0, &Number), MODEL).bytes(SIZE),
    row("moe-router-topk", "model.moe.top_k", Number, MODEL).usual("2").bytes(SIZE),
    row("moe-ffn-hidden-size", "model.moe.ffn_hidden_size", Number, MODEL).bytes(SIZE),
    row("moe-shared-expert-intermediate-size", "model.moe.shared_ffn_hidden_size", Number, MODEL)
        .when(is_shared)
        .bytes(SHARED),
    row("moe-shared-expert-gate", "model.moe.shared_gate", Flag, MODEL).when(is_shared).bytes(SHARED),
    row("moe-latent-size", "model.moe.latent_size", Number, MODEL).bytes(SIZE),
    row(
        "moe-router-enable-expert-bias",
        "model.moe.router_bias_buffer",
        Alone {
            write: |plan| moe(plan, |moe| moe.router_bias_buffer > 0),
            read: |there, said| whole(said, "num-experts").filter(|_| there).map(Value::from),
        },
        MODEL,
    )
    .bytes("a bias buffer of the router"),
    says(
        "model.moe.router_bias_buffer",
        |plan| {
            let other = moe(plan, |moe| ![0, moe.experts].contains(&moe.router_bias_buffer));
            unless(other, "the router's balancing bias has a value for each expert")
        },
        MODEL,
    ),
    says(
        "model.moe.router_bias",
        |plan| {
            let apart = plan.model.moe.as_ref().is_some_and(|moe| moe.router_bias != plan.model.mlp_bias);
            unless(apart, "biases of router and MLP go together")
        },
        MODEL,
    ),
    says(
        "model.moe",
        |plan| {
            let scaled = moe(plan, |moe| moe.latent_norm || moe.scaled_branches);
            unless(scaled, "norms and scales of the routed branch have no flag")
        },
        MODEL,
    ),
];

/// How tokens of a job travel.
fn dispatcher(said: Options) -> &'static str {
    match said("moe-token-dispatcher-type").as_deref() {
        Some("alltoall") => "alltoall",
        Some("flex") => "flex",
        _ if on(said, "moe-enable-deepep") => "flex",
        _ => "allgather",
    }
}

fn is_squared(plan: &Plan) -> bool {
    !plan.model.gated && plan.model.activation == Activation::SquaredRelu
}

pub(super) const TRAINING: &[Row] = &[
    row("moe-enable-deepep", "", Asked(false), MODEL).bytes(TOKENS),
    row(
        "moe-token-dispatcher-type",
        "training.moe.dispatcher",
        Own {
            write: |plan| Ok(Some(plan.training.moe.dispatcher.name().to_owned())),
            read: |_, said| Ok(Some(dispatcher(said).into())),
        },
        MODEL,
    )
    .when(has_experts)
    .usual("allgather")
    .bytes(TOKENS),
    row(
        "moe-flex-dispatcher-backend",
        "training.moe.backend",
        Beside(
            |said| dispatcher(said) == "flex",
            &Own {
                write: |plan| Ok(Some(plan.training.moe.backend.name().to_owned())),
                read: |word, _| Ok(Some(if word == "hybridep" { "hybridep" } else { "deepep" }.into())),
            },
        ),
        MODEL,
    )
    .when(|plan| has_experts(plan) && plan.training.moe.dispatcher == Dispatcher::Flex)
    .usual("deepep")
    .bytes(TOKENS),
    row("moe-grouped-gemm", "training.moe.grouped_gemm", Flag, MODEL)
        .when(has_experts)
        .usual("false")
        .bytes("four more workspaces; one tensor for all experts"),
    row("moe-permute-fusion", "training.moe.permute_fusion", Flag, MODEL)
        .when(has_experts)
        .usual("false")
        .no_bytes("one kernel in place of several"),
    row("moe-shared-expert-overlap", "training.moe.shared_expert_overlap", Flag, MODEL)
        .when(has_experts)
        .usual("false")
        .no_bytes("computed on a stream of their own"),
    row("moe-expert-capacity-factor", "training.moe.capacity_factor", AtLeast(0.0, &Real), MODEL)
        .when(has_experts)
        .bytes(CAPACITY),
    row("moe-pad-expert-input-to-capacity", "training.moe.pad_to_capacity", Flag, MODEL)
        .when(has_experts)
        .usual("false")
        .bytes(CAPACITY),
    // Neither the interleaved order nor TransformerEngine's own activation goes with the fused product.
    row("no-bias-swiglu-fusion", "", Asked(false), MODEL).bytes(KEPT),
    row("use-te-activation-func", "", Asked(false), MODEL).bytes(KEPT),
    row("moe-mlp-glu-interleave-size", "", Asked(true), MODEL).bytes(KEPT),
    row("use-transformer-engine-op-fuser", "", Asked(false), MODEL).bytes(KEPT),
    row(
        "use-fused-weighted-squared-relu",
        "training.moe.fused_activation",
        Alone {
            write: |plan| plan.training.moe.fused_activation && is_squared(plan),
            read: |there, said| {
                let gated = on(said, "swiglu") || on(said, "quick-geglu");
                let apart = said("moe-mlp-glu-interleave-size").is_some()
                    || on(said, "use-te-activation-func")
                    || on(said, "no-bias-swiglu-fusion");
                Some(((gated && !apart) || there || on(said, "use-transformer-engine-op-fuser")).into())
            },
        },
        MODEL,
    )
    .when(has_experts)
    .usual("false")
    .bytes(KEPT),
    says(
        "training.moe.fused_activation",
        |plan| {
            let follows = match plan.training.moe.fused_activation {
                true => plan.model.gated || is_squared(plan),
                false => !plan.model.gated,
            };
            let why = "whether the activation of experts is fused follows from its kind";
            unless(has_experts(plan) && !follows, why)
        },
        MODEL,
    ),
];
