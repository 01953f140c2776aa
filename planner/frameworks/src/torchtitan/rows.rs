//! Options of torchtitan: keys of its configuration, in the names of each version.

use crate::Kind::{Follows, Number, Own, Real, Switch, Words};
use crate::gap::{UNDER_ALL, UNDER_FSDP, UNDER_FSDP2};
use crate::row::is_adam;
use crate::{Kind, Row, Table};
use planner::layout::{stage_layers, torchtitan};
use planner::model::Balance;
use planner::plan::Plan;
use planner::settings::{CudaGraphs, Granularity, LrSchedule, OptimizerKind};
use planner::software::Framework;
use planner::units::number;

use super::{gaps, names};

/// Configurations: dataclasses in Python, or a TOML file.
const CONFIG: &str = "torchtitan/config/configs.py, 0.2: config/job_config.py";
const TRAINER: &str = "torchtitan/trainer.py, 0.2: config/job_config.py";
const PIPELINE: &str = "torchtitan/distributed/pipeline_parallel.py";
const FSDP: &str = "torchtitan/models/llama3/parallelize.py";
const SCHEDULER: &str = "torchtitan/components/lr_scheduler.py";
const OPTIMIZER: &str = "torchtitan/config/job_config.py";
const CHECKPOINTS: &str = "torchtitan/distributed/activation_checkpoint.py";
const CLIP: &str = "torchtitan/distributed/utils.py";

/// The option by which a version chooses between kinds of activation checkpoints, after all others.
pub(super) const CHOICE: &str = "activation-checkpoint";

/// The table of a version.
pub fn table(version: Framework) -> Table {
    match version {
        Framework::Torchtitan02 => Table {
            rows: &[LAYOUT, LAYOUT_02, STAGES, SEQUENCES, PRECISION, RUN, RUN_02, CHECKPOINTS_02],
            gaps: &[UNDER_ALL, gaps::COMMON, gaps::OF_02, UNDER_FSDP, UNDER_FSDP2],
        },
        Framework::TorchtitanMain => Table {
            rows: &[LAYOUT, LAYOUT_03, STAGES, TOKENS, PRECISION, GRAPHS, RUN, CHECKPOINTS_03],
            gaps: &[UNDER_ALL, gaps::CONSTANTS, gaps::COMMON, gaps::OF_03, UNDER_FSDP, UNDER_FSDP2],
        },
        _ => Table {
            rows: &[LAYOUT, LAYOUT_03, STAGES, SEQUENCES, PRECISION, GRAPHS, RUN, CHECKPOINTS_03],
            gaps: &[UNDER_ALL, gaps::CONSTANTS, gaps::COMMON, gaps::OF_03, UNDER_FSDP, UNDER_FSDP2],
        },
    }
}

const fn row(option: &'static str, field: &'static str, kind: Kind, source: &'static str) -> Row {
    Row::new(option, field, kind, source)
}

/// A reason why a field can't be said, and nothing that is written.
const fn says(field: &'static str, why: fn(&Plan) -> Result<(), &'static str>, source: &'static str) -> Row {
    row("", field, Kind::Says(why), source)
}

fn has_tp(plan: &Plan) -> bool {
    plan.layout.tp > 1
}

fn has_pipeline(plan: &Plan) -> bool {
    plan.layout.pp > 1
}

fn has_experts(plan: &Plan) -> bool {
    plan.model.moe.is_some()
}

const LAYOUT: &[Row] = &[
    row("parallelism.data_parallel_replicate_degree", "layout.dp_replicate", Number, CONFIG),
    row(
        "parallelism.data_parallel_shard_degree",
        "",
        Follows(|plan| Some((plan.layout.dp / plan.layout.dp_replicate.max(1)).to_string())),
        CONFIG,
    ),
    row("parallelism.tensor_parallel_degree", "layout.tp", Number, CONFIG),
    row("parallelism.context_parallel_degree", "layout.cp", Number, CONFIG),
    row("parallelism.expert_parallel_degree", "layout.ep", Number, CONFIG),
    row("parallelism.pipeline_parallel_degree", "layout.pp", Number, CONFIG),
    row(
        "parallelism.fsdp_reshard_after_forward",
        "layout.fsdp.reshard_after_forward",
        Words {
            known: &[("default", "default"), ("always", "always"), ("never", "never")],
            lacks: "layers are resharded always, never or by default, not to groups of a size",
        },
        FSDP,
    ),
];

const LAYOUT_02: &[Row] = &[
    says(
        "layout.sp",
        |plan| match has_tp(plan) && !plan.layout.sp {
            true => Err("with tensor parallelism there is always sequence parallelism"),
            false => Ok(()),
        },
        FSDP,
    ),
    row("parallelism.expert_tensor_parallel_degree", "layout.etp", Number, CONFIG).when(has_experts),
];

const LAYOUT_03: &[Row] =
    &[row("parallelism.enable_sequence_parallel", "layout.sp", Switch, CONFIG).when(has_tp)];

/// Layers of a virtual stage, embedding and output among them, and for how many layers those count: what torchtitan splits
/// into these very stages.
fn own_stages(plan: &Plan) -> Option<[u64; 3]> {
    let layers = plan.model.num_layers;
    let counts = stage_layers(&plan.layout, layers)?;
    let stages = counts.len() as u64;
    let most = counts.iter().copied().max()?;
    let fewer = (most - counts.first()?, most - counts.last()?);
    let same = |&(first, last): &(u64, u64)| {
        let each = (layers + first + last).div_ceil(stages.max(1));
        let as_many = each > 0 && (layers + first + last).div_ceil(each) == stages;
        as_many && torchtitan(layers, stages, first, last).as_ref() == Some(&counts)
    };
    let (first, last) = [fewer, (1, 1)].into_iter().find(same)?;
    Some([(layers + first + last).div_ceil(stages), first, last])
}

const STAGES: &[Row] = &[
    row("parallelism.pipeline_parallel_schedule", "layout.schedule", names::SCHEDULES, PIPELINE)
        .when(has_pipeline),
    says(
        "layout.pipeline_layout",
        |plan| match has_pipeline(plan) && own_stages(plan).is_none() {
            true => Err(
                "stages have equal numbers of layers, where embedding and output count as some, and what is over goes to the first; any \
                 other split is a list of modules in the configuration",
            ),
            false => Ok(()),
        },
        PIPELINE,
    ),
    row(
        "parallelism.pipeline_parallel_layers_per_stage",
        "",
        Follows(|plan| own_stages(plan).map(|[each, ..]| each.to_string())),
        PIPELINE,
    )
    .when(has_pipeline),
    row(
        "parallelism.pipeline_parallel_first_stage_less_layers",
        "",
        Follows(|plan| own_stages(plan).map(|[_, first, _]| first.to_string())),
        PIPELINE,
    )
    .when(has_pipeline),
    row(
        "parallelism.pipeline_parallel_last_stage_less_layers",
        "",
        Follows(|plan| own_stages(plan).map(|[.., last]| last.to_string())),
        PIPELINE,
    )
    .when(has_pipeline),
];

const SEQUENCES: &[Row] = &[
    row("training.seq_len", "training.seq_len", Number, TRAINER),
    // A pipeline takes all its micro batches as one local batch.
    row(
        "training.local_batch_size",
        "training.micro_batch_size",
        Follows(|plan| {
            let local = if has_pipeline(plan) { plan.microbatches() } else { 1 };
            Some(plan.training.micro_batch_size.saturating_mul(local).to_string())
        }),
        TRAINER,
    ),
    row("training.global_batch_size", "training.global_batch_size", Number, TRAINER),
    row(
        "parallelism.pipeline_parallel_microbatch_size",
        "",
        Follows(|plan| Some(plan.training.micro_batch_size.to_string())),
        CONFIG,
    )
    .when(has_pipeline),
];

fn tokens(plan: &Plan, sequences: u64) -> Option<String> {
    Some(sequences.saturating_mul(plan.training.seq_len).to_string())
}

/// Since 2026-08-20 batches are counted in tokens.
const TOKENS: &[Row] = &[
    row("training.max_context_length", "training.seq_len", Number, TRAINER),
    row(
        "training.num_tokens_per_microbatch_per_dp_rank",
        "training.micro_batch_size",
        Follows(|plan| tokens(plan, plan.training.micro_batch_size)),
        TRAINER,
    ),
    row(
        "training.num_tokens_per_train_step",
        "training.global_batch_size",
        Follows(|plan| tokens(plan, plan.training.global_batch_size)),
        TRAINER,
    ),
    row("parallelism.num_pp_microbatches", "", Follows(|plan| Some(plan.microbatches().to_string())), CONFIG)
        .when(has_pipeline),
];

const PRECISION: &[Row] = &[
    row(
        "training.mixed_precision_param",
        "training.dtype",
        Words {
            known: &[("bfloat16", "bf16"), ("float32", "fp32")],
            lacks: "low precision is a converter in the configuration; choose one that has it",
        },
        TRAINER,
    ),
    row(
        "training.dtype",
        "layout.fsdp.sharded_dtype",
        Words {
            known: &[("bfloat16", "bf16"), ("float32", "fp32")],
            lacks: "parameters are kept in float32 or bfloat16",
        },
        TRAINER,
    ),
    says(
        "layout.fsdp.output_dtype",
        |plan| match plan.layout.fsdp.output_dtype == plan.training.dtype {
            true => Ok(()),
            false => Err("outputs are of the compute type"),
        },
        FSDP,
    ),
    row(
        "training.enable_cpu_offload",
        "layout.fsdp.offload",
        Words { known: &[("true", "cpu"), ("false", "none")], lacks: "" },
        TRAINER,
    ),
    row("compile.enable", "layout.fsdp.compile", Switch, CONFIG),
];

/// Whether and why a step's capture can't be asked for.
fn captures(plan: &Plan) -> Result<(), &'static str> {
    match plan.training.cuda_graphs {
        CudaGraphs::None => Ok(()),
        CudaGraphs::Scoped => Err("the whole step is captured, or nothing"),
        CudaGraphs::Iteration if has_pipeline(plan) => Err("a pipeline's step can't be captured"),
        CudaGraphs::Iteration => Ok(()),
    }
}

const GRAPHS: &[Row] = &[
    row(
        "training.disable_cuda_graphs",
        "training.cuda_graphs",
        Own {
            write: |plan| {
                let on = plan.training.cuda_graphs == CudaGraphs::Iteration && captures(plan).is_ok();
                Ok(Some((!on).to_string()))
            },
            read: |word, said| {
                let on = Switch.read(word, said)? == Some(false.into());
                Ok(Some(if on { "iteration" } else { "none" }.into()))
            },
        },
        TRAINER,
    ),
    says("training.cuda_graphs", captures, TRAINER),
];

const RUN: &[Row] = &[
    row("training.steps", "run.steps", Number, TRAINER),
    // It scales by the norm whatever it is, so to clip nothing is to clip to more than any norm.
    row(
        "training.max_norm",
        "run.clip_grad",
        Own {
            write: |plan| {
                let norm = plan.run.clip_grad;
                Ok(Some(if norm > 0.0 { number(norm) } else { names::NO_CLIPPING.to_owned() }))
            },
            read: |word, said| {
                let norm = word.parse::<f64>().map_err(|_| "which is not a number")?;
                let none = names::NO_CLIPPING.parse().is_ok_and(|none: f64| norm >= none);
                if none { Ok(Some(0.0.into())) } else { Real.read(word, said) }
            },
        },
        CLIP,
    ),
    row("lr_scheduler.warmup_steps", "run.warmup_steps", Number, SCHEDULER),
    // Behind these steps a rate that falls would go on falling, below nothing at last, and one that stays ends the run.
    row(
        "lr_scheduler.total_steps",
        "run.lr_decay_steps",
        Own {
            write: |plan| {
                let run = &plan.run;
                Ok(Some(if falls(plan) { run.lr_decay_steps.max(run.steps) } else { run.steps }.to_string()))
            },
            read: |word, said| Number.read(word, said),
        },
        SCHEDULER,
    ),
    // The part of the steps in which the rate falls: none of them, or all after the warm-up.
    row(
        "lr_scheduler.decay_ratio",
        "run.lr_schedule",
        Follows(|plan| Some(if falls(plan) { "None" } else { "0.0" }.to_owned())),
        SCHEDULER,
    ),
    row(
        "lr_scheduler.decay_type",
        "",
        Follows(|plan| match plan.run.lr_schedule {
            LrSchedule::Constant => None,
            LrSchedule::Linear => Some("linear".to_owned()),
            LrSchedule::Cosine => Some("cosine".to_owned()),
        }),
        SCHEDULER,
    ),
    row(
        "lr_scheduler.min_lr_factor",
        "run.min_lr",
        Follows(|plan| {
            let run = &plan.run;
            Some(number(if run.lr > 0.0 { run.min_lr / run.lr } else { 0.0 }))
        }),
        SCHEDULER,
    )
    .when(falls),
    row("debug.seed", "run.seed", Number, CONFIG),
    row("debug.deterministic", "training.deterministic", Switch, CONFIG)
        .when(|plan| plan.training.deterministic),
    row("debug.moe_force_load_balance", "training.moe.force_balance", Switch, CONFIG).when(is_forced),
];

fn is_forced(plan: &Plan) -> bool {
    plan.model.moe.as_ref().is_some_and(|moe| moe.routing.balance == Balance::Forced)
}

fn falls(plan: &Plan) -> bool {
    plan.run.lr_schedule != LrSchedule::Constant
}

const RUN_02: &[Row] = &[
    row("optimizer.lr", "run.lr", Real, OPTIMIZER),
    row("optimizer.weight_decay", "run.weight_decay", Real, OPTIMIZER),
    row("optimizer.beta1", "training.optimizer.beta1", Real, OPTIMIZER).when(is_adam),
    row("optimizer.beta2", "training.optimizer.beta2", Real, OPTIMIZER).when(is_adam),
    row("optimizer.eps", "training.optimizer.eps", Real, OPTIMIZER).when(is_adam),
    row(
        "optimizer.name",
        "training.optimizer.kind",
        Own {
            write: |plan| match plan.training.optimizer.kind {
                OptimizerKind::Adam => Ok(Some("AdamW".to_owned())),
                _ => Err("the optimizer stands in the configuration"),
            },
            read: |_, _| Ok(None),
        },
        OPTIMIZER,
    ),
];

/// The kind of checkpoints.
fn kind(plan: &Plan) -> Option<String> {
    Some(
        match plan.training.recompute {
            Granularity::None => "none",
            Granularity::Selective => "selective",
            Granularity::Full => "full",
        }
        .to_owned(),
    )
}

fn every_layer(plan: &Plan) -> Result<(), &'static str> {
    let training = &plan.training;
    let alone = training.recompute_layers.is_none_or(|layers| layers == 1);
    let uniform = training.recompute_method.as_deref().is_none_or(|method| method == "uniform");
    match training.recompute == Granularity::Full && !(alone && uniform) {
        true => Err("every layer is a checkpoint of its own"),
        false => Ok(()),
    }
}

fn matmuls(plan: &Plan) -> Result<(), &'static str> {
    let selective = plan.training.recompute == Granularity::Selective;
    match selective && !plan.layout.fsdp.checkpoints_matmuls {
        true => Err("selective checkpoints keep every second matrix product; plan with `matmuls`"),
        false => Ok(()),
    }
}

fn all_or_none(plan: &Plan) -> Result<(), &'static str> {
    let some = plan.training.recompute != Granularity::None && !plan.layout.fsdp.checkpoints_language;
    if some { Err("all layers have checkpoints, or none") } else { Ok(()) }
}

const CHECKPOINTS_02: &[Row] = &[
    row("activation_checkpoint.mode", "training.recompute.granularity", Follows(kind), CHECKPOINTS),
    row(
        "activation_checkpoint.selective_ac_option",
        "",
        Follows(|plan| (plan.training.recompute == Granularity::Selective).then(|| "op".to_owned())),
        CHECKPOINTS,
    ),
    says("training.recompute.method", every_layer, CHECKPOINTS),
    says("layout.fsdp.checkpoint_selects", matmuls, CHECKPOINTS),
    says("layout.fsdp.checkpoint_scope", all_or_none, CHECKPOINTS),
];

const CHECKPOINTS_03: &[Row] = &[
    row(CHOICE, "training.recompute.granularity", Follows(kind), CHECKPOINTS),
    says("training.recompute.method", every_layer, CHECKPOINTS),
    says("layout.fsdp.checkpoint_selects", matmuls, CHECKPOINTS),
    says("layout.fsdp.checkpoint_scope", all_or_none, CHECKPOINTS),
];
