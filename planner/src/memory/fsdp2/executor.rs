//! A step of FSDP2 as the worker carries it out: buffers as torch has them, what operators keep and need as the executor's do
//! (`memory/native.rs`), and sharded gradients that are there from the start.

use crate::memory::head::{HeadBytes, head};
use crate::memory::moe::routed_tokens;
use crate::memory::native;
use crate::memory::parts::{Part, Saved};
use crate::memory::phases::UPDATED_AT_ONCE;
use crate::memory::setting::Setting;
use crate::memory::stage::Terms;
use crate::model::{LayerKind, Mlp};
use crate::units::Wide;
use crate::wire::Granularity;

use super::layer::TorchLayer;

/// One layer of a kind.
pub fn layer(terms: &Terms<'_>, kind: LayerKind) -> TorchLayer {
    let (at, known) = (&terms.at, terms.layer(kind));
    let saved = match at.plan.training.recompute {
        Granularity::Full => Saved::of(Part::Norms, at.stream()),
        Granularity::Selective | Granularity::None => known.saved,
    };
    // The activated half of a gated unit beside what is made of it.
    let width = match (at.plan.model.gated, kind.mlp, &at.plan.model.moe) {
        (true, Mlp::Dense, _) => at.full * Wide::from(at.plan.model.ffn(kind)) / at.tp,
        (true, Mlp::Moe, Some(moe)) => routed_tokens(at) * Wide::from(moe.ffn_hidden_size),
        _ => Wide::ZERO,
    };
    let forward = known.forward.max(at.size * width);
    TorchLayer { saved, whole: known.whole(), forward, backward: known.backward }
}

/// What a chunk makes for itself before its layers, for one micro batch.
pub fn of_chunk(at: &Setting<'_>, embedding: bool) -> Saved {
    let mut saved = Saved::of(Part::Attention, native::rotation_tables(at));
    if embedding {
        saved.put(Part::Embedding, native::token_numbers(at));
    }
    saved
}

/// What the loss keeps, and what is beside it: first its own temporaries, then, with the gradient of the output layer, that of its
/// input.
pub fn loss(at: &Setting<'_>, modules: u64) -> (HeadBytes, Wide) {
    (head(at, modules), at.size * at.full * at.hidden)
}

/// Temporaries of an update of the largest part of a parameter that a rank keeps: the gradient and its square, then what is divided.
pub fn update(at: &Setting<'_>, largest: Wide) -> Wide {
    let exact = Wide::from(at.plan.layout.fsdp.sharded_dtype.size()).max(Wide::of(4));
    2 * exact * largest.min(Wide::from(UPDATED_AT_ONCE))
}
