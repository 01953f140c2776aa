//! Elements that a rank holds of each kind of block, computed once for all stages of a plan.

use std::ops::Range;

use super::{
    Block, PARAM_ALIGNMENT, block_families, counted_blocks_of, padded_vocabulary, with_rows_of_extras,
};
use crate::layout::Chunk;
use crate::model::{LayerKind, Module, Parameter};
use crate::plan::Plan;
use crate::settings::OptimizerKind;
use crate::shard::Family;

/// Elements of one kind (dense or routed experts) that one rank keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elements {
    /// All of them.
    pub exact: u64,
    /// Every tensor rounded up to the alignment of a buffer.
    pub padded: u64,
    /// Of gradients as `exact`: more on a core of nonuniform tensor parallelism.
    pub gradients_exact: u64,
    /// Of gradients as `padded`.
    pub gradients_padded: u64,
    /// Of matrices that 8-bit and 4-bit recipes multiply with.
    pub quantised: u64,
}

impl Elements {
    fn of(plan: &Plan, family: &Family) -> Elements {
        let (size, count) = (family.local_elements(), family.count);
        let gradients = with_rows_of_extras(plan, size, family.cut.map(|cut| cut.0));
        // The worker's cores keep weights and state of those rows, too.
        let kept = if plan.runtime.facts().cores_keep_rows { gradients } else { size };
        let exact = kept * count;
        Elements {
            exact,
            padded: kept.next_multiple_of(PARAM_ALIGNMENT) * count,
            gradients_exact: gradients * count,
            gradients_padded: gradients.next_multiple_of(PARAM_ALIGNMENT) * count,
            quantised: if is_quantised(&family.parameter) { exact } else { 0 },
        }
    }

    fn put(&mut self, other: &Elements, count: u64) {
        self.exact += other.exact * count;
        self.padded += other.padded * count;
        self.gradients_exact += other.gradients_exact * count;
        self.gradients_padded += other.gradients_padded * count;
        self.quantised += other.quantised * count;
    }

    /// Both together.
    #[must_use]
    pub fn with(mut self, other: &Elements) -> Elements {
        self.put(other, 1);
        self
    }
}

/// Elements of one kind by what updates them: hidden matrices, which Muon treats its own way, and all else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Updated {
    /// Of hidden matrices.
    pub matrices: Elements,
    /// Of all else.
    pub others: Elements,
}

impl Updated {
    /// All of them.
    pub fn all(&self) -> Elements {
        self.matrices.with(&self.others)
    }

    fn put(&mut self, other: &Updated, count: u64) {
        self.matrices.put(&other.matrices, count);
        self.others.put(&other.others, count);
    }
}

/// Matrices of layers run in the recipe's precision; embedding, output layer, router and norms do not.
pub(crate) fn is_quantised(parameter: &Parameter) -> bool {
    use Module::{Attention, Expert, Mlp, Mtp, SharedExpert};
    parameter.is_matrix() && matches!(parameter.module, Attention | Mlp | Expert | SharedExpert | Mtp)
}

/// Layers that a low-precision recipe does not leave in the compute type, as it may do with first and last ones.
pub(crate) fn recipe_layers(plan: &Plan) -> Range<u64> {
    let (training, layers) = (&plan.training, plan.model.num_layers);
    if training.low_precision.is_none() {
        return 0..layers;
    }
    let last = layers.saturating_sub(training.bf16_last_layers);
    training.bf16_first_layers.min(last)..last
}

/// Rows and columns of a slice as a matrix multiplication sees it.
fn rows_and_columns(family: &Family) -> (u64, u64) {
    let columns = family.local_shape.last().copied().unwrap_or(1);
    (family.local_elements() / columns.max(1), columns)
}

/// Slices of equal size, as they are dealt to ranks where an optimizer works on whole tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tensors {
    /// Elements of one.
    pub elements: u64,
    /// How many there are.
    pub count: u64,
    /// Whether they are hidden matrices.
    pub matrices: bool,
    /// Whether they are routed experts'.
    pub expert: bool,
}

/// One block on one rank.
#[derive(Debug, Clone, PartialEq)]
struct BlockElements {
    block: Block,
    dense: Updated,
    expert: Updated,
    /// Shapes of weights whose gradients TransformerEngine makes.
    shapes: Vec<(u64, u64)>,
    /// Elements of the largest of them, as it is kept.
    largest_kept: u64,
    /// Its tensors, where they are dealt.
    tensors: Vec<Tensors>,
    /// As [`StageElements::orthogonal`].
    orthogonal: u64,
}

/// As many shapes as most stages have, for which room is made at once.
const USUAL_SHAPES: usize = 16;

/// Every block of a plan on one rank of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Blocks(Vec<BlockElements>);

/// What a rank of one stage holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StageElements {
    /// Everything but routed experts.
    pub dense: Updated,
    /// Routed experts.
    pub expert: Updated,
    /// Elements of one weight of each distinct shape.
    pub distinct_shapes: u64,
    /// Elements of the largest weight.
    pub largest: u64,
    /// Elements of the largest weight as it is kept and updated: more than are computed with on a core of the worker's nonuniform tensor
    /// parallelism.
    pub largest_kept: u64,
    /// Elements of the largest weight of a layer.
    pub largest_of_layers: u64,
    /// Elements of the embedding.
    pub embedding: u64,
    /// All slices, where Muon's state is dealt out by tensors.
    pub tensors: Vec<Tensors>,
    /// The most elements that an update of a matrix by Muon has at once, where the executor makes it.
    pub orthogonal: u64,
}

impl StageElements {
    /// Of a stage of a plan.
    pub fn of(plan: &Plan, stage: u64) -> StageElements {
        let chunks =
            crate::layout::chunks_of_stage(&plan.layout, plan.model.num_layers, stage).unwrap_or_default();
        let mut kinds: Vec<LayerKind> = Vec::new();
        for (kind, _) in chunks.iter().flat_map(|chunk| plan.model.kinds_in(chunk.layers.clone())) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        Blocks::new(plan, kinds.into_iter()).stage(plan, &chunks)
    }

    /// Elements of matrices that run in the low-precision recipe.
    pub fn quantised(&self) -> u64 {
        self.dense.all().quantised + self.expert.all().quantised
    }
}

impl Blocks {
    /// Blocks of a plan with these kinds of layers.
    pub(crate) fn new(plan: &Plan, kinds: impl Iterator<Item = LayerKind>) -> Blocks {
        let mut blocks = vec![Block::Embedding { copy: false }, Block::Embedding { copy: true }, Block::Last];
        if plan.model.mtp_layers > 0 {
            blocks.extend([Block::Mtp, Block::FinalNorm, Block::Output]);
        }
        blocks.extend(kinds.map(Block::Layer));
        Blocks(blocks.into_iter().map(|block| of_block(plan, block)).collect())
    }

    fn find(&self, block: Block) -> Option<&BlockElements> {
        self.0.iter().find(|known| known.block == block)
    }

    /// What a rank of a stage with these chunks holds.
    pub(crate) fn stage(&self, plan: &Plan, chunks: &[Chunk]) -> StageElements {
        self.stage_of(plan, chunks, &counted_blocks_of(plan, chunks))
    }

    /// The same where the chunks' blocks have been counted, as [`counted_blocks_of`] does.
    pub(crate) fn stage_of(&self, plan: &Plan, chunks: &[Chunk], counted: &[(Block, u64)]) -> StageElements {
        let mut found = StageElements::default();
        let mut shapes: Vec<(u64, u64)> = Vec::with_capacity(USUAL_SHAPES);
        for &(block, count) in counted {
            let Some(one) = self.find(block) else { continue };
            found.dense.put(&one.dense, count);
            found.expert.put(&one.expert, count);
            found.tensors.extend(
                one.tensors.iter().map(|tensors| Tensors { count: tensors.count * count, ..*tensors }),
            );
            found.orthogonal = found.orthogonal.max(one.orthogonal);
            found.largest_kept = found.largest_kept.max(one.largest_kept);
            if matches!(block, Block::Embedding { .. }) {
                found.embedding = one.dense.all().exact;
            }
            if matches!(block, Block::Layer(_) | Block::Mtp) {
                let sizes = one.shapes.iter().map(|(rows, columns)| rows * columns);
                found.largest_of_layers = sizes.fold(found.largest_of_layers, u64::max);
            }
            for shape in &one.shapes {
                if !shapes.contains(shape) {
                    shapes.push(*shape);
                }
            }
        }
        found.distinct_shapes = shapes.iter().map(|(rows, columns)| rows * columns).sum();
        found.largest = shapes.iter().map(|(rows, columns)| rows * columns).max().unwrap_or(0);
        self.leave_in_compute_type(plan, chunks, &mut found);
        found
    }

    /// Takes the matrices of layers that a low-precision recipe leaves out from those that are quantised.
    fn leave_in_compute_type(&self, plan: &Plan, chunks: &[Chunk], found: &mut StageElements) {
        if plan.training.low_precision.is_none() {
            return;
        }
        let recipe = recipe_layers(plan);
        for chunk in chunks {
            let Range { start, end } = chunk.layers.clone();
            let outside = [start..recipe.start.clamp(start, end), recipe.end.clamp(start, end)..end];
            for (kind, count) in outside.into_iter().flat_map(|range| plan.model.kinds_in(range)) {
                let Some(one) = self.find(Block::Layer(kind)) else { continue };
                let take = |from: &mut Elements, of: &Elements| {
                    from.quantised = from.quantised.saturating_sub(count * of.quantised);
                };
                take(&mut found.dense.matrices, &one.dense.matrices);
                take(&mut found.dense.others, &one.dense.others);
                take(&mut found.expert.matrices, &one.expert.matrices);
                take(&mut found.expert.others, &one.expert.others);
            }
        }
    }
}

fn of_block(plan: &Plan, block: Block) -> BlockElements {
    let mut found = BlockElements {
        block,
        dense: Updated::default(),
        expert: Updated::default(),
        shapes: Vec::new(),
        largest_kept: 0,
        tensors: Vec::new(),
        orthogonal: 0,
    };
    let dealt = plan.training.optimizer.kind == OptimizerKind::Muon;
    // A tied output layer multiplies with the embedding.
    let tied = matches!(block, Block::Last | Block::Output) && plan.model.tied_embeddings;
    if tied {
        let words = padded_vocabulary(plan) / plan.layout.tp;
        found.shapes.push((words, plan.model.hidden_size));
    }
    for family in block_families(plan, block, 1) {
        let elements = Elements::of(plan, &family);
        let (expert, matrices) =
            (family.parameter.module == Module::Expert, family.parameter.is_hidden_matrix());
        let grid = if expert { &mut found.expert } else { &mut found.dense };
        let updated = if matrices { &mut grid.matrices } else { &mut grid.others };
        updated.put(&elements, 1);
        if dealt {
            found.tensors.push(Tensors {
                elements: family.local_elements(),
                count: family.count,
                matrices,
                expert,
            });
            if matrices {
                found.orthogonal = found.orthogonal.max(family.parameter.made_orthogonal());
            }
        }
        // The router's gradient and the embedding's are made elsewhere.
        if family.parameter.is_matrix()
            && !matches!(family.parameter.module, Module::Embedding | Module::Router)
        {
            found.largest_kept = found.largest_kept.max(elements.exact / family.count.max(1));
            let shape = rows_and_columns(&family);
            if !found.shapes.contains(&shape) {
                found.shapes.push(shape);
            }
        }
    }
    found
}
