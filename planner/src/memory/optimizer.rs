//! Optimizer state of Megatron-Core: bytes of an element by optimizer and types, and who holds it.

use crate::layout::GroupKind;
use crate::plan::Plan;
use crate::shard::{Module, block_families, counted_blocks};
use crate::units::{Dtype, LowPrecision};
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

/// Whether Megatron-Core keeps the fp32 master weights of a precision-aware optimizer and hands it gradients in fp32, as it
/// does for 8-bit weights that are cast from them (`use_precision_aware_optimizer_no_fp8_or_ds_fp8` of its
/// `optimizer_config.py`, when that is off).
pub fn core_keeps_master(plan: &Plan) -> bool {
    let optimizer = &plan.training.optimizer;
    let cast = matches!(
        plan.training.low_precision,
        Some(LowPrecision::Fp8Current | LowPrecision::Fp8Blockwise | LowPrecision::Mxfp8)
    );
    optimizer.precision_aware
        && optimizer.master_dtype == Dtype::Fp32
        && optimizer.offload_fraction <= 0.0
        && optimizer.core_master.unwrap_or(cast)
}

/// State of a matrix that Muon treats, and of everything else.
pub fn widths(plan: &Plan) -> [StateWidth; 2] {
    let (training, optimizer) = (&plan.training, &plan.training.optimizer);
    let two_bytes = matches!(training.dtype, Dtype::Bf16 | Dtype::Fp16);
    let master = match (two_bytes, optimizer.precision_aware) {
        (false, _) => 0,
        (true, false) => optimizer.master_dtype.size(),
        // With bf16 weights an fp32 master keeps only the lower half, which the weights lack (`store_param_remainders`).
        (true, true)
            if optimizer.master_dtype == Dtype::Fp32
                && !training.fp8_param_gather
                && !core_keeps_master(plan) =>
        {
            2
        }
        (true, true) => optimizer.master_dtype.size(),
    };
    let adam = optimizer.exp_avg_dtype.size() + optimizer.exp_avg_sq_dtype.size();
    let moments = match optimizer.kind {
        OptimizerKind::Adam => [adam, adam],
        OptimizerKind::Sgd => [optimizer.exp_avg_dtype.size(); 2],
        OptimizerKind::Muon => [optimizer.exp_avg_dtype.size(), adam],
    };
    moments.map(|moments| StateWidth { master, moments })
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
    let instances = plan.training.optimizer.instances.max(1);
    let split = |replicas: u64| (replicas / instances).max(1);
    if plan.training.optimizer.distributed {
        [split(plan.group_size(GroupKind::DpCp)), split(plan.group_size(GroupKind::Edp))]
    } else {
        [1, 1]
    }
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
