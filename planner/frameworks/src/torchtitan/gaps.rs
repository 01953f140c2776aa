//! What of a plan torchtitan has no option for.

use crate::Holds::{Elsewhere, Files, Nothing, Only, Where};
use crate::gap::{Gap, constants, documents, evaluation, gap, loss_scale, momentum, weights};
use planner::settings::{CudaGraphs, LrSchedule, OptimizerKind};

const CONFIG: &str = "torchtitan/config/configs.py";
const FSDP: &str = "torchtitan/models/llama3/parallelize.py";
const MODEL: &str = "torchtitan/models";
const CHECKPOINTS: &str = "torchtitan/distributed/activation_checkpoint.py";

/// Of every version.
pub(super) const COMMON: &[Gap] = &[
    gap(
        "model",
        Nothing,
        "the configuration names the model; one that is known to be another is said",
        CONFIG,
    ),
    gap("runtime", Nothing, "it runs FSDP2", FSDP),
    gap("run.data", Nothing, "the configuration's data set is trained on", CONFIG),
    gap("layout.fsdp.reduce_dtype", Only("fp32"), "gradients are reduced in fp32", FSDP),
    gap("layout.fsdp.gradient_sync", Files, "when gradients are reduced follows from the pipeline", FSDP),
    gap("layout.fsdp.outer_units", Files, "which modules are units of their own is not to be chosen", FSDP),
    gap("layout.fsdp.loss_dtype", Files, "the loss stands in the configuration", CONFIG),
    gap("layout.fsdp.keeps_logits", Files, "the loss stands in the configuration", CONFIG),
    gap("layout.tp_plan", Files, "how matrices are cut stands with the model", MODEL),
    gap("layout.cp_kind", Files, "how context parallelism exchanges is torch's choice", FSDP),
    gap("training.attention_backend", Files, "the kernel of attention stands with the model", MODEL),
    gap("training.attention_dropout", Files, "models are trained without dropout", MODEL),
    gap("training.hidden_dropout", Files, "models are trained without dropout", MODEL),
    gap("training.cross_entropy", Files, "the loss stands in the configuration", CONFIG),
    gap("training.mtp_layers", Files, "prediction modules stand with the model", MODEL),
    gap("training.fp8_param_gather", Files, "low precision is a converter in the configuration", CONFIG),
    gap("training.moe", Nothing, "how experts are computed stands with the model", MODEL),
    gap("training.recompute.num_layers", Nothing, "said of the method", CHECKPOINTS),
    gap(
        "training.recompute.modules",
        Nothing,
        "selective checkpoints choose operators, not modules",
        CHECKPOINTS,
    ),
    gap(
        "run.lr_decay_steps",
        Where(|plan| {
            plan.run.lr_schedule != LrSchedule::Constant && plan.run.lr_decay_steps < plan.run.steps
        }),
        "a rate that falls does so until the last step, for it would not stay at its end",
        "torchtitan/components/optimizer/lr_scheduler.py",
    ),
    gap("layout.vpp", Nothing, "in the layers of stages", "torchtitan/distributed/pipeline_parallel.py"),
    gap("training.cuda_graph_modules", Nothing, "said of the graphs", CONFIG),
    loss_scale(
        "there is no fp16, and losses are multiplied by nothing",
        "torchtitan/trainer.py, 0.2: train.py",
    ),
    documents("torchtitan/components/data, before: hf_datasets"),
    weights("torchtitan/components/checkpointer, 0.2: checkpoint.py"),
    evaluation("torchtitan/components/validate.py"),
];

/// Of configurations in TOML.
pub(super) const OF_02: &[Gap] = &[
    gap(
        "training.cuda_graphs",
        Where(|plan| plan.training.cuda_graphs != CudaGraphs::None),
        "nothing is captured",
        CONFIG,
    ),
    momentum("torchtitan/components/optimizer.py"),
];

/// The optimizer's constants in configurations in Python, which are a group's of parameters.
pub(super) const CONSTANTS: &[Gap] = &constants("torchtitan/components/optimizer/optimizer.py");

/// Of configurations in Python.
pub(super) const OF_03: &[Gap] = &[
    gap(
        "layout.etp",
        Where(|plan| plan.model.moe.is_some() && plan.layout.etp > 1),
        "experts are cut by expert parallelism alone",
        CONFIG,
    ),
    gap(
        "run.lr",
        Elsewhere,
        "learning rate and weight decay stand in the configuration's parameter groups",
        CONFIG,
    ),
    gap("run.weight_decay", Nothing, "said of the learning rate", CONFIG),
    gap(
        "training.optimizer.kind",
        Where(|plan| plan.training.optimizer.kind != OptimizerKind::Adam),
        "the optimizer stands in the configuration",
        CONFIG,
    ),
];
