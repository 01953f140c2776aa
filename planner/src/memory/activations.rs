//! Activations: what is saved between forward and backward, and what backward needs besides.
//!
//! Symbols: h hidden, f MLP width, a heads, g kv heads, d head width, V padded vocabulary, t tp, c cp, s sequence,
//! b micro batch. Tc = s b / c tokens of a rank over the whole tp group; T = Tc / t with sequence parallel, else Tc.
//! Te = tokens that reach a rank's experts. Formulas are those of Megatron-Core with TransformerEngine (dense layers
//! within 0.5% of 17 published readings, MoE within 2.5% of 6); what the native runtime keeps follows them within one
//! per cent where statistics of a few bytes a token don't weigh (`system-tests: memory`).

use crate::layout::chunks_of_stage;
use crate::model::{Attention, LayerKind, MixerRef, Mlp, QkNorm};
use crate::plan::Plan;
use crate::schedule::{self, Pipeline};
use crate::shard::{Module, padded_vocabulary, stage_families};
use crate::wire::{Granularity, Runtime};

/// Bytes of activations of one stage's rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activations {
    /// Saved by all micro batches in flight when the most are.
    pub saved: u128,
    /// Saved when the output layer runs: the same, or what of it a stage with a head has then.
    pub saved_at_head: u128,
    /// Largest temporary of a layer's backward.
    pub layer_transient: u128,
    /// Largest temporary of output layer and loss; 0 where there is none.
    pub head_transient: u128,
    /// Weight gradients that live beside the main gradient buffers in a layer's backward.
    pub weight_gradients: u128,
    /// Weight gradients that live beside the main gradient buffers when the head runs.
    pub weight_gradients_at_head: u128,
}

/// What one layer keeps and needs.
#[derive(Debug, Clone, Copy, Default)]
struct LayerBytes {
    saved: u128,
    /// Recomputed in backward, so alive for one layer at a time.
    recomputed: u128,
    transient: u128,
}

/// Model chunks (of layers / (pp vpp) each) whose activations are alive at once on `stage`, and chunks of a stage.
pub fn live_chunks(plan: &Plan, stage: u64) -> (u64, u64) {
    (schedule::live_chunks(&Pipeline::of(plan), stage), plan.layout.vpp)
}

struct Tokens {
    /// Bytes of one element of the compute dtype.
    size: u128,
    /// Tokens of a rank over the whole tp group.
    full: u128,
    /// Tokens of a rank outside attention and MLP.
    local: u128,
    tp: u128,
}

fn tokens(plan: &Plan) -> Tokens {
    let (training, layout) = (&plan.training, &plan.layout);
    let full = u128::from(training.seq_len) * u128::from(training.micro_batch_size) / u128::from(layout.cp);
    let tp = u128::from(layout.tp);
    Tokens {
        size: u128::from(training.dtype.size()),
        full,
        local: if layout.sp { full / tp } else { full },
        tp,
    }
}

/// Input and output of a norm, with one fp32 statistic a token.
fn norm_saved(plan: &Plan, at: &Tokens) -> u128 {
    2 * at.size * at.local * u128::from(plan.model.hidden_size) + 4 * at.local
}

/// What mixes tokens, without its norm.
fn mixer_bytes(plan: &Plan, mixer: MixerRef<'_>, at: &Tokens) -> LayerBytes {
    let Tokens { size, full, local, tp } = *at;
    let wide = |value: u64| u128::from(value);
    match mixer {
        MixerRef::Attention(&Attention::Gqa { heads, kv_heads, head_dim, qk_norm, output_gate, .. }) => {
            let kv = wide(kv_heads).div_ceil(tp).max(1);
            let (query, dim) = (wide(heads) / tp, wide(head_dim));
            let qkv = size * full * (query + 2 * kv) * dim;
            let output = size * full * query * dim + 4 * full * query;
            let norm = match qk_norm {
                QkNorm::None => 0,
                QkNorm::PerHead | QkNorm::Full => (size * dim + 4) * full * (query + kv),
            };
            // The gate, and the output behind it.
            let gate = if output_gate { 2 * size * full * query * dim } else { 0 };
            LayerBytes { saved: qkv + output + norm + gate, recomputed: 0, transient: 0 }
        }
        MixerRef::Attention(&Attention::Mla {
            heads,
            q_lora_rank,
            kv_lora_rank,
            qk_nope_dim,
            qk_rope_dim,
            v_dim,
            output_gate,
            ..
        }) => {
            let (rank, latent, rope) =
                (wide(q_lora_rank.unwrap_or(0)), wide(kv_lora_rank), wide(qk_rope_dim));
            let (query, value) = (wide(qk_nope_dim) + rope, wide(v_dim));
            let heads = wide(heads) / tp;
            let compressed = size * local * (2 * rank + latent + rope + 2 * latent);
            let expanded = size * full * heads * (2 * query + value);
            let gate = if output_gate { 2 * size * full * heads * value } else { 0 };
            let output = size * full * heads * value + 4 * full * heads + gate;
            if recomputes(plan, "mla_up_proj") {
                LayerBytes { saved: compressed + output, recomputed: expanded, transient: 0 }
            } else {
                LayerBytes { saved: compressed + expanded + output, recomputed: 0, transient: 0 }
            }
        }
        other => LayerBytes { saved: other_mixer_saved(other, at), recomputed: 0, transient: 0 },
    }
}

/// An approximation, from the sizes of what is projected and not from readings: outputs of the projections and of the
/// convolution, mixed tokens before and after their norm, and one fp32 state for each chunk of a recurrence (64 tokens
/// in the delta kernels, 128 in Mamba's).
fn other_mixer_saved(mixer: MixerRef<'_>, at: &Tokens) -> u128 {
    let Tokens { size, full, local, tp } = *at;
    let wide = |value: u64| u128::from(value);
    match mixer {
        MixerRef::Attention(attention) => match *attention {
            Attention::Shared { heads, head_dim, q_lora_rank, out_groups, out_lora_rank, .. } => {
                let low = 2 * wide(q_lora_rank) + 2 * wide(head_dim);
                let high = 3 * wide(heads) * wide(head_dim) + wide(out_groups) * wide(out_lora_rank);
                size * local * low + size * full * high / tp
            }
            _ => 0,
        },
        MixerRef::DeltaNet(delta) => {
            let keys = 2 * wide(delta.key_heads) * wide(delta.key_dim);
            let values = wide(delta.value_heads) * wide(delta.value_dim);
            let state = 4 * full * values * wide(delta.key_dim) / 64;
            (size * full * (2 * keys + 5 * values) + state) / tp
        }
        MixerRef::KimiDelta(delta) => {
            let width = wide(delta.heads) * wide(delta.head_dim);
            let state = 4 * full * width * wide(delta.head_dim) / 64;
            (size * full * 10 * width + state) / tp
        }
        MixerRef::Mamba2(mamba) => {
            let inner = wide(mamba.heads) * wide(mamba.head_dim);
            let states = 2 * wide(mamba.groups) * wide(mamba.state);
            let state = 4 * full * inner * wide(mamba.state) / 128;
            (size * full * (5 * inner + 2 * states) + state) / tp
        }
    }
}

fn recomputes(plan: &Plan, module: &str) -> bool {
    plan.training.recompute == Granularity::Selective
        && plan.training.recompute_modules.iter().any(|name| name == module)
}

/// Outputs of an MLP's first matrix and of its activation, for `width` on this rank.
fn mlp_saved(plan: &Plan, at: &Tokens, tokens: u128, width: u128) -> u128 {
    let first = if plan.model.gated { 2 } else { 1 };
    at.size * tokens * (first + 1) * width
}

fn dense_mlp_bytes(plan: &Plan, at: &Tokens) -> LayerBytes {
    let width = u128::from(plan.model.ffn_hidden_size) / at.tp;
    let saved = mlp_saved(plan, at, at.full, width);
    let transient = at.size * at.full * (2 * width + u128::from(plan.model.hidden_size));
    if recomputes(plan, "mlp") {
        LayerBytes { saved: 0, recomputed: saved, transient }
    } else {
        LayerBytes { saved, recomputed: 0, transient }
    }
}

fn moe_bytes(plan: &Plan, at: &Tokens) -> LayerBytes {
    let Some(moe) = &plan.model.moe else { return LayerBytes::default() };
    let (experts, hidden) = (u128::from(moe.experts), u128::from(plan.model.hidden_size));
    let etp = u128::from(plan.layout.etp);
    // The factor is at most a few; thousandths keep it exact and the same on every platform.
    let imbalance = (plan.training.moe.load_imbalance.min(1e6) * 1000.0) as u128;
    let routed = at.local * u128::from(moe.top_k) * etp * imbalance / 1000;
    let width = u128::from(moe.ffn_hidden_size) / etp;
    let router = 3 * 4 * at.local * experts + at.local * experts;
    let permutation = 4 * at.local * (2 * experts + 1) + 8 * routed;
    let first = if plan.model.gated { 2 } else { 1 };
    // Experts in a latent stream see its width; the stream before and after the experts is kept beside.
    let stream = moe.latent_size.map_or(hidden, u128::from);
    let latent = moe.latent_size.map_or(0, |latent| 2 * at.size * at.local * u128::from(latent));
    let inputs = at.size * routed * stream + at.size * routed * first * width + latent;
    let activated = at.size * routed * width;
    let shared = mlp_saved(plan, at, at.full, u128::from(moe.shared_ffn_hidden_size) / at.tp);
    let transient = at.size * routed * (2 * width + 4 * stream);
    let mut bytes = LayerBytes { saved: 0, recomputed: 0, transient };
    let mut part = |size: u128, module: &str| {
        let again = recomputes(plan, "moe") || recomputes(plan, module);
        if again { bytes.recomputed += size } else { bytes.saved += size }
    };
    part(router + permutation + inputs, "moe");
    part(activated, "moe_act");
    part(shared, "shared_experts");
    bytes
}

fn layer_bytes(plan: &Plan, kind: LayerKind, at: &Tokens) -> LayerBytes {
    let mixer = plan.model.mixer(kind);
    let none = LayerBytes::default();
    let mixed = mixer.map_or(none, |mixer| mixer_bytes(plan, mixer, at));
    let mlp = match kind.mlp {
        Mlp::Dense => dense_mlp_bytes(plan, at),
        Mlp::Moe => moe_bytes(plan, at),
        Mlp::None => none,
    };
    let parts = u128::from(mixer.is_some()) + u128::from(kind.mlp != Mlp::None);
    let norms = if plan.model.post_norms { 2 * parts } else { parts };
    let mut layer = LayerBytes {
        saved: mixed.saved + mlp.saved + norms * norm_saved(plan, at),
        recomputed: mixed.recomputed + mlp.recomputed,
        transient: mixed.transient.max(mlp.transient),
    };
    // Only norms that are not fused into the next matrix have an output of their own to recompute.
    if recomputes(plan, "layernorm") {
        let output = at.size * at.local * u128::from(plan.model.hidden_size);
        let latent = matches!(mixer, Some(MixerRef::Attention(Attention::Mla { .. })));
        let outputs = output * (u128::from(latent) + u128::from(kind.mlp == Mlp::Moe));
        layer.saved -= outputs;
        layer.recomputed += outputs;
    }
    layer
}

/// Estimated activations of a rank of `stage`.
pub fn activations(plan: &Plan, stage: u64) -> Activations {
    let at = tokens(plan);
    let chunks_here = chunks_of_stage(&plan.layout, plan.model.num_layers, stage).unwrap_or_default();
    let boundary = at.size * at.local * u128::from(plan.model.hidden_size);
    let kinds: Vec<(LayerKind, LayerBytes)> =
        plan.model.layer_kinds().into_iter().map(|(kind, _)| (kind, layer_bytes(plan, kind, &at))).collect();
    let of = |layer: u64| {
        let kind = plan.model.layer_kind(layer);
        kinds.iter().find(|(known, _)| *known == kind).map_or(LayerBytes::default(), |(_, bytes)| *bytes)
    };
    let mut here: Vec<LayerBytes> =
        chunks_here.iter().flat_map(|chunk| chunk.layers.clone()).map(of).collect();
    let modules = if chunks_here.iter().any(|chunk| chunk.mtp) { plan.model.mtp_layers } else { 0 };
    // A multi-token-prediction module is its layers and the input of its projection, hidden state and embedding.
    if modules > 0 {
        let layers = plan.model.mtp_kinds().into_iter().map(|kind| layer_bytes(plan, kind, &at));
        let module = layers.fold(LayerBytes::default(), |sum, layer| LayerBytes {
            saved: sum.saved + layer.saved,
            recomputed: sum.recomputed + layer.recomputed,
            transient: sum.transient.max(layer.transient),
        });
        here.extend((0..modules).map(|_| LayerBytes { saved: module.saved + 2 * boundary, ..module }));
    }
    let (saved, again) = stage_saved(plan, &here, boundary);
    let (live, chunks) = live_chunks(plan, stage);
    // Chunks of a stage are taken as equal; the schedule's own list will tell them apart.
    let in_flight = saved * u128::from(live) / u128::from(chunks);
    let transient = here.iter().map(|layer| layer.transient).max().unwrap_or(0) + again;
    let is_last = chunks_here.iter().any(|chunk| chunk.loss);
    let vocabulary = u128::from(padded_vocabulary(plan)) / at.tp;
    let heads = 1 + u128::from(modules);
    let head = if is_last { heads * (2 * boundary + at.size * at.full * vocabulary) } else { 0 };
    let native = plan.runtime == Runtime::Native;
    let hidden = u128::from(plan.model.hidden_size);
    let head_transient = match (is_last, native) {
        (false, _) => 0,
        // fp32 softmax of the loss, gathered input of the output layer and its gradient.
        (true, false) => 4 * at.full * vocabulary + 2 * at.size * at.full * hidden,
        (true, true) => native_head_transient(&at, vocabulary, hidden),
    };
    let gradients = weight_gradients(plan, stage);
    Activations {
        saved: in_flight,
        saved_at_head: if is_last { in_flight + head } else { 0 },
        layer_transient: transient,
        head_transient,
        // TransformerEngine keeps one for each shape; the executor adds each to the buffer before it makes the next.
        weight_gradients: if native { gradients.largest } else { gradients.sum },
        weight_gradients_at_head: if native { 0 } else { gradients.sum },
    }
}

/// The executor's loss works in place on the logits, which are counted as saved: in two-byte types on an fp32 copy
/// beside the gradient. Then the output layer's weight gradient is made, beside those of the logits and of its input.
fn native_head_transient(at: &Tokens, vocabulary: u128, hidden: u128) -> u128 {
    let loss = if at.size == 2 { 4 * at.full * vocabulary } else { 0 };
    let backward = at.size * (vocabulary * hidden + at.full * hidden);
    loss.max(backward)
}

/// Bytes that all layers of a stage keep for one micro batch, and what of them is alive again, one at a time, when
/// they are recomputed.
fn stage_saved(plan: &Plan, layers: &[LayerBytes], boundary: u128) -> (u128, u128) {
    let all: u128 = layers.iter().map(|layer| layer.saved).sum();
    let one_again = layers.iter().map(|layer| layer.recomputed).max().unwrap_or(0);
    if plan.training.recompute != Granularity::Full {
        return (all, one_again);
    }
    let group = plan.training.recompute_layers.unwrap_or(1).max(1) as usize;
    let largest = layers.iter().map(|layer| layer.saved + layer.recomputed).max().unwrap_or(0);
    let block = plan.file.training.recompute.method.as_deref() == Some("block");
    if block {
        let per_chunk = group.min(layers.len() / plan.layout.vpp.max(1) as usize);
        let recomputed = per_chunk * plan.layout.vpp as usize;
        let kept: u128 = layers.iter().skip(recomputed).map(|layer| layer.saved).sum();
        return (kept + boundary * recomputed as u128, if recomputed > 0 { largest } else { one_again });
    }
    let groups = layers.len().div_ceil(group);
    (boundary * groups as u128, largest * group.min(layers.len()) as u128)
}

/// Bytes of weight gradients in the compute type: one of each distinct shape, and the largest.
struct WeightGradients {
    sum: u128,
    largest: u128,
}

/// TransformerEngine keeps one weight gradient per distinct weight shape for the life of the process; autograd makes
/// about the same for one layer at a time. Norms and other vectors are left out.
fn weight_gradients(plan: &Plan, stage: u64) -> WeightGradients {
    let mut shapes: Vec<(Vec<u64>, u128)> = Vec::new();
    for family in stage_families(plan, stage) {
        let parameter = &family.parameter;
        let vector = parameter.shape.len() < 2 || !parameter.decays;
        if vector || parameter.module == Module::Embedding {
            continue;
        }
        let experts = if parameter.module == Module::Expert { family.count / family.layers } else { 1 };
        let elements = u128::from(family.local_elements()) * u128::from(experts);
        if !shapes.iter().any(|(shape, size)| shape == &family.local_shape && *size >= elements) {
            shapes.push((family.local_shape.clone(), elements));
        }
    }
    let size = u128::from(plan.training.dtype.size());
    WeightGradients {
        sum: shapes.iter().map(|(_, elements)| elements).sum::<u128>() * size,
        largest: shapes.iter().map(|(_, elements)| *elements).max().unwrap_or(0) * size,
    }
}
