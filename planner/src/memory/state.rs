//! What a rank holds from step to step: the sums of its buffers, and what Megatron-Core holds beside.

use crate::plan::Plan;
use crate::settings::{Dispatcher, Implementation, OptimizerKind};
use crate::shard::low_precision::{keeps_quantised, quantised_bytes};
use crate::shard::megatron::copies_gradients;
use crate::shard::{BufferShard, StageElements, StateShard};
use crate::units::Dtype;

use super::setting::{Kernel, PlanTerms};
use super::stage::LayerTerms;
use super::workspaces::workspaces;
use super::{by_runtime, native};
use crate::units::Quantity;

/// Large blocks of torch's allocator are not split when at most 1 MiB would remain: what that adds with one flat buffer
/// of each kind, and with a block for each tensor (published runs of Megatron-LM's CI).
const UNSPLIT_BUFFERS: Quantity = Quantity::of(1 << 20);
const UNSPLIT_TENSORS: Quantity = Quantity::of(3 << 20);
/// Boundary tensors that a pipeline's schedule still refers to after a step, in bytes of 2 T h: seen in published runs,
/// and not traced to their references.
const BOUNDARY_TENSORS: Quantity = Quantity::of(2);
/// The same with interleaved chunks.
const BOUNDARY_TENSORS_INTERLEAVED: Quantity = Quantity::of(6);

/// Named bytes that stay allocated between steps, beside weights, gradients and optimizer state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Workspaces of matrix libraries.
    pub workspaces: Quantity,
    /// Megatron-Core's one buffer for gathered inputs, at its largest use.
    pub gather_buffer: Quantity,
    /// TransformerEngine's cached dummy weight gradients.
    pub dummy_weight_gradients: Quantity,
    /// Copies of weights in the recipe's type.
    pub quantised_weights: Quantity,
    /// Tensors between pipeline stages that outlive a step.
    pub boundary_tensors: Quantity,
    /// Blocks of the allocator that are not split.
    pub unsplit_blocks: Quantity,
    /// Copies of weights and gradients that the program of a software profile keeps.
    pub program_copies: Quantity,
    /// The executor's cosines and sines.
    pub rotation_tables: Quantity,
}

impl Held {
    /// Name and bytes of each.
    pub fn named(&self) -> [(&'static str, Quantity); 8] {
        [
            ("workspaces", self.workspaces),
            ("gather_buffer", self.gather_buffer),
            ("dummy_weight_gradients", self.dummy_weight_gradients),
            ("quantised_weights", self.quantised_weights),
            ("boundary_tensors", self.boundary_tensors),
            ("unsplit_blocks", self.unsplit_blocks),
            ("program_copies", self.program_copies),
            ("rotation_tables", self.rotation_tables),
        ]
    }

    /// Of all.
    pub fn total(&self) -> Quantity {
        self.named().iter().map(|(_, bytes)| bytes).sum()
    }
}

/// State of one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Static {
    /// Weights.
    pub weights: Quantity,
    /// Main gradients.
    pub gradients: Quantity,
    /// Master weights and moments.
    pub optimizer: Quantity,
    /// Of these, moments, which are made by the first step.
    pub moments: Quantity,
    /// Elements of the largest range of state, or of the most that was dealt.
    pub largest_state: u64,
    /// The same of what the executor updates in parts.
    pub updated_in_parts: u64,
    /// fp32 copies of two-byte gradients, alive from the optimizer's step to the next step's start.
    pub gradient_copies: Quantity,
    /// fp32 copies of state that the update reads and writes.
    pub update_copies: Quantity,
    /// Copies that the executor's ranks of a healthy replica hand each other around the update, where other replicas run reduced.
    pub handed: Quantity,
    /// What is held beside.
    pub held: Held,
}

/// State of a rank with these buffers, and what its optimizer's step makes of it.
pub(super) fn of_buffers(plan: &Plan, buffers: &[BufferShard]) -> Static {
    let sum =
        |bytes: fn(&BufferShard) -> u64| buffers.iter().map(|buffer| Quantity::from(bytes(buffer))).sum();
    let states = || buffers.iter().filter(|buffer| !buffer.on_host).flat_map(|buffer| &buffer.states);
    let on_gpu = |bytes: u64| states().map(|state| state.kept(bytes * Quantity::from(state.elements))).sum();
    let (copied, update_copies) = (by_runtime::of(plan).copies)(plan, buffers);
    Static {
        weights: sum(BufferShard::weights_bytes),
        gradients: sum(BufferShard::gradients_bytes),
        optimizer: sum(BufferShard::optimizer_bytes),
        moments: states().map(StateShard::moments_on_gpu).sum(),
        largest_state: states().map(|state| state.elements).max().unwrap_or(0),
        updated_in_parts: buffers.iter().map(BufferShard::updated_in_parts).max().unwrap_or(0),
        gradient_copies: if copied { on_gpu(4) } else { Quantity::ZERO },
        update_copies: on_gpu(update_copies),
        handed: Quantity::ZERO,
        held: Held {
            program_copies: program_copies(plan, buffers),
            rotation_tables: native::kept_rotation_tables(plan),
            ..Held::default()
        },
    }
}

/// What the program of a plan's profile keeps beside gradients and optimizer state, with data parallelism.
fn program_copies(plan: &Plan, buffers: &[BufferShard]) -> Quantity {
    let Some(program) = plan.program().filter(|_| plan.layout.dp * plan.layout.cp > 1) else {
        return Quantity::ZERO;
    };
    let weights: Quantity = buffers.iter().map(|buffer| Quantity::from(buffer.elements)).sum();
    let slices: Quantity = buffers.iter().map(|buffer| Quantity::from(buffer.state_elements())).sum();
    let copies = if plan.training.optimizer.distributed { weights + slices } else { Quantity::ZERO };
    program.keeps.bucket * weights + program.keeps.split_copies * copies
}

/// What Megatron-Core's update copies: gradients, and bytes of an element of state.
pub(super) fn copies_of_megatron(plan: &Plan, _: &[BufferShard]) -> (bool, u64) {
    (copies_gradients(plan), update_copies(plan))
}

/// What other updates copy: gradients of two bytes.
pub(super) fn copies_of_narrow_gradients(_: &Plan, buffers: &[BufferShard]) -> (bool, u64) {
    (buffers.iter().any(|buffer| buffer.grad_dtype.size() < 4), 0)
}

/// What is held beside the buffers of a rank of Megatron-Core on `stage`.
pub(super) fn held(terms: &LayerTerms<'_>, stage: u64, elements: &StageElements) -> Held {
    let at = &terms.at;
    let layout = &at.plan.layout;
    Held {
        gather_buffer: gather_buffer(at, terms.has_head(stage), terms.has_experts(stage)),
        boundary_tensors: boundary_count(layout.pp, layout.vpp) * boundary_tensor(at),
        ..held_on_grid(at.plan, elements)
    }
}

/// What of it does not depend on the micro batch: all but the buffer of gathered inputs and boundary tensors.
pub(super) fn held_on_grid(plan: &Plan, elements: &StageElements) -> Held {
    Held {
        workspaces: Quantity::from(workspaces(plan)),
        dummy_weight_gradients: dummy_weight_gradients(plan, elements),
        quantised_weights: match keeps_quantised(plan) {
            true => Quantity::ZERO,
            false => quantised_bytes(plan, elements.quantised()),
        },
        unsplit_blocks: unsplit_blocks(plan),
        ..Held::default()
    }
}

/// Bytes of an element that TransformerEngine's Adam takes for fp32 copies of state in fp16 and fp8, made for all parameters
/// before the first is updated (`optimizers/fused_adam.py`); bf16 it reads as it is.
fn update_copies(plan: &Plan) -> u64 {
    let optimizer = &plan.training.optimizer;
    if !optimizer.precision_aware {
        return 0;
    }
    let types = [optimizer.master_dtype, optimizer.exp_avg_dtype, optimizer.exp_avg_sq_dtype];
    let copied = types.into_iter().filter(|dtype| matches!(dtype, Dtype::Fp16 | Dtype::Fp8)).count();
    4 * copied as u64
}

/// `GlobalMemoryBuffer` keeps one tensor at its largest use: the output layer's gathered input with sequence parallelism,
/// scores of Megatron-Core's own attention, tokens gathered for the experts.
pub(super) fn gather_buffer(at: &PlanTerms<'_>, has_head: bool, has_experts: bool) -> Quantity {
    let plan = at.plan;
    let layout = &plan.layout;
    let local = plan.training.implementation == Implementation::Local;
    let head = has_head && layout.sp && layout.tp > 1;
    let kept = plan.program().map_or(0, |program| program.keeps.gathered_inputs);
    if kept > 0 {
        let splits = layout.sp && layout.tp > 1;
        return if splits { kept * at.size * at.full * at.hidden } else { Quantity::ZERO };
    }
    let output = if head || (local && layout.sp) { at.size * at.full * at.hidden } else { Quantity::ZERO };
    let scores = if local && at.kernel == Kernel::Unfused {
        at.size * at.batch * Quantity::from(plan.model.attention.heads()) / at.tp * at.seq * at.seq
    } else {
        Quantity::ZERO
    };
    let group = Quantity::from(layout.ep) * Quantity::from(layout.etp);
    let gathers =
        plan.training.moe.dispatcher == Dispatcher::AllGather && has_experts && group > Quantity::of(1);
    let tokens = if gathers { at.size * at.local * group * at.hidden } else { Quantity::ZERO };
    output.max(scores).max(tokens)
}

/// One weight gradient of each distinct shape in the compute type, kept where the multiplication adds to the main
/// gradient itself (`get_dummy_wgrad`).
fn dummy_weight_gradients(plan: &Plan, elements: &StageElements) -> Quantity {
    let engine = plan.training.implementation == Implementation::TransformerEngine;
    if engine && plan.training.fused_gradient_accumulation {
        Quantity::from(elements.distinct_shapes) * Quantity::from(plan.training.dtype.size())
    } else {
        Quantity::ZERO
    }
}

/// Bytes of a boundary tensor that outlives a step: none does but in Megatron-Core's schedules.
pub(super) fn boundary_tensor(at: &PlanTerms<'_>) -> Quantity {
    match at.plan.program() {
        Some(program) if program.own_modules => Quantity::ZERO,
        _ => at.stream(),
    }
}

/// Boundary tensors that outlive a step on so many stages of so many chunks.
pub(super) fn boundary_count(pp: u64, vpp: u64) -> Quantity {
    match (pp, vpp) {
        (1, _) => Quantity::ZERO,
        (_, 1) => BOUNDARY_TENSORS,
        _ => BOUNDARY_TENSORS_INTERLEAVED,
    }
}

fn unsplit_blocks(plan: &Plan) -> Quantity {
    if plan.software.expandable_segments || !super::outside::on_gpu(plan) {
        return Quantity::ZERO;
    }
    let optimizer = &plan.training.optimizer;
    let flat = optimizer.distributed && optimizer.kind != OptimizerKind::Muon;
    if flat { UNSPLIT_BUFFERS } else { UNSPLIT_TENSORS }
}

/// Weight gradient that a layer's backward makes before it is added to its buffer, without fused accumulation. The
/// executor's are among the moments of its layers (`memory/native.rs`).
pub(super) fn loose_weight_gradient(plan: &Plan, elements: &StageElements) -> Quantity {
    let loose = !plan.is_computed_by_the_worker() && !plan.training.fused_gradient_accumulation;
    if loose {
        Quantity::from(elements.largest_of_layers) * Quantity::from(plan.training.dtype.size())
    } else {
        Quantity::ZERO
    }
}
