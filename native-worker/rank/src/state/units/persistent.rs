//! Buffers that units share: Megatron-FSDP's double buffers.

use planner::shard::fsdp::{CarriedUnit, Weights};
use tch::{Device, Kind, Tensor};

use super::super::length;
use super::Units;
use crate::sys;
use crate::sys::memory::{Category, Tracker};

/// Persistent buffers of each kind, as memory counts them.
pub(super) const DOUBLED: usize = planner::shard::fsdp::DOUBLED as usize;

/// Buffers that stay, for units that are alike (Megatron-FSDP's double buffers): by number, two of each.
#[derive(Default)]
pub(super) struct Persistent {
    /// For gathered weights: empty while a unit has its memory.
    pub(super) weights: Vec<Tensor>,
    /// For inputs of reductions, in turns.
    pub(super) gradients: Vec<Tensor>,
}

impl Persistent {
    pub(super) fn allocate(
        planned: &[CarriedUnit],
        [compute, reduce]: [Kind; 2],
        device: Device,
        tracker: &Tracker,
    ) -> anyhow::Result<Persistent> {
        let mut found = Persistent::default();
        let of = |number: usize| planned.iter().find(|unit| unit.persistent == Some(number));
        for unit in (0..).map_while(of) {
            let size = [length(unit.slice * unit.members)?];
            let one =
                |kind| tracker.allocate(Category::Buffers, || Ok(Tensor::f_empty(size, (kind, device))?));
            for _ in 0..DOUBLED {
                if unit.weights == Weights::Gathered {
                    found.weights.push(one(compute)?);
                }
                found.gradients.push(one(reduce)?);
            }
        }
        Ok(found)
    }

    /// The places of the two of a number.
    pub(super) fn places(number: usize) -> std::ops::Range<usize> {
        DOUBLED * number..DOUBLED * (number + 1)
    }
}

impl Units {
    /// Gives a unit memory for its parameters: a persistent buffer, where one is free for it.
    pub(super) fn fill(&self, number: usize) -> anyhow::Result<()> {
        let (unit, now) = (&self.units[number], &mut *self.now.borrow_mut());
        let free = |place: &usize| now.lent.iter().all(|lent| *lent != Some(*place));
        let places = unit.planned.persistent.filter(|_| !self.persistent.weights.is_empty());
        let found = places.and_then(|number| Persistent::places(number).find(free));
        let Some(place) = found else { return sys::fill_storage(&unit.storage, unit.bytes) };
        now.lent[number] = Some(place);
        sys::swap_storage(&self.persistent.weights[place], &unit.storage)
    }

    /// Takes it away again.
    pub(super) fn empty(&self, number: usize) -> anyhow::Result<()> {
        let storage = &self.units[number].storage;
        match self.now.borrow_mut().lent[number].take() {
            Some(place) => sys::swap_storage(storage, &self.persistent.weights[place]),
            None => sys::empty_storage(storage),
        }
    }
}
