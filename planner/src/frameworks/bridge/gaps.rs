//! What of a plan Megatron Bridge has no override for.

use crate::frameworks::Holds::{Files, Nothing, Only, Where};
use crate::frameworks::gap::{DOCUMENTS_IN_FILES, Gap, SCALE_IN_FILES, gap};
use crate::settings::CudaGraphs;

const RECIPE: &str = "src/megatron/bridge/recipes";
const PRECISION: &str = "src/megatron/bridge/training/mixed_precision.py";
const MODEL: &str = "megatron/core/transformer/transformer_config.py";

/// Of every plan.
pub const GAPS: &[Gap] = &[
    SCALE_IN_FILES,
    DOCUMENTS_IN_FILES,
    gap("model", Nothing, "the recipe names the model; one that is known to be another is said", RECIPE),
    gap(
        "training.attention_mask",
        Files,
        "the recipe's data set decides whether masks are made",
        "src/megatron/bridge/training/config.py",
    ),
    gap("run.data", Nothing, "the recipe's data set is trained on", RECIPE),
    gap(
        "runtime",
        Where(|plan| plan.runtime.facts().flat_units),
        "recipes choose Megatron-FSDP themselves (ddp.use_megatron_fsdp and the checkpoint's format)",
        RECIPE,
    ),
    gap("layout.fsdp", Nothing, "said of the runtime", ""),
    gap("layout.dp_replicate", Nothing, "FSDP's", ""),
    gap("layout.tp_plan", Nothing, "FSDP's", ""),
    gap(
        "layout.schedule",
        Where(|plan| !plan.layout.schedule.kind().in_megatron),
        "Megatron-Core has 1F1B and its interleaved form only",
        "megatron/core/pipeline_parallel/schedules.py",
    ),
    gap(
        "layout.order",
        Only("tp-cp-ep-dp-pp"),
        "recipes have no distributed settings of their own, in which the order of ranks would stand",
        "src/megatron/bridge/training/config.py",
    ),
    gap("cluster.failed", Nothing, "the script leaves the nodes out", ""),
    gap("software", Nothing, "the environment of the job", ""),
    gap("training.moe.load_imbalance", Nothing, "what the router does, not what it is told", ""),
    gap("training.moe.load_may_grow", Nothing, "what the router does, not what it is told", ""),
    gap(
        "training.grad_dtype",
        Only("fp32"),
        "the recipe of mixed precision decides in which type gradients are reduced",
        PRECISION,
    ),
    gap(
        "training.fp8_param_gather",
        Files,
        "the recipe of mixed precision decides in which type parameters are gathered",
        PRECISION,
    ),
    gap(
        "training.fp8_attention",
        Files,
        "the recipe of mixed precision decides in which type attention multiplies",
        PRECISION,
    ),
    gap(
        "training.bf16_first_layers",
        Files,
        "the recipe of mixed precision decides which layers stay in bf16",
        PRECISION,
    ),
    gap(
        "training.bf16_last_layers",
        Files,
        "the recipe of mixed precision decides which layers stay in bf16",
        PRECISION,
    ),
    gap("training.optimizer.core_master", Nothing, "follows from the precision", ""),
    gap(
        "training.attention_backend",
        Files,
        "a choice of Megatron-Core's that an override would make text of; set it in the recipe",
        "src/megatron/bridge/training/utils/omegaconf_utils.py",
    ),
    gap(
        "training.cuda_graph_modules",
        Where(|plan| {
            plan.training.cuda_graphs == CudaGraphs::Scoped && !plan.training.cuda_graph_modules.is_empty()
        }),
        "choices of Megatron-Core's that an override would make text of; set them in the recipe",
        "src/megatron/bridge/utils/cuda_graph.py",
    ),
    gap("training.moe.fused_activation", Nothing, "follows from the activation", MODEL),
];
