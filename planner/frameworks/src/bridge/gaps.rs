//! What of a plan Megatron Bridge has no override for.

use crate::Holds::{Files, Idle, Nothing, Only, Where};
use crate::gap::{Gap, evaluation, gap, loss_scale, own, weights};
use planner::units::Dtype;

const RECIPE: &str = "src/megatron/bridge/recipes";
const OPTIMIZER: &str = "megatron/core/optimizer/optimizer_config.py";
const PRECISION: &str = "src/megatron/bridge/training/mixed_precision.py";
const CONFIG: &str = "src/megatron/bridge/training/config.py";
/// Whether masks are taken from the data set, which is no field of it that an override could set.
const MASKS: &str = "src/megatron/bridge/training/gpt_step.py";
const MODEL: &str = "megatron/core/transformer/transformer_config.py";
const DDP: &str = "megatron/core/distributed/distributed_data_parallel_config.py";

/// Of every plan.
pub(super) const GAPS: &[Gap] = &[
    loss_scale("the recipe of mixed precision says what losses are multiplied by", PRECISION),
    gap(
        "run.documents.reset_attention",
        Where(|plan| plan.run.documents.reset_attention),
        "masks are used where the recipe makes its data set with skip_getting_attention_mask_from_dataset=False",
        MASKS,
    ),
    gap(
        "run.documents.eod_token",
        Where(|plan| plan.run.documents.eod_token.is_some()),
        "the tokenizer says which token ends a document",
        "megatron/core/datasets/gpt_dataset.py",
    ),
    weights(CONFIG),
    evaluation(CONFIG),
    gap("model", Nothing, "the recipe names the model; one that is known to be another is said", RECIPE),
    gap("training.attention_mask", Files, "the recipe's data set decides whether masks are made", CONFIG),
    gap("run.data", Nothing, "the recipe's data set is trained on", RECIPE),
    gap(
        "runtime",
        Where(|plan| plan.runtime.facts().flat_units),
        "recipes choose Megatron-FSDP themselves (ddp.use_megatron_fsdp and the checkpoint's format)",
        RECIPE,
    ),
    gap("layout.fsdp", Nothing, "said of the runtime", DDP),
    gap("layout.dp_replicate", Nothing, "FSDP's", DDP),
    gap("layout.tp_plan", Nothing, "FSDP2's", "megatron/core/tensor_parallel/layers.py"),
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
        CONFIG,
    ),
    gap("layout.cp_kind", Idle(|plan| plan.layout.cp == 1), "nothing is exchanged without a group", MODEL),
    gap(
        "layout.microbatch_group_size",
        Idle(|plan| plan.layout.microbatch_group_size == plan.layout.pp),
        "as many as there are stages go in a row by themselves",
        MODEL,
    ),
    own("cluster.failed", "the script leaves the nodes out"),
    gap(
        "training.optimizer.master_dtype",
        Where(|plan| {
            plan.training.optimizer.master_dtype == Dtype::Bf16 && !plan.training.optimizer.precision_aware
        }),
        "Megatron-Core's optimizer keeps wider weights beside bf16 ones, and moments in fp32",
        OPTIMIZER,
    ),
    gap("training.optimizer.core_master", Nothing, "follows from the precision", OPTIMIZER),
    gap(
        "training.attention_backend",
        Files,
        "a choice of Megatron-Core's that an override would make text of; set it in the recipe",
        "src/megatron/bridge/training/utils/omegaconf_utils.py",
    ),
    gap("training.moe.fused_activation", Nothing, "follows from the activation", MODEL),
];
