//! Attention: queries, keys, values, and what the kernel keeps of the scores.

use crate::model::{Attention, QkNorm};
use crate::settings::CpKind;

use super::native;
use super::parts::{LayerBytes, Saver};
use super::setting::{Kernel, PlanTerms};
use crate::units::Wide;

/// What norms of queries and keys keep, for so many heads of each with so many channels of keys and of values.
fn norms(at: &PlanTerms<'_>, kind: QkNorm, heads: [Wide; 2], [dim, value]: [Wide; 2]) -> Wide {
    let &PlanTerms { size, full, .. } = at;
    let all = heads[0] + heads[1];
    match kind {
        QkNorm::None => Wide::ZERO,
        kind if at.plan.is_computed_by_the_worker() => native::head_norms(at, kind, heads, [dim, value]),
        QkNorm::PerHead | QkNorm::Full | QkNorm::Plain => (size * dim + 4) * full * all,
        QkNorm::PerHeadLayer | QkNorm::EachHead => (size * dim + 8) * full * all,
    }
}

/// What norms of an attention's queries and keys keep.
pub(super) fn head_norms(at: &PlanTerms<'_>, attention: &Attention) -> Wide {
    let &Attention::Gqa { qk_norm, shared_kv, .. } = attention else { return Wide::ZERO };
    let core = attention.core();
    let kv = key_heads(at, core.kv_heads, shared_kv);
    norms(at, qk_norm, [Wide::from(core.heads) / at.tp, kv], [core.query_dim, core.value_dim].map(Wide::from))
}

/// Heads of keys on a rank; those of an earlier layer are that layer's.
fn key_heads(at: &PlanTerms<'_>, all: u64, shared: bool) -> Wide {
    if shared { Wide::ZERO } else { Wide::from(all).div_ceil(at.tp).max(Wide::of(1)) }
}

/// What an attention keeps, without its norm.
pub(super) fn attention(at: &PlanTerms<'_>, attention: &Attention) -> LayerBytes {
    let &PlanTerms { size, full, local, tp, .. } = at;
    let wide = |value: u64| Wide::from(value);
    let of = attention.core();
    let (heads, query, value) = (wide(of.heads) / tp, wide(of.query_dim), wide(of.value_dim));
    // A gate, and the output behind it.
    let gate = |there: bool| if there { 2 * size * full * heads * value } else { Wide::ZERO };
    match *attention {
        Attention::Gqa { qk_norm, output_gate, shared_kv, value_norm, head_gate, .. } => {
            let kv = key_heads(at, of.kv_heads, shared_kv);
            let qkv = size * full * (heads * query + kv * (query + value));
            let norm = norms(at, qk_norm, [heads, kv], [query, value]);
            let of_values = if value_norm { (size * value + 4) * full * kv } else { Wide::ZERO };
            let mut bytes = core(at, heads, heads * value);
            bytes.saved.put(Saver::Attention, qkv + norm + of_values + gate(output_gate || head_gate));
            bytes
        }
        Attention::Mla {
            q_lora_rank, kv_lora_rank, qk_rope_dim, qk_norm, output_gate, head_gate, ..
        } => {
            let (rank, latent, rope) =
                (wide(q_lora_rank.unwrap_or(0)), wide(kv_lora_rank), wide(qk_rope_dim));
            // Compressed queries and keys before and after their norms, which the up projections read.
            let unnormed = if qk_norm { rank + 2 * latent + rope } else { rope };
            let compressed = size * local * unnormed + at.widths.input(local * (rank + latent));
            let expanded = size * full * heads * (2 * query + value);
            let mut bytes = core(at, heads, heads * value);
            bytes.saved.put(Saver::Attention, compressed + gate(output_gate || head_gate));
            bytes.keep(Saver::Attention, expanded, at.recomputes("mla_up_proj"));
            bytes
        }
        Attention::Shared { heads, head_dim, q_lora_rank, out_groups, out_lora_rank, .. } => {
            // An approximation, from the sizes of what is projected and not from readings.
            let low = 2 * wide(q_lora_rank) + 2 * wide(head_dim);
            let high = 3 * wide(heads) * wide(head_dim) + wide(out_groups) * wide(out_lora_rank);
            LayerBytes::saved(Saver::Attention, size * local * low + size * full * high / tp)
        }
    }
}

/// What the kernel keeps of scores and output, for `heads` of this rank with an output of `width` elements a token.
/// Recomputed, scores or their statistics are made again; the projection keeps the output all the same.
fn core(at: &PlanTerms<'_>, heads: Wide, width: Wide) -> LayerBytes {
    let &PlanTerms { size, full, .. } = at;
    let output = size * full * width;
    let scores = match at.kernel {
        // Probabilities; with dropout their mask, and what is left of them.
        Kernel::Unfused => {
            let dropped = if at.attention_dropout { size + 1 } else { Wide::ZERO };
            // torch's softmax is in fp32, and what is multiplied is a copy, of which dropout keeps none.
            let alone = match (at.fused_softmax, at.attention_dropout) {
                (true, _) => size,
                (false, false) if size < Wide::of(4) => 4 + size,
                (false, _) => Wide::of(4),
            };
            (alone + dropped) * at.batch * heads * at.seq * at.seq / at.cp
        }
        Kernel::Flash | Kernel::Cudnn => 4 * full * heads,
    };
    // FlashAttention takes sequences one after the other: with several in a micro batch its output is transposed and
    // copied for the projection.
    let transposed = at.kernel == Kernel::Flash && at.batch > Wide::of(1);
    // All-to-all changes heads for tokens: the kernel's output and the projection's input are different tensors.
    let exchanged = at.cp > Wide::of(1) && matches!(at.plan.layout.cp_kind, CpKind::A2a | CpKind::A2aP2p);
    let copies = Wide::from(transposed) + Wide::from(exchanged);
    let mut bytes = LayerBytes::saved(Saver::Attention, output + at.widths.shared_input(full * width));
    // The executor keeps the mixed projection in place of queries, keys and values, and its statistics weigh little.
    let again = at.megatron() && at.recomputes("core_attn");
    bytes.keep(Saver::Attention, scores + copies * output, again);
    bytes
}
