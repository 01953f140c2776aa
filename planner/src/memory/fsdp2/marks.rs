//! What a chunk's forward goes through: sections that are entered and left, and what is computed within them.

use crate::layout::Chunk;
use crate::plan::Plan;
use crate::settings::Granularity;
use crate::shard::fsdp::Section;

/// What is computed between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compute {
    /// Words, and their positions.
    Embedding,
    /// A layer, by its number.
    Layer(u64),
    /// A module of multi-token prediction, by its number.
    Mtp(u64),
    /// The last norm.
    Norm,
    /// The output layer.
    Head,
}

/// A chunk's forward, in order; its backward is the reverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// A section begins.
    Enter(Section),
    /// It ends.
    Leave(Section),
    /// Something is computed.
    Compute(Compute),
}

/// The forward of a chunk. A checkpoint over several layers has them all gathered.
pub(super) fn marks(plan: &Plan, chunk: &Chunk) -> Vec<Mark> {
    let (model, training) = (&plan.model, &plan.training);
    let mut found = Vec::new();
    let mut within = |section: Section, compute: &[Compute]| {
        found.push(Mark::Enter(section));
        found.extend(compute.iter().copied().map(Mark::Compute));
        found.push(Mark::Leave(section));
    };
    if chunk.embedding {
        within(Section::Embedding, &[Compute::Embedding]);
    }
    let at_once = match training.recompute {
        Granularity::Full if training.block_layers().is_none() => {
            training.recompute_layers.unwrap_or(1).max(1)
        }
        _ => 1,
    };
    let mut first = chunk.layers.start;
    while first < chunk.layers.end {
        let end = first.saturating_add(at_once).min(chunk.layers.end);
        found.extend((first..end).map(|layer| Mark::Enter(Section::Layer(layer))));
        found.extend((first..end).map(|layer| Mark::Compute(Compute::Layer(layer))));
        found.extend((first..end).rev().map(|layer| Mark::Leave(Section::Layer(layer))));
        first = end;
    }
    if chunk.loss {
        let modules = if chunk.mtp { model.mtp_layers } else { 0 };
        let embeds = model.tied_embeddings || modules > 0;
        found.push(Mark::Enter(Section::Last));
        found.extend(embeds.then_some(Mark::Enter(Section::Embedding)));
        found.extend([Compute::Norm, Compute::Head].map(Mark::Compute));
        for module in 0..modules {
            found.push(Mark::Compute(Compute::Embedding));
            found.push(Mark::Enter(Section::Mtp(module)));
            found.push(Mark::Compute(Compute::Mtp(module)));
            found.push(Mark::Leave(Section::Mtp(module)));
            found.push(Mark::Compute(Compute::Head));
        }
        found.extend(embeds.then_some(Mark::Leave(Section::Embedding)));
        found.push(Mark::Leave(Section::Last));
    }
    found
}
