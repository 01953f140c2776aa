//! Buffers that units share: Megatron-FSDP's double buffers.

use planner::shard::fsdp::{CarriedUnit, Weights};
use tch::{Device, Kind, Tensor};

use super::super::length;
use crate::sys::memory::{Category, Tracker};

/// Persistent buffers of each kind.
pub(super) const DOUBLED: usize = 2;

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
