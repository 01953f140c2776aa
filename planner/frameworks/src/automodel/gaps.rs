//! What of a plan NeMo Automodel has no option for.

use super::rows::is_own_split;
use crate::Holds::{Elsewhere, Files, Idle, Nothing, Only, Where};
use crate::gap::{Gap, documents, each, evaluation, gap, loss_scale, momentum, weights};
use planner::settings::{CudaGraphs, Granularity};
use planner::wire::OF_FULLY_SHARD;

const RECIPE: &str = "examples/ of NVIDIA-NeMo/Automodel";
const MODEL: &str = "nemo_automodel/_transformers/auto_model.py";
const CONFIG: &str = "components/distributed/config.py";
const GRAPHS: &str = "components/models/common/utils.py";

/// Under both strategies.
pub(super) const COMMON: &[Gap] = &[
    gap("model", Elsewhere, "the recipe file names the model; it must be the plan's", RECIPE),
    gap("training.seq_len", Elsewhere, "the recipe file's data set decides the length of sequences", RECIPE),
    gap("run.data", Nothing, "the recipe file's data set is trained on", RECIPE),
    gap("training.mtp_layers", Files, "prediction modules stand in the recipe file's model", MODEL),
    gap(
        "layout.etp",
        Where(|plan| plan.model.moe.is_some() && plan.layout.etp > 1),
        "experts are cut by expert parallelism alone",
        CONFIG,
    ),
    gap(
        "layout.tp_plan",
        Files,
        "a tensor-parallel plan stands in the recipe file's distributed.tp_plan",
        CONFIG,
    ),
    gap(
        "layout.cp_kind",
        Files,
        "how context parallelism exchanges follows from the model's attention",
        CONFIG,
    ),
    gap(
        "training.optimizer.kind",
        Files,
        "the optimizer stands in the recipe file's optimizer._target_",
        RECIPE,
    ),
    gap(
        "training.attention_backend",
        Files,
        "the kernel of attention stands in the recipe file's model",
        MODEL,
    ),
    gap("training.attention_dropout", Files, "dropout stands in the model's configuration", MODEL),
    gap("training.hidden_dropout", Files, "dropout stands in the model's configuration", MODEL),
    gap("training.cross_entropy", Files, "the loss stands in the recipe file's loss_fn", RECIPE),
    gap(
        "training.deterministic",
        Files,
        "kernels that give the same bits are asked for by variables of the job",
        RECIPE,
    ),
    gap(
        "training.moe.dispatcher",
        Files,
        "how tokens travel stands in the recipe file's model.backend",
        MODEL,
    ),
    gap("training.moe.backend", Files, "how tokens travel stands in the recipe file's model.backend", MODEL),
    gap(
        "training.moe.grouped_gemm",
        Files,
        "how experts are computed stands in the recipe file's model.backend",
        MODEL,
    ),
    gap(
        "training.moe.permute_fusion",
        Files,
        "how experts are computed stands in the recipe file's model.backend",
        MODEL,
    ),
    gap(
        "training.moe.fused_activation",
        Files,
        "how experts are computed stands in the recipe file's model.backend",
        MODEL,
    ),
    gap(
        "training.moe.shared_expert_overlap",
        Files,
        "how experts are computed stands in the recipe file's model.backend",
        MODEL,
    ),
    gap("training.moe.capacity_factor", Files, "every token is computed by the experts that it chose", MODEL),
    gap("training.moe.pad_to_capacity", Files, "every token is computed by the experts that it chose", MODEL),
    gap(
        "run.clip_grad",
        Where(|plan| plan.run.clip_grad == 0.0),
        "gradients are always clipped, by 1.0 unless the recipe file says otherwise",
        "recipes/llm/train_ft.py",
    ),
    gap(
        "training.moe.force_balance",
        Files,
        "whether the router is forced to balance stands in the recipe file's model",
        MODEL,
    ),
    gap("training.recompute.modules", Nothing, "selective checkpoints choose operators, not modules", CONFIG),
    gap("training.fp8_param_gather", Files, "low precision stands in the recipe file's fp8 section", RECIPE),
    gap(
        "training.cuda_graphs",
        Where(|plan| plan.training.cuda_graphs != CudaGraphs::None),
        "what is captured stands in the recipe file's model.backend.cuda_graph",
        GRAPHS,
    ),
    gap("training.cuda_graph_modules", Nothing, "said of the graphs", GRAPHS),
    loss_scale("in fp16 losses are multiplied by nothing", "recipes/llm/train_ft.py"),
    momentum("components/optim/optimizer.py"),
    documents("components/datasets/llm/megatron_dataset.py"),
    weights(MODEL),
    evaluation("components/training/step_scheduler.py"),
];

/// Under FSDP2.
pub(super) const FSDP2: &[Gap] = &[
    gap(
        "layout.fsdp.sharded_dtype",
        Elsewhere,
        "the type in which parameters are kept stands in the recipe file's model (torch_dtype)",
        "docs/guides/mixed-precision-training.md",
    ),
    gap(
        "layout.pipeline_layout",
        Where(|plan| plan.layout.pp > 1 && !is_own_split(plan)),
        "stages take even numbers of layers; a layout of its own is a list of modules in the recipe file",
        "components/distributed/pipelining/functional.py",
    ),
    gap("layout.schedule", Idle(|plan| plan.layout.pp == 1), "there is no pipeline", CONFIG),
    gap(
        "layout.fsdp.checkpoint_selects",
        Idle(|plan| plan.training.recompute != Granularity::Selective),
        "selective checkpoints alone choose operators",
        CONFIG,
    ),
    gap("layout.fsdp.outer_units", Files, "which modules are units of their own is not to be chosen", CONFIG),
    gap("layout.fsdp.loss_dtype", Files, "the loss stands in the recipe file's loss_fn", RECIPE),
    gap("layout.fsdp.keeps_logits", Files, "the loss stands in the recipe file's loss_fn", RECIPE),
];

const REFUSED: &str = "components/distributed/mesh_utils.py";
const WRAPPED: &str = "components/distributed/megatron_fsdp.py";

/// Under Megatron-FSDP.
pub(super) const MEGATRON_FSDP: &[Gap] = &[
    gap("layout.pp", Only("1"), "its Megatron-FSDP takes no pipeline", REFUSED),
    gap("layout.ep", Only("1"), "its Megatron-FSDP takes no expert parallelism", REFUSED),
    gap("layout.dp_replicate", Only("1"), "its Megatron-FSDP takes no replicas", REFUSED),
    gap("layout.sp", Only("false"), "its Megatron-FSDP takes no setting for sequence parallelism", CONFIG),
    gap(
        "training.recompute.granularity",
        Only("none"),
        "its Megatron-FSDP makes no checkpoints yet",
        WRAPPED,
    ),
    gap("training.dtype", Only("bf16"), "types stand in the recipe file's model", CONFIG),
    gap("layout.fsdp.outer_strategy", Only("no_shard"), "its Megatron-FSDP shards over one group", CONFIG),
    gap("layout.fsdp.communication_unit", Files, "the size of a gather is Megatron-FSDP's own", CONFIG),
    gap("training.recompute.method", Nothing, "there are no checkpoints", WRAPPED),
    gap("training.recompute.num_layers", Nothing, "there are no checkpoints", WRAPPED),
    gap("layout.schedule", Nothing, "there is no pipeline", REFUSED),
    gap("layout.vpp", Nothing, "there is no pipeline", REFUSED),
    gap("layout.pipeline_layout", Nothing, "there is no pipeline", REFUSED),
];

/// What FSDP2 alone is told.
pub(super) const OF_FSDP2: &[Gap] = &each(OF_FULLY_SHARD, "FSDP2's", CONFIG);
