//! The transformer, as segments on the tape. Sequence first: a value is `[tokens of the sequence, sequences, width]`,
//! so that sequence parallelism cuts the outermost dim.
//!
//! Symbols: s tokens of a sequence, b sequences, h hidden, d head width.

mod cross_entropy;
mod functions;
mod parts;
mod rotary;

use anyhow::{bail, ensure};
use planner::Plan;
use planner::layout::GroupKind;
use planner::model::Attention;
use planner::shard::RankShards;
use tch::{Kind, Tensor};

use crate::collectives::{Collectives, GroupId};
use crate::state::kind_of;
use crate::tape::{Exchange, Flow, Tape};

use cross_entropy::VocabularySlice;
use functions::{column_linear, rms_norm, row_linear, swiglu};
use parts::{Layer, Parts};
use rotary::Rotary;

/// The model of one rank: which parameter is which, and what is fixed from step to step.
pub struct Model {
    tp: GroupId,
    sequence_parallel: bool,
    compute: Kind,
    head_dim: i64,
    norm_eps: f64,
    rotary: Rotary,
    parts: Parts,
    vocabulary: VocabularySlice,
}

/// One micro batch: token ids, `[s, b]` each.
pub struct Batch {
    /// What the model reads.
    pub inputs: Tensor,
    /// What it should say.
    pub targets: Tensor,
}

impl Model {
    /// The model that the plan describes, over this rank's shards.
    ///
    /// # Errors
    /// When the shards lack a parameter or have one too many, or the model is one that the executor does not run.
    pub fn new(plan: &Plan, shards: &RankShards, world: &dyn Collectives) -> anyhow::Result<Model> {
        let architecture = &plan.model;
        let Attention::Gqa { head_dim, rotary_dim, .. } = architecture.attention else {
            bail!("the executor runs grouped-query attention so far, and this model has another attention");
        };
        let parts = Parts::find(plan, shards)?;
        let rows = &shards.params[parts.head];
        Ok(Model {
            tp: world.mine(GroupKind::Tp)?,
            sequence_parallel: plan.layout.sp && plan.layout.tp > 1,
            compute: kind_of(plan.training.dtype),
            head_dim: i64::try_from(head_dim)?,
            norm_eps: architecture.norm_eps,
            rotary: Rotary::new(rotary_dim.unwrap_or(head_dim), architecture.rope_theta)?,
            vocabulary: VocabularySlice::new(rows.offset[0], rows.local_shape[0], rows.unpadded_rows)?,
            parts,
        })
    }

    /// Forward: records on the tape, returns the sum of the losses of all tokens, and leaves on the tape the gradient
    /// of that sum times `scale`. `forward_done` is called when all that is saved for backward is there.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn forward(
        &self,
        tape: &mut Tape<'_>,
        world: &dyn Collectives,
        batch: &Batch,
        scale: f64,
        forward_done: impl FnOnce(),
    ) -> anyhow::Result<f64> {
        let sequence = batch.inputs.size()[0];
        let (cos, sin) = self.rotary.tables(sequence, self.compute, batch.inputs.device())?;
        let mut stream = self.embed(tape, batch)?;
        for layer in &self.parts.layers {
            let normed = rms_norm(tape, &stream, layer.attention_norm, self.norm_eps)?;
            let partial = self.attention(tape, layer, normed, &cos, &sin)?;
            stream = self.residual(tape, stream, partial)?;
            let normed = rms_norm(tape, &stream, layer.mlp_norm, self.norm_eps)?;
            let partial = self.mlp(tape, layer, normed)?;
            stream = self.residual(tape, stream, partial)?;
        }
        let normed = rms_norm(tape, &stream, self.parts.final_norm, self.norm_eps)?;
        drop(stream);
        let logits = column_linear(tape, &normed, &[self.parts.head], self.sequence_parallel)?;
        drop(normed);
        forward_done();
        let (place, logits) = logits.split();
        let (loss, gradient) =
            self.vocabulary.cross_entropy(world, self.tp, logits, &batch.targets, scale)?;
        tape.seed(place, gradient);
        Ok(loss)
    }

    /// From a row-parallel sum to the residual stream.
    fn onto_stream(&self) -> Exchange {
        if self.sequence_parallel { Exchange::SumScatter } else { Exchange::Sum }
    }

    fn embed(&self, tape: &mut Tape<'_>, batch: &Batch) -> anyhow::Result<Flow> {
        let (inside, local) = self.vocabulary.localize(&batch.inputs)?;
        let words = tape.segment(&[], &[self.parts.embedding], |_, weights| {
            let rows = Tensor::f_embedding(&weights[0], &local, -1, false, false)?;
            // Words of other ranks' slices read row 0 here, which must count for nothing.
            Ok(rows.f_mul(&inside.f_unsqueeze(-1)?.f_to_kind(rows.kind())?)?)
        })?;
        tape.exchange(self.onto_stream(), words)
    }

    fn residual(&self, tape: &mut Tape<'_>, stream: Flow, partial: Flow) -> anyhow::Result<Flow> {
        let update = tape.exchange(self.onto_stream(), partial)?;
        tape.add(&stream, &update)
    }

    fn attention(
        &self,
        tape: &mut Tape<'_>,
        layer: &Layer,
        normed: Flow,
        cos: &Tensor,
        sin: &Tensor,
    ) -> anyhow::Result<Flow> {
        let matrix: Vec<usize> = [Some(layer.qkv), layer.qkv_bias].into_iter().flatten().collect();
        // For each kv head: its query heads, then key, then value.
        let size = tape.weight(layer.qkv).size();
        let (kv_heads, rows) = (size[0], size[1]);
        let shared = rows - 2;
        ensure!(
            shared > 0,
            "the planner gives {rows} rows for each key-value head, with no query head in it"
        );
        let mixed = column_linear(tape, &normed, &matrix, self.sequence_parallel)?;
        drop(normed);
        let norms: Vec<usize> = [layer.q_norm, layer.k_norm].into_iter().flatten().collect();
        let heads = tape.segment(&[&mixed], &norms, |inputs, weights| {
            let size = inputs[0].size();
            let (s, b, d) = (size[0], size[1], self.head_dim);
            let mixed = inputs[0].f_view([s, b, kv_heads, rows, d])?;
            let query = mixed.f_narrow(3, 0, shared)?.f_reshape([s, b, kv_heads * shared, d])?;
            let key = mixed.f_select(3, shared)?;
            // Copied, so that what is kept for backward is the values, not all that was mixed with them.
            let value = mixed.f_select(3, shared + 1)?.f_contiguous()?;
            let normed = |heads: Tensor, weight: Option<&Tensor>| match weight {
                Some(weight) => heads.f_rms_norm([d], Some(weight), self.norm_eps),
                None => Ok(heads),
            };
            let query = self.rotary.rotate(&normed(query, weights.first())?, cos, sin)?;
            let key = self.rotary.rotate(&normed(key, weights.get(1))?, cos, sin)?;
            let heads_first = |heads: &Tensor| heads.f_permute([1, 2, 0, 3]);
            let heads = Tensor::f_scaled_dot_product_attention(
                &heads_first(&query)?,
                &heads_first(&key)?,
                &heads_first(&value)?,
                None::<&Tensor>,
                0.0,
                true,
                None,
                shared > 1,
            )?;
            Ok(heads.f_permute([2, 0, 1, 3])?.f_reshape([s, b, kv_heads * shared * d])?)
        })?;
        drop(mixed);
        row_linear(tape, &heads, layer.proj)
    }

    fn mlp(&self, tape: &mut Tape<'_>, layer: &Layer, normed: Flow) -> anyhow::Result<Flow> {
        let both = column_linear(tape, &normed, &[layer.fc1], self.sequence_parallel)?;
        drop(normed);
        let activated = swiglu(tape, &both)?;
        drop(both);
        row_linear(tape, &activated, layer.fc2)
    }
}
