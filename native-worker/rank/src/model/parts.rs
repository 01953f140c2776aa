//! Which of the planner's parameters is which part of the model. Every one must be used, so that a model with a part
//! that the executor does not know is refused, not trained without it.

use anyhow::{Context, ensure};
use planner::Plan;
use planner::layout::chunks_of_stage;

use super::layer::Layer;
use super::names::Names;
use super::norm::Norm;
use super::prediction::Prediction;
use crate::collectives::Collectives;

/// Numbers of the parameters before the first layer.
#[derive(Debug, Clone, Copy)]
pub struct Embedding {
    /// Of words.
    pub words: usize,
    /// Of positions, where they are learned.
    pub positions: Option<usize>,
}

/// What is behind the last layer.
pub struct Head {
    /// Norm of the output.
    pub norm: Norm,
    /// Output matrix; the embedding, or this stage's copy of it, when tied.
    pub matrix: usize,
    /// Whether that is the embedding.
    pub tied: bool,
    /// Bias of the logits.
    pub bias: Option<usize>,
    /// Modules that predict further tokens, each with the embedding of those.
    pub predictions: Vec<Prediction>,
}

impl Head {
    /// Numbers of what makes logits.
    pub fn output(&self) -> Vec<usize> {
        std::iter::once(self.matrix).chain(self.bias).collect()
    }
}

/// One model chunk.
pub struct ChunkParts {
    /// Where the model begins.
    pub embedding: Option<Embedding>,
    /// The layers.
    pub layers: Vec<Layer>,
    /// Number of the first, over the whole model.
    pub first_layer: u64,
    /// Where the model ends.
    pub head: Option<Head>,
}

/// All parts of a rank, by model chunk.
pub struct Parts {
    /// The chunks of the rank's stage.
    pub chunks: Vec<ChunkParts>,
}

impl Parts {
    /// Finds every part among a rank's shards.
    ///
    /// # Errors
    /// When one is missing, or one is left over.
    pub fn find(plan: &Plan, names: &Names<'_>, world: &dyn Collectives) -> anyhow::Result<Parts> {
        let (model, shards) = (&plan.model, names.shards());
        let mut words = None;
        let mut embedded = || -> anyhow::Result<usize> {
            if words.is_none() {
                words = Some(names.take("embedding.weight")?);
            }
            words.context("the embedding")
        };
        let stage = plan.place_of(shards.rank).pp;
        let held = chunks_of_stage(&plan.layout, model.num_layers, stage)
            .with_context(|| format!("the planner gives stage {stage} no layers"))?;
        let mut chunks = Vec::with_capacity(held.len());
        for chunk in held {
            ensure!(
                !chunk.mtp || chunk.loss || model.mtp_layers == 0,
                "the executor runs modules of multi-token prediction where the loss is; move them there in layout.pipeline_layout"
            );
            let embedding = match chunk.embedding {
                true => Some(Embedding {
                    words: embedded()?,
                    positions: names
                        .optional(model.learned_positions.is_some(), "embedding.positions.weight")?,
                }),
                false => None,
            };
            let first_layer = chunk.layers.start;
            let layers = chunk
                .layers
                .map(|layer| {
                    Layer::find(plan, model.layer_kind(layer), names, &format!("layers.{layer}"), world)
                })
                .collect::<Result<_, _>>()?;
            let head = match chunk.loss {
                true => Some(Head {
                    predictions: (0..model.mtp_layers)
                        .map(|module| Prediction::find(plan, names, module, embedded()?, world))
                        .collect::<Result<_, _>>()?,
                    norm: Norm::of_stream(model, names, "final_norm")?,
                    tied: model.tied_embeddings,
                    matrix: if model.tied_embeddings { embedded()? } else { names.take("head.weight")? },
                    bias: names.optional(model.head_bias, "head.bias")?,
                }),
                false => None,
            };
            chunks.push(ChunkParts { embedding, layers, first_layer, head });
        }
        names.finish()?;
        Ok(Parts { chunks })
    }

    /// All layers, those of prediction modules too.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.chunks.iter().flat_map(|chunk| {
            let modules = chunk.head.iter().flat_map(|head| &head.predictions);
            chunk.layers.iter().chain(modules.flat_map(Prediction::layers))
        })
    }
}
