//! Transients of FSDP runtimes: gathered units, gathers and reductions under way, gradients before they are reduced.
//!
//! Each buffer's size is exact (fifteen FSDPMemTracker runs equal these formulas to the byte); which of them are alive
//! at the peak is an estimate.

use crate::layout::Mesh;
use crate::plan::Plan;
use crate::shard::fsdp::{Slots, Unit, UnitKind, units_of_stage};
use crate::shard::{Module, Strategy, double_buffer_bytes, is_wrapped, unit_sizes};
use crate::wire::Runtime;

use super::parts::Saved;
use super::phases::Phase;
use super::stage::Activations;

/// Elements that Megatron-FSDP gathers ahead and queues for reduction unless told otherwise.
const COMMUNICATION_UNIT: u128 = 1_000_000_000;

/// Bytes alive at the phases of a step besides sharded state and activations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transients {
    /// During the backward of a layer.
    pub backward: u128,
    /// When the output layer runs.
    pub head: u128,
    /// When the gradients of the root are reduced at the end of backward.
    pub root: u128,
}

/// Transients of the fullest rank of a stage.
pub fn transients(plan: &Plan, stage: u64) -> Transients {
    match plan.runtime {
        Runtime::Fsdp2 => fsdp2(plan, stage),
        Runtime::MegatronFsdp => megatron_fsdp(plan, stage),
        Runtime::Megatron | Runtime::Native => Transients::default(),
    }
}

/// The phases of a step of a rank of `stage`.
pub fn phases(plan: &Plan, stage: u64, parts: &Activations) -> Vec<Phase> {
    let besides = transients(plan, stage);
    let mut found = vec![Phase {
        name: "backward",
        activations: parts.saved,
        transient: parts.again + parts.backward + besides.backward,
    }];
    if let Some(head) = parts.head {
        let activations = parts.saved + head.saved;
        found.push(Phase { name: "head", activations, transient: head.transient + besides.head });
    }
    found.push(Phase { name: "root", activations: Saved::default(), transient: besides.root });
    found
}

fn fsdp2(plan: &Plan, stage: u64) -> Transients {
    let mesh = Mesh::of(&plan.layout);
    let slots = Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 };
    let size = |unit: &Unit| -> u128 {
        unit.params.iter().map(|placed| u128::from(placed.gather_buffer(&mesh, &slots))).sum()
    };
    let units = units_of_stage(plan, stage);
    let param = u128::from(plan.training.dtype.size());
    let reduce = u128::from(plan.layout.fsdp.reduce_dtype.size());
    let of_root = |unit: &&Unit| unit.kind == UnitKind::Root;
    let root: u128 = units.iter().filter(of_root).map(size).sum();
    let largest = units.iter().filter(|unit| unit.kind != UnitKind::Root).map(size).max().unwrap_or(0);
    // Gathered from their forward to their backward.
    let staying: u128 = units.iter().filter(|unit| !unit.reshard).map(size).sum();
    let staying_layer = units.iter().any(|unit| unit.kind != UnitKind::Root && !unit.reshard);
    // The output layer's gradient waits for the rest of the root.
    let head_gradient: u128 = units
        .iter()
        .filter(of_root)
        .flat_map(|unit| &unit.params)
        .filter(|placed| placed.parameter.module == Module::Head)
        .map(|placed| u128::from(placed.gather_buffer(&mesh, &slots)))
        .sum::<u128>()
        * param;
    // The unit at work and the next one's gather; a layer that stays is counted above.
    let gathered =
        if staying_layer && units.iter().all(|unit| !unit.reshard) { 0 } else { 2 * largest * param };
    Transients {
        backward: staying * param + gathered + largest * (param + reduce) + head_gradient,
        head: staying * param + head_gradient,
        root: root * (2 * param + reduce),
    }
}

fn megatron_fsdp(plan: &Plan, stage: u64) -> Transients {
    let (param, reduce) =
        (u128::from(plan.training.dtype.size()), u128::from(plan.training.grad_dtype.size()));
    let (largest, all) = unit_sizes(plan, stage);
    let (largest, all) = (u128::from(largest), u128::from(all));
    if !is_wrapped(plan) {
        return Transients::default();
    }
    let strategy = plan.layout.fsdp.strategy;
    let unit = COMMUNICATION_UNIT.max(2 * largest);
    let (ahead, queued) = if plan.layout.fsdp.double_buffer {
        (u128::from(double_buffer_bytes(plan, stage)), 0)
    } else {
        let ahead =
            if strategy == Strategy::OptimGradsParams { (largest + unit / 2).min(all) * param } else { 0 };
        (ahead, if strategy >= Strategy::OptimGrads { unit.min(all) * reduce } else { 0 })
    };
    Transients { backward: ahead + queued, head: ahead, root: ahead + queued }
}
