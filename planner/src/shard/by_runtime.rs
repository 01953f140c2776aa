//! Who lists what ranks keep: the one place of this room that chooses by runtime.

use super::{BufferShard, Family, Holders, RankShards, classes, fsdp, megatron, megatron_fsdp, remarks};
use crate::finding::Finding;
use crate::plan::Plan;
use crate::runtime::Runtime;

/// How a runtime's shards are listed.
pub(super) struct Listing {
    /// Families of everything that a rank of a stage holds.
    pub families: fn(&Plan, u64) -> Vec<Family>,
    /// Buffers of the fullest rank of a stage.
    pub buffers: fn(&Plan, u64) -> Vec<BufferShard>,
    /// Everything that one rank keeps.
    pub rank: fn(&Plan, u64) -> RankShards,
    /// The ranks of a stage by what they hold.
    pub holders: fn(&Plan, u64) -> Vec<Holders>,
    /// Parameters that the fullest rank allocates.
    pub most_parameters: fn(&Plan) -> u64,
    /// What is worth saying of them.
    pub remarks: fn(&Plan) -> Vec<Finding>,
}

/// By Megatron-Core's rules, the worker's own among them.
const WHOLE: Listing = Listing {
    families: megatron::stage_families,
    buffers: megatron::stage_buffers,
    rank: megatron::rank_shards,
    holders: |plan, stage| megatron::holders(plan, stage, &megatron::StageElements::of(plan, stage)),
    most_parameters: megatron::parameters_per_rank_max,
    remarks: |plan| remarks::muon(plan).into_iter().collect(),
};

const FSDP2: Listing = Listing {
    families: fsdp::stage_families,
    buffers: |plan, stage| {
        fsdp::buffers_at(plan, stage, &fsdp::Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 })
    },
    rank: fsdp::rank_shards,
    holders: classes::mesh_holders,
    most_parameters: |plan| {
        (0..plan.layout.pp).map(|stage| super::parameters_of_stage(plan, stage)).max().unwrap_or(0)
    },
    remarks: remarks::of_fsdp2,
};

const MEGATRON_FSDP: Listing = Listing {
    buffers: megatron_fsdp::stage_buffers,
    rank: megatron_fsdp::rank_shards,
    remarks: remarks::of_megatron_fsdp,
    ..FSDP2
};

/// How the shards of a plan are listed.
pub(super) fn of(plan: &Plan) -> &'static Listing {
    match plan.runtime {
        Runtime::Megatron | Runtime::Native => &WHOLE,
        Runtime::Fsdp2 => &FSDP2,
        Runtime::MegatronFsdp => &MEGATRON_FSDP,
    }
}
