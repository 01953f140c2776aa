//! Which of the planner's parameters is which part of the model. Every one must be used, so that a model with a part
//! that the executor does not know is refused, not trained without it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use planner::Plan;
use planner::layout::{chunks_of_stage, coordinates};
use planner::model::{Attention, QkNorm};
use planner::shard::RankShards;

/// Numbers of a layer's parameters.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Norm before attention.
    pub attention_norm: usize,
    /// Fused query, key and value matrix.
    pub qkv: usize,
    /// Its bias.
    pub qkv_bias: Option<usize>,
    /// Norm of queries.
    pub q_norm: Option<usize>,
    /// Norm of keys.
    pub k_norm: Option<usize>,
    /// Output matrix of attention.
    pub proj: usize,
    /// Norm before the MLP.
    pub mlp_norm: usize,
    /// Gate and up matrix.
    pub fc1: usize,
    /// Down matrix.
    pub fc2: usize,
}

/// Numbers of the parameters behind the last layer.
#[derive(Debug, Clone)]
pub struct Head {
    /// Norm of the output.
    pub norm: usize,
    /// Output matrix; the embedding, or this stage's copy of it, when tied.
    pub matrix: usize,
}

/// Numbers of the parameters of one model chunk.
#[derive(Debug, Clone)]
pub struct ChunkParts {
    /// Word embedding, where the model begins.
    pub embedding: Option<usize>,
    /// The layers.
    pub layers: Vec<Layer>,
    /// Norm and output matrix, where the model ends.
    pub head: Option<Head>,
}

/// Numbers of all parameters of a rank, by model chunk.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The chunks of the rank's stage.
    pub chunks: Vec<ChunkParts>,
}

/// The planner's parameters by name, crossed off as they are found.
struct Names<'a> {
    left: RefCell<BTreeMap<&'a str, usize>>,
}

impl Names<'_> {
    fn take(&self, name: &str) -> anyhow::Result<usize> {
        let found = self.left.borrow_mut().remove(name);
        found.with_context(|| format!("the planner's shards have no parameter `{name}`"))
    }
}

impl Parts {
    /// Finds every part among a rank's shards.
    ///
    /// # Errors
    /// When one is missing, or one is left over.
    pub fn find(plan: &Plan, shards: &RankShards) -> anyhow::Result<Parts> {
        let Attention::Gqa { qk_norm, qkv_bias, .. } = plan.model.attention else {
            bail!("the executor runs grouped-query attention so far, and this model has another attention");
        };
        let left =
            shards.params.iter().enumerate().map(|(number, shard)| (shard.name.as_str(), number)).collect();
        let names = Names { left: RefCell::new(left) };
        let normed = qk_norm == QkNorm::PerHead;
        let layer = |layer: u64| {
            let named = |part: &str| names.take(&format!("layers.{layer}.{part}"));
            let optional = |wanted: bool, part| wanted.then(|| named(part)).transpose();
            anyhow::Ok(Layer {
                attention_norm: named("attention.norm.weight")?,
                qkv: named("attention.qkv.weight")?,
                qkv_bias: optional(qkv_bias, "attention.qkv.bias")?,
                q_norm: optional(normed, "attention.q_norm.weight")?,
                k_norm: optional(normed, "attention.k_norm.weight")?,
                proj: named("attention.proj.weight")?,
                mlp_norm: named("mlp.norm.weight")?,
                fc1: named("mlp.fc1.weight")?,
                fc2: named("mlp.fc2.weight")?,
            })
        };
        let mut embedding = None;
        let mut embedded = || -> anyhow::Result<usize> {
            if embedding.is_none() {
                embedding = Some(names.take("embedding.weight")?);
            }
            embedding.context("the embedding")
        };
        let stage = coordinates(&plan.layout, shards.rank).pp;
        let held = chunks_of_stage(&plan.layout, plan.model.num_layers, stage)
            .with_context(|| format!("the planner gives stage {stage} no layers"))?;
        let mut chunks = Vec::with_capacity(held.len());
        for chunk in held {
            chunks.push(ChunkParts {
                embedding: chunk.embedding.then(&mut embedded).transpose()?,
                layers: chunk.layers.map(layer).collect::<Result<_, _>>()?,
                head: match chunk.loss {
                    true => Some(Head {
                        norm: names.take("final_norm.weight")?,
                        matrix: if plan.model.tied_embeddings {
                            embedded()?
                        } else {
                            names.take("head.weight")?
                        },
                    }),
                    false => None,
                },
            });
        }
        let parts = Parts { chunks };
        if let Some(name) = names.left.borrow().keys().next() {
            bail!("the executor does not run models with a parameter like `{name}` yet");
        }
        check_heads(&plan.model.attention, shards, &parts)?;
        Ok(parts)
    }
}

/// A rank must hold whole kv heads with all their query heads.
fn check_heads(attention: &Attention, shards: &RankShards, parts: &Parts) -> anyhow::Result<()> {
    for layer in parts.chunks.iter().flat_map(|chunk| &chunk.layers) {
        let shard = &shards.params[layer.qkv];
        ensure!(
            shard.local_shape.len() == 4
                && shard.local_shape[0] > 0
                && shard.local_shape[1..] == shard.shape[1..],
            "{} is cut to {:?}, but the executor needs whole key-value heads on every rank: lower layout.tp to a divisor of {}",
            shard.name,
            shard.local_shape,
            attention.kv_heads()
        );
    }
    Ok(())
}
