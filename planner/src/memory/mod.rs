//! Bytes of one rank over one step, by category.
//!
//! Weights, gradients and optimizer state are exact: they are summed over the same shards that the worker allocates.
//! Activations, transients and what lives outside the allocator are a first estimate, and the interval says so.

mod activations;
mod fsdp;

pub use activations::{Activations, activations, live_chunks};
pub use fsdp::{Transients, transients};

use crate::plan::Plan;
use crate::shard::{Holders, holders};
use crate::wire::{MemoryAnswer, RankClass, Runtime, Verdict};

/// Reserved over allocated in torch's caching allocator: median of 344 rank readings (SimuMax, B200), min 1.007,
/// max 1.093.
pub const RESERVED_OVER_ALLOCATED: (u64, u64) = (1038, 1000);
/// The upper end of that ratio, for the interval.
const RESERVED_OVER_ALLOCATED_MAX: (u64, u64) = (1093, 1000);
/// CUDA context of one process: 0.3 to 0.6 GiB depending on GPU and kernel libraries (recalled, not read).
pub const CONTEXT_BYTES: u64 = 512 << 20;
/// Buffers of one NCCL communicator of two ranks, and of more (NCCL issue 964, 4 x A100 with NVLink).
pub const COMMUNICATOR_BYTES: (u64, u64) = (544_000_000, 688_000_000);
/// What torch allocates besides: workspaces, rotary tables (SimuMax's B200 readings).
const WORKSPACE_BYTES: u64 = 50 << 20;

/// Largest byte count of an answer: sums stay far from overflow, and no machine comes near.
const MOST: u128 = 1 << 60;

pub(crate) fn clamp(bytes: u128) -> u64 {
    bytes.min(MOST) as u64
}

fn ratio(bytes: u64, (over, under): (u64, u64)) -> u64 {
    clamp(u128::from(bytes) * u128::from(over) / u128::from(under))
}

/// Memory per GPU of a valid plan.
pub fn answer(plan: &Plan) -> MemoryAnswer {
    let stages = 0..plan.layout.pp;
    let rank_classes: Vec<RankClass> = stages.flat_map(|stage| rank_classes(plan, stage)).collect();
    let central = |class: &RankClass| class.peak_reserved_bytes.saturating_add(class.outside_bytes);
    let peak_bytes = rank_classes.iter().map(central).max().unwrap_or(0);
    let low = rank_classes.iter().map(low_end).max().unwrap_or(0).min(peak_bytes);
    let high = rank_classes.iter().map(|class| high_end(plan, class)).max().unwrap_or(0).max(peak_bytes);
    let capacity_bytes = plan.cluster.gpu.capacity_bytes;
    let verdict = match capacity_bytes {
        Some(capacity) if peak_bytes > capacity => Verdict::No,
        Some(capacity) if high > capacity => Verdict::Tight,
        _ => Verdict::Fits,
    };
    MemoryAnswer { capacity_bytes, verdict, peak_bytes, interval_bytes: [low, high], rank_classes }
}

fn static_bytes(class: &RankClass) -> u64 {
    class.weights_bytes + class.gradients_bytes + class.optimizer_bytes
}

/// Estimated parts a fifth lower, half of what is outside, no allocator overhead.
fn low_end(class: &RankClass) -> u64 {
    let estimated = class.activations_bytes.saturating_add(class.transient_bytes);
    static_bytes(class).saturating_add(ratio(estimated, (4, 5))).saturating_add(class.outside_bytes / 2)
}

/// Estimated parts a quarter higher, the largest allocator overhead seen, a third more outside.
fn high_end(plan: &Plan, class: &RankClass) -> u64 {
    let estimated = class.activations_bytes.saturating_add(class.transient_bytes);
    let allocated = static_bytes(class).saturating_add(ratio(estimated, (5, 4)));
    let reserved = if on_gpu(plan) { ratio(allocated, RESERVED_OVER_ALLOCATED_MAX) } else { allocated };
    reserved.saturating_add(ratio(class.outside_bytes, (4, 3)))
}

fn on_gpu(plan: &Plan) -> bool {
    plan.cluster.gpu.id != "cpu"
}

/// Memory of the ranks of one stage by what they hold.
fn rank_classes(plan: &Plan, stage: u64) -> Vec<RankClass> {
    holders(plan, stage).into_iter().map(|holders| rank_class(plan, stage, holders)).collect()
}

/// Memory of ranks with equal buffers.
fn rank_class(plan: &Plan, stage: u64, holders: Holders) -> RankClass {
    let Holders { first_rank, count, mut buffers } = holders;
    if plan.runtime == Runtime::Fsdp2 && plan.layout.fsdp.offload {
        // All of it is on the host.
        buffers.clear();
    }
    let weights_bytes = buffers.iter().map(|buffer| buffer.weights_bytes()).sum();
    let gradients_bytes = buffers.iter().map(|buffer| buffer.gradients_bytes()).sum();
    let optimizer_bytes: u64 = buffers.iter().map(|buffer| buffer.optimizer_bytes()).sum();
    let parts = activations(plan, stage);
    let workspace = if plan.runtime == Runtime::Megatron && on_gpu(plan) { WORKSPACE_BYTES } else { 0 };
    // With gradients of two bytes the optimizer step makes an fp32 copy of its part of them.
    let step_copy: u64 = buffers
        .iter()
        .filter(|buffer| buffer.grad_dtype.size() < 4)
        .map(|buffer| 4 * buffer.state_elements)
        .sum();
    let fsdp = matches!(plan.runtime, Runtime::Fsdp2 | Runtime::MegatronFsdp);
    let phases = if fsdp {
        let besides = transients(plan, stage);
        [
            ("backward", parts.saved, parts.layer_transient + besides.backward),
            ("head", parts.saved_at_head, parts.head_transient + besides.head),
            ("root", 0, besides.root),
        ]
    } else {
        [
            ("backward", parts.saved, parts.layer_transient + parts.weight_gradients),
            ("head", parts.saved_at_head, parts.head_transient + parts.weight_gradients_at_head),
            ("optimizer", 0, u128::from(step_copy) + parts.weight_gradients),
        ]
    };
    let (peak_phase, saved, transient) = phases
        .into_iter()
        .reduce(|best, phase| if phase.1 + phase.2 > best.1 + best.2 { phase } else { best })
        .unwrap_or(("backward", 0, 0));
    let (activations_bytes, transient_bytes) = (clamp(saved), clamp(transient) + workspace);
    let peak_allocated_bytes =
        [weights_bytes, gradients_bytes, optimizer_bytes, activations_bytes, transient_bytes]
            .into_iter()
            .sum();
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
        outside_bytes: outside_bytes(plan),
        peak_allocated_bytes,
        peak_reserved_bytes: if on_gpu(plan) {
            ratio(peak_allocated_bytes, RESERVED_OVER_ALLOCATED)
        } else {
            peak_allocated_bytes
        },
    }
}

/// Context and communicators of one rank: one communicator for each kind of group that carries large traffic.
fn outside_bytes(plan: &Plan) -> u64 {
    if !on_gpu(plan) {
        return 0;
    }
    let layout = &plan.layout;
    let expert = if plan.model.moe.is_some() { [layout.ep, layout.etp, layout.edp] } else { [1; 3] };
    let sizes = [layout.tp, layout.cp, layout.pp, layout.dp].into_iter().chain(expert);
    let communicators: u64 = sizes
        .map(|size| match size {
            0 | 1 => 0,
            2 => COMMUNICATOR_BYTES.0,
            _ => COMMUNICATOR_BYTES.1,
        })
        .sum();
    CONTEXT_BYTES + communicators
}
