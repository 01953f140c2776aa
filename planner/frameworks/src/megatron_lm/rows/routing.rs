//! How tokens choose experts.

use crate::Kind::{Alone, Number, Own, Partly, Real, Words};
use crate::Row;
use planner::model::{Balance, Routing, Score};
use planner::plan::Plan;

use super::experts::moe;
use super::{MODEL, has_experts, on, row, says, unless, whole};

/// Words for how experts are kept busy alike that a plan has too.
pub(in crate::megatron_lm) const BALANCES: [&str; 4] =
    ["aux_loss", "seq_aux_loss", "global_aux_loss", "none"];

const LOSS: &str = "a number of the router's loss";

/// Something of the routing of a plan.
fn routing(plan: &Plan, of: fn(&Routing) -> bool) -> bool {
    plan.model.moe.as_ref().is_some_and(|moe| of(&moe.routing))
}

fn is_softmax(routing: &Routing) -> bool {
    routing.score == Score::Softmax
}

fn has_groups(plan: &Plan) -> bool {
    routing(plan, |routing| routing.groups > 1)
}

/// How experts are kept busy alike; forced routing is written as none beside a flag of its own.
fn balance(plan: &Plan) -> Option<String> {
    let balance = plan.model.moe.as_ref()?.routing.balance;
    Some(
        match balance {
            Balance::None | Balance::Forced => "none",
            Balance::AuxLoss => "aux_loss",
            Balance::SeqAuxLoss => "seq_aux_loss",
            Balance::GlobalAuxLoss => "global_aux_loss",
        }
        .to_owned(),
    )
}

pub(super) const ROUTING: &[Row] = &[
    row(
        "moe-router-score-function",
        "model.moe.routing.score",
        Partly(&Words {
            known: &[("softmax", "softmax"), ("sigmoid", "sigmoid"), ("sqrtsoftplus", "sigmoid")],
            lacks: "",
        }),
        MODEL,
    )
    .no_bytes("how a router's logits become weights"),
    // One expert a token is weighed by its score, as softmax before the choice does.
    row(
        "moe-router-pre-softmax",
        "model.moe.routing.normalize",
        Alone {
            write: |plan| routing(plan, |routing| is_softmax(routing) && !routing.normalize),
            read: |there, said| {
                let score = said("moe-router-score-function");
                let sigmoid = score.is_some_and(|word| ["sigmoid", "sqrtsoftplus"].contains(&word.as_str()));
                let alone = whole(said, "moe-router-topk") == Some(1);
                Some((sigmoid || !(there || alone)).into())
            },
        },
        MODEL,
    )
    .when(has_experts)
    .usual("false")
    .no_bytes("how a router's logits become weights"),
    says(
        "model.moe.routing.normalize",
        |plan| {
            let alone = moe(plan, |moe| is_softmax(&moe.routing) && moe.top_k == 1 && moe.routing.normalize);
            let sigmoid = routing(plan, |routing| !is_softmax(routing) && !routing.normalize);
            let why =
                "weights of the chosen experts are scaled to one, or not, as the router's score decides";
            unless(alone || sigmoid, why)
        },
        MODEL,
    ),
    row("moe-router-topk-scaling-factor", "model.moe.routing.scale", Real, MODEL)
        .when(|plan| routing(plan, |routing| routing.scale != 1.0))
        .no_bytes("a number that weights are multiplied by"),
    row("moe-router-num-groups", "model.moe.routing.groups", Number, MODEL)
        .when(has_groups)
        .no_bytes("which experts may be chosen together"),
    row("moe-router-group-topk", "model.moe.routing.group_top_k", Number, MODEL)
        .when(has_groups)
        .no_bytes("which experts may be chosen together"),
    says(
        "model.moe.routing.group_experts",
        |plan| {
            let together = |moe: &planner::model::Moe| {
                let routing = &moe.routing;
                routing.groups > 1 && routing.scored_together(moe.top_k) != routing.usual_together(moe.top_k)
            };
            unless(moe(plan, together), "a group of experts is scored by its best top_k / group_top_k")
        },
        MODEL,
    ),
    row(
        "moe-router-force-load-balancing",
        "model.moe.routing.balance",
        Alone {
            write: |plan| routing(plan, |routing| routing.balance == Balance::Forced),
            read: |there, _| there.then(|| "forced".into()),
        },
        MODEL,
    )
    .bytes("even load of experts: the range's upper end has no more tokens"),
    row(
        "moe-router-load-balancing-type",
        "model.moe.routing.balance",
        Own {
            write: |plan| Ok(balance(plan)),
            read: |word, said| {
                let known = BALANCES.contains(&word);
                let forced = on(said, "moe-router-force-load-balancing");
                Ok((!forced).then(|| if known { word } else { "none" }.into()))
            },
        },
        MODEL,
    )
    .when(has_experts)
    .usual("aux_loss")
    .no_bytes("which loss balances experts"),
    row("moe-aux-loss-coeff", "model.moe.routing.aux_coefficient", Real, MODEL).no_bytes(LOSS),
    row("moe-z-loss-coeff", "model.moe.routing.z_coefficient", Real, MODEL)
        .when(|plan| plan.model.moe.as_ref().is_some_and(|moe| moe.routing.z_coefficient > 0.0))
        .no_bytes(LOSS),
    row("moe-router-bias-update-rate", "model.moe.routing.bias_update_rate", Real, MODEL)
        .no_bytes("a step of the balancing bias"),
];
