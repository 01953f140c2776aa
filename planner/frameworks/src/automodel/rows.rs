//! Options of NeMo Automodel 0.7.0: keys of its recipe, which the command line sets over the file.

use serde_json::Value;

use crate::Kind::{Beside, Follows, Number, Own, Read, Real, Switch, Words};
use crate::gap::{UNDER_ALL, UNDER_FSDP, UNDER_FSDP2};
use crate::kind::Options;
use crate::row::{FALL, LEAST_RATE, STYLES, fall, is_adam};
use crate::{Kind, Row, Table};
use planner::layout::{Reshard, automodel, stage_layers};
use planner::plan::Plan;
use planner::runtime::Runtime;
use planner::schedule::Chunks;
use planner::settings::{Granularity, Schedule};
use planner::units::number;

use super::gaps;

/// `recipes/_dist_utils.py` takes sizes, checkpointing and the pipeline out of `distributed`, and hands the rest to the strategy.
const SETUP: &str = "recipes/_dist_utils.py";
/// Fields of `FSDP2Config` and `MegatronFSDPConfig`.
const CONFIG: &str = "components/distributed/config.py";
/// Virtual stages of a pipeline.
const STAGES: &str = "components/distributed/pipelining/functional.py";
/// Counts sequences and steps.
const STEPS: &str = "components/training/step_scheduler.py";
/// The learning rate over steps.
const SCHEDULER: &str = "components/optim/scheduler.py";
/// Seed and norm.
const RECIPE: &str = "recipes/llm/train_ft.py";
/// Fields of `AdamWConfig`, which `_target_` of the recipe's optimizer takes as they are.
const OPTIMIZER: &str = "components/optim/optimizer.py";
/// Where the model is made.
const MODEL: &str = "docs/guides/mixed-precision-training.md";

/// The table of a plan's runtime.
pub fn table(runtime: Runtime) -> Table {
    match runtime.facts().flat_units {
        true => Table {
            rows: &[SIZES, MEGATRON_FSDP, BATCH, RUN],
            gaps: &[UNDER_ALL, gaps::COMMON, gaps::MEGATRON_FSDP, gaps::OF_FSDP2, UNDER_FSDP],
        },
        false => Table {
            rows: &[SIZES, FSDP2, PIPELINE, BATCH, RUN],
            gaps: &[UNDER_ALL, gaps::COMMON, gaps::FSDP2, UNDER_FSDP, UNDER_FSDP2],
        },
    }
}

/// torch's names of types.
const TYPES: Kind = Words {
    known: &[
        ("bfloat16", "bf16"),
        ("float16", "fp16"),
        ("float32", "fp32"),
        ("float64", "fp64"),
        ("torch.bfloat16", "bf16"),
        ("torch.float16", "fp16"),
        ("torch.float32", "fp32"),
        ("bf16", "bf16"),
        ("fp16", "fp16"),
        ("fp32", "fp32"),
    ],
    lacks: "low precision stands in the recipe file's fp8 section",
};

/// Schedules of torch's pipelines, which it reads in any case.
const SCHEDULES: Kind = Words {
    known: &[
        ("1f1b", "1f1b"),
        ("interleaved1f1b", "interleaved"),
        ("gpipe", "gpipe"),
        ("zbvzerobubble", "zbv"),
    ],
    lacks: "torch has no such schedule; the recipe file's holds",
};

const fn row(option: &'static str, field: &'static str, kind: Kind, source: &'static str) -> Row {
    Row::new(option, field, kind, source)
}

const SIZES: &[Row] = &[
    row(
        "distributed.strategy",
        "runtime",
        Follows(|plan| {
            Some(if plan.runtime.facts().flat_units { "megatron_fsdp" } else { "fsdp2" }.to_owned())
        }),
        SETUP,
    ),
    row("distributed.dp_size", "", Follows(|plan| Some(plan.layout.dp.to_string())), SETUP),
    row("distributed.tp_size", "layout.tp", Number, SETUP),
    row("distributed.cp_size", "layout.cp", Number, SETUP),
];

fn is_full(word: &str) -> bool {
    ["true", "full"].iter().any(|full| word.eq_ignore_ascii_case(full))
}

fn uniform(plan: &Plan) -> bool {
    plan.training.recompute_method.as_deref().is_none_or(|method| method == "uniform")
}

/// Nothing is written of how whole layers are recomputed, where that is as it always is.
fn every_layer(plan: &Plan, is_so: fn(&Plan) -> bool) -> Result<Option<String>, &'static str> {
    let full = plan.training.recompute == Granularity::Full;
    if full && !is_so(plan) { Err("every layer is a checkpoint of its own") } else { Ok(None) }
}

/// How layers are resharded where a plan says nothing of it.
fn unsaid_reshard(plan: &Plan) -> Option<Reshard> {
    let mut file = plan.file.clone();
    file.layout.fsdp.reshard_after_forward = None;
    Some(planner::fill::fill(&file).plan?.layout.fsdp.reshard)
}

const FSDP2: &[Row] = &[
    row("distributed.dp_replicate_size", "layout.dp_replicate", Number, SETUP),
    row("distributed.pp_size", "layout.pp", Number, SETUP),
    row("distributed.ep_size", "layout.ep", Number, SETUP),
    row("distributed.sequence_parallel", "layout.sp", Switch, CONFIG),
    row(
        "distributed.activation_checkpointing",
        "training.recompute.granularity",
        Words {
            known: &[("false", "none"), ("true", "full"), ("full", "full"), ("selective", "selective")],
            lacks: "",
        },
        SETUP,
    ),
    row(
        "distributed.activation_checkpointing",
        "training.recompute.method",
        Own {
            write: |plan| every_layer(plan, uniform),
            read: |word, _| Ok(is_full(word).then(|| "uniform".into())),
        },
        SETUP,
    ),
    row(
        "distributed.activation_checkpointing",
        "training.recompute.num_layers",
        Own {
            write: |plan| {
                every_layer(plan, |plan| plan.training.recompute_layers.is_none_or(|layers| layers == 1))
            },
            read: |word, _| Ok(is_full(word).then(|| 1.into())),
        },
        SETUP,
    ),
    // Its policy is torchtitan's: every second matrix product is kept.
    row(
        "distributed.activation_checkpointing",
        "layout.fsdp.checkpoint_selects",
        Own {
            write: |plan| match plan.layout.fsdp.checkpoints_matmuls {
                true => Ok(None),
                false => Err("selective checkpoints keep every second matrix product; plan with `matmuls`"),
            },
            read: |word, _| Ok((word == "selective").then(|| "matmuls".into())),
        },
        "components/distributed/activation_checkpointing.py",
    )
    .when(|plan| plan.training.recompute == Granularity::Selective),
    row(
        "distributed.activation_checkpointing_scope",
        "layout.fsdp.checkpoint_scope",
        Words {
            known: &[
                ("all", "all"),
                ("language", "language"),
                ("vision", "vision"),
                ("audio", "audio"),
                ("multimodal", "multimodal"),
            ],
            lacks: "",
        },
        CONFIG,
    ),
    row(
        "distributed.reshard_after_forward",
        "layout.fsdp.reshard_after_forward",
        Own {
            write: |plan| match plan.layout.fsdp.reshard {
                Reshard::Always => Ok(Some("true".to_owned())),
                Reshard::Never => Ok(Some("false".to_owned())),
                Reshard::Default if unsaid_reshard(plan) == Some(Reshard::Default) => Ok(None),
                Reshard::Default => Err("what it does where nothing is said is another for this model"),
                _ => Err("layers are resharded always, never or by default, not to groups of a size"),
            },
            read: |word, _| match word.to_ascii_lowercase().as_str() {
                "true" => Ok(Some("always".into())),
                "false" => Ok(Some("never".into())),
                crate::kind::NULL => Ok(None),
                _ => Err("which is none of its words; there are true, false"),
            },
        },
        CONFIG,
    ),
    row("distributed.enable_compile", "layout.fsdp.compile", Switch, CONFIG),
    row(
        "distributed.defer_fsdp_grad_sync",
        "layout.fsdp.gradient_sync",
        Words { known: &[("true", "last"), ("false", "every")], lacks: "" },
        CONFIG,
    ),
    // A policy is made of what is given, so all of it is.
    row("distributed.mp_policy.param_dtype", "training.dtype", TYPES, SETUP),
    row("distributed.mp_policy.reduce_dtype", "layout.fsdp.reduce_dtype", TYPES, SETUP),
    row("distributed.mp_policy.output_dtype", "layout.fsdp.output_dtype", TYPES, SETUP),
    row(
        "distributed.offload_policy.pin_memory",
        "layout.fsdp.offload",
        Words { known: &[("true", "cpu"), ("false", "cpu"), ("", "none")], lacks: "" },
        SETUP,
    ),
    row("model.dtype", "layout.fsdp.sharded_dtype", Read(&TYPES), MODEL),
    row("model.torch_dtype", "layout.fsdp.sharded_dtype", Read(&TYPES), MODEL),
];

/// Whether the stages hold what Automodel gives them by itself: evenly, and what is over to the first ones.
pub(super) fn is_own_split(plan: &Plan) -> bool {
    let layers = plan.model.num_layers;
    stage_layers(&plan.layout, layers).is_some_and(|counts| counts == automodel(layers, counts.len() as u64))
}

/// The number of layers by which Automodel makes as many virtual stages; none where none does.
fn layers_per_stage(plan: &Plan) -> Option<u64> {
    let (layers, stages) = (plan.model.num_layers, plan.layout.pp * plan.layout.vpp);
    let each = layers.div_ceil(stages.max(1)).max(1);
    (layers.div_ceil(each) == stages).then_some(each)
}

/// Chunks of a stage where nothing says how many layers a stage has.
pub(super) fn usual_chunks(schedule: Schedule) -> u64 {
    if schedule.kind().chunks == Chunks::One { 1 } else { 2 }
}

fn has_pipeline(plan: &Plan) -> bool {
    plan.layout.pp > 1
}

/// Whether a job has more than one stage.
fn in_stages(said: Options) -> bool {
    said("distributed.pp_size").and_then(|size| size.parse::<u64>().ok()).is_some_and(|stages| stages > 1)
}

const PIPELINE: &[Row] = &[
    // Without stages nothing of the pipeline's section holds.
    row("distributed.pipeline.pp_schedule", "layout.schedule", Beside(in_stages, &SCHEDULES), SETUP)
        .when(has_pipeline),
    row(
        "distributed.pipeline.layers_per_stage",
        "layout.vpp",
        Own {
            write: |plan| match layers_per_stage(plan) {
                Some(layers) => Ok(Some(layers.to_string())),
                None if plan.layout.vpp == usual_chunks(plan.layout.schedule) => Ok(None),
                None => {
                    Err("chunks are told by the layers of a stage, and no number of layers makes so many")
                }
            },
            // Whoever knows the layers of the model reads it.
            read: |_, _| Ok(None),
        },
        STAGES,
    )
    .when(has_pipeline),
];

const BATCH: &[Row] = &[
    row("step_scheduler.global_batch_size", "training.global_batch_size", Number, STEPS),
    // A pipeline takes all its micro batches as one local batch.
    row(
        "step_scheduler.local_batch_size",
        "training.micro_batch_size",
        Own {
            write: |plan| {
                let batches = if plan.layout.pp > 1 { plan.microbatches() } else { 1 };
                Ok(Some(plan.training.micro_batch_size.saturating_mul(batches).to_string()))
            },
            read: |word, said| if in_stages(said) { Ok(None) } else { Number.read(word, said) },
        },
        STEPS,
    ),
    row(
        "distributed.pipeline.pp_microbatch_size",
        "training.micro_batch_size",
        Own {
            write: |plan| Ok(has_pipeline(plan).then(|| plan.training.micro_batch_size.to_string())),
            read: |word, said| if in_stages(said) { Number.read(word, said) } else { Ok(None) },
        },
        SETUP,
    ),
];

/// One of Adam's two decays, which are a list.
fn beta(word: &str, which: usize) -> Result<Option<Value>, &'static str> {
    let inner = word.trim().trim_matches(['[', ']', '(', ')']);
    let betas: Result<Vec<f64>, _> = inner.split(',').map(|beta| beta.trim().parse()).collect();
    match betas.as_deref() {
        Ok(betas @ [_, _]) => Ok(betas.get(which).copied().map(Value::from)),
        _ => Err("which is no list of two numbers"),
    }
}

const RUN: &[Row] = &[
    row("step_scheduler.max_steps", "run.steps", Number, STEPS),
    row("optimizer.lr", "run.lr", Real, RECIPE),
    row("optimizer.weight_decay", "run.weight_decay", Real, RECIPE),
    row(
        "optimizer.betas",
        "training.optimizer.beta1",
        Own {
            write: |plan| {
                let optimizer = &plan.training.optimizer;
                Ok(Some(format!("[{},{}]", number(optimizer.beta1), number(optimizer.beta2))))
            },
            read: |word, _| beta(word, 0),
        },
        OPTIMIZER,
    )
    .when(is_adam),
    row(
        "optimizer.betas",
        "training.optimizer.beta2",
        Own { write: |_| Ok(None), read: |word, _| beta(word, 1) },
        OPTIMIZER,
    )
    .when(is_adam),
    row("optimizer.eps", "training.optimizer.eps", Real, OPTIMIZER).when(is_adam),
    row("lr_scheduler.lr_warmup_steps", "run.warmup_steps", Number, SCHEDULER),
    row("lr_scheduler.lr_decay_style", "run.lr_schedule", STYLES, SCHEDULER),
    row("lr_scheduler.min_lr", "run.min_lr", LEAST_RATE, SCHEDULER),
    row("lr_scheduler.lr_decay_steps", "run.lr_decay_steps", FALL, SCHEDULER)
        .when(|plan| fall(plan) != plan.run.steps),
    row("clip_grad_norm.max_norm", "run.clip_grad", Real, RECIPE).when(|plan| plan.run.clip_grad > 0.0),
    row("seed", "run.seed", Number, RECIPE),
];

/// Under Megatron-FSDP it refuses to start with these above 1.
const fn alone(option: &'static str, field: &'static str) -> Row {
    row(option, field, Follows(|_| Some("1".to_owned())), "components/distributed/mesh_utils.py")
}

const MEGATRON_FSDP: &[Row] = &[
    alone("distributed.dp_replicate_size", "layout.dp_replicate"),
    alone("distributed.pp_size", "layout.pp"),
    alone("distributed.ep_size", "layout.ep"),
    row(
        "distributed.activation_checkpointing",
        "training.recompute.granularity",
        Follows(|_| Some("false".to_owned())),
        "components/distributed/megatron_fsdp.py",
    ),
    row(
        "distributed.zero_dp_strategy",
        "layout.fsdp.strategy",
        Words {
            known: &[("0", "no_shard"), ("1", "optim"), ("2", "optim_grads"), ("3", "optim_grads_params")],
            lacks: "",
        },
        CONFIG,
    ),
    row("distributed.overlap_grad_reduce", "training.overlap.grad_reduce", Switch, CONFIG),
    row("distributed.overlap_param_gather", "training.overlap.param_gather", Switch, CONFIG),
    row(
        "distributed.grad_reduce_in_fp32",
        "training.grad_dtype",
        Own {
            write: |plan| match plan.training.grad_dtype.size() {
                8 => Err("gradients are reduced in fp32 or in the compute type"),
                size => Ok(Some((size >= 4).to_string())),
            },
            read: |word, said| {
                let wide = Switch.read(word, said)? == Some(true.into());
                Ok(Some(Value::from(if wide { "fp32" } else { "bf16" })))
            },
        },
        CONFIG,
    ),
    row("distributed.preserve_fp32_weights", "layout.fsdp.preserve_fp32_weights", Switch, CONFIG),
    row("distributed.fsdp_double_buffer", "layout.fsdp.double_buffer", Switch, CONFIG),
    row("distributed.nccl_ub", "layout.fsdp.nccl_ub", Switch, CONFIG),
    row("distributed.keep_fp8_transpose_cache", "layout.fsdp.keep_fp8_transpose", Switch, CONFIG),
    row("distributed.init_fsdp_with_meta_device", "layout.fsdp.init_meta", Switch, CONFIG),
];
