//! Megatron-FSDP's transients: gathered units and queued gradients, bounded by its communication unit.

use crate::plan::Plan;
use crate::shard::{Strategy, double_buffer_bytes, is_wrapped, unit_sizes};

use super::parts::Saved;
use super::phases::Phase;
use super::stage::Activations;

/// Elements that Megatron-FSDP gathers ahead and queues for reduction unless told otherwise: the larger of this and
/// twice its mean unit (`megatron_fsdp.py`; its comment speaks of a cap, the code takes the larger).
const COMMUNICATION_UNIT: u128 = 1_000_000_000;

/// Bytes alive at the phases of a step besides sharded state and activations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transients {
    /// During the backward of a layer.
    backward: u128,
    /// When the output layer runs.
    head: u128,
    /// When the gradients of the root are reduced at the end of backward.
    root: u128,
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
        (u128::from(plan.training.dtype.size()), u128::from(plan.training.grad_dtype.size()));
    let (largest, all) = unit_sizes(plan, stage);
    let (largest, all) = (u128::from(largest), u128::from(all));
    if !is_wrapped(plan) {
        return Transients::default();
    }
    let strategy = plan.layout.fsdp.strategy;
    let unit = plan.layout.fsdp.communication_unit.map_or(COMMUNICATION_UNIT.max(2 * largest), u128::from);
    let (ahead, queued) = if plan.layout.fsdp.double_buffer {
        (u128::from(double_buffer_bytes(plan, stage)), 0)
    } else {
        let ahead =
            if strategy == Strategy::OptimGradsParams { (largest + unit / 2).min(all) * param } else { 0 };
        (ahead, if strategy >= Strategy::OptimGrads { unit.min(all) * reduce } else { 0 })
    };
    Transients { backward: ahead + queued, head: ahead, root: ahead + queued }
}
