//! Who lists what ranks keep: the one place of this room that chooses by runtime.
//!
//! Functions and no table of them, so that who asks for one is not sent the others.

use super::{BufferShard, Family, Holders, RankShards, classes, fsdp, megatron, megatron_fsdp, remarks};
use crate::finding::Finding;
use crate::plan::Plan;
use crate::runtime::Runtime;

/// Whose rules list the shards of a plan.
#[derive(Clone, Copy)]
enum Lister {
    /// Megatron-Core's, the worker's own among them.
    MegatronCore,
    Fsdp2,
    MegatronFsdp,
}

use Lister::{Fsdp2, MegatronCore, MegatronFsdp};

const fn lister(plan: &Plan) -> Lister {
    match plan.runtime {
        Runtime::Megatron | Runtime::Native => MegatronCore,
        Runtime::Fsdp2 => Fsdp2,
        Runtime::MegatronFsdp => MegatronFsdp,
    }
}

/// Families of everything that a rank of a stage holds.
pub(super) fn families(plan: &Plan, stage: u64) -> Vec<Family> {
    match lister(plan) {
        MegatronCore => megatron::stage_families(plan, stage),
        Fsdp2 | MegatronFsdp => fsdp::stage_families(plan, stage),
    }
}

/// Buffers of the fullest rank of a stage.
pub(super) fn buffers(plan: &Plan, stage: u64) -> Vec<BufferShard> {
    match lister(plan) {
        MegatronCore => megatron::stage_buffers(plan, stage),
        Fsdp2 => fsdp::buffers_at(plan, stage, &fsdp::Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 }),
        MegatronFsdp => megatron_fsdp::stage_buffers(plan, stage),
    }
}

/// Everything that one rank keeps.
pub(super) fn rank(plan: &Plan, rank: u64) -> RankShards {
    match lister(plan) {
        MegatronCore => megatron::rank_shards(plan, rank),
        Fsdp2 => fsdp::rank_shards(plan, rank),
        MegatronFsdp => megatron_fsdp::rank_shards(plan, rank),
    }
}

/// The ranks of a stage by what they hold.
pub(super) fn holders(plan: &Plan, stage: u64) -> Vec<Holders> {
    match lister(plan) {
        MegatronCore => megatron::holders(plan, stage, &megatron::StageElements::of(plan, stage)),
        Fsdp2 | MegatronFsdp => classes::mesh_holders_of_stage(plan, stage),
    }
}

/// Parameters that the fullest rank allocates.
pub(super) fn most_parameters(plan: &Plan) -> u64 {
    match lister(plan) {
        MegatronCore => megatron::parameters_by_stage(plan).into_iter().max().unwrap_or(0),
        Fsdp2 | MegatronFsdp => {
            (0..plan.layout.pp).map(|stage| super::parameters_of_stage(plan, stage)).max().unwrap_or(0)
        }
    }
}

/// What is worth saying of them.
pub(super) fn remarks(plan: &Plan) -> Vec<Finding> {
    match lister(plan) {
        MegatronCore => remarks::muon(plan).into_iter().collect(),
        Fsdp2 => remarks::of_fsdp2(plan),
        MegatronFsdp => remarks::of_megatron_fsdp(plan),
    }
}
