//! Selective checkpoints by operator, as torchtitan makes them (`distributed/activation_checkpoint.py`, `SelectiveAC`): what
//! of a layer stays from forward to backward when the rest runs again.
//!
//! Kept are the layer's input, attention's output with its statistics, what the router chose, the outputs of
//! reduce-scatters and all-to-alls, and of the matrix products in the order in which they run every second one, from the
//! first. The router's own product runs again and is not counted; so does the grouped product of routed experts, which is
//! not among the operators that are kept.

use crate::model::{Attention, Experts, FeedForward, LayerKind, MixerRef, Mlp, MlpOperations};

use crate::memory::moe::routed_tokens;
use crate::memory::parts::{SavedBytes, Saver};
use crate::memory::setting::PlanTerms;
use crate::units::Quantity;

/// Bytes of a score and of the number of the expert that it is for, which the router's choice keeps of each.
const CHOICE: Quantity = Quantity::of(4 + 8);

/// The matrix products of a layer in the order in which they run, of which every second is kept.
struct Products {
    saved: SavedBytes,
    compiled: bool,
    count: u64,
}

impl Products {
    /// The output of the next product.
    fn put(&mut self, part: Saver, bytes: Quantity) {
        self.count += 1;
        if !self.count.is_multiple_of(2) {
            self.saved.put(part, bytes);
        }
    }

    /// The output of the next product, which is added to the stream: backward has no use for it, which a compiler sees.
    fn put_onto_stream(&mut self, part: Saver, bytes: Quantity) {
        self.put(part, if self.compiled { Quantity::ZERO } else { bytes });
    }

    /// An output that is kept whatever its number.
    fn keep(&mut self, part: Saver, bytes: Quantity) {
        self.saved.put(part, bytes);
    }
}

/// What a layer of this kind keeps; none where its operators are not known.
pub(super) fn saved(at: &PlanTerms<'_>, kind: LayerKind) -> Option<SavedBytes> {
    let model = &at.plan.model;
    let compiled = at.plan.layout.fsdp.compiled;
    let mut products = Products { saved: SavedBytes::of(Saver::Norms, at.stream()), compiled, count: 0 };
    match model.mixer(kind) {
        None => {}
        Some(MixerRef::Attention(attention)) => of_attention(at, attention, &mut products)?,
        Some(_) => return None,
    }
    match model.feed_forward(kind) {
        FeedForward::None => {}
        FeedForward::Linear => products.put_onto_stream(Saver::Mlp, at.size * at.full * at.hidden),
        FeedForward::Experts(experts) => of_experts(at, &experts, &mut products)?,
        FeedForward::Dense(mlp) => of_mlp(at, Saver::Mlp, &mlp, &mut products),
    }
    if at.tp > Quantity::of(1) {
        let parts = Quantity::from(model.mixer(kind).is_some()) + Quantity::from(kind.mlp != Mlp::None);
        products.keep(Saver::Norms, parts * at.stream());
    }
    Some(products.saved)
}

fn of_attention(at: &PlanTerms<'_>, attention: &Attention, products: &mut Products) -> Option<()> {
    let wide = |value: u64| Quantity::from(value);
    let tokens = |width: Quantity| at.size * at.full * width;
    for [heads, outputs] in attention.products()? {
        products.put(Saver::Attention, tokens(wide(heads).div_ceil(at.tp) * wide(outputs)));
    }
    let core = attention.core();
    let heads = wide(core.heads) / at.tp;
    products.keep(Saver::Attention, tokens(heads * wide(core.value_dim)) + 4 * at.full * heads);
    // Each rank's part of the projection is as wide as the whole sequence.
    products.put_onto_stream(Saver::Attention, tokens(at.hidden));
    Some(())
}

/// Gate and up projection, or the one matrix in their place, and the projection back.
fn of_mlp(at: &PlanTerms<'_>, part: Saver, mlp: &MlpOperations, products: &mut Products) {
    for _ in 0..mlp.first {
        products.put(part, at.size * at.full * Quantity::from(mlp.width) / at.tp);
    }
    products.put_onto_stream(part, at.size * at.full * at.hidden);
}

fn of_experts(at: &PlanTerms<'_>, experts: &Experts<'_>, products: &mut Products) -> Option<()> {
    let Experts { moe, shared, .. } = experts;
    if moe.latent_size.is_some() || moe.scaled_branches {
        return None;
    }
    let chosen = at.local * Quantity::from(moe.top_k);
    products.keep(Saver::Router, CHOICE * chosen);
    if at.plan.layout.ep > 1 {
        // What came from the other ranks, and what came back.
        products.keep(Saver::Experts, at.size * at.hidden * (routed_tokens(at) + chosen));
    }
    if let Some(shared) = shared {
        of_mlp(at, Saver::SharedExperts, shared, products);
    }
    if moe.shared_gate {
        products.put(Saver::SharedExperts, at.size * at.full);
    }
    Some(())
}
