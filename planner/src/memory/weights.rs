//! Elements that a rank holds of each kind of block, computed once for all stages of a plan.

use crate::layout::Chunk;
use crate::model::LayerKind;
use crate::plan::Plan;
use crate::shard::{Block, Family, Module, PARAM_ALIGNMENT, block_families, counted_blocks_of};

/// Elements of one kind (dense or routed experts) on one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elements {
    /// All of them.
    pub exact: u64,
    /// Every tensor rounded up to the alignment of a buffer.
    pub padded: u64,
    /// Of matrices that 8-bit and 4-bit recipes multiply with.
    pub quantised: u64,
    /// Of hidden matrices, which Muon treats its own way.
    pub matrices: u64,
}

impl Elements {
    fn of(family: &Family) -> Elements {
        let (size, count) = (family.local_elements(), family.count);
        let exact = size * count;
        Elements {
            exact,
            padded: size.next_multiple_of(PARAM_ALIGNMENT) * count,
            quantised: if is_quantised(family) { exact } else { 0 },
            matrices: if is_hidden_matrix(family) { exact } else { 0 },
        }
    }

    fn put(&mut self, other: &Elements, count: u64) {
        self.exact += other.exact * count;
        self.padded += other.padded * count;
        self.quantised += other.quantised * count;
        self.matrices += other.matrices * count;
    }
}

fn is_matrix(family: &Family) -> bool {
    let parameter = &family.parameter;
    parameter.shape.len() >= 2 && parameter.decays && !parameter.is_convolution()
}

/// Matrices of layers run in the recipe's precision; embedding, output layer, router and norms do not.
fn is_quantised(family: &Family) -> bool {
    use Module::{Attention, Expert, Mlp, Mtp, SharedExpert};
    is_matrix(family) && matches!(family.parameter.module, Attention | Mlp | Expert | SharedExpert | Mtp)
}

/// Matrices that are neither embedding nor output layer.
pub fn is_hidden_matrix(family: &Family) -> bool {
    is_matrix(family) && !matches!(family.parameter.module, Module::Embedding | Module::Head)
}

/// Rows and columns of a slice as a matrix multiplication sees it.
fn rows_and_columns(family: &Family) -> (u64, u64) {
    let columns = family.local_shape.last().copied().unwrap_or(1);
    (family.local_elements() / columns.max(1), columns)
}

/// One block on one rank.
#[derive(Debug, Clone, PartialEq)]
struct BlockElements {
    block: Block,
    dense: Elements,
    expert: Elements,
    /// Shapes of weights whose gradients TransformerEngine makes.
    shapes: Vec<(u64, u64)>,
}

/// Every block of a plan on one rank of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocks(Vec<BlockElements>);

/// What a rank of one stage holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StageElements {
    /// Everything but routed experts.
    pub dense: Elements,
    /// Routed experts.
    pub expert: Elements,
    /// Elements of one weight of each distinct shape.
    pub distinct_shapes: u64,
    /// Elements of the largest weight.
    pub largest: u64,
    /// Elements of the largest weight of a layer.
    pub largest_of_layers: u64,
    /// Elements of the embedding.
    pub embedding: u64,
}

impl Blocks {
    /// Blocks of a plan with these kinds of layers.
    pub fn new(plan: &Plan, kinds: impl Iterator<Item = LayerKind>) -> Blocks {
        let mut blocks = vec![Block::Embedding { copy: false }, Block::Embedding { copy: true }, Block::Last];
        blocks.extend((plan.model.mtp_layers > 0).then_some(Block::Mtp));
        blocks.extend(kinds.map(Block::Layer));
        Blocks(blocks.into_iter().map(|block| of_block(plan, block)).collect())
    }

    /// What a rank of a stage with these chunks holds.
    pub fn stage(&self, plan: &Plan, chunks: &[Chunk]) -> StageElements {
        let mut found = StageElements::default();
        let mut shapes: Vec<(u64, u64)> = Vec::new();
        for (block, count) in counted_blocks_of(plan, chunks) {
            let Some(one) = self.0.iter().find(|known| known.block == block) else { continue };
            found.dense.put(&one.dense, count);
            found.expert.put(&one.expert, count);
            if matches!(block, Block::Embedding { .. }) {
                found.embedding = one.dense.exact;
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
        found
    }

    /// Elements of one layer of a kind that are quantised, dense and expert together.
    pub fn quantised(&self, kind: LayerKind) -> u64 {
        let block = Block::Layer(kind);
        self.0
            .iter()
            .find(|known| known.block == block)
            .map_or(0, |one| one.dense.quantised + one.expert.quantised)
    }
}

fn of_block(plan: &Plan, block: Block) -> BlockElements {
    let mut found =
        BlockElements { block, dense: Elements::default(), expert: Elements::default(), shapes: Vec::new() };
    // A tied output layer multiplies with the embedding.
    let tied = block == Block::Last && plan.model.tied_embeddings;
    if tied {
        let words = crate::shard::padded_vocabulary(plan) / plan.layout.tp;
        found.shapes.push((words, plan.model.hidden_size));
    }
    for family in block_families(plan, block, 1) {
        let elements = Elements::of(&family);
        let expert = family.parameter.module == Module::Expert;
        if expert {
            found.expert.put(&elements, 1)
        } else {
            found.dense.put(&elements, 1)
        }
        // The router's gradient and the embedding's are made elsewhere.
        if is_matrix(&family) && !matches!(family.parameter.module, Module::Embedding | Module::Router) {
            let shape = rows_and_columns(&family);
            if !found.shapes.contains(&shape) {
                found.shapes.push(shape);
            }
        }
    }
    found
}
