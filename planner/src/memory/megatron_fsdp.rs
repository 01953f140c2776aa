//! Megatron-FSDP's transients: gathered units and queued gradients, bounded by its communication unit.

use crate::plan::Plan;
use crate::shard::{Strategy, double_buffer_bytes, is_wrapped, unit_sizes};

use super::parts::Saved;
use super::phases::Phase;
use super::stage::Activations;
use crate::units::Wide;

/// Elements that Megatron-FSDP gathers ahead and queues for reduction unless told otherwise: the larger of this and
/// twice its mean unit (`megatron_fsdp.py`; its comment speaks of a cap, the code takes the larger).
const COMMUNICATION_UNIT: Wide = Wide::of(1_000_000_000);

/// Bytes alive at the phases of a step besides sharded state and activations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transients {
    /// During the backward of a layer.
    backward: Wide,
    /// When the output layer runs.
    head: Wide,
    /// When the gradients of the root are reduced at the end of backward.
    root: Wide,
}

/// The phases of a step of a rank of a stage with these transients.
pub fn phases(besides: &Transients, parts: &Activations) -> Vec<Phase> {
    let phase = |name, activations, transient| Phase { name, activations, transient, ..Phase::default() };
    let mut found = vec![
        phase("forward", parts.saved, parts.forward + besides.head),
        phase("backward", parts.saved, parts.again + parts.backward + besides.backward),
    ];
    if let Some(head) = parts.head {
        found.push(phase("head", parts.saved + head.saved, head.transient + besides.head));
    }
    found.push(phase("reduction", Saved::default(), besides.root));
    found
}

/// Transients of a rank of `stage`, which depend neither on the micro batch nor on what is recomputed.
pub fn transients(plan: &Plan, stage: u64) -> Transients {
    let (param, reduce) =
        (Wide::from(plan.training.dtype.size()), Wide::from(plan.training.grad_dtype.size()));
    let (largest, all) = unit_sizes(plan, stage);
    let (largest, all) = (Wide::from(largest), Wide::from(all));
    if !is_wrapped(plan) {
        return Transients::default();
    }
    let strategy = plan.layout.fsdp.strategy;
    let unit = plan.layout.fsdp.communication_unit.map_or(COMMUNICATION_UNIT.max(2 * largest), Wide::from);
    let (ahead, queued) = if plan.layout.fsdp.double_buffer {
        (Wide::from(double_buffer_bytes(plan, stage)), Wide::ZERO)
    } else {
        let ahead = if strategy == Strategy::OptimGradsParams {
            (largest + unit / 2).min(all) * param
        } else {
            Wide::ZERO
        };
        (ahead, if strategy >= Strategy::OptimGrads { unit.min(all) * reduce } else { Wide::ZERO })
    };
    Transients { backward: ahead + queued, head: ahead, root: ahead + queued }
}
