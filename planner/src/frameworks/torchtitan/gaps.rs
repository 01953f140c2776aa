//! What of a plan torchtitan has no option for.

use crate::frameworks::Holds::{self, Elsewhere, Files, Nothing, Only, Where};
use crate::frameworks::gap::{Gap, NO_PART_OF_A_JOB};
use crate::wire::{CudaGraphs, OptimizerKind};

const fn gap(field: &'static str, holds: Holds, what: &'static str, source: &'static str) -> Gap {
    Gap { field, holds, what, source }
}

const CONFIG: &str = "torchtitan/config/configs.py";
const FSDP: &str = "torchtitan/models/llama3/parallelize.py";
const MODEL: &str = "torchtitan/models";

/// Of every version.
pub const COMMON: &[Gap] = &[
    gap("model", Nothing, "the configuration names the model", CONFIG),
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
    gap(
        "training.deterministic",
        Files,
        "kernels that give the same bits are asked for in the configuration's debug section",
        CONFIG,
    ),
    gap("training.mtp_layers", Files, "prediction modules stand with the model", MODEL),
    gap("training.fp8_param_gather", Files, "low precision is a converter in the configuration", CONFIG),
    gap("training.moe", Nothing, "how experts are computed stands with the model", MODEL),
    gap("training.grad_dtype", Nothing, "the default of layout.fsdp.reduce_dtype", ""),
    gap("training.recompute.num_layers", Nothing, "said of the method", ""),
    gap("training.recompute.modules", Nothing, "selective checkpoints choose operators, not modules", ""),
    gap("training.recompute.distribute_saved_activations", Nothing, "Megatron-Core's", ""),
    gap("layout.vpp", Nothing, "in the layers of stages", ""),
    gap("layout.account_for_embedding", Nothing, "in the layers of stages", ""),
    gap("layout.account_for_loss", Nothing, "in the layers of stages", ""),
    gap("layout.first_stage_layers", Nothing, "in the layers of stages", ""),
    gap("layout.last_stage_layers", Nothing, "in the layers of stages", ""),
    gap("layout.microbatch_group_size", Nothing, "Megatron-Core's", ""),
    gap("layout.order", Nothing, "Megatron-Core's; refused under FSDP where it is another", ""),
    gap("layout.vocab_divisible_by", Nothing, "Megatron-Core's; nothing is padded", ""),
    gap("layout.fsdp.strategy", Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.outer_strategy", Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.double_buffer", Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.nccl_ub", Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.preserve_fp32_weights", Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.keep_fp8_transpose", Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.init_meta", Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.communication_unit", Nothing, "Megatron-FSDP's", ""),
    gap("training.bf16_first_layers", Nothing, "Megatron-Core's", ""),
    gap("training.bf16_last_layers", Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.distributed", Nothing, "FSDP shards it", ""),
    gap("training.optimizer.instances", Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.precision_aware", Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.core_master", Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.master_dtype", Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.exp_avg_dtype", Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.exp_avg_sq_dtype", Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.offload_fraction", Nothing, "Megatron-Core's", ""),
    gap("training.offload", Nothing, "Megatron-Core's", ""),
    gap("training.implementation", Nothing, "Megatron-Core's", ""),
    gap("training.fused_gradient_accumulation", Nothing, "Megatron-Core's", ""),
    gap("training.fused_softmax", Nothing, "Megatron-Core's", ""),
    gap("training.cuda_graph_modules", Nothing, "said of the graphs", ""),
    gap("training.deferred_head_gradients", Nothing, "Megatron-Core's", ""),
    gap("training.attention_mask", Nothing, "Megatron-Core's", ""),
    gap("training.overlap", Nothing, "FSDP overlaps by itself", ""),
    gap("cluster", Nothing, NO_PART_OF_A_JOB, ""),
    gap("name", Nothing, NO_PART_OF_A_JOB, ""),
    gap("version", Nothing, NO_PART_OF_A_JOB, ""),
    gap("software", Nothing, "the environment of the job", ""),
    gap("training.train_tokens", Nothing, NO_PART_OF_A_JOB, ""),
];

/// Of configurations in TOML.
pub const OF_02: &[Gap] = &[gap(
    "training.cuda_graphs",
    Where(|plan| plan.training.cuda_graphs != CudaGraphs::None),
    "nothing is captured",
    CONFIG,
)];

/// Of configurations in Python.
pub const OF_03: &[Gap] = &[
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
