//! The optimizer and its state, learning rate and norm.

use serde_json::Value;

use crate::Kind::{Alone, AtLeast, Beside, Flag, Follows, Number, Own, Partly, Read, Real};
use crate::kind::Options;
use crate::number::plain_digits;
use crate::row::{FALL, LEAST_RATE, STYLES, has_adam};
use crate::{Effect, Kind, Row};
use planner::plan::{LossScale, Plan};
use planner::settings::OptimizerKind;
use planner::units::Dtype;

use super::batch::STATE_TYPES;
use super::{ARGUMENTS, DDP, TRAINING, is_fsdp, on, row, says, shards, unless, whole};

const SOURCE: &str = super::OPTIMIZER;
const STATE: Effect = Effect::Bytes("state: which, in which types, split over whom");
const HOST: &str = "part of the state on the host";
const STEP: &str = "a number of the optimizer's step";
const RATE: &str = "a number of the learning rate's schedule";

const TRAINING_DATA: &str = "megatron/core/datasets/gpt_dataset.py";
const DOCUMENTS: &str = "what documents of a sequence are to each other";

/// Kinds by their names; those of layers' own state begin with this.
const LAYER_WISE: &str = "dist_";

fn is_aware(plan: &Plan) -> bool {
    plan.training.optimizer.precision_aware
}

fn aware(said: Options) -> bool {
    on(said, "use-precision-aware-optimizer")
}

fn offloads(said: Options) -> bool {
    on(said, "optimizer-cpu-offload")
}

fn on_host(plan: &Plan) -> bool {
    plan.training.optimizer.offload_fraction > 0.0
}

fn has_instances(plan: &Plan) -> bool {
    plan.training.optimizer.instances > 1 && !is_fsdp(plan)
}

/// A type of the state that needs an optimizer that knows types.
const fn wide_only(field: &'static str, why: fn(&Plan) -> Result<(), &'static str>) -> Row {
    says(field, why, SOURCE)
}

fn fp32_unless_aware(plan: &Plan, dtype: Dtype) -> Result<(), &'static str> {
    let other = !is_aware(plan) && dtype != Dtype::Fp32;
    unless(other, "state of other types than fp32 needs the precision-aware optimizer")
}

const AWARE_TYPES: Kind = Beside(aware, &Partly(&STATE_TYPES));

pub(super) const OPTIMIZER: &[Row] = &[
    row(
        "optimizer",
        "training.optimizer.kind",
        Own {
            write: |plan| Ok(Some(plan.training.optimizer.kind.name().to_owned())),
            read: |word, _| match word.trim_start_matches(LAYER_WISE) {
                kind @ ("adam" | "sgd" | "muon") => Ok(Some(kind.into())),
                _ => Err("which is not planned; there are adam, sgd and muon"),
            },
        },
        SOURCE,
    )
    .usual("adam")
    .has(STATE),
    row("use-distributed-optimizer", "training.optimizer.distributed", Flag, ARGUMENTS)
        .usual("false")
        .has(STATE),
    row(
        "use-layer-wise-distributed-optimizer",
        "training.optimizer.distributed",
        Read(&Alone { write: |_| false, read: |there, _| there.then(|| true.into()) }),
        ARGUMENTS,
    )
    .has(STATE),
    row(
        "optimizer",
        "training.optimizer.distributed",
        Own {
            write: |_| Ok(None),
            read: |word, said| Ok((word.starts_with(LAYER_WISE) || shards(said)).then(|| true.into())),
        },
        ARGUMENTS,
    )
    .usual("adam"),
    row("use-precision-aware-optimizer", "training.optimizer.precision_aware", Flag, SOURCE).has(STATE),
    row("main-params-dtype", "training.optimizer.master_dtype", AWARE_TYPES, SOURCE)
        .when(is_aware)
        .has(STATE),
    row("exp-avg-dtype", "training.optimizer.exp_avg_dtype", AWARE_TYPES, SOURCE).when(is_aware).has(STATE),
    row("exp-avg-sq-dtype", "training.optimizer.exp_avg_sq_dtype", AWARE_TYPES, SOURCE)
        .when(is_aware)
        .has(STATE),
    wide_only("training.optimizer.master_dtype", |plan| {
        fp32_unless_aware(plan, plan.training.optimizer.master_dtype)
    }),
    wide_only("training.optimizer.exp_avg_dtype", |plan| {
        fp32_unless_aware(plan, plan.training.optimizer.exp_avg_dtype)
    }),
    wide_only("training.optimizer.exp_avg_sq_dtype", |plan| {
        fp32_unless_aware(plan, plan.training.optimizer.exp_avg_sq_dtype)
    }),
    row(
        "main-grads-dtype",
        "",
        Follows(|plan| {
            (is_aware(plan) && plan.training.grad_dtype == Dtype::Bf16).then(|| "bf16".to_owned())
        }),
        SOURCE,
    )
    .no_bytes("the optimizer reads the buffers that there are"),
    row(
        "optimizer-cpu-offload",
        "training.optimizer.offload_fraction",
        Alone { write: on_host, read: |there, _| there.then(|| 1.0.into()) },
        SOURCE,
    )
    .bytes(HOST),
    row("optimizer-offload-fraction", "training.optimizer.offload_fraction", Beside(offloads, &Real), SOURCE)
        .when(on_host)
        .bytes(HOST),
    row(
        "num-distributed-optimizer-instances",
        "training.optimizer.instances",
        Beside(|said| !shards(said), &AtLeast(2.0, &Number)),
        DDP,
    )
    .when(has_instances)
    .has(STATE),
    row("adam-beta1", "training.optimizer.beta1", RUN_REAL, SOURCE)
        .when(has_adam)
        .usual("0.9")
        .no_bytes(STEP),
    row("adam-beta2", "training.optimizer.beta2", RUN_REAL, SOURCE)
        .when(has_adam)
        .usual("0.999")
        .no_bytes(STEP),
    row("adam-eps", "training.optimizer.eps", RUN_REAL, SOURCE).when(has_adam).usual("1e-08").no_bytes(STEP),
    row("sgd-momentum", "training.optimizer.momentum", RUN_REAL, SOURCE)
        .when(|plan| plan.training.optimizer.kind == OptimizerKind::Sgd)
        .no_bytes(STEP),
    row("muon-momentum", "training.optimizer.momentum", RUN_REAL, SOURCE)
        .when(|plan| plan.training.optimizer.kind == OptimizerKind::Muon)
        .no_bytes(STEP),
];

/// Whether what losses are multiplied by follows what overflows.
fn follows_overflows(plan: &Plan) -> bool {
    matches!(plan.training.loss_scale, Some(LossScale::Dynamic { .. }))
}

const SCALE: &str = "what losses are multiplied by in fp16";

/// Whether a job computes in fp16: in others nothing follows what overflows, whatever is said of it.
fn in_fp16(said: Options) -> bool {
    on(said, "fp16")
}

/// Steps of so many samples, of which the last may be a part of one; none where the job does not say its batch.
fn steps_of(samples: &str, said: Options) -> Option<u64> {
    let batch = whole(said, "global-batch-size").filter(|batch| *batch > 0)?;
    let samples: f64 = plain_digits(samples).parse().ok()?;
    (samples >= batch as f64).then(|| samples as u64 / batch)
}

/// A number of samples, as steps of the whole batch.
pub(super) const SAMPLES: Kind =
    Read(&Own { write: |_| Ok(None), read: |word, said| Ok(steps_of(word, said).map(Value::from)) });

/// The part of the falling rate's steps in which it rises, as Megatron-LM takes it (`get_optimizer_param_scheduler`).
const WARMUP: Kind = Read(&Own {
    write: |_| Ok(None),
    read: |word, said| {
        let own = |steps: &str, samples: &str| {
            whole(said, steps).or_else(|| said(samples).and_then(|samples| steps_of(&samples, said)))
        };
        let falls = own("lr-decay-iters", "lr-decay-samples").or_else(|| own("train-iters", "train-samples"));
        let part = plain_digits(word).parse::<f64>().ok().filter(|part| (0.0..=1.0).contains(part));
        Ok(falls.zip(part).map(|(falls, part)| ((falls as f64 * part) as u64).into()))
    },
});

/// A number of the run, which changes no byte and no second: what can't be read is left to the plan's default.
const RUN_REAL: Kind = AtLeast(0.0, &Partly(&Real));

pub(super) const RUN: &[Row] = &[
    row("lr", "run.lr", RUN_REAL, SOURCE).no_bytes(RATE),
    row("min-lr", "run.min_lr", AtLeast(0.0, &Partly(&LEAST_RATE)), SOURCE).no_bytes(RATE),
    row("lr-decay-style", "run.lr_schedule", STYLES, "megatron/core/optimizer_param_scheduler.py")
        .usual("linear")
        .no_bytes(RATE),
    row("lr-decay-iters", "run.lr_decay_steps", AtLeast(1.0, &Partly(&FALL)), TRAINING).no_bytes(RATE),
    row("lr-warmup-iters", "run.warmup_steps", Partly(&Number), TRAINING).no_bytes(RATE),
    row("lr-decay-samples", "run.lr_decay_steps", SAMPLES, TRAINING).no_bytes(RATE),
    row("lr-warmup-samples", "run.warmup_steps", SAMPLES, TRAINING).no_bytes(RATE),
    row("lr-warmup-fraction", "run.warmup_steps", WARMUP, TRAINING).no_bytes(RATE),
    row("weight-decay", "run.weight_decay", RUN_REAL, SOURCE).usual("0.01").no_bytes(STEP),
    row("clip-grad", "run.clip_grad", RUN_REAL, SOURCE).no_bytes(STEP),
    row("loss-scale", "training.loss_scale.fixed", RUN_REAL, ARGUMENTS)
        .when(|plan| matches!(plan.training.loss_scale, Some(LossScale::Fixed(_))))
        .no_bytes(SCALE),
    row("initial-loss-scale", "training.loss_scale.initial", Beside(in_fp16, &RUN_REAL), ARGUMENTS)
        .when(follows_overflows)
        .usual("4294967296")
        .no_bytes(SCALE),
    row("min-loss-scale", "training.loss_scale.min", Beside(in_fp16, &RUN_REAL), ARGUMENTS)
        .when(follows_overflows)
        .usual("1.0")
        .no_bytes(SCALE),
    row(
        "loss-scale-window",
        "training.loss_scale.window",
        Beside(in_fp16, &AtLeast(1.0, &Partly(&Number))),
        ARGUMENTS,
    )
    .when(follows_overflows)
    .usual("1000")
    .no_bytes(SCALE),
    row(
        "hysteresis",
        "training.loss_scale.hysteresis",
        Beside(in_fp16, &AtLeast(1.0, &Partly(&Number))),
        ARGUMENTS,
    )
    .when(follows_overflows)
    .usual("2")
    .no_bytes(SCALE),
    // A site's data stands before.
    row("seed", "run.seed", Partly(&Number), TRAINING).no_bytes("which numbers, not how many"),
    row("reset-position-ids", "run.documents.reset_positions", Flag, TRAINING_DATA).no_bytes(DOCUMENTS),
    row("reset-attention-mask", "run.documents.reset_attention", Flag, TRAINING_DATA).no_bytes(DOCUMENTS),
    row("eod-mask-loss", "run.documents.mask_eod_loss", Flag, TRAINING_DATA).no_bytes(DOCUMENTS),
    says(
        "run.documents.reset_attention",
        |plan| {
            let unmade = plan.run.documents.reset_attention && !plan.training.attention_mask;
            unless(
                unmade,
                "attention crosses documents unless masks are made with the data: set training.attention_mask",
            )
        },
        TRAINING_DATA,
    ),
    row("eval-iters", "", Follows(|_| Some("0".to_owned())), TRAINING)
        .no_bytes("evaluation is not planned, and not run"),
    row("log-interval", "", Follows(|_| Some("1".to_owned())), TRAINING).no_bytes("what is printed"),
    row("log-throughput", "", Alone { write: |_| true, read: |_, _| None }, TRAINING)
        .no_bytes("what is printed"),
];
