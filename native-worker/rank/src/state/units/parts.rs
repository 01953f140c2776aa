//! Units that stay split over fewer ranks between forward and backward than they are sharded over (`reshard_after_forward` as a
//! number): each rank keeps a part of what was gathered, and the next gather is among those that have the others.

use planner::layout::GroupKind;
use planner::shard::fsdp::CarriedUnit;
use tch::Tensor;

use super::super::{length, view};
use super::Units;
use super::gather::Gather;
use crate::collectives::{Collectives, GroupId};

/// The ranks that a unit stays split over.
pub(super) struct Fewer {
    group: GroupId,
    index: u64,
    ranks: u64,
}

impl Fewer {
    /// Of a unit, where it does.
    pub(super) fn of(planned: &CarriedUnit, world: &dyn Collectives) -> anyhow::Result<Option<Fewer>> {
        let Some(ranks) = planned.post_forward else { return Ok(None) };
        let group = world.mine(GroupKind::PostForward)?;
        Ok(Some(Fewer { group, index: world.index(group)? as u64, ranks }))
    }
}

impl Units {
    /// Keeps the rank's part of a gathered unit, where it is split over fewer ranks until it is gathered again; says whether it did.
    ///
    /// Its parameters are cut as they are computed with, one behind the other, and padded to what torch keeps.
    pub(super) fn keep_part(&self, number: usize) -> anyhow::Result<bool> {
        let unit = &self.units[number];
        let Some(fewer) = unit.fewer.as_ref().filter(|_| self.now.borrow().gathered[number]) else {
            return Ok(false);
        };
        let whole = unit.storage.numel() as u64;
        let elements = unit.planned.slice * unit.planned.members / fewer.ranks;
        let first = (fewer.index * elements).min(whole);
        let there = elements.min(whole - first);
        let part = Tensor::f_zeros([length(elements)?], (self.compute, unit.storage.device()))?;
        view(&part, 0, there)?.f_copy_(&view(&unit.storage, first, there)?)?;
        self.now.borrow_mut().parts[number] = Some(part);
        Ok(true)
    }

    /// Gathers a unit of which parts are kept from the ranks that keep them.
    pub(super) fn gather_parts(
        &self,
        number: usize,
        world: &dyn Collectives,
    ) -> anyhow::Result<Option<Gather>> {
        let unit = &self.units[number];
        let part = self.now.borrow().parts[number].as_ref().map(Tensor::shallow_clone);
        let Some((fewer, part)) = unit.fewer.as_ref().zip(part) else { return Ok(None) };
        let elements = part.numel() as u64;
        let form = (self.compute, unit.storage.device());
        let all = Tensor::f_empty([length(elements * fewer.ranks)?], form)?;
        view(&all, fewer.index * elements, elements)?.f_copy_(&part)?;
        let mut gathered = Gather::to_come(all);
        gathered.begin(&part, fewer.group, world)?;
        Ok(Some(gathered))
    }

    /// Copies out a unit that was gathered from parts, and gives up its own; says whether it was.
    pub(super) fn copy_out_parts(&self, number: usize, gathered: &Tensor) -> anyhow::Result<bool> {
        let Some(part) = self.now.borrow_mut().parts[number].take() else { return Ok(false) };
        drop(part);
        let storage = &self.units[number].storage;
        storage.shallow_clone().f_copy_(&view(gathered, 0, storage.numel() as u64)?)?;
        Ok(true)
    }
}
