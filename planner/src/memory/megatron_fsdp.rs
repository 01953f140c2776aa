//! Megatron-FSDP's transients: gathered units and queued gradients, bounded by its communication unit.

use crate::cluster::Generation;
use crate::plan::Plan;
use crate::settings::Strategy;
use crate::shard::fsdp::Unit;
use crate::shard::{double_buffer_bytes, is_wrapped, padded_vocabulary, unit_sizes};
use crate::units::LowPrecision;

use super::parts::SavedBytes;
use super::phases::Phase;
use super::stage::Activations;
use crate::units::Quantity;

/// Elements that Megatron-FSDP gathers ahead and queues for reduction unless told otherwise: the larger of this and
/// twice its mean unit (`megatron_fsdp.py`; its comment speaks of a cap, the code takes the larger).
const COMMUNICATION_UNIT: Quantity = Quantity::of(1_000_000_000);

/// Bytes alive at the phases of a step besides sharded state and activations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Transients {
    /// During the forward of a layer.
    forward: Quantity,
    /// During the backward of a layer.
    backward: Quantity,
    /// When the output layer runs.
    head: Quantity,
    /// When the gradients of the root are reduced at the end of backward.
    root: Quantity,
}

/// The phases of a step of a rank of a stage with these transients.
pub(super) fn phases(besides: &Transients, parts: &Activations) -> Vec<Phase> {
    let phase = |name, activations, transient| Phase { name, activations, transient, ..Phase::default() };
    let mut found = vec![
        phase("forward", parts.saved, parts.forward + besides.forward),
        phase("backward", parts.saved, parts.again + parts.backward + besides.backward),
    ];
    if let Some(head) = parts.head {
        found.push(phase("head", parts.saved + head.saved, head.transient + besides.head));
    }
    found.push(phase("reduction", SavedBytes::default(), besides.root));
    found
}

/// Transients of a rank of a stage with these units, which depend neither on the micro batch nor on what is recomputed.
pub(super) fn transients(plan: &Plan, units: &[Unit]) -> Transients {
    if !is_wrapped(plan) {
        return Transients::default();
    }
    let (fsdp, training) = (&plan.layout.fsdp, &plan.training);
    let sizes = unit_sizes(plan, units);
    let wide = |elements: u64| Quantity::from(elements);
    let (largest, layers) = (wide(sizes.largest.elements), wide(sizes.layers.elements));
    let unit = fsdp.communication_unit.map_or(COMMUNICATION_UNIT.max(2 * largest), Quantity::from);
    let gathers = fsdp.strategy == Strategy::OptimGradsParams;
    let reduce = match fsdp.strategy >= Strategy::OptimGrads {
        true => wide(training.grad_dtype.size()),
        false => Quantity::ZERO,
    };
    // What is in no unit stays gathered once it is (`AllGatherPipeline.release_bucket`).
    let root = if gathers { sizes.root.bytes(plan, wide(sizes.root.elements)) } else { Quantity::ZERO };
    let transposed = if gathers && needs_columns(plan) { sizes.layers.quantised } else { 0 };
    let kept = if fsdp.keep_fp8_transpose { wide(transposed) } else { Quantity::ZERO };
    let at_work = wide(transposed.min(sizes.largest.quantised)).saturating_sub(kept);
    // Before the gradients of layers there are those of the output layer, after them those of the embedding; tied to it, the output
    // layer's wait for it in the type in which they are made.
    let output = wide(padded_vocabulary(plan)) * wide(plan.model.hidden_size) / wide(plan.layout.tp);
    let output = output.min(wide(sizes.root.elements));
    let (output, waiting) = match plan.model.tied_embeddings {
        true => (Quantity::ZERO, output * wide(training.dtype.size())),
        false => (output * reduce, Quantity::ZERO),
    };
    let (ahead, queued) = if fsdp.double_buffer {
        (double_buffer_bytes(plan, units), output)
    } else {
        let ahead =
            if gathers { sizes.layers.bytes(plan, (largest + unit / 2).min(layers)) } else { Quantity::ZERO };
        (ahead, unit.min(layers + wide(sizes.root.elements)) * reduce)
    };
    let stays = root + kept + ahead;
    // When the output layer runs, the last layer alone is not given back yet. Its own gradient is made in the compute type, counted
    // there, and copied where the logits are gone; or the multiplication adds to the main gradient.
    let at_head = if training.fused_gradient_accumulation { output } else { Quantity::ZERO };
    let last = if fsdp.double_buffer || !gathers { ahead } else { sizes.largest.bytes(plan, largest) };
    Transients {
        forward: stays,
        backward: stays + at_work + queued + waiting,
        head: root + kept + last + at_head,
        root: stays + queued + waiting,
    }
}

/// Whether a backward makes the columns of gathered 8-bit weights from their rows: scales of blocks always, others where the GPU can't
/// multiply by the transpose of 8 bits. MXFP8's are gathered instead.
fn needs_columns(plan: &Plan) -> bool {
    match plan.training.low_precision {
        Some(LowPrecision::Fp8Blockwise) => true,
        Some(LowPrecision::Fp8Delayed | LowPrecision::Fp8Current) => {
            plan.cluster.gpu.generation != Generation::Blackwell
        }
        _ => false,
    }
}
