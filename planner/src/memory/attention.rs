//! Attention: queries, keys, values, and what the kernel keeps of the scores.

use crate::model::{Core, QkNorm, SavedElements};
use crate::settings::CpKind;

use super::native;
use super::parts::{LayerBytes, Saver};
use super::setting::{Kernel, PlanTerms};
use crate::units::Quantity;

/// What norms of queries and keys keep, for so many heads of each with so many channels of keys and of values.
fn norms(at: &PlanTerms<'_>, kind: QkNorm, heads: [Quantity; 2], [dim, value]: [Quantity; 2]) -> Quantity {
    let &PlanTerms { size, full, .. } = at;
    let all = heads[0] + heads[1];
    match kind {
        QkNorm::None => Quantity::ZERO,
        kind if at.plan.is_computed_by_the_worker() => native::head_norms(at, kind, heads, [dim, value]),
        QkNorm::PerHead | QkNorm::Full | QkNorm::Plain => (size * dim + 4) * full * all,
        QkNorm::PerHeadLayer | QkNorm::EachHead => (size * dim + 8) * full * all,
    }
}

/// What norms of an attention's queries and keys keep.
pub(super) fn head_norms(at: &PlanTerms<'_>, of: &Core) -> Quantity {
    match of.head_norms {
        QkNorm::None => Quantity::ZERO,
        kind => {
            let widths = [of.query_dim, of.value_dim].map(Quantity::from);
            norms(at, kind, [Quantity::from(of.heads) / at.tp, key_heads(at, of)], widths)
        }
    }
}

/// Heads of keys on a rank; those of an earlier layer are that layer's.
fn key_heads(at: &PlanTerms<'_>, of: &Core) -> Quantity {
    if of.cached_heads == 0 {
        return Quantity::ZERO;
    }
    Quantity::from(of.kv_heads).div_ceil(at.tp).max(Quantity::of(1))
}

/// What an attention keeps, without its norm.
pub(super) fn attention(at: &PlanTerms<'_>, of: &Core) -> LayerBytes {
    let &PlanTerms { size, full, local, tp, .. } = at;
    let wide = |value: u64| Quantity::from(value);
    if let Some(SavedElements { of_stream, split, .. }) = of.kept {
        let bytes = size * local * wide(of_stream) + size * full * wide(split) / tp;
        return LayerBytes::saved(Saver::Attention, bytes);
    }
    let (heads, query, value) = (wide(of.heads) / tp, wide(of.query_dim), wide(of.value_dim));
    let kv = key_heads(at, of);
    let projected = size * full * (heads * query + kv * (query + value));
    let of_values = if of.value_norm { (size * value + 4) * full * kv } else { Quantity::ZERO };
    // The gate, and the output behind it.
    let gate = if of.output_gate { 2 * size * full * heads * value } else { Quantity::ZERO };
    let low = of.low.map_or(Quantity::ZERO, |low| {
        size * local * wide(low.beside) + at.widths.input(local * wide(low.read))
    });
    let mut bytes = core(at, heads, heads * value);
    bytes.saved.put(Saver::Attention, low + head_norms(at, of) + of_values + gate);
    // What up projections of low ranks give can be made again from these.
    bytes.keep(Saver::Attention, projected, of.low.is_some() && at.recomputes("mla_up_proj"));
    bytes
}

/// What the kernel keeps of scores and output, for `heads` of this rank with an output of `width` elements a token.
/// Recomputed, scores or their statistics are made again; the projection keeps the output all the same.
fn core(at: &PlanTerms<'_>, heads: Quantity, width: Quantity) -> LayerBytes {
    let &PlanTerms { size, full, .. } = at;
    let output = size * full * width;
    let scores = match at.kernel {
        // Probabilities; with dropout their mask, and what is left of them.
        Kernel::Unfused => {
            let dropped = if at.attention_dropout { size + 1 } else { Quantity::ZERO };
            // torch's softmax is in fp32, and what is multiplied is a copy, of which dropout keeps none.
            let alone = match (at.fused_softmax, at.attention_dropout) {
                (true, _) => size,
                (false, false) if size < Quantity::of(4) => 4 + size,
                (false, _) => Quantity::of(4),
            };
            (alone + dropped) * at.batch * heads * at.seq * at.seq / at.cp
        }
        Kernel::Flash | Kernel::Cudnn => 4 * full * heads,
    };
    // FlashAttention takes sequences one after the other: with several in a micro batch its output is transposed and
    // copied for the projection.
    let transposed = at.kernel == Kernel::Flash && at.batch > Quantity::of(1);
    // All-to-all changes heads for tokens: the kernel's output and the projection's input are different tensors.
    let exchanged = at.cp > Quantity::of(1) && matches!(at.plan.layout.cp_kind, CpKind::A2a | CpKind::A2aP2p);
    let copies = Quantity::from(transposed) + Quantity::from(exchanged);
    let mut bytes = LayerBytes::saved(Saver::Attention, output + at.widths.shared_input(full * width));
    // The executor keeps the mixed projection in place of queries, keys and values, and its statistics weigh little.
    let again = at.megatron() && at.recomputes("core_attn");
    bytes.keep(Saver::Attention, scores + copies * output, again);
    bytes
}
