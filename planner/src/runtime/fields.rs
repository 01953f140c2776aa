//! Fields of a plan that several runtimes do not read, or do not count, alike.

/// What torch's `fully_shard` and its trainers alone are told.
pub const OF_FULLY_SHARD: [&str; 12] = [
    "layout.fsdp.reshard_after_forward",
    "layout.fsdp.offload",
    "layout.fsdp.sharded_dtype",
    "layout.fsdp.reduce_dtype",
    "layout.fsdp.output_dtype",
    "layout.fsdp.checkpoint_scope",
    "layout.fsdp.outer_units",
    "layout.fsdp.gradient_sync",
    "layout.fsdp.loss_dtype",
    "layout.fsdp.keeps_logits",
    "layout.fsdp.checkpoint_selects",
    "layout.fsdp.compile",
];

/// What Megatron-FSDP alone is told.
pub(super) const OF_FLAT_UNITS: [&str; 8] = [
    "layout.fsdp.strategy",
    "layout.fsdp.outer_strategy",
    "layout.fsdp.double_buffer",
    "layout.fsdp.nccl_ub",
    "layout.fsdp.preserve_fp32_weights",
    "layout.fsdp.keep_fp8_transpose",
    "layout.fsdp.init_meta",
    "layout.fsdp.communication_unit",
];

/// What is told of sharded parameters, whatever shards them.
pub(super) const OF_SHARDED: [&str; 2] = ["layout.dp_replicate", "layout.tp_plan"];

/// What Megatron-Core's grid of ranks and its vocabulary are told.
pub(super) const OF_THE_GRID: [&str; 2] = ["layout.order", "layout.vocab_divisible_by"];

/// What pipelines are told.
pub(super) const OF_PIPELINES: [&str; 7] = [
    "layout.schedule",
    "layout.pipeline_layout",
    "layout.first_stage_layers",
    "layout.last_stage_layers",
    "layout.account_for_embedding",
    "layout.account_for_loss",
    "layout.microbatch_group_size",
];

/// Settings that answers of Megatron-Core's runtime alone compute with.
pub(super) const OF_MEGATRON_CORE: [&str; 18] = [
    "training.optimizer.precision_aware",
    "training.optimizer.offload_fraction",
    "training.optimizer.instances",
    "training.optimizer.core_master",
    "training.offload.modules",
    "training.attention_dropout",
    "training.hidden_dropout",
    "training.attention_backend",
    "training.implementation",
    "training.cross_entropy",
    "training.cuda_graphs",
    "training.overlap.ep",
    "training.moe.shared_expert_overlap",
    "training.moe.capacity_factor",
    "training.attention_mask",
    "training.fused_softmax",
    "training.deferred_head_gradients",
    "software.expandable_segments",
];
