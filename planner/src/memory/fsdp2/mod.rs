//! FSDP2 and HSDP: a step walked through unit by unit, with what torch holds at each moment.
//!
//! The buffers of gathered units, gathers and reductions are torch's to the byte (`accuracy::tracker` holds them
//! against FSDPMemTracker); activations are those of torch's own operators.

mod alive;
mod executor;
mod gathered;
mod head;
mod layer;
mod marks;
mod operators;
mod pieces;
#[cfg(test)]
mod tests;
mod walk;

pub use alive::{Alive, At, moments_of_units};
pub(super) use gathered::Gathered;
pub(super) use layer::{COMPILED_WIDE_TENSORS, compiles_whole_sequences, layer as torch_layer};
pub use walk::Moment;

use super::phases::Phase;
use super::stage::LayerTerms;
use crate::plan::Plan;
use crate::shard::RankShards;
use crate::shard::fsdp::Handling;
use crate::units::Quantity;

/// Every moment of a step that can be its fullest, on the fullest rank of `stage`.
pub fn moments(terms: &LayerTerms<'_>, stage: u64) -> Vec<Moment> {
    walked(terms, stage, &Gathered::of_stage(terms.at.plan, stage))
}

fn walked(terms: &LayerTerms<'_>, stage: u64, units: &[Gathered]) -> Vec<Moment> {
    match terms.at.plan.is_computed_by_the_worker() {
        true => {
            let plan = terms.at.plan;
            executor::walk(terms, stage, units, &Handling::of(plan), executor::updated_at_once(plan, units))
        }
        false => walk::walk(terms, stage, units),
    }
}

/// The phases of a step of a stage with these units, each at its fullest moment.
pub(super) fn phases(terms: &LayerTerms<'_>, stage: u64, units: &[Gathered]) -> Vec<Phase> {
    fullest(walked(terms, stage, units))
}

/// The phases of a step of a plan for Megatron-FSDP whose gradients are split, as the worker carries it out: `terms` are of the plan
/// that it computes with, `native` are that plan's shards of a rank.
pub(super) fn phases_of_flat_units(terms: &LayerTerms<'_>, plan: &Plan, native: &RankShards) -> Vec<Phase> {
    let (units, updated) = Gathered::of_flat_units(plan, native);
    fullest(executor::walk(terms, 0, &units, &Handling::of(plan), updated))
}

fn fullest(moments: Vec<Moment>) -> Vec<Phase> {
    let mut found: Vec<Moment> = Vec::new();
    let mut most_gathered = Quantity::ZERO;
    for moment in moments {
        most_gathered = most_gathered.max(moment.gather);
        match found.iter_mut().find(|known| known.phase == moment.phase) {
            Some(known) if known.total() < moment.total() => *known = moment,
            Some(_) => {}
            None => found.push(moment),
        }
    }
    found.iter().map(|moment| moment.as_phase(most_gathered)).collect()
}
