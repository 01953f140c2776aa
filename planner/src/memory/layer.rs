//! One layer of a kind: its norms, what mixes tokens, its feed-forward part.

use crate::model::{Attention, Branches, FeedForward, LayerKind, MixerRef, Mlp};
use crate::settings::Implementation;

use super::parts::{LayerBytes, SavedBytes, Saver};
use super::setting::PlanTerms;
use super::{attention, mlp, moe, recurrent, unsplit};
use crate::units::Quantity;

/// Input, output and statistics of a norm of the residual stream whose output matrices read.
pub(super) fn norm(at: &PlanTerms<'_>) -> Quantity {
    at.stream() + at.widths.input(at.local * at.hidden) + at.statistic * at.local
}

/// What one layer of `kind` keeps and needs for one micro batch.
pub(super) fn layer(at: &PlanTerms<'_>, kind: LayerKind) -> LayerBytes {
    let model = &at.plan.model;
    let mixer = model.mixer(kind);
    // What both of a pair save is alive from forward to backward. One square matrix keeps nothing: its input is the norm's output.
    let attended = mixer.and_then(MixerRef::attention).map(|one| attention::attention(at, &one.core()));
    let scanned = mixer.and_then(MixerRef::scan).map(|scan| recurrent::scan(at, &scan));
    let mixed = match (attended, scanned) {
        (Some(attended), Some(scanned)) => attended.then(scanned),
        (one, other) => one.or(other).unwrap_or_default(),
    };
    let fed = match model.feed_forward(kind) {
        FeedForward::Dense(of) => mlp::dense(at, &of),
        FeedForward::Experts(of) => moe::experts(at, &of),
        FeedForward::Linear | FeedForward::None => LayerBytes::default(),
    };
    let parts = Quantity::from(mixer.is_some()) + Quantity::from(kind.mlp != Mlp::None);
    let shared = u64::from(model.branches == Branches::OneNorm && parts == Quantity::of(2));
    let unnormed = u64::from(kind.unnormed && mixer.is_some());
    let before = if model.no_pre_norms { Quantity::ZERO } else { parts - Quantity::from(shared + unnormed) };
    let norms = if model.post_norms { before + parts } else { before };
    let masks = if at.hidden_dropout { parts * at.local * at.hidden } else { Quantity::ZERO };
    let unsplit = if at.megatron() { unsplit::of_layer(at, kind) } else { Quantity::ZERO };
    let masks = masks + unsplit;
    let mut layer = mixed.then(fed).then(LayerBytes::saved(Saver::Norms, norms * norm(at) + masks));
    // The executor makes the norm again with its MLP or its experts: the norm's input is kept for the stream anyway.
    let with_norm = match kind.mlp {
        Mlp::Dense => at.recomputes("mlp"),
        Mlp::Moe => at.recomputes("moe"),
        Mlp::Linear | Mlp::None => false,
    };
    // TransformerEngine fuses it with the first matrix of a dense MLP, so it is recomputed with that.
    let fused = at.megatron()
        && at.plan.training.implementation == Implementation::TransformerEngine
        && kind.mlp == Mlp::Dense;
    if (at.plan.is_computed_by_the_worker() || fused) && with_norm {
        layer.recomputed += layer.saved.take(Saver::Norms, norm(at) - at.stream());
    }
    // Only norms that are not fused into the next matrix have an output of their own to recompute.
    for (module, there) in [("attn_norm", mixer.is_some()), ("mlp_norm", kind.mlp != Mlp::None)] {
        if there && at.offloads(module) {
            layer.offload(Saver::Norms, at.stream());
        }
    }
    if mixer.is_some() && at.offloads("qkv_linear") {
        layer.offload(Saver::Norms, at.widths.input(at.local * at.hidden));
    }
    if mixer.is_some() && (at.offloads("core_attn") || at.offloads("attn_proj")) {
        layer.offload(Saver::Attention, layer.saved.get(Saver::Attention));
    }
    if at.recomputes("layernorm") {
        let core = mixer.and_then(MixerRef::attention).map(Attention::core);
        let latent = core.is_some_and(|core| core.low.is_some());
        let alone = Quantity::from(latent) + Quantity::from(kind.mlp == Mlp::Moe);
        layer.recomputed += layer.saved.take(Saver::Norms, alone * at.widths.input(at.local * at.hidden));
    }
    layer.offloaded =
        layer.offloaded.millionths(Quantity::floor(at.plan.training.offload.fraction.clamp(0.0, 1.0) * 1e6));
    layer
}

/// A multi-token-prediction module: its layers, and the input of its projection, which is hidden state and embedding.
pub(super) fn mtp_module(at: &PlanTerms<'_>) -> LayerBytes {
    mtp_module_of(at, |kind| layer(at, kind))
}

/// The same where layers of a kind are known.
pub(super) fn mtp_module_of(at: &PlanTerms<'_>, of_kind: impl FnMut(LayerKind) -> LayerBytes) -> LayerBytes {
    let layers = at.plan.model.mtp_kinds().into_iter().map(of_kind);
    let module = layers.fold(LayerBytes::saved(Saver::Mtp, 2 * at.stream()), LayerBytes::then);
    // Its tensors stay: the module is next to the loss, and backward wants them at once.
    LayerBytes { offloaded: SavedBytes::default(), ..module }
}
