//! Ranks of a stage that hold the same number of bytes.

use std::sync::Arc;

use super::fsdp::{Placed, Slots, Unit, buffers_of, units_of_stage};
use super::{BufferShard, by_runtime, megatron_fsdp};
use crate::layout::{GroupKind, Mesh};
use crate::plan::Plan;

/// Most classes of a stage; smaller ones are counted with the largest that is left over.
const MOST: usize = 8;

/// Ranks with equal buffers.
#[derive(Debug, Clone, PartialEq)]
pub struct Holders {
    /// The smallest such rank.
    pub first_rank: u64,
    /// How many there are.
    pub count: u64,
    /// Their buffers.
    pub buffers: Vec<BufferShard>,
}

/// The ranks of a stage by what they hold, the fullest first. Slices of unequal size make several classes.
pub(crate) fn holders(plan: &Plan, stage: u64) -> Vec<Holders> {
    by_runtime::holders(plan, stage)
}

/// Those of a stage of an FSDP runtime, whose units these are.
pub(crate) fn holders_of_units(plan: &Plan, stage: u64, units: &[Unit]) -> Vec<Holders> {
    mesh_holders(plan, stage, units)
}

/// The fullest rank of a stage of an FSDP runtime, whose units these are: the first, for slices that are unequal grow no larger from
/// slot to slot.
pub(crate) fn fullest_of_units(plan: &Plan, stage: u64, units: &[Unit]) -> Holders {
    let (mesh, first) = (plan.mesh(), Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 });
    let buffers = buffers_at(plan, &mesh, &first, (units, &counted(units)));
    Holders { first_rank: stage * mesh.stage(), count: 1, buffers }
}

/// Slots of an axis at which the extent of some slice changes, from 0.
fn changes(params: &[(&Placed, u64)], mesh: &Mesh, slots: &Slots, group: GroupKind, size: u64) -> Vec<u64> {
    let mut found = vec![0];
    for (placed, _) in params {
        let Some(at) = placed.cuts.iter().position(|&(other, _)| other == group) else { continue };
        let extent = placed.extent_before(at, mesh, slots);
        // Whole slices, then one that may be shorter, then empty ones.
        let full = extent / extent.div_ceil(size).max(1);
        for slot in [full, full + 1] {
            // Parameters of one shape have the same.
            if slot < size && !found.contains(&slot) {
                found.push(slot);
            }
        }
    }
    found.sort_unstable();
    found
}

/// The starts as ranges: each with the number of slots to the next.
fn ranges(starts: Vec<u64>, size: u64) -> Vec<(u64, u64)> {
    let ends = starts.iter().skip(1).copied().chain([size]).collect::<Vec<u64>>();
    starts.into_iter().zip(ends).map(|(start, end)| (start, end - start)).collect()
}

/// Those of a device mesh.
pub(super) fn mesh_holders_of_stage(plan: &Plan, stage: u64) -> Vec<Holders> {
    mesh_holders(plan, stage, &units_of_stage(plan, stage))
}

/// Parameters of units, each with how many of them there are.
fn counted(units: &[Unit]) -> Vec<(&Placed, u64)> {
    let mut alike: Vec<(&Arc<[Placed]>, u64)> = Vec::new();
    for Unit { params, .. } in units {
        match alike.iter_mut().find(|(known, _)| Arc::ptr_eq(known, params)) {
            Some((_, count)) => *count += 1,
            None => alike.push((params, 1)),
        }
    }
    alike.into_iter().flat_map(|(params, count)| params.iter().map(move |placed| (placed, count))).collect()
}

/// Buffers of a rank of a stage with these slots, units and parameters.
fn buffers_at(
    plan: &Plan,
    mesh: &Mesh,
    slots: &Slots,
    (units, params): (&[Unit], &[(&Placed, u64)]),
) -> Vec<BufferShard> {
    match plan.runtime.facts().flat_units {
        true => megatron_fsdp::buffers_at(plan, units, slots),
        false => buffers_of(plan, mesh, slots, params),
    }
}

fn mesh_holders(plan: &Plan, stage: u64, units: &[Unit]) -> Vec<Holders> {
    let flat = plan.runtime.facts().flat_units;
    let mesh = plan.mesh();
    let params = counted(units);
    let first = Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 };
    let shards = mesh.dp_shard * mesh.cp;
    let mut found: Vec<Holders> = Vec::new();
    for (tp, wide) in ranges(changes(&params, &mesh, &first, GroupKind::Tp, mesh.tp), mesh.tp) {
        let slots = Slots { tp, ..first };
        let starts = match flat {
            true => vec![0],
            false => changes(&params, &mesh, &slots, GroupKind::DpShardCp, shards),
        };
        for (shard, long) in ranges(starts, shards) {
            let slots = Slots { shard, ..slots };
            let buffers = buffers_at(plan, &mesh, &slots, (units, &params));
            let first_rank = stage * mesh.stage() + shard * mesh.tp + tp;
            let count = wide * long * mesh.dp_replicate;
            match found.iter_mut().find(|known| known.buffers == buffers) {
                Some(known) => known.count += count,
                None => found.push(Holders { first_rank, count, buffers }),
            }
        }
    }
    let of = |buffer: &BufferShard| buffer.gpu_bytes() + buffer.host_bytes();
    let bytes = |holders: &Holders| -> u64 { holders.buffers.iter().map(of).sum() };
    crate::order::sort_by_key(&mut found, |holders| (std::cmp::Reverse(bytes(holders)), holders.first_rank));
    if found.len() > MOST {
        let rest: u64 = found.drain(MOST..).map(|holders| holders.count).sum();
        found[MOST - 1].count += rest;
    }
    found
}
