//! The phases of a step, and what is alive in each beside weights, gradients and optimizer state.

use crate::plan::Plan;
use crate::shard::BufferShard;
use crate::wire::Runtime;

use super::parts::Saved;
use super::stage::{Activations, Terms};
use super::state::{Held, gradient_copies, weight_gradients};
use super::{fsdp2, megatron_fsdp};

/// One phase of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phase {
    /// Name, as answers give it.
    pub name: &'static str,
    /// Saved activations that are alive.
    pub activations: Saved,
    /// Everything else in the allocator, beside weights, gradients, optimizer state and what is held.
    pub transient: u128,
    /// Bytes of the main gradients that don't exist yet or any more.
    pub absent_gradients: u128,
}

impl Phase {
    /// All of it.
    pub fn total(&self) -> u128 {
        (self.activations.total() + self.transient).saturating_sub(self.absent_gradients)
    }
}

/// The phases of a step of a rank of `stage`.
pub fn phases(terms: &Terms<'_>, stage: u64, parts: &Activations, buffers: &[BufferShard]) -> Vec<Phase> {
    let plan = terms.at.plan;
    match plan.runtime {
        Runtime::Megatron | Runtime::Native => replicated(plan, stage, parts, buffers),
        Runtime::Fsdp2 => fsdp2::phases(terms, stage),
        Runtime::MegatronFsdp => megatron_fsdp::phases(plan, stage, parts),
    }
}

/// Megatron-Core's and the executor's.
fn replicated(plan: &Plan, stage: u64, parts: &Activations, buffers: &[BufferShard]) -> Vec<Phase> {
    // The executor adds each weight gradient to its buffer before it makes the next.
    let native = plan.runtime == Runtime::Native;
    let weight_gradient = if native { weight_gradients(plan, stage).largest } else { 0 };
    let mut found = vec![
        Phase { name: "forward", activations: parts.saved, transient: parts.forward, ..Phase::default() },
        Phase {
            name: "backward",
            activations: parts.saved,
            transient: parts.again + parts.backward + weight_gradient,
            ..Phase::default()
        },
    ];
    if let Some(head) = parts.head {
        let activations = parts.saved + head.saved;
        found.push(Phase { name: "head", activations, transient: head.transient, ..Phase::default() });
    }
    found.push(Phase {
        name: "optimizer",
        activations: Saved::default(),
        transient: gradient_copies(buffers),
        ..Phase::default()
    });
    found
}

/// The phase in which the most is alive; of equals, the first.
pub fn peak(phases: &[Phase]) -> Option<&Phase> {
    phases.iter().reduce(|best, phase| if phase.total() > best.total() { phase } else { best })
}

/// Everything of [`Held`] counts as transient in the answer's categories: it is in the allocator and not a shard.
pub fn transient_bytes(phase: &Phase, held: &Held) -> u128 {
    phase.transient + held.total()
}
