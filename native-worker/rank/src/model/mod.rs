//! The transformer, as segments on the tape. Sequence first: a value is `[tokens of the sequence, sequences, width]`,
//! so that sequence parallelism cuts the outermost dim.
//!
//! A rank holds the model chunks of its pipeline stage. A chunk takes tokens, where it has the embedding, or the residual
//! stream of the chunk before it, and makes the residual stream or, where it has the head, the loss.
//!
//! Symbols: s tokens of a sequence, b sequences, h hidden, d head width.

mod activation;
mod attention;
mod context;
mod cross_entropy;
mod documents;
pub mod flash;
mod functions;
mod latent;
mod layer;
mod linear;
mod logits;
mod mlp;
mod moe;
mod names;
mod norm;
pub mod packed;
mod parallel;
mod parts;
mod prediction;
mod qk_norm;
mod recompute;
mod rotary;
mod scores;
mod settings;
mod xielu;

use std::rc::Rc;

use anyhow::{Context, bail, ensure};
use planner::Plan;
use planner::layout::GroupKind;
use planner::shard::RankShards;
use planner::shard::fsdp::Section;
use tch::{Device, Tensor};

use crate::collectives::{Collectives, Form, GroupId};
use crate::device::bring;
use crate::sys::memory::Tracker;
use crate::tape::{Flow, Gradients, OfWeights, Tape};

pub use documents::Documents;
pub use functions::{rms, rms_backward};

use cross_entropy::VocabularySlice;
use functions::{column_linear, exact, multiplied};
use layer::Layer;
use logits::LogitRule;
use moe::Mixture;
use names::Names;
use parts::{Embedding, Head, Parts};
use settings::{Pass, Settings};

/// The model of one rank: which parameter is which, and what is fixed from step to step.
pub struct Model {
    tp: GroupId,
    settings: Settings,
    parts: Parts,
    vocabulary: VocabularySlice,
    /// Positions of the sequence that this rank holds.
    positions: Vec<i64>,
    /// Tokens of a sequence on this rank, sequences of a micro batch, hidden size.
    sizes: [i64; 3],
    /// What word embeddings are multiplied by.
    embedding_multiplier: f64,
    logits: LogitRule,
    /// Prediction modules.
    predictions: usize,
    /// Whether documents are told apart in layers.
    tells_documents_apart: bool,
}

/// What gradients of losses are multiplied by.
#[derive(Debug, Clone)]
pub struct GradientScale {
    /// Of a token's: all that count in a step share one mean. The model's own predictions first, then those of each module.
    pub of_tokens: Vec<f64>,
    /// Of all losses, so that fp16 holds their gradients.
    pub all: f64,
}

/// One micro batch: token ids, `[s, b]` each, of the positions that a rank holds.
pub struct Batch {
    /// What the model reads.
    pub inputs: Tensor,
    /// What it should say.
    pub targets: Tensor,
    /// Whether what it says counts; none where all does.
    pub counted: Option<Tensor>,
    /// The same for each prediction module.
    pub ahead: Vec<Ahead>,
    /// The documents of the sequences, where layers tell them apart.
    pub documents: Option<Rc<Documents>>,
}

/// What a prediction module reads and should say.
pub struct Ahead {
    /// Tokens further on; any beyond the end.
    pub inputs: Tensor,
    /// The tokens after those.
    pub targets: Tensor,
    /// 1 where there are such tokens, else 0.
    pub counted: Tensor,
}

/// What a chunk's forward made.
pub enum Made {
    /// The residual stream, for the next chunk.
    Stream(Flow),
    /// The sum of the losses of all tokens, one fp64 number; its gradient is on the tape.
    Loss(Tensor),
}

impl Model {
    /// The chunks of the plan's model that this rank holds, over its shards.
    ///
    /// # Errors
    /// When the shards lack a parameter or have one too many, or the model is one that the executor does not run.
    pub fn new(
        plan: &Plan,
        shards: &RankShards,
        world: &dyn Collectives,
        device: Device,
        tracker: &Tracker,
    ) -> anyhow::Result<Model> {
        let (architecture, training) = (&plan.model, &plan.training);
        let tp = world.mine(GroupKind::Tp)?;
        let words = plan.vocabulary_rows(world.rank() as u64);
        let length = i64::try_from(training.seq_len)?;
        if let Some(positions) = architecture.learned_positions {
            ensure!(
                positions >= training.seq_len,
                "the model has {positions} positions, but sequences have {} tokens; lower training.seq_len",
                training.seq_len
            );
        }
        ensure!(
            architecture.mtp_layers < training.seq_len,
            "{} prediction modules look beyond sequences of {} tokens; raise training.seq_len",
            architecture.mtp_layers,
            training.seq_len
        );
        let cp = world.mine(GroupKind::Cp)?;
        let positions = context::positions(length, world.size(cp), world.index(cp)?);
        let settings = Settings::new(plan, (cp, &positions), device, tracker)?;
        Ok(Model {
            tp,
            settings,
            vocabulary: VocabularySlice::new(&words, architecture.vocab_size)?,
            parts: Parts::find(plan, &Names::of(shards, device, tracker), world)?,
            sizes: [
                positions.len() as i64,
                i64::try_from(training.micro_batch_size)?,
                i64::try_from(architecture.hidden_size)?,
            ],
            positions,
            embedding_multiplier: architecture.embedding_multiplier,
            logits: LogitRule { multiplier: architecture.logit_multiplier, cap: architecture.logit_cap },
            predictions: usize::try_from(architecture.mtp_layers)?,
            tells_documents_apart: plan.run.documents.reset(),
        })
    }

    /// Chunks on this rank.
    pub fn chunks(&self) -> usize {
        self.parts.chunks.len()
    }

    /// Whether a chunk reads tokens: as input, as what it should say, or for the documents that they end.
    pub fn reads_tokens(&self, chunk: usize) -> bool {
        let of_ends = |chunk: &parts::ChunkParts| chunk.embedding.is_some() || chunk.head.is_some();
        self.parts.chunks.get(chunk).is_some_and(|chunk| self.tells_documents_apart || of_ends(chunk))
    }

    /// Positions of the sequence that this rank holds.
    pub fn positions(&self) -> &[i64] {
        &self.positions
    }

    /// Prediction modules.
    pub fn predictions(&self) -> usize {
        self.predictions
    }

    /// What the gradients of tokens' losses are multiplied by where so many count: of the model's own predictions, whose mean is
    /// the loss, and of each module's, whose means have a small part in it.
    pub fn scales_of_tokens(&self, counted: &[u64]) -> Vec<f64> {
        let weight =
            |number: usize| if number == 0 { 1.0 } else { prediction::LOSS_SCALE / self.predictions as f64 };
        // Where none counts none has a gradient.
        counted.iter().enumerate().map(|(number, &counted)| weight(number) / counted.max(1) as f64).collect()
    }

    /// What a residual stream from another stage is, and its gradient.
    pub fn stream_form(&self, world: &dyn Collectives, device: Device) -> Form {
        let [s, b, h] = self.sizes;
        let slices = if self.settings.sequence_parallel { world.size(self.tp) as i64 } else { 1 };
        Form { size: vec![s / slices, b, h], kind: self.settings.compute, device }
    }

    /// Forward of one chunk: records on the tape. `stream` is what the chunk before made, `batch` is there where the
    /// chunk reads tokens. A loss leaves on the tape the gradient of the sum of losses, scaled; `forward_done` is
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
        scale: &GradientScale,
        forward_done: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Made> {
        let parts = self.parts.chunks.get(chunk).with_context(|| format!("there is no chunk {chunk}"))?;
        let tokens = || batch.context("a chunk that reads tokens got none");
        let documents = batch.and_then(|batch| batch.documents.as_ref());
        let pass = Rc::new(self.settings.pass(self.positions.clone(), documents, scale.all)?);
        let mut stream = match (parts.embedding, stream) {
            (Some(embedding), _) => {
                tape.enter(Section::Embedding)?;
                let words = self.embed(tape, &pass, embedding, &tokens()?.inputs)?;
                tape.leave(Section::Embedding)?;
                words
            }
            (None, Some(stream)) => stream,
            (None, None) => bail!("a chunk without an embedding got no residual stream"),
        };
        for (range, checkpoint) in self.settings.recompute.groups(parts.layers.len()) {
            let sections = range.clone().map(|layer| Section::Layer(parts.first_layer + layer as u64));
            let (layers, pass) = (&parts.layers[range], pass.clone());
            if checkpoint {
                // A section's weights are there for all of its backward, in which the checkpoint runs again.
                sections.clone().try_for_each(|section| tape.enter(section))?;
                stream = tape.checkpoint(&[&stream], move |tape, mut inputs| {
                    let first = inputs.remove(0);
                    let run = |stream, layer: &'a Layer| layer.forward(tape, &self.settings, &pass, stream);
                    layers.iter().try_fold(first, run)
                })?;
                sections.rev().try_for_each(|section| tape.leave(section))?;
            } else {
                for (layer, section) in layers.iter().zip(sections) {
                    tape.enter(section)?;
                    stream = layer.forward(tape, &self.settings, &pass, stream)?;
                    tape.leave(section)?;
                }
            }
        }
        match &parts.head {
            Some(head) => {
                Ok(Made::Loss(self.loss(tape, &pass, head, stream, tokens()?, scale, forward_done)?))
            }
            None => {
                forward_done()?;
                Ok(Made::Stream(stream))
            }
        }
    }

    fn mixtures(&self) -> impl Iterator<Item = &Mixture> {
        self.parts.layers().filter_map(Layer::mixture)
    }

    /// Biases on the choice of experts, each with the number of its router's weight among the parameters.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn expert_biases(&self) -> anyhow::Result<Vec<(usize, Vec<f64>)>> {
        self.mixtures().filter_map(|mixture| mixture.expert_bias().transpose()).collect()
    }

    /// Sets the bias of a router, named by the number of its weight.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn set_expert_bias(&self, weight: usize, bias: &[f64]) -> anyhow::Result<()> {
        self.mixtures().try_for_each(|mixture| mixture.set_expert_bias(weight, bias))
    }

    /// Ends a step: what follows the number of tokens moves.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn end_step(&self, world: &dyn Collectives) -> anyhow::Result<()> {
        moe::balance::end_step(world, self.mixtures().map(Mixture::balancer))
    }

    fn embed(
        &self,
        tape: &mut Tape<'_>,
        pass: &Pass,
        embedding: Embedding,
        tokens: &Tensor,
    ) -> anyhow::Result<Flow> {
        let (inside, local) = self.vocabulary.localize(tokens)?;
        let words = tape.segment(&[], &[embedding.words], |_, weights| {
            let rows = Tensor::f_embedding(&weights[0], &local, -1, false, false)?;
            // Words of other ranks' slices read row 0 here, which must count for nothing.
            Ok(rows.f_mul(&inside.f_unsqueeze(-1)?.f_to_kind(rows.kind())?)?)
        })?;
        let words = self.settings.onto_stream(tape, words, None)?;
        let words = multiplied(tape, words, self.embedding_multiplier)?;
        match embedding.positions {
            Some(positions) => self.add_positions(tape, pass, &words, positions),
            None => Ok(words),
        }
    }

    /// Adds the learned embedding of every token's position.
    fn add_positions(
        &self,
        tape: &mut Tape<'_>,
        pass: &Pass,
        words: &Flow,
        parameter: usize,
    ) -> anyhow::Result<Flow> {
        let places = Tensor::f_from_slice(pass.stream_positions(&self.settings, tape)?)?;
        let places = bring(&places, words.data().device())?;
        let table = tape.weight(parameter).f_detach()?;
        let exact = exact(words.data().kind());
        let [s, h] = [words.data().size()[0], table.size()[1]];
        let data = words.data().f_add(&table.f_index_select(0, &places)?.f_view([s, -1, h])?)?;
        let size = table.size();
        let alike = places.size()[0] == s;
        let backward = move |gradient: Tensor| {
            let summed = match alike {
                true => gradient.f_sum_dim_intlist([1_i64].as_slice(), false, exact)?,
                false => gradient.f_reshape([-1, h])?.f_to_kind(exact)?,
            };
            let zeros = Tensor::f_zeros(&size, (exact, gradient.device()))?;
            let of_table = zeros.f_index_add(0, &places, &summed)?;
            Ok(Gradients { inputs: vec![gradient], weights: OfWeights::Made(vec![of_table]) })
        };
        Ok(tape.function(&[words], &[parameter], data, Box::new(backward)))
    }

    #[allow(clippy::too_many_arguments, reason = "what a chunk has, and what its head alone needs")]
    fn loss<'a>(
        &'a self,
        tape: &mut Tape<'a>,
        pass: &Rc<Pass>,
        head: &'a Head,
        stream: Flow,
        batch: &Batch,
        scale: &GradientScale,
        forward_done: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Tensor> {
        let parallel = self.settings.sequence_parallel;
        // What they predict is no part of the loss that is told.
        let predictions = if tape.evaluates() { &[] } else { head.predictions.as_slice() };
        // A tied output layer is the embedding, and prediction modules read words.
        let mut sections = vec![Section::Last];
        sections.extend((head.tied || !predictions.is_empty()).then_some(Section::Embedding));
        sections.iter().try_for_each(|&section| tape.enter(section))?;
        let mut hidden = head.norm.forward(tape, &stream)?;
        drop(stream);
        let mut outputs = vec![column_linear(tape, &hidden, &head.output(), parallel)?.split()];
        for (number, (module, ahead)) in predictions.iter().zip(&batch.ahead).enumerate() {
            let embedding = Embedding { words: module.words, positions: None };
            let words = self.embed(tape, pass, embedding, &ahead.inputs)?;
            tape.enter(Section::Mtp(number as u64))?;
            hidden = module.forward(tape, &self.settings, pass, words, &hidden)?;
            tape.leave(Section::Mtp(number as u64))?;
            outputs.push(column_linear(tape, &hidden, &head.output(), parallel)?.split());
        }
        drop(hidden);
        sections.iter().rev().try_for_each(|&section| tape.leave(section))?;
        forward_done()?;
        let world = tape.group().world;
        let mut loss = None;
        for (number, (place, logits)) in outputs.into_iter().enumerate() {
            let (logits, slopes) = self.logits.apply(logits)?;
            let (targets, counted) = match number.checked_sub(1) {
                None => (&batch.targets, batch.counted.as_ref()),
                Some(module) => {
                    let ahead = &batch.ahead[module];
                    (&ahead.targets, Some(&ahead.counted))
                }
            };
            let scale =
                scale.of_tokens.get(number).context("a prediction without its number of tokens")? * scale.all;
            let (own, gradient) =
                self.vocabulary.cross_entropy(world, self.tp, logits, targets, counted, scale)?;
            let gradient = slopes.backward(gradient)?;
            loss.get_or_insert(own);
            tape.seed(place, gradient);
        }
        loss.context("a head without an output")
    }
}
