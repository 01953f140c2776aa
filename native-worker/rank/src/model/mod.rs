//! The transformer, as segments on the tape. Sequence first: a value is `[tokens of the sequence, sequences, width]`,
//! so that sequence parallelism cuts the outermost dim.
//!
//! A rank holds the model chunks of its pipeline stage. A chunk takes tokens, where it has the embedding, or the residual
//! stream of the chunk before it, and makes the residual stream or, where it has the head, the loss.
//!
//! Symbols: s tokens of a sequence, b sequences, h hidden, d head width.

mod cross_entropy;
mod functions;
mod layer;
mod parts;
mod recompute;
mod rotary;

use std::rc::Rc;

use anyhow::{Context, bail};
use planner::Plan;
use planner::layout::GroupKind;
use planner::model::Attention;
use planner::shard::{RankShards, padded_vocabulary};
use tch::{Device, Kind, Tensor};

use crate::collectives::{Collectives, GroupId};
use crate::state::kind_of;
use crate::tape::{Exchange, Flow, Tape};

use cross_entropy::VocabularySlice;
use functions::{column_linear, rms_norm};
use parts::{Head, Parts};
use recompute::Recompute;
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
    recompute: Recompute,
    /// Tokens of a sequence, sequences of a micro batch, hidden size.
    sizes: [i64; 3],
}

/// One micro batch: token ids, `[s, b]` each.
pub struct Batch {
    /// What the model reads.
    pub inputs: Tensor,
    /// What it should say.
    pub targets: Tensor,
}

/// Cosines and sines of the positions that a rank holds.
pub(crate) struct Tables {
    cos: Tensor,
    sin: Tensor,
}

/// What a chunk's forward made.
pub enum Made {
    /// The residual stream, for the next chunk.
    Stream(Flow),
    /// The sum of the losses of all tokens; its gradient is on the tape.
    Loss(f64),
}

impl Model {
    /// The chunks of the plan's model that this rank holds, over its shards.
    ///
    /// # Errors
    /// When the shards lack a parameter or have one too many, or the model is one that the executor does not run.
    pub fn new(plan: &Plan, shards: &RankShards, world: &dyn Collectives) -> anyhow::Result<Model> {
        let architecture = &plan.model;
        let Attention::Gqa { head_dim, rotary_dim, .. } = architecture.attention else {
            bail!("the executor runs grouped-query attention so far, and this model has another attention");
        };
        let tp = world.mine(GroupKind::Tp)?;
        let rows = padded_vocabulary(plan) / plan.layout.tp;
        let start = world.index(tp)? as u64 * rows;
        let sizes = [plan.training.seq_len, plan.training.micro_batch_size, architecture.hidden_size];
        Ok(Model {
            tp,
            sequence_parallel: plan.layout.sp && plan.layout.tp > 1,
            compute: kind_of(plan.training.dtype),
            head_dim: i64::try_from(head_dim)?,
            norm_eps: architecture.norm_eps,
            rotary: Rotary::new(rotary_dim.unwrap_or(head_dim), architecture.rope_theta)?,
            vocabulary: VocabularySlice::new(start, rows, architecture.vocab_size)?,
            parts: Parts::find(plan, shards)?,
            recompute: Recompute::of(plan),
            sizes: [i64::try_from(sizes[0])?, i64::try_from(sizes[1])?, i64::try_from(sizes[2])?],
        })
    }

    /// Whether a chunk reads tokens, as input or as what it should say.
    pub fn reads_tokens(&self, chunk: usize) -> bool {
        self.parts.chunks.get(chunk).is_some_and(|chunk| chunk.embedding.is_some() || chunk.head.is_some())
    }

    /// Room for a residual stream from another stage, or for its gradient.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn empty_stream(&self, world: &dyn Collectives, device: Device) -> anyhow::Result<Tensor> {
        let [s, b, h] = self.sizes;
        let slices = if self.sequence_parallel { world.size(self.tp) as i64 } else { 1 };
        Ok(Tensor::f_empty([s / slices, b, h], (self.compute, device))?)
    }

    /// Forward of one chunk: records on the tape. `stream` is what the chunk before made, `batch` is there where the
    /// chunk reads tokens. A loss leaves on the tape the gradient of the sum of losses times `scale`; `forward_done` is
    /// called before it is computed, when all that is saved for backward is there.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn forward<'a>(
        &'a self,
        tape: &mut Tape<'a>,
        chunk: usize,
        stream: Option<Flow>,
        batch: Option<&Batch>,
        scale: f64,
        forward_done: impl FnOnce(),
    ) -> anyhow::Result<Made> {
        let parts = self.parts.chunks.get(chunk).with_context(|| format!("there is no chunk {chunk}"))?;
        let tokens = || batch.context("a chunk that reads tokens got none");
        let mut stream = match (parts.embedding, stream) {
            (Some(embedding), _) => self.embed(tape, embedding, tokens()?)?,
            (None, Some(stream)) => stream,
            (None, None) => bail!("a chunk without an embedding got no residual stream"),
        };
        if !parts.layers.is_empty() {
            let (cos, sin) = self.rotary.tables(self.sizes[0], self.compute, stream.data().device())?;
            let tables = Rc::new(Tables { cos, sin });
            for (range, checkpoint) in self.recompute.groups(parts.layers.len()) {
                let layers = &parts.layers[range];
                let tables = tables.clone();
                let run = move |tape: &mut Tape<'a>, stream: Flow| {
                    layers.iter().try_fold(stream, |stream, layer| self.layer(tape, layer, stream, &tables))
                };
                stream = if checkpoint {
                    tape.checkpoint(&[&stream], move |tape, mut inputs| run(tape, inputs.remove(0)))?
                } else {
                    run(tape, stream)?
                };
            }
        }
        match &parts.head {
            Some(head) => {
                Ok(Made::Loss(self.loss(tape, head, stream, &tokens()?.targets, scale, forward_done)?))
            }
            None => {
                forward_done();
                Ok(Made::Stream(stream))
            }
        }
    }

    /// From a row-parallel sum to the residual stream.
    fn onto_stream(&self) -> Exchange {
        if self.sequence_parallel { Exchange::SumScatter } else { Exchange::Sum }
    }

    fn embed(&self, tape: &mut Tape<'_>, embedding: usize, batch: &Batch) -> anyhow::Result<Flow> {
        let (inside, local) = self.vocabulary.localize(&batch.inputs)?;
        let words = tape.segment(&[], &[embedding], |_, weights| {
            let rows = Tensor::f_embedding(&weights[0], &local, -1, false, false)?;
            // Words of other ranks' slices read row 0 here, which must count for nothing.
            Ok(rows.f_mul(&inside.f_unsqueeze(-1)?.f_to_kind(rows.kind())?)?)
        })?;
        tape.exchange(self.onto_stream(), words)
    }

    fn loss(
        &self,
        tape: &mut Tape<'_>,
        head: &Head,
        stream: Flow,
        targets: &Tensor,
        scale: f64,
        forward_done: impl FnOnce(),
    ) -> anyhow::Result<f64> {
        let normed = rms_norm(tape, &stream, head.norm, self.norm_eps)?;
        drop(stream);
        let logits = column_linear(tape, &normed, &[head.matrix], self.sequence_parallel)?;
        drop(normed);
        forward_done();
        let (place, logits) = logits.split();
        let world = tape.group().world;
        let (loss, gradient) = self.vocabulary.cross_entropy(world, self.tp, logits, targets, scale)?;
        tape.seed(place, gradient);
        Ok(loss)
    }
}
