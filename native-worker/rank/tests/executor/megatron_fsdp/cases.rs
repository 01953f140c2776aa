//! The layouts that train as Megatron-FSDP, listed: how much of the state is split over how many, and what stands beside it.

use crate::fsdp2::cases::Model;

/// One layout.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub model: Model,
    pub strategy: &'static str,
    pub replicas: u64,
    pub shards: u64,
    pub cp: u64,
    pub tp: u64,
    /// Micro batches of a rank.
    pub micro: u64,
    /// What else is set, as `path=value`.
    pub also: &'static [&'static str],
}

const NO_SHARD: Case = Case {
    model: Model::Plain,
    strategy: "no_shard",
    replicas: 1,
    shards: 2,
    cp: 1,
    tp: 1,
    micro: 1,
    also: &[],
};
const OPTIM: Case = Case { strategy: "optim", ..NO_SHARD };
const GRADS: Case = Case { strategy: "optim_grads", ..NO_SHARD };
const PARAMS: Case = Case { strategy: "optim_grads_params", ..NO_SHARD };
const OUTER: &[&str] = &["layout.fsdp.outer_strategy=optim"];
const DOUBLED: &[&str] = &["layout.fsdp.double_buffer=true"];
const DOUBLED_AGAIN: &[&str] = &["layout.fsdp.double_buffer=true", "training.recompute.granularity=full"];
const ROUTED_ALONE: &[&str] = &["model.architecture.moe.shared_ffn_hidden_size=0"];
const EP_2: &[&str] = &["layout.ep=2"];
const EP_4: &[&str] = &["layout.ep=4"];
const EP_2_OUTER: &[&str] = &["layout.ep=2", "layout.fsdp.outer_strategy=optim"];
const EP_2_DOUBLED: &[&str] =
    &["layout.ep=2", "layout.fsdp.double_buffer=true", "training.recompute.granularity=full"];
const EP_2_PREDICTING: &[&str] =
    &["layout.ep=2", "model.architecture.mtp_layers=1", "layout.fsdp.double_buffer=true"];
const EP_2_ROUTED_ALONE: &[&str] = &["layout.ep=2", "model.architecture.moe.shared_ffn_hidden_size=0"];
const EP_4_ROUTED_ALONE: &[&str] = &["layout.ep=4", "model.architecture.moe.shared_ffn_hidden_size=0"];
/// A plan that cuts embedding and output layer, which Megatron-FSDP's own keeps whole.
const ENDS_CUT: &[&str] = &[
    "layout.tp_plan={\"model.embed_tokens\":\"rowwise\",\"lm_head\":\"colwise\",\"model.layers.*.self_attn.q_proj\":\"colwise\",\
     \"model.layers.*.self_attn.k_proj\":\"colwise\",\"model.layers.*.self_attn.v_proj\":\"colwise\",\
     \"model.layers.*.self_attn.o_proj\":\"rowwise\",\"model.layers.*.mlp.gate_proj\":\"colwise\",\
     \"model.layers.*.mlp.up_proj\":\"colwise\",\"model.layers.*.mlp.down_proj\":\"rowwise\"}",
];

/// All of them.
pub const CASES: &[Case] = &[
    // Nothing is split: sums over all.
    NO_SHARD,
    Case { shards: 3, ..NO_SHARD },
    Case { micro: 3, ..NO_SHARD },
    Case { cp: 2, ..NO_SHARD },
    Case { replicas: 2, ..NO_SHARD },
    Case { model: Model::Tied, ..NO_SHARD },
    Case { model: Model::Words, shards: 4, ..NO_SHARD },
    Case { model: Model::Experts, ..NO_SHARD },
    Case { model: Model::Latent, shards: 3, micro: 2, ..NO_SHARD },
    // Optimizer state, each unit's in equal parts: even, and with padding.
    OPTIM,
    Case { shards: 3, ..OPTIM },
    Case { shards: 4, ..OPTIM },
    Case { model: Model::Words, shards: 3, ..OPTIM },
    Case { model: Model::Everything, shards: 3, ..OPTIM },
    Case { model: Model::Gpt, ..OPTIM },
    Case { model: Model::Latent, shards: 3, ..OPTIM },
    Case { model: Model::Tied, shards: 4, ..OPTIM },
    Case { model: Model::Predicting, ..OPTIM },
    Case { model: Model::Deep, shards: 3, ..OPTIM },
    Case { model: Model::Experts, ..OPTIM },
    Case { model: Model::Experts, shards: 3, micro: 2, ..OPTIM },
    Case { model: Model::FewExperts, shards: 4, ..OPTIM },
    // Several micro batches.
    Case { micro: 2, ..OPTIM },
    Case { shards: 3, micro: 3, ..OPTIM },
    // Replicas of what is split.
    Case { replicas: 2, ..OPTIM },
    Case { replicas: 2, micro: 2, ..OPTIM },
    Case { replicas: 2, model: Model::Words, ..OPTIM },
    Case { replicas: 3, ..OPTIM },
    // Beside context parallelism, whose ranks take parts too.
    Case { cp: 2, ..OPTIM },
    Case { cp: 2, micro: 2, ..OPTIM },
    Case { cp: 2, shards: 3, ..OPTIM },
    Case { cp: 2, replicas: 2, ..OPTIM },
    // Recomputation and another optimizer.
    Case { also: &["training.recompute.granularity=full"], shards: 3, ..OPTIM },
    Case { also: &["training.recompute.granularity=selective"], ..OPTIM },
    Case { also: &["training.optimizer.kind=sgd"], shards: 3, ..OPTIM },
    Case { also: &["training.optimizer.kind=sgd"], ..NO_SHARD },
    // Gradients are split, too: even, with padding, over micro batches.
    GRADS,
    Case { shards: 3, ..GRADS },
    Case { shards: 3, micro: 3, ..GRADS },
    Case { model: Model::Words, shards: 4, ..GRADS },
    Case { model: Model::Everything, shards: 3, micro: 2, ..GRADS },
    Case { model: Model::Tied, ..GRADS },
    Case { model: Model::Latent, shards: 3, ..GRADS },
    Case { model: Model::Predicting, micro: 2, ..GRADS },
    Case { model: Model::Experts, shards: 3, ..GRADS },
    Case { replicas: 2, micro: 2, ..GRADS },
    Case { cp: 2, ..GRADS },
    Case { cp: 2, replicas: 2, ..GRADS },
    Case { also: &["training.recompute.granularity=full"], shards: 3, ..GRADS },
    // And weights, which are gathered unit by unit.
    PARAMS,
    Case { shards: 3, ..PARAMS },
    Case { shards: 4, micro: 2, ..PARAMS },
    Case { model: Model::Words, shards: 3, micro: 2, ..PARAMS },
    Case { model: Model::Everything, shards: 3, ..PARAMS },
    Case { model: Model::Gpt, shards: 3, ..PARAMS },
    Case { model: Model::Latent, shards: 3, micro: 2, ..PARAMS },
    Case { model: Model::Tied, shards: 4, ..PARAMS },
    Case { model: Model::Predicting, shards: 3, ..PARAMS },
    Case { model: Model::Deep, shards: 3, micro: 2, ..PARAMS },
    Case { model: Model::Experts, micro: 2, ..PARAMS },
    Case { model: Model::FewExperts, shards: 4, ..PARAMS },
    Case { replicas: 2, ..PARAMS },
    Case { replicas: 3, micro: 2, ..PARAMS },
    Case { cp: 2, shards: 3, ..PARAMS },
    Case { cp: 2, replicas: 2, micro: 2, ..PARAMS },
    Case { also: &["training.recompute.granularity=full"], shards: 3, micro: 2, ..PARAMS },
    Case { also: &["training.recompute.granularity=selective"], ..PARAMS },
    Case { also: &["training.optimizer.kind=sgd"], shards: 3, ..PARAMS },
    // Replicas take a part of the optimizer's state each.
    Case { replicas: 2, also: OUTER, ..PARAMS },
    Case { replicas: 3, micro: 2, also: OUTER, ..PARAMS },
    Case { replicas: 2, model: Model::Words, also: OUTER, ..PARAMS },
    Case { replicas: 2, model: Model::Experts, micro: 2, also: OUTER, ..PARAMS },
    Case { replicas: 2, cp: 2, also: OUTER, ..PARAMS },
    // Two persistent pairs of buffers serve units that are alike.
    Case { model: Model::Deep, also: DOUBLED, ..GRADS },
    Case { model: Model::Deep, shards: 3, micro: 2, also: DOUBLED, ..PARAMS },
    Case { model: Model::Deep, micro: 2, also: DOUBLED_AGAIN, ..PARAMS },
    Case { model: Model::Experts, also: DOUBLED, ..PARAMS },
    Case { model: Model::Predicting, also: DOUBLED, ..PARAMS },
    Case { also: DOUBLED, ..OPTIM },
    // Beside tensor parallelism, with embedding and output layer whole on each rank, and cut.
    Case { tp: 2, ..NO_SHARD },
    Case { tp: 2, micro: 2, ..OPTIM },
    Case { tp: 2, shards: 3, ..GRADS },
    Case { tp: 2, shards: 3, micro: 2, ..PARAMS },
    Case { tp: 2, model: Model::Tied, ..OPTIM },
    Case { tp: 2, model: Model::Tied, ..PARAMS },
    Case { tp: 2, model: Model::Everything, ..PARAMS },
    Case { tp: 2, model: Model::Experts, also: ROUTED_ALONE, ..PARAMS },
    Case { tp: 2, model: Model::Experts, also: ROUTED_ALONE, ..OPTIM },
    Case { tp: 2, cp: 2, ..PARAMS },
    Case { tp: 2, replicas: 2, also: OUTER, ..PARAMS },
    Case { tp: 2, also: ENDS_CUT, ..OPTIM },
    Case { tp: 2, also: ENDS_CUT, ..PARAMS },
    // Experts are split over expert-parallel ranks: two ranks have the same ones, one alone, one in each replica, three with padding.
    Case { model: Model::Experts, shards: 4, also: EP_2, ..NO_SHARD },
    Case { model: Model::Experts, shards: 4, also: EP_2, ..OPTIM },
    Case { model: Model::Experts, shards: 4, also: EP_4, ..OPTIM },
    Case { model: Model::Experts, replicas: 2, also: EP_2, ..OPTIM },
    Case { model: Model::Experts, shards: 4, micro: 2, also: EP_2, ..GRADS },
    Case { model: Model::Experts, replicas: 2, micro: 2, also: EP_2, ..GRADS },
    Case { model: Model::Experts, shards: 4, also: EP_2, ..PARAMS },
    Case { model: Model::Experts, shards: 4, micro: 2, also: EP_4, ..PARAMS },
    Case { model: Model::Experts, shards: 6, also: EP_2, ..PARAMS },
    Case { model: Model::Experts, cp: 2, also: EP_2, ..PARAMS },
    Case { model: Model::Experts, replicas: 2, also: EP_2, ..PARAMS },
    Case { model: Model::Experts, replicas: 2, shards: 4, also: EP_2_OUTER, ..PARAMS },
    Case { model: Model::Experts, replicas: 2, also: EP_2_OUTER, ..PARAMS },
    Case { model: Model::Experts, also: EP_2_DOUBLED, ..PARAMS },
    Case { model: Model::Experts, shards: 4, also: EP_2_PREDICTING, ..PARAMS },
    Case { model: Model::Experts, shards: 4, also: EP_2_PREDICTING, ..GRADS },
    Case { tp: 2, model: Model::Experts, also: EP_2_ROUTED_ALONE, ..PARAMS },
    Case { tp: 2, model: Model::Experts, also: EP_4_ROUTED_ALONE, ..PARAMS },
    Case { tp: 2, model: Model::Experts, also: EP_2_ROUTED_ALONE, ..OPTIM },
];
