//! Bytes of one rank over one step, by category.
//!
//! Weights, gradients and optimizer state are exact: they are summed over the same shards that the worker allocates.
//! Activations are counted module by module for one layer of each kind ([`Terms`]), then for a stage's chunks and the
//! micro batches in flight; [`phases`] says what is alive beside them in each phase of a step.

mod attention;
mod fsdp2;
mod head;
mod interval;
mod layer;
mod live;
mod low_precision;
mod megatron_fsdp;
mod mlp;
mod moe;
mod outside;
mod parts;
mod phases;
mod recompute;
mod recurrent;
mod setting;
mod stage;
mod state;

pub use fsdp2::{Moment, moments};
pub use head::HeadBytes;
pub use interval::RESERVED_OVER_ALLOCATED;
pub use live::{live_chunks, live_of_chunk};
pub use outside::{COMMUNICATOR_BYTES, CONTEXT_BYTES};
pub use parts::{LayerBytes, PARTS, Part, Saved};
pub use phases::{Phase, phases};
pub use setting::{Kernel, Setting};
pub use stage::{Activations, Terms};
pub use state::{Held, WeightGradients, held, weight_gradients};

use crate::plan::Plan;
use crate::shard::{Holders, holders};
use crate::wire::{MemoryAnswer, MemoryPart, MemoryPhase, RankClass, Runtime};

/// Largest byte count of an answer: sums stay far from overflow, and no machine comes near.
const MOST: u128 = 1 << 60;

pub(crate) fn clamp(bytes: u128) -> u64 {
    bytes.min(MOST) as u64
}

/// Memory per GPU of a valid plan.
pub fn answer(plan: &Plan) -> MemoryAnswer {
    let terms = Terms::new(plan);
    let rank_classes: Vec<RankClass> =
        (0..plan.layout.pp).flat_map(|stage| rank_classes(&terms, stage)).collect();
    let peak_bytes = rank_classes.iter().map(interval::taken).max().unwrap_or(0);
    let low = rank_classes.iter().map(interval::low_end).max().unwrap_or(0).min(peak_bytes);
    let high =
        rank_classes.iter().map(|class| interval::high_end(plan, class)).max().unwrap_or(0).max(peak_bytes);
    let capacity_bytes = plan.cluster.gpu.capacity_bytes;
    let verdict = interval::verdict(capacity_bytes, peak_bytes, high);
    MemoryAnswer { capacity_bytes, verdict, peak_bytes, interval_bytes: [low, high], rank_classes }
}

/// Memory of the ranks of one stage by what they hold.
fn rank_classes(terms: &Terms<'_>, stage: u64) -> Vec<RankClass> {
    let parts = terms.stage(stage);
    holders(terms.at.plan, stage)
        .into_iter()
        .map(|holders| rank_class(terms, stage, &parts, holders))
        .collect()
}

/// Memory of ranks with equal buffers.
fn rank_class(terms: &Terms<'_>, stage: u64, parts: &Activations, holders: Holders) -> RankClass {
    let plan = terms.at.plan;
    let Holders { first_rank, count, mut buffers } = holders;
    if plan.runtime == Runtime::Fsdp2 && plan.layout.fsdp.offload {
        // All of it is on the host.
        buffers.clear();
    }
    let weights_bytes: u64 = buffers.iter().map(|buffer| buffer.weights_bytes()).sum();
    let all_gradients: u64 = buffers.iter().map(|buffer| buffer.gradients_bytes()).sum();
    let optimizer_bytes: u64 = buffers.iter().map(|buffer| buffer.optimizer_bytes()).sum();
    // Gradients that FSDP2 has not reduced yet are not there.
    let gradients = |phase: &Phase| all_gradients.saturating_sub(clamp(phase.absent_gradients));
    let held = held(plan, stage);
    let phases = phases(terms, stage, parts, &buffers);
    let peak = phases::peak(&phases);
    let (peak_phase, saved, transient) = peak.map_or(("backward", Saved::default(), 0), |phase| {
        (phase.name, phase.activations, phases::transient_bytes(phase, &held))
    });
    let (activations_bytes, transient_bytes) = (clamp(saved.total()), clamp(transient));
    let gradients_bytes = peak.map_or(all_gradients, gradients);
    let peak_allocated_bytes =
        weights_bytes + gradients_bytes + optimizer_bytes + activations_bytes + transient_bytes;
    RankClass {
        stage,
        example_rank: first_rank,
        count,
        peak_phase: peak_phase.to_owned(),
        weights_bytes,
        gradients_bytes,
        optimizer_bytes,
        activations_bytes,
        transient_bytes,
        outside_bytes: outside::outside_bytes(plan),
        peak_allocated_bytes,
        peak_reserved_bytes: interval::reserved(plan, peak_allocated_bytes),
        phases: phases
            .iter()
            .map(|phase| MemoryPhase {
                name: phase.name.to_owned(),
                activations_bytes: clamp(phase.activations.total()),
                transient_bytes: clamp(phases::transient_bytes(phase, &held)),
                allocated_bytes: weights_bytes
                    + gradients(phase)
                    + optimizer_bytes
                    + clamp(phase.activations.total() + phases::transient_bytes(phase, &held)),
            })
            .collect(),
        parts: answer_parts(&saved, &held),
    }
}

/// What activations and transients at the peak are made of.
fn answer_parts(saved: &Saved, held: &Held) -> Vec<MemoryPart> {
    let part = |category: &str, name: &str, bytes: u128| MemoryPart {
        category: category.to_owned(),
        name: name.to_owned(),
        bytes: clamp(bytes),
    };
    let activations = PARTS.iter().map(|&(at, name)| part("activations", name, saved.get(at)));
    let held = held.named().into_iter().map(|(name, bytes)| part("transient", name, bytes));
    activations.chain(held).filter(|part| part.bytes > 0).collect()
}
