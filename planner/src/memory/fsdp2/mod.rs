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
pub(super) use gathered::{Gathered, StageGathers};
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
    let mut found = Vec::new();
    walk_through(terms, stage, &StageGathers::of_stage(terms.at.plan, stage), &mut |moment| {
        found.push(moment)
    });
    found
}

/// Tells every moment of a step that can be its fullest.
fn walk_through(terms: &LayerTerms<'_>, stage: u64, gathers: &StageGathers, tell: &mut dyn FnMut(Moment)) {
    let (plan, units) = (terms.at.plan, &gathers.units);
    match plan.is_computed_by_the_worker() {
        true => {
            let updated = executor::updated_at_once(plan, units);
            executor::walk(terms, stage, units, &Handling::of(plan), updated).into_iter().for_each(tell);
        }
        false => walk::walk(terms, stage, gathers, tell),
    }
}

/// The phases of a step of a stage that gathers these units, each at its fullest moment.
pub(super) fn phases(terms: &LayerTerms<'_>, stage: u64, gathers: &StageGathers) -> Vec<Phase> {
    let mut fullest = Fullest::default();
    walk_through(terms, stage, gathers, &mut |moment| fullest.add(moment));
    fullest.phases()
}

/// The phases of a step of a plan for Megatron-FSDP whose gradients are split, as the worker carries it out: `terms` are of the plan
/// that it computes with, `native` are that plan's shards of a rank.
pub(super) fn phases_of_flat_units(terms: &LayerTerms<'_>, plan: &Plan, native: &RankShards) -> Vec<Phase> {
    let (units, updated) = Gathered::of_flat_units(plan, native);
    let mut fullest = Fullest::default();
    executor::walk(terms, 0, &units, &Handling::of(plan), updated)
        .into_iter()
        .for_each(|moment| fullest.add(moment));
    fullest.phases()
}

/// The fullest moment of each phase, with its bytes.
#[derive(Default)]
struct Fullest {
    found: Vec<(f64, Moment)>,
    most_gathered: Quantity,
}

impl Fullest {
    fn add(&mut self, moment: Moment) {
        self.most_gathered = self.most_gathered.max(moment.gather);
        let total = moment.total();
        match self.found.iter_mut().find(|(_, known)| known.phase == moment.phase) {
            Some(known) if known.0 < total => *known = (total, moment),
            Some(_) => {}
            None => self.found.push((total, moment)),
        }
    }

    fn phases(self) -> Vec<Phase> {
        self.found.iter().map(|(_, moment)| moment.as_phase(self.most_gathered)).collect()
    }
}
