//! What a model chunk keeps for one micro batch, and what of it is alive again when it is recomputed.
//!
//! Selective recomputation is a matter of each module; here whole layers are checkpointed (Megatron-Core
//! `transformer_block._checkpointed_forward`): uniform keeps the input of every group of layers, block the input of
//! each of the first layers of a chunk and everything of the rest.

use std::ops::Range;

use crate::layout::Chunk;
use crate::plan::Plan;
use crate::settings::Granularity;

use super::parts::{LayerBytes, SavedBytes, Saver};
use super::stage::LayerTerms;
use crate::units::Quantity;

/// Bytes of a chunk for one micro batch; `recomputed` is the most that is alive again at once.
pub(super) fn chunk_bytes(terms: &LayerTerms<'_>, chunk: &Chunk) -> LayerBytes {
    let plan = terms.at.plan;
    let modules = if chunk.mtp { plan.model.mtp_layers } else { 0 };
    let training = &plan.training;
    if training.recompute != Granularity::Full {
        return kept(terms, chunk.layers.clone(), modules);
    }
    let group = training.recompute_layers.unwrap_or(1).max(1);
    let layers = chunk.layers.end.saturating_sub(chunk.layers.start);
    if let Some(again) = training.block_layers() {
        let again = again.min(layers);
        let middle = chunk.layers.start + again;
        let mut first = checkpointed(terms, chunk.layers.start..middle, again, 1, 0);
        let rest = kept(terms, middle..chunk.layers.end, modules);
        // Backward has freed what the layers behind kept before it comes to those that are recomputed.
        first.recomputed = first.recomputed.saturating_sub(rest.saved.total());
        return both(first, rest);
    }
    checkpointed(terms, chunk.layers.clone(), layers.div_ceil(group), group, modules)
}

/// What is computed again of layer `number`: by method `block` nothing of those behind the first of each chunk.
pub(super) fn of_layer(plan: &Plan, chunk: &Chunk, number: u64) -> Granularity {
    let is_behind = |first: u64| number >= chunk.layers.start.saturating_add(first);
    match plan.training.block_layers().is_some_and(is_behind) {
        true => Granularity::None,
        false => plan.training.recompute,
    }
}

/// Bytes of a chunk that go to the host in one micro batch's forward, and come back in its backward.
pub(super) fn offloaded(terms: &LayerTerms<'_>, chunk: &Chunk) -> Quantity {
    let training = &terms.at.plan.training;
    let layers = chunk.layers.end.saturating_sub(chunk.layers.start);
    // Whole layers that are computed again keep nothing that could wait.
    let again = match training.recompute {
        Granularity::Full => training.block_layers().unwrap_or(layers).min(layers),
        Granularity::None | Granularity::Selective => 0,
    };
    let middle = chunk.layers.start + again + waiting(terms, &chunk.layers).min(layers - again);
    let whole = terms.layers(chunk.layers.start + again..middle);
    let whole: Quantity = whole.map(|(count, layer)| layer.saved.total() * Quantity::from(count)).sum();
    let kept = terms.layers(middle..chunk.layers.end);
    let kept: Quantity = kept.map(|(count, layer)| layer.offloaded.total() * Quantity::from(count)).sum();
    whole + kept
}

/// Of these layers, the first that wait on the host with all that they save (Megatron-Core `cpu_offload`).
fn waiting(terms: &LayerTerms<'_>, layers: &Range<u64>) -> u64 {
    let named = if terms.at.megatron() { terms.at.plan.training.offload.layers } else { 0 };
    named.min(layers.end.saturating_sub(layers.start))
}

/// Layers that keep what they save.
fn kept(terms: &LayerTerms<'_>, layers: Range<u64>, modules: u64) -> LayerBytes {
    let mut sum = LayerBytes::default();
    let middle = layers.start + waiting(terms, &layers);
    // TransformerEngine gives a layer's tensors back before the next one's are made, so that no more are there than of the layers
    // that stay, and fetches one as another is done (`DefaultOffloadSynchronizer`, since 2.10; before it was one more).
    for (_, layer) in terms.layers(layers.start..middle) {
        sum =
            both(sum, LayerBytes { saved: SavedBytes::default(), offloaded: SavedBytes::default(), ..layer });
    }
    for (count, layer) in terms.layers(middle..layers.end) {
        sum = both(sum, times(layer, count));
    }
    if modules > 0 { both(sum, times(terms.mtp(), modules)) } else { sum }
}

/// Bytes of a checkpoint: the residual stream, or this rank's slice of it.
fn checkpoint(terms: &LayerTerms<'_>) -> Quantity {
    let split = terms.at.megatron() && terms.at.plan.training.distribute_saved_activations;
    terms.at.stream() / if split { terms.at.tp } else { Quantity::of(1) }
}

/// Layers of which only the inputs of `checkpoints` groups of `group` layers are kept.
fn checkpointed(
    terms: &LayerTerms<'_>,
    layers: Range<u64>,
    checkpoints: u64,
    group: u64,
    modules: u64,
) -> LayerBytes {
    let input = checkpoint(terms);
    let mut sum = LayerBytes {
        saved: SavedBytes::of(Saver::Norms, input * Quantity::from(checkpoints)),
        ..LayerBytes::default()
    };
    // The most of so many layers in a row.
    let most = group.min(layers.end.saturating_sub(layers.start));
    let mut largest = Quantity::ZERO;
    for (_, layer) in terms.layers(layers) {
        largest = largest.max(layer.whole());
        sum.forward = sum.forward.max(layer.forward);
        sum.backward = sum.backward.max(layer.backward);
    }
    sum.recomputed = largest * Quantity::from(most);
    if modules > 0 {
        let module = terms.mtp();
        sum.saved.put(Saver::Mtp, 2 * input * Quantity::from(modules));
        sum.recomputed = sum.recomputed.max(module.whole());
        sum.backward = sum.backward.max(module.backward);
    }
    sum
}

/// So many layers, of which what waits on the host is gone but for the groups on their way.
fn times(layer: LayerBytes, count: u64) -> LayerBytes {
    let kept = layer.saved.without(&layer.offloaded);
    let offloaded = layer.offloaded.times(Quantity::from(count.min(OFFLOAD_GROUPS)));
    LayerBytes { saved: kept.times(Quantity::from(count)), offloaded, ..layer }
}

/// Layers whose offloaded tensors are on the GPU at once: the one at work and the one being copied.
const OFFLOAD_GROUPS: u64 = 2;

/// Both, with the most of what is alive again only while its own layer is recomputed.
fn both(one: LayerBytes, other: LayerBytes) -> LayerBytes {
    let offloaded =
        if one.offloaded.total() > other.offloaded.total() { one.offloaded } else { other.offloaded };
    LayerBytes { recomputed: one.recomputed.max(other.recomputed), offloaded, ..one.then(other) }
}
