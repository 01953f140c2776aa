//! What a sequence keeps while it is decoded: keys and values, latent vectors, states of recurrences.

use crate::layout::chunks_of_stage;
use crate::model::{Attention, MixerRef};
use crate::plan::Plan;
use crate::units::Wide;

/// Caches of the layers of a stage on one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cache {
    /// Bytes for every token of a sequence.
    pub per_token: Wide,
    /// Bytes for a sequence of any length.
    pub per_sequence: Wide,
}

impl Cache {
    /// Of the plan's sequences of a micro batch, full length.
    pub(super) fn bytes(&self, plan: &Plan) -> Wide {
        let (tokens, sequences) =
            (Wide::from(plan.training.seq_len), Wide::from(plan.training.micro_batch_size));
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
        found.per_token += Wide::from(count) * one.per_token;
        found.per_sequence += Wide::from(count) * one.per_sequence;
    }
    found
}

fn layer(plan: &Plan, mixer: MixerRef<'_>) -> Cache {
    let whole = whole_layer(plan, mixer);
    // Of a window or a chunk no more than it holds is ever kept.
    let seq_len = plan.training.seq_len;
    let kept = mixer.attention().map_or(seq_len, |attention| attention.scores().span().cached(seq_len));
    if kept < seq_len {
        let per_sequence = whole.per_sequence + Wide::from(kept) * whole.per_token;
        return Cache { per_token: Wide::ZERO, per_sequence };
    }
    whole
}

fn whole_layer(plan: &Plan, mixer: MixerRef<'_>) -> Cache {
    let wide = |value: u64| Wide::from(value);
    let (size, tp) = (wide(plan.training.dtype.size()), plan.layout.tp);
    let tokens = |elements: Wide| Cache { per_token: size * elements, per_sequence: Wide::ZERO };
    let states = |elements: Wide| Cache { per_token: Wide::ZERO, per_sequence: size * elements };
    match mixer {
        MixerRef::Parallel(both) => {
            let (tokens, states) = (
                layer(plan, MixerRef::Attention(&both.attention)),
                layer(plan, MixerRef::Mamba2(&both.mamba)),
            );
            Cache { per_token: tokens.per_token, per_sequence: states.per_sequence }
        }
        // Keys and values of an earlier layer are kept there; one matrix keeps nothing.
        MixerRef::Linear | MixerRef::Attention(Attention::Gqa { shared_kv: true, .. }) => Cache::default(),
        // With more ranks than key and value heads, heads are repeated.
        MixerRef::Attention(&Attention::Gqa { kv_heads, head_dim, value_dim, .. }) => {
            let width = wide(head_dim) + wide(value_dim.unwrap_or(head_dim));
            tokens(wide(kv_heads).div_ceil(wide(tp.min(kv_heads).max(1))) * width)
        }
        // One latent vector and one rotated key for all heads, on every rank.
        MixerRef::Attention(&Attention::Mla { kv_lora_rank, qk_rope_dim, .. }) => {
            tokens(wide(kv_lora_rank) + wide(qk_rope_dim))
        }
        // One key that is its own value, for so many tokens together.
        MixerRef::Attention(&Attention::Shared { head_dim, compressed, .. }) => {
            tokens(wide(head_dim).div_ceil(wide(compressed.unwrap_or(1).max(1))))
        }
        MixerRef::Listed(listed) => {
            states(wide(listed.inner) * (wide(listed.state) + wide(listed.conv_kernel)) / wide(tp))
        }
        MixerRef::Mamba2(mamba) => {
            let inner = wide(mamba.heads) * wide(mamba.head_dim);
            let convolved = inner + 2 * wide(mamba.groups) * wide(mamba.state);
            states((convolved * wide(mamba.conv_kernel) + inner * wide(mamba.state)) / wide(tp))
        }
        MixerRef::DeltaNet(delta) => {
            let keys = wide(delta.key_heads) * wide(delta.key_dim);
            let values = wide(delta.value_heads) * wide(delta.value_dim);
            states(((2 * keys + values) * wide(delta.conv_kernel) + values * wide(delta.key_dim)) / wide(tp))
        }
        MixerRef::KimiDelta(delta) => {
            let width = wide(delta.heads) * wide(delta.head_dim);
            states((3 * width * wide(delta.conv_kernel) + width * wide(delta.head_dim)) / wide(tp))
        }
    }
}
