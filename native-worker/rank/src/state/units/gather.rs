//! Units of a section gathered from the ranks that keep slices of them, beside what is computed until they are used.

use planner::shard::fsdp::Weights;
use tch::Tensor;

use super::super::{Buffer, length, view};
use super::{Unit, Units, strided};
use crate::collectives::{Begun, Collective, Collectives, GroupId};

/// The members' slices of a unit, one after the other.
pub(super) struct Gather {
    pub(super) elements: Tensor,
    /// Whether they are what the rank keeps: there is nobody to gather from.
    kept: bool,
    /// What brings them, until computing waits for it.
    begun: Option<Begun>,
}

impl Gather {
    /// Of slices that will come.
    pub(super) fn to_come(elements: Tensor) -> Gather {
        Gather { elements, kept: false, begun: None }
    }

    /// Of what is there.
    pub(super) fn there(elements: Tensor) -> Gather {
        Gather { elements, kept: true, begun: None }
    }

    /// Begins to gather them from the members, of which this one has its own: beside what is computed until it is waited for.
    pub(super) fn begin(
        &mut self,
        own: &Tensor,
        group: GroupId,
        world: &dyn Collectives,
    ) -> anyhow::Result<()> {
        let gather = Collective::AllGather { input: own, output: &mut self.elements };
        self.begun = Some(world.begin(group, gather)?);
        Ok(())
    }

    /// Has computing wait until they are there.
    pub(super) fn wait(&mut self, world: &dyn Collectives) -> anyhow::Result<()> {
        self.begun.take().map_or(Ok(()), |begun| world.wait(begun))
    }

    /// Bytes that it takes for itself.
    pub(super) fn owned_bytes(&self) -> u64 {
        if self.kept {
            return 0;
        }
        (self.elements.numel() * self.elements.kind().elt_size_in_bytes()) as u64
    }
}

impl Units {
    /// Begins to gather the members' slices of a section's units, one after the other.
    pub(super) fn gather(
        &self,
        place: usize,
        buffers: &[Buffer],
        world: &dyn Collectives,
    ) -> anyhow::Result<Vec<Gather>> {
        let mut found = Vec::new();
        for &unit in &self.sections[place].1 {
            let Unit { planned, group, index, storage, .. } = &self.units[unit];
            if planned.weights == Weights::Kept {
                found.push(Gather::there(storage.shallow_clone()));
                continue;
            }
            let kept = view(&buffers[planned.buffer].weights, planned.start, planned.slice)?;
            if planned.weights == Weights::Gathered {
                let mut gathered = Gather::there(storage.shallow_clone());
                if !self.now.borrow().gathered[unit] {
                    self.fill(unit)?;
                    let mut own = view(storage, index * planned.slice, planned.slice)?;
                    own.f_copy_(&kept)?;
                    if planned.members > 1 {
                        gathered.begin(&own, *group, world)?;
                    }
                }
                found.push(gathered);
                continue;
            }
            if planned.members == 1 {
                found.push(Gather::there(kept));
                continue;
            }
            if let Some(gathered) = self.gather_parts(unit, world)? {
                found.push(gathered);
                continue;
            }
            let form = (self.compute, storage.device());
            let elements = Tensor::f_empty([length(planned.slice * planned.members)?], form)?;
            let mut own = view(&elements, index * planned.slice, planned.slice)?;
            own.f_copy_(&kept)?;
            let mut gathered = Gather::to_come(elements);
            gathered.begin(&own, *group, world)?;
            found.push(gathered);
        }
        Ok(found)
    }

    pub(super) fn copy_out(&self, number: usize, gathered: &Tensor) -> anyhow::Result<()> {
        let unit = &self.units[number];
        if unit.planned.weights != Weights::CopiedOut {
            // They are where they are computed with.
            self.now.borrow_mut().gathered[number] = true;
            return Ok(());
        }
        self.fill(number)?;
        self.now.borrow_mut().gathered[number] = true;
        if self.copy_out_parts(number, gathered)? {
            return Ok(());
        }
        if unit.planned.has_padding {
            let _ = unit.storage.shallow_clone().f_zero_()?;
        }
        for copy in &unit.planned.copies {
            let mut there = strided(&unit.storage, copy, &copy.local, unit.start_of(copy.parameter)?)?;
            there.f_copy_(&strided(gathered, copy, &copy.gathered, 0)?)?;
        }
        Ok(())
    }
}
