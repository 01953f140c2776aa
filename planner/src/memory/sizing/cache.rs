//! What a sequence keeps while it is decoded: keys and values, latent vectors, states of recurrences.

use crate::layout::chunks_of_stage;
use crate::model::{Attention, MixerRef};
use crate::plan::Plan;
use crate::units::Quantity;

/// Caches of the layers of a stage on one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cache {
    /// Bytes for every token of a sequence.
    pub per_token: Quantity,
    /// Bytes for a sequence of any length.
    pub per_sequence: Quantity,
}

impl Cache {
    /// Of the plan's sequences of a micro batch, full length.
    pub(super) fn bytes(&self, plan: &Plan) -> Quantity {
        let (tokens, sequences) =
            (Quantity::from(plan.training.seq_len), Quantity::from(plan.training.micro_batch_size));
        sequences * (tokens * self.per_token + self.per_sequence)
    }
}

/// Caches of a stage.
pub(super) fn cache(plan: &Plan, stage: u64) -> Cache {
    let chunks = chunks_of_stage(&plan.layout, plan.model.num_layers, stage).unwrap_or_default();
    let mut found = Cache::default();
    for (kind, count) in chunks.iter().flat_map(|chunk| plan.model.kinds_in(chunk.layers.clone())) {
        let Some(mixer) = plan.model.mixer(kind) else { continue };
        let one = layer(plan, mixer);
        found.per_token += Quantity::from(count) * one.per_token;
        found.per_sequence += Quantity::from(count) * one.per_sequence;
    }
    found
}

fn layer(plan: &Plan, mixer: MixerRef<'_>) -> Cache {
    let wide = |value: u64| Quantity::from(value);
    let (size, tp, seq_len) = (wide(plan.training.dtype.size()), plan.layout.tp, plan.training.seq_len);
    let mut cache = Cache::default();
    if let Some(core) = mixer.attention().map(Attention::core) {
        // With more ranks than key and value heads, heads are repeated.
        let heads = wide(core.cached_heads).div_ceil(wide(tp.min(core.cached_heads).max(1)));
        let per_token = size * heads * wide(core.cached_width);
        // Of a window or a chunk no more than it holds is ever kept.
        match core.span.cached(seq_len) {
            kept if kept < seq_len => cache.per_sequence = wide(kept) * per_token,
            _ => cache.per_token = per_token,
        }
    }
    if let Some(scan) = mixer.scan() {
        let convolved = wide(scan.convolved) * wide(scan.conv_kernel);
        cache.per_sequence += size * ((convolved + wide(scan.channels) * wide(scan.state)) / wide(tp));
    }
    cache
}
