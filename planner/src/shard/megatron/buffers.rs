//! Buffers of a rank of Megatron-Core and of the worker, from the elements of its slices.

use super::elements::{Elements, StageElements, Tensors, Updated};
use crate::layout::GroupKind;
use crate::plan::Plan;
use crate::settings::OptimizerKind;
use crate::shard::low_precision::{LowPrecisionWeights, keeps_quantised, quantised_bytes};
use crate::shard::state::state_types;
use crate::shard::{BufferShard, StateShard};
use crate::units::{Dtype, common_divisor};
use crate::wire::RankRole;

/// Every parameter starts at a multiple of this many elements in a buffer of the distributed optimizer
/// (Megatron-Core param_layout).
pub(crate) const PARAM_ALIGNMENT: u64 = 64;
/// A buffer of the distributed optimizer ends at a multiple of lcm(data-parallel size, this).
const END_ALIGNMENT: u64 = 128;

/// A rank's number among those that reduce dense and expert gradients together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Of dense state.
    pub dense: u64,
    /// Of experts'.
    pub expert: u64,
}

impl Slot {
    /// The first rank of a stage.
    pub(crate) const FIRST: Slot = Slot { dense: 0, expert: 0 };

    /// The last of those that share state; which is dealt the largest tensor of the first round where whole ones are dealt.
    pub(crate) fn last(plan: &Plan) -> Slot {
        let [dense, expert] = owners(plan);
        Slot { dense: dense - 1, expert: expert - 1 }
    }
}

/// Ranks over which the state of dense and of expert parameters is split: all that reduce their gradients together, or
/// those of one of the distributed optimizer's instances.
fn owners(plan: &Plan) -> [u64; 2] {
    [GroupKind::DpCpOfInstance, GroupKind::EdpOfInstance].map(|group| {
        match plan.training.optimizer.distributed {
            true => plan.group_size(group).max(1),
            false => 1,
        }
    })
}

/// Whether ranks of a stage keep the state of whole tensors that were dealt to them, and so of unequal sizes.
pub(crate) fn is_dealt(plan: &Plan) -> bool {
    by_tensor(plan) && owners(plan) != [1, 1]
}

/// Whether an optimizer works on whole tensors instead of ranges of a buffer.
fn by_tensor(plan: &Plan) -> bool {
    plan.runtime.facts().deals_tensors && plan.training.optimizer.kind == OptimizerKind::Muon
}

/// Elements of a buffer as allocated, from the sum of its slices' sizes, each rounded up to `PARAM_ALIGNMENT` (`padded`)
/// and not (`exact`).
fn allocated(plan: &Plan, group: GroupKind, padded: u64, exact: u64) -> u64 {
    if plan.training.optimizer.distributed && exact > 0 {
        padded.next_multiple_of(lcm(plan.group_size(group), END_ALIGNMENT))
    } else {
        exact
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    a / common_divisor(a, b) * b
}

/// Gradients of a slice of so many elements: a core of nonuniform tensor parallelism has room, behind each slice that
/// `cut` cuts, for the rows that extras send.
pub(super) fn with_rows_of_extras(plan: &Plan, elements: u64, cut: Option<GroupKind>) -> u64 {
    match (plan.role, &plan.nonuniform) {
        (Some(RankRole::Core), Some(nonuniform)) if cut == Some(GroupKind::Tp) => {
            let shrunk = &nonuniform.shrunk;
            elements + elements * (shrunk.base - shrunk.reduced) / shrunk.reduced
        }
        _ => elements,
    }
}

/// Where slices of these sizes start in their buffer.
pub(super) fn starts(plan: &Plan, sizes: impl Iterator<Item = u64>) -> Vec<u64> {
    let align = if plan.training.optimizer.distributed { PARAM_ALIGNMENT } else { 1 };
    let mut end = 0u64;
    let start = |size| {
        let start = end.next_multiple_of(align);
        end = start + size;
        start
    };
    sizes.map(start).collect()
}

/// What one buffer holds: dense parameters or experts; of the worker's, which has one for each, those of one rule of
/// update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BufferKind {
    /// Whether it holds routed experts.
    pub expert: bool,
    /// The rule, where there is one for all that it holds.
    pub rule: Option<OptimizerKind>,
}

impl BufferKind {
    /// All kinds, in the order of a rank's buffers: dense, then experts.
    pub(super) fn all(plan: &Plan) -> Vec<BufferKind> {
        let rules: &[Option<OptimizerKind>] = match plan.training.optimizer.kind {
            OptimizerKind::Muon if by_tensor(plan) => &[None],
            OptimizerKind::Muon => &[Some(OptimizerKind::Adam), Some(OptimizerKind::Muon)],
            OptimizerKind::Adam => &[Some(OptimizerKind::Adam)],
            OptimizerKind::Sgd => &[Some(OptimizerKind::Sgd)],
        };
        let of = |expert| rules.iter().map(move |&rule| BufferKind { expert, rule });
        [false, true].into_iter().flat_map(of).collect()
    }

    /// Whether it holds what this is: routed experts or not, hidden matrices or not.
    pub(super) fn holds(self, plan: &Plan, expert: bool, matrix: bool) -> bool {
        let rule = match (plan.training.optimizer.kind, matrix) {
            (OptimizerKind::Muon, true) => OptimizerKind::Muon,
            (OptimizerKind::Muon, false) => OptimizerKind::Adam,
            (other, _) => other,
        };
        self.expert == expert && self.rule.is_none_or(|own| own == rule)
    }

    fn elements(self, plan: &Plan, of: &Updated) -> Elements {
        match (self.rule, plan.training.optimizer.kind) {
            (Some(OptimizerKind::Muon), OptimizerKind::Muon) => of.matrices,
            (Some(_), OptimizerKind::Muon) => of.others,
            _ => of.all(),
        }
    }
}

/// Buffers of a rank that holds these elements, in the order of their kinds, without those that are empty.
pub(crate) fn buffers(plan: &Plan, held: &StageElements, slot: Slot) -> Vec<BufferShard> {
    let kinds = BufferKind::all(plan).into_iter();
    kinds.filter_map(|kind| buffer(plan, kind, held, slot)).collect()
}

pub(super) fn buffer(plan: &Plan, kind: BufferKind, held: &StageElements, slot: Slot) -> Option<BufferShard> {
    let training = &plan.training;
    let (group, of, number) = match kind.expert {
        true => (GroupKind::Edp, &held.expert, slot.expert),
        false => (GroupKind::DpCp, &held.dense, slot.dense),
    };
    let owners = owners(plan)[usize::from(kind.expert)];
    // An instance's ranks are neighbours in the group.
    let number = number % owners;
    let sizes = kind.elements(plan, of);
    let elements = allocated(plan, group, sizes.padded, sizes.exact);
    if elements == 0 {
        return None;
    }
    let facts = plan.runtime.facts();
    let core = plan.role == Some(RankRole::Core) && plan.nonuniform.is_some() && !facts.cores_keep_rows;
    let gradients = || allocated(plan, group, sizes.gradients_padded, sizes.gradients_exact);
    let quantised =
        |elements| LowPrecisionWeights { elements, bytes: quantised_bytes(plan, elements).into() };
    let state = |optimizer, offset, elements| {
        let mut state = StateShard::new(optimizer, &state_types(plan, optimizer), offset, elements);
        // The worker keeps all of it where its weights are.
        if facts.offloads_state {
            state.host_fraction = training.optimizer.offload_fraction.clamp(0.0, 1.0);
        }
        state
    };
    let states = match kind.rule {
        // The worker's cores update for extras, too.
        Some(rule) if facts.cores_keep_rows && plan.role == Some(RankRole::Extra) && !kind.expert => {
            vec![state(rule, Some(0), 0)]
        }
        Some(rule) => {
            let part = elements / owners;
            vec![state(rule, Some(number * part), part)]
        }
        None => {
            let dealt = |matrices| dealt(&held.tensors, kind.expert, matrices, owners, number);
            vec![
                state(OptimizerKind::Adam, None, dealt(false)),
                state(OptimizerKind::Muon, None, dealt(true)),
            ]
        }
    };
    Some(BufferShard {
        expert: kind.expert,
        elements,
        weight_dtype: training.dtype,
        low_precision: (keeps_quantised(plan) && sizes.quantised > 0).then(|| quantised(sizes.quantised)),
        grad_dtype: training.grad_dtype,
        gradient_elements: core.then(gradients),
        group,
        on_host: false,
        states,
    })
}

/// Elements of hidden matrices, or of all else, that are dealt to a rank with this number. Whole tensors, sorted by size,
/// are dealt to ranks 0, 1 ... D-1, D-1 ... 0, and so on (Megatron-Core `layer_wise_optimizer.py`).
fn dealt(all: &[Tensors], expert: bool, matrices: bool, owners: u64, number: u64) -> u64 {
    let mut tensors: Vec<&Tensors> = all.iter().filter(|tensors| tensors.expert == expert).collect();
    tensors.sort_unstable();
    let (mut place, mut found) = (0u64, 0u64);
    for tensors in tensors {
        // In each round of 2 D places a rank has one on the way up and one on the way down.
        let before = |end: u64| {
            let rest = end % (2 * owners);
            2 * (end / (2 * owners)) + u64::from(rest > number) + u64::from(rest > 2 * owners - 1 - number)
        };
        let mine = before(place + tensors.count) - before(place);
        place += tensors.count;
        if tensors.matrices == matrices {
            found += tensors.elements * mine;
        }
    }
    found
}

/// Whether the step works on an fp32 copy of the rank's part of gradients of two bytes: unless the optimizer reads them as
/// they are. The worker always does.
pub(crate) fn copies_gradients(plan: &Plan) -> bool {
    let optimizer = &plan.training.optimizer;
    let aware = optimizer.precision_aware && !crate::shard::state::core_keeps_master(plan);
    let reads = plan.runtime.facts().state_as_said && (aware || crate::shard::state::fused_adam(plan));
    plan.training.grad_dtype.size() < Dtype::Fp32.size() && !reads
}
