//! What a rank of Megatron-Core holds from step to step.

use crate::plan::Plan;
use crate::shard::buffer_elements;
use crate::units::Dtype;
use crate::wire::{Dispatcher, Implementation, OptimizerKind, Runtime};

use super::low_precision::quantised_weights;
use super::optimizer::{Slot, StateBytes, state};
use super::setting::{Kernel, Setting};
use super::stage::Terms;
use super::weights::StageElements;
use super::wide::Wide;
use super::workspaces::workspaces;

/// Large blocks of torch's allocator are not split when at most 1 MiB would remain: what that adds with one flat buffer
/// of each kind, and with a block for each tensor (published runs of Megatron-LM's CI).
const UNSPLIT_BUFFERS: Wide = Wide::of(1 << 20);
const UNSPLIT_TENSORS: Wide = Wide::of(3 << 20);
/// Boundary tensors that a pipeline's schedule still refers to after a step, in bytes of 2 T h: seen in published runs,
/// and not traced to their references.
const BOUNDARY_TENSORS: Wide = Wide::of(2);
/// The same with interleaved chunks.
const BOUNDARY_TENSORS_INTERLEAVED: Wide = Wide::of(6);

/// Named bytes that stay allocated between steps, beside weights, gradients and optimizer state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Workspaces of matrix libraries.
    pub workspaces: Wide,
    /// Megatron-Core's one buffer for gathered inputs, at its largest use.
    pub gather_buffer: Wide,
    /// TransformerEngine's cached dummy weight gradients.
    pub dummy_weight_gradients: Wide,
    /// Copies of weights in the recipe's type.
    pub quantised_weights: Wide,
    /// Tensors between pipeline stages that outlive a step.
    pub boundary_tensors: Wide,
    /// Blocks of the allocator that are not split.
    pub unsplit_blocks: Wide,
}

impl Held {
    /// Name and bytes of each.
    pub fn named(&self) -> [(&'static str, Wide); 6] {
        [
            ("workspaces", self.workspaces),
            ("gather_buffer", self.gather_buffer),
            ("dummy_weight_gradients", self.dummy_weight_gradients),
            ("quantised_weights", self.quantised_weights),
            ("boundary_tensors", self.boundary_tensors),
            ("unsplit_blocks", self.unsplit_blocks),
        ]
    }

    /// Of all.
    pub fn total(&self) -> Wide {
        self.named().iter().map(|(_, bytes)| bytes).sum()
    }
}

/// State of one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Static {
    /// Weights.
    pub weights: Wide,
    /// Main gradients.
    pub gradients: Wide,
    /// Master weights and moments.
    pub optimizer: Wide,
    /// Of these, moments, which are made by the first step.
    pub moments: Wide,
    /// fp32 copies of two-byte gradients, alive from the optimizer's step to the next step's start.
    pub gradient_copies: Wide,
    /// fp32 copies of state that the update reads and writes.
    pub update_copies: Wide,
    /// What is held beside.
    pub held: Held,
}

/// State of a rank of Megatron-Core on `stage`.
pub fn megatron(terms: &Terms<'_>, stage: u64, elements: &StageElements, slot: Slot) -> Static {
    let at = &terms.at;
    let layout = &at.plan.layout;
    let quantised = terms.quantised_elements(stage, elements);
    let mut state = of_grid(at.plan, stage, elements, quantised, slot);
    state.held.gather_buffer = gather_buffer(at, terms.has_head(stage), terms.has_experts(stage));
    state.held.boundary_tensors = boundary_count(layout.pp, layout.vpp) * at.stream();
    state
}

/// What of it does not depend on the micro batch: all but the buffer of gathered inputs and boundary tensors. `quantised`
/// are elements that a low-precision recipe runs with.
pub fn of_grid(plan: &Plan, stage: u64, elements: &StageElements, quantised: u64, slot: Slot) -> Static {
    let (training, optimizer) = (&plan.training, &plan.training.optimizer);
    let kinds = [&elements.dense, &elements.expert];
    let mut buffers = [0, 0];
    for (number, kind) in kinds.into_iter().enumerate() {
        buffers[number] = buffer_elements(plan, number == 1, kind.padded, kind.exact);
    }
    let in_buffers = Wide::from(buffers[0]) + Wide::from(buffers[1]);
    let quantised = quantised_weights(plan, quantised);
    let state = state(plan, stage, elements, buffers, slot);
    let kept = 1.0 - optimizer.offload_fraction.clamp(0.0, 1.0);
    let moments = part(state.moments, kept);
    let plain = in_buffers * Wide::from(training.dtype.size());
    let gather = training.fp8_param_gather && training.low_precision.is_some();
    Static {
        weights: if gather { plain - quantised.saved.min(plain) + quantised.copies } else { plain },
        gradients: in_buffers * Wide::from(training.grad_dtype.size()),
        optimizer: part(state.master, kept) + moments,
        moments,
        gradient_copies: part(gradient_copies(plan, &state), kept),
        update_copies: part(update_copies(plan, &state), kept),
        held: Held {
            workspaces: Wide::from(workspaces(plan)),
            dummy_weight_gradients: dummy_weight_gradients(plan, elements),
            quantised_weights: if gather { Wide::ZERO } else { quantised.copies },
            unsplit_blocks: unsplit_blocks(plan),
            ..Held::default()
        },
    }
}

/// A part of so many bytes, in millionths: the same on every platform.
fn part(bytes: Wide, fraction: f64) -> Wide {
    bytes * Wide::floor(fraction * 1e6) / 1_000_000
}

/// With gradients of two bytes the step makes an fp32 copy of the rank's part of them, unless the optimizer reads them
/// as they are.
fn gradient_copies(plan: &Plan, state: &StateBytes) -> Wide {
    let small = plan.training.grad_dtype.size() < 4;
    let reads = plan.training.optimizer.precision_aware && !crate::shard::core_keeps_master(plan);
    if small && !reads { 4 * state.elements } else { Wide::ZERO }
}

/// TransformerEngine's Adam computes on fp32 copies of state in fp16 and fp8, made for all parameters before the first is
/// updated (`optimizers/fused_adam.py`); bf16 it reads as it is.
fn update_copies(plan: &Plan, state: &StateBytes) -> Wide {
    let optimizer = &plan.training.optimizer;
    if !optimizer.precision_aware {
        return Wide::ZERO;
    }
    let types = [optimizer.master_dtype, optimizer.exp_avg_dtype, optimizer.exp_avg_sq_dtype];
    let copied = types.into_iter().filter(|dtype| matches!(dtype, Dtype::Fp16 | Dtype::Fp8)).count();
    4 * Wide::from(copied as u64) * state.elements
}

/// `GlobalMemoryBuffer` keeps one tensor at its largest use: the output layer's gathered input with sequence parallelism,
/// scores of Megatron-Core's own attention, tokens gathered for the experts.
pub fn gather_buffer(at: &Setting<'_>, has_head: bool, has_experts: bool) -> Wide {
    let plan = at.plan;
    let layout = &plan.layout;
    let local = plan.training.implementation == Implementation::Local;
    let head = has_head && layout.sp && layout.tp > 1;
    let output = if head || (local && layout.sp) { at.size * at.full * at.hidden } else { Wide::ZERO };
    let scores = if local && at.kernel == Kernel::Unfused {
        at.size * at.batch * Wide::from(plan.model.attention.heads()) / at.tp * at.seq * at.seq
    } else {
        Wide::ZERO
    };
    let group = Wide::from(layout.ep) * Wide::from(layout.etp);
    let gathers = plan.training.moe.dispatcher == Dispatcher::AllGather && has_experts && group > Wide::of(1);
    let tokens = if gathers { at.size * at.local * group * at.hidden } else { Wide::ZERO };
    output.max(scores).max(tokens)
}

/// One weight gradient of each distinct shape in the compute type, kept where the multiplication adds to the main
/// gradient itself (`get_dummy_wgrad`).
fn dummy_weight_gradients(plan: &Plan, elements: &StageElements) -> Wide {
    let engine = plan.training.implementation == Implementation::TransformerEngine;
    if engine && plan.training.fused_gradient_accumulation {
        Wide::from(elements.distinct_shapes) * Wide::from(plan.training.dtype.size())
    } else {
        Wide::ZERO
    }
}

/// Boundary tensors that outlive a step on so many stages of so many chunks.
pub fn boundary_count(pp: u64, vpp: u64) -> Wide {
    match (pp, vpp) {
        (1, _) => Wide::ZERO,
        (_, 1) => BOUNDARY_TENSORS,
        _ => BOUNDARY_TENSORS_INTERLEAVED,
    }
}

fn unsplit_blocks(plan: &Plan) -> Wide {
    if plan.software.expandable_segments || !super::outside::on_gpu(plan) {
        return Wide::ZERO;
    }
    let optimizer = &plan.training.optimizer;
    let flat = optimizer.distributed && optimizer.kind != OptimizerKind::Muon;
    if flat { UNSPLIT_BUFFERS } else { UNSPLIT_TENSORS }
}

/// Weight gradient that a layer's backward makes before it is added to its buffer, without fused accumulation. The
/// executor's are among the moments of its layers (`memory/native.rs`).
pub fn loose_weight_gradient(plan: &Plan, elements: &StageElements) -> Wide {
    let loose = plan.runtime != Runtime::Native && !plan.training.fused_gradient_accumulation;
    if loose {
        Wide::from(elements.largest_of_layers) * Wide::from(plan.training.dtype.size())
    } else {
        Wide::ZERO
    }
}
