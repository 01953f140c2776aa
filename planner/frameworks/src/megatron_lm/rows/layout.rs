//! The layout, and what Megatron-FSDP shards.

use crate::Kind::{Alone, Asked, AtLeast, Beside, Flag, Follows, Number, Own, Read, Several, Text, Words};
use crate::kind::Options;
use crate::{Effect, Kind, Row};
use planner::model::MixerRef;
use planner::plan::Plan;
use planner::settings::CpKind;
use planner::units::common_divisor;

use super::hybrid::is_hybrid;
use super::{ARGUMENTS, DDP, MODEL, PARALLEL, TRAINING, is_fsdp, on, row, shards, whole};

const SLICES: &str = "slices of parameters and activations";
const STAGES: &str = "layers of a stage and of a chunk";
const WORDS: &str = "words, padded to a multiple for tensor parallelism";
const UNITS: Effect = Effect::Bytes("sharded parameters, gathered units, buffers of gradients");

/// The order of ranks in which the pipeline is inside data parallelism.
const PIPELINE_INSIDE: &str = "tp-cp-ep-pp-dp";

/// Of context parallelism in two levels, how many ranks give each other whole heads, and how many of those groups pass keys on in a ring:
/// as many as a node and every layer's heads have room for do the first.
pub(crate) fn context_levels(plan: &Plan) -> Option<[u64; 2]> {
    let layout = &plan.layout;
    if layout.cp == 1 || layout.cp_kind != CpKind::A2aP2p {
        return None;
    }
    let near = common_divisor(layout.cp, (plan.cluster.gpus_per_node / layout.tp).max(1));
    let inner =
        plan.model.mixers().into_iter().filter_map(MixerRef::attention).fold(near, |inner, attention| {
            let heads = common_divisor(attention.heads(), attention.kv_heads());
            common_divisor(inner, (heads / layout.tp).max(1))
        });
    Some([inner, layout.cp / inner])
}

pub(super) const LAYOUT: &[Row] = &[
    row("tensor-model-parallel-size", "layout.tp", Number, PARALLEL).usual("1").bytes(SLICES),
    row(
        "sequence-parallel",
        "layout.sp",
        Alone {
            write: |plan| plan.layout.sp && plan.layout.tp > 1,
            read: |there, said| {
                Some((there && whole(said, "tensor-model-parallel-size").is_some_and(|tp| tp > 1)).into())
            },
        },
        PARALLEL,
    )
    .usual("false")
    .bytes("tokens of norms and the residual stream; one gather buffer"),
    row("context-parallel-size", "layout.cp", Number, PARALLEL).bytes(SLICES),
    row(
        "cp-comm-type",
        "layout.cp_kind",
        Words {
            known: &[
                ("p2p", "p2p"),
                ("a2a", "a2a"),
                ("allgather", "all_gather"),
                ("all_gather", "all_gather"),
                ("a2a+p2p", "a2a+p2p"),
            ],
            lacks: "",
        },
        MODEL,
    )
    .bytes("which all-to-all copies are kept"),
    row(
        "hierarchical-context-parallel-sizes",
        "",
        Several(&Follows(|plan| context_levels(plan).map(|[inner, outer]| format!("{inner} {outer}")))),
        PARALLEL,
    )
    .no_bytes("how and when something is sent, in buffers that are there in any case"),
    row("pipeline-model-parallel-size", "layout.pp", Number, PARALLEL).bytes(STAGES),
    // A hybrid's stages are in its pattern.
    row("pipeline-model-parallel-layout", "layout.pipeline_layout", Text, MODEL)
        .when(|plan| !is_hybrid(plan))
        .bytes(STAGES),
    row("num-layers-per-virtual-pipeline-stage", "layout.vpp", Asked(true), ARGUMENTS).bytes(STAGES),
    // It also takes uneven pipelines.
    row("num-virtual-stages-per-pipeline-rank", "layout.vpp", Number, ARGUMENTS)
        .when(|plan| plan.layout.vpp > 1 && plan.file.layout.pipeline_layout.is_none() && !is_hybrid(plan))
        .bytes(STAGES),
    row("decoder-first-pipeline-num-layers", "layout.first_stage_layers", Number, ARGUMENTS)
        .when(|plan| !is_hybrid(plan))
        .bytes(STAGES),
    row("decoder-last-pipeline-num-layers", "layout.last_stage_layers", Number, ARGUMENTS)
        .when(|plan| !is_hybrid(plan))
        .bytes(STAGES),
    row("account-for-embedding-in-pipeline-split", "layout.account_for_embedding", Flag, MODEL)
        .when(|plan| !is_hybrid(plan))
        .bytes(STAGES),
    row("account-for-loss-in-pipeline-split", "layout.account_for_loss", Flag, MODEL)
        .when(|plan| !is_hybrid(plan))
        .bytes(STAGES),
    row("microbatch-group-size-per-virtual-pipeline-stage", "layout.microbatch_group_size", Number, PARALLEL)
        .when(|plan| plan.layout.vpp > 1 || plan.layout.microbatch_group_size != plan.layout.pp)
        .bytes("chunks in flight"),
    row("expert-model-parallel-size", "layout.ep", Number, PARALLEL).bytes(SLICES),
    // Left out it is tp here and 1 in Megatron Bridge.
    row("expert-tensor-parallel-size", "layout.etp", Number, PARALLEL).bytes(SLICES),
    row(
        "use-tp-pp-dp-mapping",
        "layout.order",
        Alone {
            write: |plan| plan.file.layout.order.as_deref() == Some(PIPELINE_INSIDE),
            read: |there, _| there.then(|| PIPELINE_INSIDE.into()),
        },
        ARGUMENTS,
    )
    .bytes("who is in which group"),
    row("make-vocab-size-divisible-by", "layout.vocab_divisible_by", Number, ARGUMENTS).bytes(WORDS),
    row("no-pad-vocab-size", "layout.vocab_divisible_by", Read(&UNPADDED), ARGUMENTS).bytes(WORDS),
    row("disable-pad-vocab-size", "layout.vocab_divisible_by", Read(&UNPADDED), ARGUMENTS).bytes(WORDS),
];

/// Words that are not padded are a multiple of 1.
const UNPADDED: Kind = Alone { write: |_| false, read: |there, _| there.then(|| 1.into()) };

/// What shards parameters, at its own default: Megatron-LM's differ.
const STRATEGY: Kind = Own {
    write: |plan| {
        let strategy = plan.file.layout.fsdp.strategy.as_deref();
        Ok(Some(strategy.unwrap_or("optim_grads_params").to_owned()))
    },
    read: |word, _| Ok(Some(word.into())),
};

const OUTER: Kind = Own {
    write: |plan| {
        let strategy = plan.file.layout.fsdp.outer_strategy.as_deref();
        Ok(Some(strategy.unwrap_or("no_shard").to_owned()))
    },
    read: |word, _| Ok(Some(word.into())),
};

fn replicates(plan: &Plan) -> bool {
    is_fsdp(plan) && plan.layout.dp_replicate > 1
}

/// Registered buffers are the double ones (Megatron-LM `validate_args`).
fn doubles(there: bool, said: Options) -> bool {
    there || on(said, "use-nccl-ub")
}

pub(super) const FSDP: &[Row] = &[
    row("use-custom-fsdp", "runtime", Asked(false), ARGUMENTS).bytes("sharded parameters: an older name"),
    row("use-megatron-fsdp", "runtime", Alone { write: is_fsdp, read: |_, _| None }, ARGUMENTS).has(UNITS),
    row("data-parallel-sharding-strategy", "layout.fsdp.strategy", Beside(shards, &STRATEGY), DDP)
        .when(is_fsdp)
        .usual("optim_grads_params")
        .has(UNITS),
    row("outer-dp-sharding-strategy", "layout.fsdp.outer_strategy", Beside(shards, &OUTER), DDP)
        .when(is_fsdp)
        .usual("no_shard")
        .has(UNITS),
    // Its instances are the replicas between which it shards nothing, or optimizer state alone.
    row("num-distributed-optimizer-instances", "layout.dp_replicate", Beside(shards, &Number), DDP)
        .when(replicates)
        .bytes("state: which, in which types, split over whom"),
    row(
        "fsdp-double-buffer",
        "layout.fsdp.double_buffer",
        Beside(
            shards,
            &Alone {
                write: |plan| plan.file.layout.fsdp.double_buffer == Some(true),
                read: |there, said| Some(doubles(there, said).into()),
            },
        ),
        DDP,
    )
    .when(is_fsdp)
    .usual("false")
    .has(UNITS),
    row("use-nccl-ub", "layout.fsdp.nccl_ub", Beside(shards, &Flag), DDP)
        .when(is_fsdp)
        .usual("false")
        .has(UNITS),
    row("keep-fp8-transpose-cache", "layout.fsdp.keep_fp8_transpose", Beside(shards, &Flag), DDP)
        .when(is_fsdp)
        .usual("false")
        .has(UNITS),
    row("init-model-with-meta-device", "layout.fsdp.init_meta", Beside(shards, &Flag), ARGUMENTS)
        .when(is_fsdp)
        .usual("false")
        .no_bytes("before the first step"),
    row(
        "suggested-communication-unit-size",
        "layout.fsdp.communication_unit",
        Beside(shards, &AtLeast(0.0, &Number)),
        DDP,
    )
    .when(is_fsdp)
    .has(UNITS),
    row("ckpt-format", "", Follows(|plan| is_fsdp(plan).then(|| "fsdp_dtensor".to_owned())), TRAINING)
        .no_bytes("how checkpoints are written"),
];
