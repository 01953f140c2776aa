//! What is recomputed, and what waits on the host.

use crate::Kind::{Alone, Asked, Beside, Flag, List, Number, Own, Real, Several, Text};
use crate::kind::Options;
use crate::{Effect, Kind, Row};
use planner::plan::Plan;
use planner::settings::Granularity;

use super::{ARGUMENTS, MODEL, on, row, whole};

const WHAT: Effect = Effect::Bytes("what is recomputed");
const HOST: Effect = Effect::Bytes("what waits on the host, two layers of it on their way");

/// Names from before there were modules, of two of them.
const EXPERTS: &str = "moe-layer-recompute";
const ATTENTION: &str = "recompute-activations";

fn is_full(plan: &Plan) -> bool {
    plan.training.recompute == Granularity::Full
}

/// The option takes a module at least; without one nothing is recomputed.
fn names_modules(plan: &Plan) -> bool {
    let training = &plan.training;
    training.recompute == Granularity::Selective && !training.recompute_modules.is_empty()
}

fn granularity(said: Options) -> &'static str {
    match said("recompute-granularity").as_deref() {
        Some("full") if whole(said, "recompute-num-layers") == Some(0) => "none",
        Some("full") => "full",
        Some("selective") => "selective",
        None if on(said, EXPERTS) || on(said, ATTENTION) => "selective",
        _ => "none",
    }
}

fn full(said: Options) -> bool {
    granularity(said) == "full"
}

fn offloads(said: Options) -> bool {
    on(said, "fine-grained-activation-offloading") && said("offload-modules").is_some()
}

fn waits(plan: &Plan) -> bool {
    !plan.training.offload.modules.is_empty()
}

/// Modules; the older names stand for one of them each where no granularity is said, experts before attention, and for
/// experts beside others.
const MODULES: Kind = Own {
    write: |plan| Ok(names_modules(plan).then(|| plan.training.recompute_modules.join(" "))),
    read: |words, said| {
        let mut modules: Vec<&str> = match said("recompute-granularity").as_deref() {
            Some("selective") => words.split_whitespace().collect(),
            None if on(said, EXPERTS) => Vec::new(),
            None if on(said, ATTENTION) => vec!["core_attn"],
            _ => return Ok(None),
        };
        if on(said, EXPERTS) && !modules.contains(&"moe") {
            modules.push("moe");
        }
        Ok(Some(modules.into()))
    },
};

pub(super) const RECOMPUTE: &[Row] = &[
    row(EXPERTS, "", Asked(false), ARGUMENTS).has(WHAT),
    row(ATTENTION, "", Asked(false), ARGUMENTS).has(WHAT),
    row(
        "recompute-granularity",
        "training.recompute.granularity",
        Own {
            write: |plan| {
                let written = is_full(plan) || names_modules(plan);
                Ok(written.then(|| plan.training.recompute.name().to_owned()))
            },
            read: |_, said| Ok(Some(granularity(said).into())),
        },
        MODEL,
    )
    .when(|plan| plan.training.recompute != Granularity::Selective || names_modules(plan))
    .usual("none")
    .has(WHAT),
    row("recompute-modules", "training.recompute.modules", Several(&MODULES), MODEL)
        .when(names_modules)
        .usual("core_attn")
        .has(WHAT),
    row("recompute-method", "training.recompute.method", Beside(full, &Text), MODEL).when(is_full).has(WHAT),
    row("recompute-num-layers", "training.recompute.num_layers", Beside(full, &Number), MODEL)
        .when(is_full)
        .has(WHAT),
    row(
        "distribute-saved-activations",
        "training.recompute.distribute_saved_activations",
        Beside(full, &Flag),
        MODEL,
    )
    .when(is_full)
    .bytes("checkpoints split over tensor-parallel ranks"),
    row("fine-grained-activation-offloading", "", Alone { write: waits, read: |_, _| None }, MODEL).has(HOST),
    row("offload-modules", "training.offload.modules", Beside(offloads, &List), MODEL).when(waits).has(HOST),
    row("activation-offload-fraction", "training.offload.fraction", Beside(offloads, &Real), MODEL)
        .when(waits)
        .usual("1")
        .has(HOST),
    row("cpu-offloading-num-layers", "training.offload.layers", Number, MODEL)
        .when(|plan| plan.training.offload.layers > 0)
        .has(HOST),
];
