//! Activations of a pipeline stage: its layers counted by kind, what is recomputed, what is in flight.

use std::ops::Range;

use crate::layout::{Chunk, chunks_of_stages};
use crate::model::{LayerKind, Mlp};
use crate::plan::Plan;
use crate::schedule::{self, ChunkBytes};
use crate::settings::CudaGraphs;
use crate::shard::StageElements;
use crate::shard::megatron::{Blocks, recipe_layers};

use super::attention::head_norms;
use super::head::{HeadBytes, head};
use super::layer::{layer, mtp_module};
use super::live::live_of_chunk;
use super::low_precision::Widths;
use super::moe::sent_rows;
use super::native;
use super::parts::{LayerBytes, SavedBytes, Saver};
use super::recompute::{chunk_bytes, offloaded};
use super::setting::PlanTerms;
use crate::units::Quantity;

/// What one layer of each kind of a plan keeps, and what parameters it has: computed once for all stages.
#[derive(Debug, Clone)]
pub struct LayerTerms<'a> {
    /// The plan and what its layers have in common.
    pub at: PlanTerms<'a>,
    kinds: Vec<KindTerms>,
    mtp: LayerBytes,
    blocks: Option<Blocks>,
    /// Chunks of every stage.
    chunks: Vec<Vec<Chunk>>,
}

/// One kind of layer, in the recipe's precision and in the compute type.
#[derive(Debug, Clone, Copy)]
struct KindTerms {
    kind: LayerKind,
    usual: LayerBytes,
    plain: LayerBytes,
}

/// Activations of one stage's rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activations {
    /// Saved by all micro batches in flight when the most are.
    pub saved: SavedBytes,
    /// Bytes of one layer that are alive again while it is recomputed.
    pub again: Quantity,
    /// Largest temporary of a layer's forward.
    pub forward: Quantity,
    /// Largest temporary of a layer's backward.
    pub backward: Quantity,
    /// Output layer and loss; none on other stages.
    pub head: Option<HeadBytes>,
    /// What the output layer keeps through the backward of the layers, for its weight gradient.
    pub head_kept: Quantity,
}

impl<'a> LayerTerms<'a> {
    /// Terms of every kind of layer of a plan, and what its stages are made of.
    pub fn new(plan: &'a Plan) -> LayerTerms<'a> {
        let layers = LayerTerms::of_layers(plan);
        let whole = !plan.runtime.facts().shards_parameters;
        let blocks = whole.then(|| Blocks::new(plan, layers.kinds.iter().map(|terms| terms.kind)));
        let chunks = chunks_of_stages(&plan.layout, plan.model.num_layers).unwrap_or_default();
        LayerTerms { blocks, chunks, ..layers }
    }

    /// The same without stages: what one layer of each kind keeps.
    pub fn of_layers(plan: &'a Plan) -> LayerTerms<'a> {
        let at = PlanTerms::new(plan);
        let exact = PlanTerms { widths: Widths::plain(plan), ..at };
        let mut kinds: Vec<KindTerms> = Vec::new();
        for (kind, _) in plan.model.kinds_in(0..plan.model.num_layers) {
            if kinds.iter().all(|known| known.kind != kind) {
                let usual = layer(&at, kind);
                let plain = if at.widths.quantised { layer(&exact, kind) } else { usual };
                kinds.push(KindTerms { kind, usual, plain });
            }
        }
        let mtp = if plan.model.mtp_layers > 0 { mtp_module(&at) } else { LayerBytes::default() };
        LayerTerms { at, kinds, mtp, blocks: None, chunks: Vec::new() }
    }

    fn of_kind(&self, kind: LayerKind) -> Option<&KindTerms> {
        self.kinds.iter().find(|known| known.kind == kind)
    }

    /// One layer of a kind of this plan, in the recipe's precision where there is one.
    pub fn layer(&self, kind: LayerKind) -> LayerBytes {
        self.of_kind(kind).map_or_else(LayerBytes::default, |known| known.usual)
    }

    /// Kinds of a range of layers, each with the number of its layers and what one of them keeps.
    pub fn layers(&self, range: Range<u64>) -> impl Iterator<Item = (u64, LayerBytes)> + '_ {
        self.split(range).into_iter().flat_map(move |(range, plain)| {
            self.at.plan.model.kinds_in(range).map(move |(kind, count)| {
                let bytes = self.of_kind(kind).map(|known| if plain { known.plain } else { known.usual });
                (count, bytes.unwrap_or_default())
            })
        })
    }

    /// A range of layers as first, middle and last, and which of them stay in the compute type.
    fn split(&self, range: Range<u64>) -> [(Range<u64>, bool); 3] {
        let layers = self.at.plan.model.num_layers;
        let Range { start: first, end: last } = recipe_layers(self.at.plan);
        let within = |from: u64, to: u64| {
            let start = range.start.max(from);
            start..range.end.min(to).max(start)
        };
        [(within(0, first), true), (within(first, last), false), (within(last, layers), true)]
    }

    /// A multi-token-prediction module.
    pub fn mtp(&self) -> LayerBytes {
        self.mtp
    }

    fn chunks(&self, stage: u64) -> &[Chunk] {
        self.chunks.get(stage as usize).map_or(&[], Vec::as_slice)
    }

    /// Elements that a rank of `stage` holds; nothing for a runtime that shards them.
    pub fn elements(&self, stage: u64) -> StageElements {
        self.blocks
            .as_ref()
            .map_or_else(StageElements::default, |blocks| blocks.stage(self.at.plan, self.chunks(stage)))
    }

    /// Whether `stage` has output layer and loss.
    pub(crate) fn has_head(&self, stage: u64) -> bool {
        self.chunks(stage).iter().any(|chunk| chunk.loss)
    }

    /// Whether some layer of `stage` has experts.
    pub fn has_experts(&self, stage: u64) -> bool {
        let model = &self.at.plan.model;
        self.chunks(stage)
            .iter()
            .any(|chunk| model.kinds_in(chunk.layers.clone()).any(|(kind, _)| kind.mlp == Mlp::Moe))
    }

    /// Activations of a rank of `stage`.
    pub fn stage(&self, stage: u64) -> Activations {
        let plan = self.at.plan;
        let mut found = Activations::default();
        let pipeline = plan.pipeline();
        let most = schedule::live_chunks(&pipeline, stage);
        let (mut modules, mut has_head, mut group) = (0, false, SavedBytes::default());
        let mut waits = Vec::new();
        for (number, chunk) in self.chunks(stage).iter().enumerate() {
            let bytes = chunk_bytes(self, chunk);
            let live = live_of_chunk(&pipeline, most, number as u64);
            let mut saved = bytes.saved;
            if chunk.embedding && self.at.hidden_dropout {
                saved.put(Saver::Embedding, self.at.local * self.at.hidden);
            }
            if plan.is_computed_by_the_worker() {
                saved.put(Saver::Attention, native::own_rotation_tables(&self.at));
                saved.put(
                    Saver::Embedding,
                    if chunk.embedding { native::token_numbers(&self.at) } else { Quantity::ZERO },
                );
            }
            if native::is_split(plan) {
                waits.push(self.kept_for_weights(chunk, &saved));
            }
            found.saved += saved.times(Quantity::from(live));
            if bytes.offloaded.total() > group.total() {
                group = bytes.offloaded;
            }
            found.again = found.again.max(bytes.recomputed);
            found.forward = found.forward.max(bytes.forward);
            found.backward = found.backward.max(bytes.backward);
            modules += if chunk.mtp { plan.model.mtp_layers } else { 0 };
            has_head |= chunk.loss;
        }
        found.saved += group;
        let layers = found.saved.total();
        if has_head {
            let head = head(&self.at, modules);
            // Those that wait for their backward while another runs.
            let waiting = Quantity::from(schedule::live_heads(&plan.pipeline()).saturating_sub(1));
            if native::is_split(plan) {
                // Of a split backward there are left the output layer's input and the gradient of its output.
                found.head_kept = head.saved.total().saturating_sub(self.at.stream());
                found.saved.put(Saver::Head, waiting * found.head_kept);
            } else {
                found.saved += head.saved.times(waiting);
            }
            found.head = Some(head);
        }
        if native::is_split(plan) {
            let most = schedule::peak_bytes(&plan.pipeline(), stage, &waits);
            found.saved.put(Saver::Mlp, Quantity::floor(most as f64).saturating_sub(layers));
            found.saved.put(Saver::Norms, self.between_chunks(stage));
            // What is made again stays for the weight gradients, and is counted with them.
            found.again = Quantity::ZERO;
        }
        found
    }

    /// Bytes of a rank of `stage` that go to the host in one micro batch's forward, and come back in its backward.
    pub fn offloaded(&self, stage: u64) -> Quantity {
        self.chunks(stage).iter().map(|chunk| offloaded(self, chunk)).sum()
    }

    /// What a layer keeps for the gradients of its weights alone: inputs of matrices, and gradients of their outputs, which are as wide
    /// as all that the layer has kept but for what norms of heads have. Of routed experts the gradients of the rows that they were
    /// sent, and neither what the router has kept nor the norm before it.
    pub(crate) fn kept_for_weights_of(&self, kind: LayerKind) -> Quantity {
        let mixer = self.at.plan.model.mixer(kind);
        let norms = mixer.and_then(|mixer| mixer.attention()).map(|one| head_norms(&self.at, &one.core()));
        let layer = self.layer(kind);
        let kept = layer.whole().saturating_sub(norms.unwrap_or(Quantity::ZERO));
        let shared = self.at.plan.model.moe.as_ref().is_some_and(|moe| moe.shared_ffn_hidden_size > 0);
        match kind.mlp {
            // Shared experts' input is that of the norm's output, and the gradient of theirs is as wide as the norm's input.
            Mlp::Moe => {
                let norm = if shared { Quantity::ZERO } else { 2 * self.at.stream() };
                (kept + sent_rows(&self.at)).saturating_sub(norm + layer.saved.get(Saver::Router))
            }
            Mlp::Dense | Mlp::Linear | Mlp::None => kept,
        }
    }

    /// What a chunk keeps for one micro batch, and what of it waits for the weight gradients: inputs of matrices, recomputed
    /// or not, and in place of all else the gradients of their outputs, which are as wide.
    fn kept_for_weights(&self, chunk: &Chunk, saved: &SavedBytes) -> ChunkBytes {
        let modules = if chunk.mtp { self.at.plan.model.mtp_layers } else { 0 };
        let layers = self.at.plan.model.kinds_in(chunk.layers.clone());
        let of_layers = layers.map(|(kind, count)| Quantity::from(count) * self.kept_for_weights_of(kind));
        let kept_for_weights = of_layers.sum::<Quantity>() + Quantity::from(modules) * self.mtp.whole();
        ChunkBytes { saved: saved.total().into(), kept_for_weights: kept_for_weights.into() }
    }

    /// Where the V of chunks turns, a micro batch's activation and a gradient wait between two chunks of one stage.
    fn between_chunks(&self, stage: u64) -> Quantity {
        let layout = &self.at.plan.layout;
        let turns = layout.schedule.kind().in_v && stage + 1 == layout.pp;
        if turns { 2 * self.at.stream() } else { Quantity::ZERO }
    }

    /// What a step leaves in the allocator until the next one, beside state: one layer's expert tensors where expert
    /// parallelism's all-to-all is overlapped, and what captured modules save, in the graphs' pool.
    pub(crate) fn left_after_step(&self, parts: &Activations) -> Quantity {
        let training = &self.at.plan.training;
        let layers = || self.kinds.iter().filter(|known| known.kind.mlp == Mlp::Moe);
        let overlapped = if training.overlap.ep {
            layers().map(|known| known.usual.saved.get(Saver::Experts)).max().unwrap_or(Quantity::ZERO)
        } else {
            Quantity::ZERO
        };
        overlapped + self.captured(&parts.saved)
    }

    fn captured(&self, saved: &SavedBytes) -> Quantity {
        let training = &self.at.plan.training;
        let named = |module: &str| training.cuda_graph_modules.iter().any(|name| name == module);
        let all = training.cuda_graph_modules.is_empty();
        let part = |part: Saver, captured: bool| if captured { saved.get(part) } else { Quantity::ZERO };
        match training.cuda_graphs {
            CudaGraphs::None => Quantity::ZERO,
            CudaGraphs::Iteration => saved.total(),
            CudaGraphs::Scoped => {
                part(Saver::Attention, all || named("attn"))
                    + part(Saver::Norms, all || named("attn"))
                    + part(Saver::Recurrence, all || named("mamba"))
                    + part(Saver::Mlp, all || named("mlp"))
                    + part(Saver::Router, all || named("moe") || named("moe_router"))
                    + part(Saver::SharedExperts, all || named("moe") || named("moe_router"))
                    + part(Saver::Experts, all || named("moe"))
            }
        }
    }
}
