//! Seconds of the final norm, the output layer and the loss.

use super::constants::ConstantRole;
use super::gemm::Product;
use super::layer::{ComputeOptions, LayerSplit, LayerTime, Work};
use super::machine::Machine;
use super::parts::Parts;
use super::shape::ModelShape;
use crate::settings::CrossEntropy;

/// Bytes that a chain of operations moves for a logit, in each of two passes.
const CHAINED_LOSS: f64 = 26.0;
/// Bytes that it takes to make room for a gradient of the embedding, to clear it and to read it again.
const EMBEDDING_BYTES: f64 = 14.0;

/// Bytes that an unfused loss reads and writes for a logit, forward and backward. Forward: to fp32, the maximum,
/// subtraction, exponential, sum, division; backward: a product, and back to two bytes (Megatron-LM's
/// `vocab_parallel_cross_entropy`, which nanotron's follows).
const UNFUSED_LOSS: [f64; 2] = [38.0, 14.0];

/// The same of Megatron-Core's fused loss, whose operations torch compiles into four kernels (`fusions/fused_cross_entropy.py`, ee6737da824b).
/// Forward: to fp32 with the maximum; subtraction, exponential and sum; division. Backward: a product in place, and back to two bytes.
const NATIVE_LOSS: [f64; 2] = [22.0, 10.0];

/// Final norm, output layer and loss of a micro batch.
pub(super) fn head_time(
    machine: &Machine,
    split: &LayerSplit,
    options: &ComputeOptions,
    shape: &ModelShape,
) -> LayerTime {
    let work = Work { machine, split, options, hidden: shape.hidden };
    let tokens = split.gathered_tokens();
    let outputs = shape.vocabulary / split.tp;
    let product = Product { rows: tokens, outputs, inputs: shape.hidden, groups: 1.0 };
    let rate = if options.low_head { &machine.gemm } else { &machine.gemm16 };
    let mut both = work.product(rate, product);
    // Where the loss takes all logits, each rank computes it of all.
    let columns = if options.whole_logits { shape.vocabulary } else { outputs };
    let (stream, logits) = (split.stream_tokens() * shape.hidden, tokens * columns);
    // Operations of a loss read and write numbers of its type; what is counted is fp32's.
    let wide = options.loss_bytes / 4.0;
    // Bytes of a logit: as they are, and before what the software's own traffic makes of them.
    let ([forward, backward], passes) = match (options.fused_operations, options.loss) {
        (false, _) => ([0.0; 2], wide * CHAINED_LOSS),
        (true, CrossEntropy::Te) => ([0.0; 2], 4.0),
        (true, CrossEntropy::Native) => (NATIVE_LOSS, 0.0),
        (true, CrossEntropy::Unfused) => (UNFUSED_LOSS.map(|bytes| wide * bytes), 0.0),
    };
    both.forward.memory += forward * logits / machine.memory;
    both.backward.memory += backward * logits / machine.memory;
    let [forward, backward] = options.bytes().norm.map(|bytes| bytes * stream + passes * logits);
    both += work.memory(forward, backward, ConstantRole::Traffic);
    if !options.fused_operations && !options.frozen {
        // The gradient of the embedding is as large as the embedding, however few words a micro batch has.
        let embedding = outputs * shape.hidden;
        let bytes = EMBEDDING_BYTES + 2.0 * options.gradient_bytes;
        both += work.memory(0.0, bytes * embedding, ConstantRole::Traffic);
    }
    both.backward.memory += machine.of(ConstantRole::HostHead);
    both += work.tp(shape.hidden);
    // The maximum, the sum and the wanted logit of every token are reduced over the vocabulary's parts; fused, the last
    // two together.
    let sums = if options.loss == CrossEntropy::Unfused { 3.0 } else { 2.0 };
    both.forward.tp += if options.whole_logits {
        machine.gather(split.tp_group, options.loss_bytes * logits)
    } else {
        sums * 2.0 * machine.gather(split.tp_group, 4.0 * tokens)
    };
    LayerTime {
        forward: both.forward,
        backward: both.backward,
        weights: both.weights,
        again: Parts::default(),
        host: 0.0,
        gaps: 0.0,
    }
}
