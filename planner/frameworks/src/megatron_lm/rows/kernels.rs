//! Dropout, kernels, graphs and overlaps.

use crate::Kind::{
    Alone, Asked, Beside, Flag, FlagOff, Follows, List, Number, Own, Partly, Read, Real, Words,
};
use crate::kind::Options;
use crate::{Effect, Kind, Row};
use planner::plan::Plan;
use planner::settings::{CrossEntropy, CudaGraphs, Implementation};

use super::{ARGUMENTS, DDP, MODEL, PARALLEL, has_experts, on, row, says, unless};

const MASKS: &str = "masks of a byte; of scores what is left of them too";
const SCORES: Effect = Effect::Bytes(
    "scores kept (unfused), or statistics and copies of the output (flash, fused); with the variables NVTE_FLASH_ATTN, NVTE_FUSED_ATTN",
);
const LOSS: &str = "tensors at the loss";
const GRAPHS: Effect = Effect::Bytes("saved tensors of captured modules stay between steps");
const WATCHED: &str = "what is watched";
const HIDDEN: &str = "when something is sent, not how much is held";

/// The kernel that options or TransformerEngine's variables choose.
fn backend(said: Options) -> &'static str {
    let off = |name: &str| said(name).is_some_and(|word| word == "0");
    match said("attention-backend").as_deref() {
        Some("flash") => "flash",
        Some("fused") => "fused",
        Some("unfused" | "local") => "unfused",
        _ if on(said, "use-flash-attn") => "flash",
        _ => match (off("NVTE_FLASH_ATTN"), off("NVTE_FUSED_ATTN")) {
            (true, true) => "unfused",
            (true, false) => "fused",
            (false, true) => "flash",
            (false, false) => "auto",
        },
    }
}

/// What is captured; none where nothing says it.
fn graphs(said: Options) -> Option<&'static str> {
    let modules = said("cuda-graph-modules").or_else(|| said("cuda-graph-scope")).unwrap_or_default();
    let whole = modules.split_whitespace().any(|module| module == "full_iteration");
    match said("cuda-graph-impl").as_deref() {
        Some("full_iteration") => Some("iteration"),
        Some("local" | "transformer_engine") if whole => Some("iteration"),
        Some("local" | "transformer_engine") => Some("scoped"),
        None if on(said, "enable-cuda-graph") || on(said, "external-cuda-graph") => Some("scoped"),
        _ => None,
    }
}

fn is_scoped(plan: &Plan) -> bool {
    plan.training.cuda_graphs == CudaGraphs::Scoped
}

const MODULES: Kind = Beside(|said| graphs(said) == Some("scoped"), &List);

pub(super) const KERNELS: &[Row] = &[
    row("attention-dropout", "training.attention_dropout", Real, MODEL).usual("0.1").bytes(MASKS),
    row("hidden-dropout", "training.hidden_dropout", Real, MODEL).usual("0.1").bytes(MASKS),
    row("use-flash-attn", "", Asked(false), ARGUMENTS).has(SCORES),
    row(
        "attention-backend",
        "training.attention_backend",
        Own {
            write: |plan| Ok(Some(plan.training.attention_backend.name().to_owned())),
            read: |_, said| Ok(Some(backend(said).into())),
        },
        MODEL,
    )
    .usual("auto")
    .has(SCORES),
    row(
        "transformer-impl",
        "training.implementation",
        Partly(&Words {
            known: &[("local", "local"), ("transformer_engine", "transformer_engine")],
            lacks: "",
        }),
        ARGUMENTS,
    )
    .when(|plan| plan.training.implementation == Implementation::Local)
    .usual("transformer_engine")
    .bytes("Megatron-Core's own attention and its buffer of scores"),
    row(
        "cross-entropy-loss-fusion",
        "training.cross_entropy",
        Alone {
            write: |plan| plan.training.cross_entropy != CrossEntropy::Unfused,
            read: |there, said| {
                let by_engine = said("cross-entropy-fusion-impl").as_deref() == Some("te");
                let kernel = match (there, by_engine) {
                    (false, _) => CrossEntropy::Unfused,
                    (true, true) => CrossEntropy::Te,
                    (true, false) => CrossEntropy::Native,
                };
                Some(kernel.name().into())
            },
        },
        MODEL,
    )
    .usual("false")
    .bytes(LOSS),
    row(
        "cross-entropy-fusion-impl",
        "",
        Follows(|plan| {
            let is_fused = plan.training.cross_entropy != CrossEntropy::Unfused;
            is_fused.then(|| CrossEntropy::Native.name().to_owned())
        }),
        MODEL,
    )
    .bytes(LOSS),
    says(
        "training.cross_entropy",
        |plan| {
            unless(
                plan.training.cross_entropy == CrossEntropy::Te,
                "Megatron-LM refuses TransformerEngine's fused loss (core_v0.19); the script takes Megatron-Core's own",
            )
        },
        ARGUMENTS,
    ),
    row("no-gradient-accumulation-fusion", "training.fused_gradient_accumulation", FlagOff, ARGUMENTS)
        .usual("false")
        .bytes("no cached dummy weight gradients, but one that is not added where it is made"),
    row("enable-cuda-graph", "", Asked(false), ARGUMENTS).has(GRAPHS),
    row("external-cuda-graph", "", Asked(false), ARGUMENTS).has(GRAPHS),
    row(
        "cuda-graph-impl",
        "training.cuda_graphs",
        Own {
            write: |plan| {
                let word = match plan.training.cuda_graphs {
                    CudaGraphs::None => return Ok(None),
                    CudaGraphs::Iteration => "full_iteration",
                    CudaGraphs::Scoped => "transformer_engine",
                };
                Ok(Some(word.to_owned()))
            },
            read: |_, said| Ok(graphs(said).map(Into::into)),
        },
        MODEL,
    )
    .usual("none")
    .has(GRAPHS),
    says(
        "training.cuda_graphs",
        |plan| {
            let counts = has_experts(plan) && !plan.training.moe.captures_experts();
            unless(
                counts && plan.training.cuda_graphs == CudaGraphs::Iteration,
                "experts without a capacity want --moe-paged-stash, --moe-expert-rank-capacity-factor and --use-transformer-engine-op-fuser in such a graph (core_v0.18 on), whose sizes a plan does not have; add them",
            )
        },
        MODEL,
    ),
    // A loss is not looked at while a graph of the whole iteration runs.
    row(
        "no-check-for-nan-in-loss-and-grad",
        "",
        Alone { write: |plan| plan.training.cuda_graphs == CudaGraphs::Iteration, read: |_, _| None },
        ARGUMENTS,
    )
    .no_bytes(WATCHED),
    row("cuda-graph-scope", "training.cuda_graph_modules", Read(&MODULES), MODEL).usual("").has(GRAPHS),
    row("cuda-graph-modules", "training.cuda_graph_modules", MODULES, MODEL).when(is_scoped).has(GRAPHS),
];

pub(super) const OVERLAPS: &[Row] = &[
    row("overlap-grad-reduce", "training.overlap.grad_reduce", Flag, DDP).usual("false").no_bytes(HIDDEN),
    row("overlap-param-gather", "training.overlap.param_gather", Flag, DDP).usual("false").no_bytes(HIDDEN),
    row("tp-comm-overlap", "training.overlap.tp", Flag, PARALLEL).usual("false").bytes("two more workspaces"),
    row("overlap-moe-expert-parallel-comm", "training.overlap.ep", Flag, PARALLEL)
        .usual("false")
        .bytes("one layer of expert tensors stays after the step"),
    row("no-overlap-p2p-communication", "training.overlap.p2p", FlagOff, ARGUMENTS)
        .usual("false")
        .no_bytes(HIDDEN),
    row("delay-wgrad-compute", "training.overlap.delay_wgrad", Flag, PARALLEL)
        .usual("false")
        .no_bytes("when weight gradients are computed"),
];

/// What plans seldom say.
pub(super) const RARE: &[Row] = &[
    row("no-create-attention-mask-in-dataloader", "training.attention_mask", FlagOff, ARGUMENTS)
        .usual("false")
        .bytes("a mask of b s^2 bytes unless given"),
    row("deterministic-mode", "training.deterministic", Flag, PARALLEL).bytes(
        "with experimental-attention-variant gated_delta_net: the rule in plain operators; else no bytes",
    ),
    row("no-masked-softmax-fusion", "training.fused_softmax", FlagOff, ARGUMENTS)
        .bytes("softmax in fp32 beside the probabilities"),
    row(
        "defer-embedding-wgrad-compute",
        "",
        Alone { write: |plan| plan.training.deferred_head_gradients.is_some(), read: |_, _| None },
        PARALLEL,
    )
    .bytes("inputs of the output layer and gradients of the logits of waiting micro batches"),
    row(
        "wgrad-deferral-limit",
        "training.deferred_head_gradients",
        Beside(|said| on(said, "defer-embedding-wgrad-compute"), &Number),
        PARALLEL,
    )
    .usual("0")
    .bytes("inputs of the output layer and gradients of the logits of waiting micro batches"),
];
