//! The phases of a step, and what is alive in each beside weights, gradients and optimizer state.

use crate::plan::Plan;

use super::outside::on_gpu;
use super::parts::SavedBytes;
use super::stage::{Activations, LayerTerms};
use super::state::{Static, loose_weight_gradient};
use super::workspaces::cublas_workspace;
use crate::shard::{SQUARED_AT_ONCE, StageElements, UPDATED_AT_ONCE};
use crate::units::{Dtype, Quantity};

/// Writing whole tensors, as other frameworks read them: now and then, so it does not count for the peak of a step.
/// Megatron-Core's own checkpoints are written slice by slice and take nothing on the GPU.
pub(super) const EXPORT: &str = "checkpoint export";

/// One phase of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phase {
    /// Name, as answers give it.
    pub name: &'static str,
    /// Saved activations that are alive.
    pub activations: SavedBytes,
    /// Everything else in the allocator, beside weights, gradients, optimizer state and what is held.
    pub transient: Quantity,
    /// Bytes of the main gradients that don't exist yet or any more.
    pub absent_gradients: Quantity,
    /// Bytes that the allocator keeps from earlier and that nothing in this phase can use, where that is known.
    pub cached: Quantity,
}

impl Phase {
    /// All of it.
    pub fn total(&self) -> Quantity {
        (self.activations.total() + self.transient).saturating_sub(self.absent_gradients)
    }
}

/// The phases of a step of Megatron-Core and of the executor.
pub(super) fn replicated(
    plan: &Plan,
    parts: &Activations,
    elements: &StageElements,
    state: &Static,
) -> Vec<Phase> {
    let native = plan.is_computed_by_the_worker();
    let weight_gradient = loose_weight_gradient(plan, elements);
    let size = Quantity::from(plan.training.dtype.size());
    let mut found = Vec::with_capacity(7);
    let mut put = |name, activations, transient| {
        found.push(Phase { name, activations, transient, ..Phase::default() });
    };
    if !native {
        // Tensors are copied into their flat buffer before the optimizer has any state.
        put(
            "load",
            SavedBytes::default(),
            (2 * state.weights + state.gradients).saturating_sub(static_bytes(state)),
        );
    }
    put("forward", parts.saved, parts.forward);
    if let Some(head) = parts.head {
        put("head", parts.saved + head.saved, head.transient);
    }
    put("backward", parts.saved, parts.again + parts.backward + parts.head_kept + weight_gradient);
    if !native {
        // The embedding's gradient is made whole, in the compute type, when no activation is left.
        put("gradient reduction", SavedBytes::default(), size * Quantity::from(elements.embedding));
    }
    let update = if native {
        executor_update(plan, elements, state)
    } else {
        state.gradient_copies + state.update_copies
    };
    put("optimizer", SavedBytes::default(), update);
    if !native {
        // A tensor of every rank that has a part of it, and the whole put together.
        put(
            EXPORT,
            SavedBytes::default(),
            2 * size * Quantity::from(elements.largest) * Quantity::from(plan.layout.tp),
        );
    }
    found
}

/// Temporaries of an update by Adam in parts: the gradient and its square, then what is divided. SGD's are the gradient and the change.
const UPDATE_TEMPORARIES: u64 = 2;

/// Temporaries of the executor's norm and its update of its largest parameter: squares, which a CPU makes of a copy in fp64; in the type
/// of the moments what is updated in parts, or a whole matrix by Muon; what cores and extras hand each other before and behind.
fn executor_update(plan: &Plan, elements: &StageElements, state: &Static) -> Quantity {
    let gradient = plan.training.grad_dtype;
    let largest = elements.largest_kept.max(elements.embedding);
    let copied = !on_gpu(plan) && gradient != Dtype::Fp64;
    let squares =
        if copied { Dtype::Fp64.size() * largest.min(state.largest_state).min(SQUARED_AT_ONCE) } else { 0 };
    let parts = UPDATE_TEMPORARIES * largest.min(state.updated_in_parts).min(UPDATED_AT_ONCE);
    Quantity::from(squares)
        .max(state.handed)
        .max(Quantity::from(gradient.size().max(4)) * Quantity::from(parts.max(elements.orthogonal)))
}

fn static_bytes(state: &Static) -> Quantity {
    state.weights + state.gradients + state.optimizer
}

/// The phase of every step in which the most is alive; of equals, the first.
pub(super) fn peak(phases: &[Phase]) -> Option<&Phase> {
    phases
        .iter()
        .filter(|phase| phase.name != EXPORT)
        .reduce(|best, phase| if phase.total() > best.total() { phase } else { best })
}

/// What is allocated after a step of Megatron-Core: everything static, with what the step leaves behind until the next.
pub(super) fn after_step(terms: &LayerTerms<'_>, state: &Static, parts: &Activations) -> Quantity {
    static_bytes(state) + state.held.total() + state.gradient_copies + terms.left_after_step(parts)
}

/// The most that is allocated up to the end of the first step: its moments come last, and with a single micro batch
/// only one of the two cuBLAS workspaces is there at the loss.
pub(super) fn first_step(
    terms: &LayerTerms<'_>,
    state: &Static,
    parts: &Activations,
    phases: &[Phase],
) -> Quantity {
    let plan = terms.at.plan;
    let always = static_bytes(state) + state.held.total();
    let late = |name: &str| matches!(name, "optimizer" | EXPORT);
    let one_handle = |name: &str| plan.microbatches() == 1 && matches!(name, "forward" | "head");
    let before = phases.iter().filter(|phase| !late(phase.name)).map(|phase| {
        let handle =
            if one_handle(phase.name) { Quantity::from(cublas_workspace(plan)) } else { Quantity::ZERO };
        let dummy = if one_handle(phase.name) { state.held.dummy_weight_gradients } else { Quantity::ZERO };
        (always + phase.total()).saturating_sub(state.moments + handle + dummy)
    });
    before.max().unwrap_or(Quantity::ZERO).max(after_step(terms, state, parts))
}
