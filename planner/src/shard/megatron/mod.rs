//! Cuts and buffers by Megatron-Core's rules, which the native runtime shares: what a stage holds as families, in
//! [`elements`] as sums of them, in [`buffers`] as flat buffers, in [`list`] as one rank's own list.

mod buffers;
mod elements;
mod slices;

use buffers::with_rows_of_extras;
pub(crate) use buffers::{PARAM_ALIGNMENT, Slot, buffers, copies_gradients, is_dealt};
pub(crate) use elements::{Blocks, is_quantised, recipe_layers};
pub use elements::{Elements, StageElements, Updated};
pub(crate) use slices::{parameter_names, rank_shards};

use std::sync::Arc;

use super::{BufferShard, Family, Holders};
use crate::layout::{Chunk, GroupKind, chunks_of_stage, first_rank_of_stage};
use crate::model::{LayerKind, Module, Parameter, Role, outer_parameters};
use crate::plan::Plan;

/// Rows of embedding and output layer as allocated: the vocabulary padded to a multiple of
/// `vocab_divisible_by` x tp (Megatron-LM's `make_vocab_size_divisible_by`).
pub fn padded_vocabulary(plan: &Plan) -> u64 {
    if !plan.runtime.facts().pads_vocabulary {
        return plan.model.vocab_size;
    }
    // All replicas pad alike, the reduced ones too.
    let tp = plan.nonuniform.as_ref().map_or(plan.layout.tp, |nonuniform| nonuniform.shrunk.base);
    plan.model.vocab_size.next_multiple_of(plan.layout.vocab_divisible_by * tp)
}

/// The axis group that cuts a role, and the dim that is cut.
fn cut(parameter: &Parameter, plan: &Plan) -> Option<(GroupKind, usize)> {
    match parameter.role {
        Role::Vocabulary => Some((GroupKind::Tp, 0)),
        Role::Column(dim) | Role::Row(dim) => Some((GroupKind::Tp, dim)),
        Role::Qkv => {
            // With fewer kv groups than tensor-parallel ranks Megatron cuts through the groups.
            let dim = if parameter.shape[0].is_multiple_of(plan.layout.tp) { 0 } else { usize::MAX };
            Some((GroupKind::Tp, dim))
        }
        Role::ExpertColumn(dim) | Role::ExpertRow(dim) => Some((GroupKind::Etp, dim)),
        Role::Replicated | Role::SharedByHeads => None,
    }
}

/// The parameter as this layout sees it: a query-key-value matrix whose kv groups are cut through is a plain matrix
/// of rows.
fn as_cut(parameter: Arc<Parameter>, plan: &Plan) -> (Arc<Parameter>, Option<(GroupKind, usize)>) {
    match cut(&parameter, plan) {
        Some((group, usize::MAX)) => {
            let rows = parameter.shape[..3].iter().product();
            let shape = std::iter::once(rows).chain(parameter.shape[3..].iter().copied()).collect();
            (Arc::new(Parameter { shape, ..Parameter::clone(&parameter) }), Some((group, 0)))
        }
        cut => (parameter, cut),
    }
}

fn family(parameter: Arc<Parameter>, plan: &Plan, layers: u64) -> Family {
    let (parameter, cut) = as_cut(parameter, plan);
    let mut local_shape = parameter.shape.clone();
    let cut = cut.filter(|&(group, _)| plan.group_size(group) > 1);
    if let Some((group, dim)) = cut {
        local_shape[dim] /= plan.group_size(group);
    }
    let partial = match parameter.role {
        Role::SharedByHeads => true,
        // Under sequence parallelism each rank sees its own tokens only.
        Role::Replicated => plan.layout.sp,
        _ => false,
    };
    let per_layer = match parameter.module {
        Module::Expert => parameter.per_layer / plan.layout.ep,
        _ => parameter.per_layer,
    };
    Family {
        sum_gradient_over: (partial && plan.layout.tp > 1 && parameter.module != Module::Expert)
            .then_some(GroupKind::Tp),
        cut,
        local_shape,
        layers,
        count: layers * per_layer,
        parameter,
    }
}

/// A piece of a stage whose parameters are listed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block {
    /// The word embedding, or a copy of it for what is not on the first stage.
    Embedding { copy: bool },
    /// A transformer layer.
    Layer(LayerKind),
    /// A multi-token-prediction module.
    Mtp,
    /// Final norm and output layer.
    Last,
    /// The final norm alone, behind the last layer.
    FinalNorm,
    /// The output layer alone.
    Output,
}

/// The pieces of a stage in the order of the forward pass, layers and modules with their number.
pub(super) fn blocks(plan: &Plan, stage: u64) -> Vec<(Block, Option<u64>)> {
    let model = &plan.model;
    let mut found = Vec::new();
    let mut embedded = false;
    for chunk in chunks_of_stage(&plan.layout, model.num_layers, stage).unwrap_or_default() {
        if chunk.embedding {
            found.push((Block::Embedding { copy: false }, None));
            embedded = true;
        }
        found.extend(chunk.layers.clone().map(|layer| (Block::Layer(model.layer_kind(layer)), Some(layer))));
        let modules = if chunk.mtp { model.mtp_modules() } else { 0 };
        // Modules of multi-token prediction embed the next tokens; a tied output layer is the embedding.
        if !embedded && (modules > 0 || (chunk.loss && model.tied_embeddings)) {
            found.push((Block::Embedding { copy: true }, None));
            embedded = true;
        }
        found.extend((0..modules).map(|module| (Block::Mtp, Some(module))));
        found.extend(last_of(plan, &chunk).map(|block| (block, None)));
    }
    found
}

/// What of final norm and output layer a chunk has. With modules of multi-token prediction Megatron-Core keeps the norm where the last
/// layer is, and not where the output layer is (`has_final_layernorm_in_this_stage` of its `transformer_block.py`).
fn last_of(plan: &Plan, chunk: &Chunk) -> Option<Block> {
    let last = chunk.layers.contains(&plan.model.num_layers.saturating_sub(1));
    let apart = plan.runtime.facts().norm_at_last_layer && plan.model.mtp_layers > 0;
    match (chunk.loss, last) {
        (true, false) if apart => Some(Block::Output),
        (false, true) if apart => Some(Block::FinalNorm),
        (true, _) => Some(Block::Last),
        (false, _) => None,
    }
}

/// Parameters of a piece.
pub(super) fn parameters_of(plan: &Plan, block: Block) -> Vec<Arc<Parameter>> {
    let outer = || outer_parameters(&plan.model, padded_vocabulary(plan));
    let shared = |parameters: Vec<Parameter>, are_of: fn(&Parameter) -> bool| {
        parameters.into_iter().filter(are_of).map(Arc::new).collect()
    };
    match block {
        Block::Embedding { copy: false } => shared(outer().0, |_| true),
        Block::Embedding { copy: true } => shared(outer().0, |parameter| parameter.role == Role::Vocabulary),
        Block::Layer(kind) => plan.model.layer_parameters(kind).to_vec(),
        Block::Mtp => plan.model.mtp_parameters().to_vec(),
        Block::Last => shared(outer().1, |_| true),
        Block::FinalNorm => shared(outer().1, |parameter| parameter.module != Module::Head),
        Block::Output => shared(outer().1, |parameter| parameter.module == Module::Head),
    }
}

/// The pieces of a stage with the number of each, in order of appearance.
pub(crate) fn counted_blocks(plan: &Plan, stage: u64) -> Vec<(Block, u64)> {
    let chunks = chunks_of_stage(&plan.layout, plan.model.num_layers, stage).unwrap_or_default();
    counted_blocks_of(plan, &chunks)
}

/// The same of a stage with these chunks.
pub(crate) fn counted_blocks_of(plan: &Plan, chunks: &[Chunk]) -> Vec<(Block, u64)> {
    let mut kinds: Vec<(Block, u64)> = Vec::new();
    let mut put = |block, count| match kinds.iter_mut().find(|(known, _)| *known == block) {
        Some((_, known)) => *known += count,
        None => kinds.push((block, count)),
    };
    let mut embedded = false;
    for chunk in chunks {
        if chunk.embedding {
            put(Block::Embedding { copy: false }, 1);
            embedded = true;
        }
        for (kind, count) in plan.model.kinds_in(chunk.layers.clone()) {
            put(Block::Layer(kind), count);
        }
        let modules = if chunk.mtp { plan.model.mtp_modules() } else { 0 };
        if !embedded && (modules > 0 || (chunk.loss && plan.model.tied_embeddings)) {
            put(Block::Embedding { copy: true }, 1);
            embedded = true;
        }
        if modules > 0 {
            put(Block::Mtp, modules);
        }
        if let Some(last) = last_of(plan, chunk) {
            put(last, 1);
        }
    }
    kinds
}

/// Families of `count` pieces of a kind.
pub(crate) fn block_families(plan: &Plan, block: Block, count: u64) -> impl Iterator<Item = Family> + '_ {
    parameters_of(plan, block).into_iter().map(move |parameter| family(parameter, plan, count))
}

/// Parameters that a rank of each stage allocates, each kind of piece counted once for all stages.
pub(crate) fn parameters_by_stage(plan: &Plan) -> Vec<u64> {
    let mut known: Vec<(Block, u64)> = Vec::new();
    let mut of_block = |block: Block| {
        if let Some((_, elements)) = known.iter().find(|(other, _)| *other == block) {
            return *elements;
        }
        let families = block_families(plan, block, 1);
        let elements = families.map(|family| family.count * family.local_elements()).sum();
        known.push((block, elements));
        elements
    };
    let mut of_stage = |stage| -> u64 {
        let blocks = counted_blocks(plan, stage);
        blocks.into_iter().map(|(block, count)| count * of_block(block)).sum()
    };
    (0..plan.layout.pp).map(&mut of_stage).collect()
}

/// Families of everything that a rank of `stage` holds.
pub(crate) fn stage_families(plan: &Plan, stage: u64) -> Vec<Family> {
    let blocks = counted_blocks(plan, stage);
    blocks.into_iter().flat_map(|(block, count)| block_families(plan, block, count)).collect()
}

/// Buffers of the last rank of `stage`.
pub(crate) fn stage_buffers(plan: &Plan, stage: u64) -> Vec<BufferShard> {
    buffers(plan, &StageElements::of(plan, stage), Slot::last(plan))
}

/// Ranks of `stage`, each of which holds these elements, by what state they keep.
pub(crate) fn holders(plan: &Plan, stage: u64, held: &StageElements) -> Vec<Holders> {
    let (first, count) = (first_rank_of_stage(&plan.layout, stage), plan.world_size() / plan.layout.pp);
    let last = buffers(plan, held, Slot::last(plan));
    if !is_dealt(plan) {
        return vec![Holders { first_rank: first, count, buffers: last }];
    }
    // Whole tensors are dealt: the first and the last rank of a group are the ends of the range.
    vec![
        Holders { first_rank: first + count - 1, count: count / 2, buffers: last },
        Holders { first_rank: first, count: count - count / 2, buffers: buffers(plan, held, Slot::FIRST) },
    ]
}
