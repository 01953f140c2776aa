//! Optimizer state of Megatron-Core: bytes of an element by optimizer, and who holds it.

use crate::layout::GroupKind;
use crate::plan::Plan;
use crate::shard::{Module, block_families, counted_blocks, state_owners, state_types};
use crate::wire::OptimizerKind;

use super::weights::{StageElements, is_hidden_matrix};
use super::wide::Wide;

/// Bytes of state of one element.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateWidth {
    /// Master weight.
    pub master: u64,
    /// Moments.
    pub moments: u64,
}

/// State of a matrix that Muon treats, and of everything else.
pub fn widths(plan: &Plan) -> [StateWidth; 2] {
    let of = |kind: OptimizerKind| {
        let types = state_types(plan, kind);
        StateWidth { master: types.master_bytes(), moments: types.moment_bytes() }
    };
    match plan.training.optimizer.kind {
        OptimizerKind::Muon => [of(OptimizerKind::Muon), of(OptimizerKind::Adam)],
        kind => [of(kind); 2],
    }
}

/// Bytes of state on a rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateBytes {
    /// Master weights.
    pub master: Wide,
    /// Moments, which the first step makes.
    pub moments: Wide,
    /// Elements whose state the rank holds.
    pub elements: Wide,
}

impl StateBytes {
    fn put(&mut self, elements: Wide, width: StateWidth) {
        self.master += elements * Wide::from(width.master);
        self.moments += elements * Wide::from(width.moments);
        self.elements += elements;
    }
}

/// Ranks over which the state of dense and of expert parameters is split.
fn owners(plan: &Plan) -> [u64; 2] {
    [GroupKind::DpCp, GroupKind::Edp].map(|group| state_owners(plan, group))
}

/// Whether whole tensors are dealt to ranks.
pub fn is_dealt(plan: &Plan) -> bool {
    plan.training.optimizer.kind == OptimizerKind::Muon && owners(plan) != [1, 1]
}

/// State of a rank of a stage with these buffers of dense and of expert elements; `slot` is its number among those that
/// share the state, which matters where whole tensors are dealt.
pub fn state(plan: &Plan, stage: u64, elements: &StageElements, buffers: [u64; 2], slot: Slot) -> StateBytes {
    let [matrix, other] = widths(plan);
    let owners = owners(plan);
    let mut found = StateBytes::default();
    if plan.training.optimizer.kind == OptimizerKind::Muon {
        if owners != [1, 1] {
            return dealt(plan, stage, owners, slot);
        }
        for kind in [&elements.dense, &elements.expert] {
            found.put(Wide::from(kind.matrices), matrix);
            found.put(Wide::from(kind.exact - kind.matrices), other);
        }
        return found;
    }
    for (buffer, owners) in buffers.into_iter().zip(owners) {
        found.put(Wide::from(buffer / owners), other);
    }
    found
}

/// A rank's number among those that share dense and expert state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The first.
    First,
    /// The last, which is dealt the largest of the first round.
    Last,
}

/// Muon works on whole tensors: sorted by size they are dealt to ranks 0, 1 ... D-1, D-1 ... 0, and so on (Megatron-Core
/// `layer_wise_optimizer.py`).
fn dealt(plan: &Plan, stage: u64, owners: [u64; 2], slot: Slot) -> StateBytes {
    let [matrix, other] = widths(plan);
    let mut tensors: Vec<(u64, u64, bool, bool)> = Vec::new();
    for (block, count) in counted_blocks(plan, stage) {
        for family in block_families(plan, block, count) {
            let expert = family.parameter.module == Module::Expert;
            tensors.push((family.local_elements(), family.count, is_hidden_matrix(&family), expert));
        }
    }
    tensors.sort_unstable();
    let mut found = StateBytes::default();
    for (kind, owners) in owners.into_iter().enumerate() {
        let number = if slot == Slot::First { 0 } else { owners - 1 };
        let mut place = 0u64;
        for &(size, count, is_matrix, _) in tensors.iter().filter(|tensor| tensor.3 == (kind == 1)) {
            // In each round of 2 D places a rank has one on the way up and one on the way down.
            let before = |end: u64| {
                let rest = end % (2 * owners);
                2 * (end / (2 * owners))
                    + u64::from(rest > number)
                    + u64::from(rest > 2 * owners - 1 - number)
            };
            let mine = before(place + count) - before(place);
            place += count;
            found.put(Wide::from(size) * Wide::from(mine), if is_matrix { matrix } else { other });
        }
    }
    found
}
