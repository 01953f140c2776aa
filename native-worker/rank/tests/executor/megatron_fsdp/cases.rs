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
    /// Micro batches of a rank.
    pub micro: u64,
    /// What else is set, as `path=value`.
    pub also: &'static [&'static str],
}

const NO_SHARD: Case =
    Case { model: Model::Plain, strategy: "no_shard", replicas: 1, shards: 2, cp: 1, micro: 1, also: &[] };
const OPTIM: Case = Case { strategy: "optim", ..NO_SHARD };

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
];
