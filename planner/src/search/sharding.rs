//! What FSDP runtimes split over their sharding group, as an axis: the names that their users know.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::finding::Finding;
use crate::runtime::Runtime;
use crate::wire::FsdpFile;

/// How an FSDP runtime shards. Hybrid sharding is one of these with replicas (`dp_replicate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharding {
    /// FSDP2: parameters are given back after their forward, and gathered again for their backward.
    FullShard,
    /// FSDP2: parameters stay gathered from forward to backward.
    ShardGradOp,
    /// Megatron-FSDP: nothing is split.
    NoShard,
    /// Megatron-FSDP: optimizer state and main weights.
    Optim,
    /// Megatron-FSDP: gradients too.
    OptimGrads,
    /// Megatron-FSDP: parameters too.
    OptimGradsParams,
}

impl Sharding {
    /// All of them.
    pub const ALL: [Sharding; 6] = [
        Sharding::FullShard,
        Sharding::ShardGradOp,
        Sharding::NoShard,
        Sharding::Optim,
        Sharding::OptimGrads,
        Sharding::OptimGradsParams,
    ];

    /// The name used in requests and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Sharding::FullShard => "full_shard",
            Sharding::ShardGradOp => "shard_grad_op",
            Sharding::NoShard => "no_shard",
            Sharding::Optim => "optim",
            Sharding::OptimGrads => "optim_grads",
            Sharding::OptimGradsParams => "optim_grads_params",
        }
    }

    /// Whose it is.
    pub const fn runtime(self) -> Runtime {
        match self {
            Sharding::FullShard | Sharding::ShardGradOp => Runtime::Fsdp2,
            _ => Runtime::MegatronFsdp,
        }
    }

    /// The field of a plan file that says it, and its value there.
    pub(super) const fn said(self) -> (&'static str, &'static str) {
        match self {
            Sharding::FullShard => ("layout.fsdp.reshard_after_forward", "always"),
            Sharding::ShardGradOp => ("layout.fsdp.reshard_after_forward", "never"),
            _ => ("layout.fsdp.strategy", self.name()),
        }
    }

    /// Writes it into a plan file's part.
    pub(super) fn apply(self, file: &mut FsdpFile) {
        match self.said() {
            ("layout.fsdp.strategy", value) => file.strategy = Some(value.to_owned()),
            (_, value) => file.reshard_after_forward = Some(Value::from(value)),
        }
    }
}

/// The values of an axis that a runtime has; none, for what the plan says, where it has none of them.
pub(super) fn of_runtime(axis: Option<&Vec<Sharding>>, runtime: Runtime) -> Vec<Option<Sharding>> {
    let own = axis.into_iter().flatten().filter(|one| one.runtime() == runtime);
    let mut found: Vec<Option<Sharding>> = own.map(|one| Some(*one)).collect();
    if found.is_empty() {
        found.push(None);
    }
    found
}

/// Values that no searched runtime has.
pub(super) fn strangers(axis: Option<&Vec<Sharding>>, runtimes: &[Runtime]) -> Vec<Finding> {
    let strange = axis.into_iter().flatten().filter(|one| !runtimes.contains(&one.runtime()));
    strange
        .map(|one| {
            let usable = Sharding::ALL.into_iter().filter(|other| runtimes.contains(&other.runtime()));
            let message = format!(
                "FSDP strategy {} is of runtime {}, which is not searched",
                one.name(),
                one.runtime().name()
            );
            Finding::error("search.fsdp_strategy", one.name(), message).nearest(usable.map(Sharding::name))
        })
        .collect()
}
