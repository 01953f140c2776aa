//! Megatron-FSDP as the worker carries it out where weights stay whole: it computes with the parameters that runtime native
//! has, and keeps them in a flat buffer for each unit, one behind the other, padded as the unit's is.
//!
//! As many elements as the planner's own list has, which names parameters as transformers does; within a unit they follow each
//! other as the worker computes with them, queries, keys and values of a layer as one, as Megatron-Core's modules have them.

use super::fsdp::{Slots, unit_numbers};
use super::megatron_fsdp::{buffer, flats};
use super::{RankShards, Strategy};
use crate::layout::{GroupKind, Mesh};
use crate::plan::Plan;

/// What the rank of `native`, its shards by runtime native, keeps under Megatron-FSDP: the same parameters, in a buffer for each
/// unit.
///
/// # Errors
/// One sentence that names the parameter, where the two don't go together.
pub fn unit_buffers(plan: &Plan, native: &RankShards) -> Result<RankShards, String> {
    let mesh = Mesh::of(&plan.layout);
    let slots = Slots::of(&mesh, native.rank);
    let flats = flats(plan, &mesh, &slots, mesh.place(native.rank).pp);
    let unit_of = unit_numbers(plan, &mesh, &slots, native)?;
    let mut kept = RankShards { buffers: Vec::new(), ..native.clone() };
    for (number, flat) in flats.iter().enumerate() {
        let real: u64 = flat.unit.params.iter().map(|placed| placed.gathered_elements(&mesh, &slots)).sum();
        let mut next = 0;
        for (shard, _) in kept.params.iter_mut().zip(&unit_of).filter(|(_, unit)| **unit == number) {
            (shard.buffer, shard.buffer_offset) = (kept.buffers.len(), next);
            next += shard.elements();
        }
        if next != real {
            return Err(format!(
                "the unit {:?} {} has {real} elements on a rank, and the worker computes with {next}",
                flat.unit.kind,
                flat.unit.number.unwrap_or(0)
            ));
        }
        if real == 0 {
            continue;
        }
        let mut one = buffer(plan, &mesh, std::slice::from_ref(flat), slots.shard);
        one.group = match plan.layout.fsdp.strategy {
            Strategy::NoShard => GroupKind::DpCp,
            _ => GroupKind::DpShardCp,
        };
        kept.buffers.push(one);
    }
    Ok(kept)
}
