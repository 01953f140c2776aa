//! Memory of Megatron-Core's ranks from kept terms, for whoever asks for millions of plans.
//!
//! The peak of a stage is a sum and a maximum of few numbers. What does not depend on the pipeline is in [`LayerTerms`]
//! (one layer of each kind, output layer, buffers), what does not depend on the micro batch in [`GridTerms`] (state of a
//! stage's ranks), and what is alive how often in [`Alive`]. All are made by the functions that make the answer
//! of a plan, and what is [`taken`] and its [`upper_end`] equal that answer's to the byte, as long as they are below 2^53 bytes. Offloaded activations,
//! checkpoints of several layers, dealt optimizer state and reduced replicas are not covered: see [`covers`].

use crate::layout::Chunk;
use crate::model::LayerKind;
use crate::plan::{Plan, Training};
use crate::schedule::{self, Pipeline};
use crate::settings::{Granularity, OptimizerKind};
use crate::shard::megatron::{self, Blocks, Slot, recipe_layers};
use crate::shard::{Block, StageElements, counted_blocks_of};

use super::by_runtime;
use super::head::head;
pub(crate) use super::interval::Upper;
use super::interval::reserved;
use super::layer::{layer, mtp_module_of};
use super::live::live_of_chunk;
use super::low_precision::Widths;
use super::outside::outside_bytes;
use super::parts::{LayerBytes, Saver};
use super::setting::PlanTerms;
use super::state::{self, Held, loose_weight_gradient};
use crate::units::Quantity;

/// Most kinds of layers, those that stay in the compute type counted apart.
const SLOTS: usize = 32;

/// Whether plans like this one, with these settings of training, are computed from kept terms.
pub(crate) fn covers(plan: &Plan, training: &Training) -> bool {
    let checkpoints = match training.recompute {
        Granularity::Full => {
            training.recompute_method.as_deref() == Some("uniform")
                && training.recompute_layers == Some(1)
                && !training.distribute_saved_activations
        }
        Granularity::None | Granularity::Selective => !training.distribute_saved_activations,
    };
    by_runtime::of(plan).has_kept_terms
        && plan.nonuniform.is_none()
        && plan.role.is_none()
        && training.optimizer.kind != OptimizerKind::Muon
        && training.offload.modules.is_empty()
        && training.offload.layers == 0
        && training.deferred_head_gradients.is_none()
        && checkpoints
        && kinds(plan).len() * if has_plain_layers(plan, training) { 2 } else { 1 } <= SLOTS
}

/// Whether some layers stay in the compute type where others don't.
fn has_plain_layers(plan: &Plan, training: &Training) -> bool {
    training.low_precision.is_some() && recipe_layers(plan) != (0..plan.model.num_layers)
}

/// Kinds of layers of a plan, each once.
pub(crate) fn kinds(plan: &Plan) -> Vec<LayerKind> {
    let mut found: Vec<LayerKind> = Vec::new();
    for (kind, _) in plan.model.kinds_in(0..plan.model.num_layers) {
        if !found.contains(&kind) {
            found.push(kind);
        }
    }
    found
}

/// Bytes of a layer, or of a module of multi-token prediction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Bytes {
    saved: f64,
    /// Of them, those of routed experts.
    experts: f64,
    whole: f64,
    recomputed: f64,
    forward: f64,
    backward: f64,
}

impl Bytes {
    fn of(layer: &LayerBytes) -> Bytes {
        Bytes {
            saved: layer.saved.total().float(),
            experts: layer.saved.get(Saver::Experts).float(),
            whole: layer.whole().float(),
            recomputed: layer.recomputed.float(),
            forward: layer.forward.float(),
            backward: layer.backward.float(),
        }
    }
}

/// What depends on tensor, context and expert parallelism, on the micro batch and on what is recomputed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerTerms {
    /// By slot.
    layers: Vec<Bytes>,
    module: Bytes,
    /// The residual stream.
    stream: f64,
    /// A boundary tensor that outlives a step.
    boundary: f64,
    /// The embedding's dropout mask.
    mask: f64,
    /// Output layer: saved and transient, without and with modules of multi-token prediction.
    heads: [[f64; 2]; 2],
    /// The buffer of gathered inputs: by head, and by experts.
    gathered: [[f64; 2]; 2],
    full: bool,
}

impl LayerTerms {
    /// The terms of a plan; its pipeline is not looked at. `kinds` are all of the model's.
    pub(crate) fn new(plan: &Plan, kinds: &[LayerKind]) -> LayerTerms {
        let at = PlanTerms::new(plan);
        let exact = PlanTerms { widths: Widths::plain(plan), ..at };
        let mut layers = vec![Bytes::default(); slots(kinds)];
        let modules = plan.model.mtp_layers;
        // Those of modules of multi-token prediction are asked for again.
        let mut known: Vec<(LayerKind, LayerBytes)> = Vec::new();
        for (number, &kind) in kinds.iter().enumerate() {
            let usual = layer(&at, kind);
            if modules > 0 {
                known.push((kind, usual));
            }
            let plain = if at.widths.quantised { layer(&exact, kind) } else { usual };
            // Where none stay in the compute type, their places may lie beyond the slots.
            for (slot, bytes) in [(number, usual), (kinds.len() + number, plain)] {
                if let Some(place) = layers.get_mut(slot) {
                    *place = Bytes::of(&bytes);
                }
            }
        }
        let of_kind = |kind: LayerKind| {
            let usual = known.iter().find(|(known, _)| *known == kind);
            usual.map_or_else(|| layer(&at, kind), |(_, usual)| *usual)
        };
        let head_of = |modules: u64| {
            let head = head(&at, modules);
            [head.saved.total().float(), head.transient.float()]
        };
        let gathered = |head: bool, experts: bool| state::gather_buffer(&at, head, experts).float();
        LayerTerms {
            layers,
            module: if modules > 0 { Bytes::of(&mtp_module_of(&at, of_kind)) } else { Bytes::default() },
            stream: at.stream().float(),
            boundary: state::boundary_tensor(&at).float(),
            mask: if at.hidden_dropout { (at.local * at.hidden).float() } else { 0.0 },
            heads: [head_of(0), head_of(modules)],
            gathered: [
                [gathered(false, false), gathered(false, true)],
                [gathered(true, false), gathered(true, true)],
            ],
            full: plan.training.recompute == Granularity::Full,
        }
    }
}

/// Which pieces of a model some stage holds, whatever their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class {
    /// Bits of the slots with layers.
    mask: u32,
    modules: bool,
    head: bool,
    experts: bool,
}

/// Things that are alive some number of times: inputs of layers, embeddings, modules, heads, then layers by slot.
const COUNTED: usize = OTHERS + SLOTS;
/// Of them, those that are no layers.
const OTHERS: usize = 4;
const INPUTS: usize = 0;
const EMBEDDINGS: usize = 1;
const MODULES: usize = 2;
const HEADS: usize = 3;

/// What [`LayerTerms`] come to on stages of one class: bytes of each thing that is alive, and of what passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ClassTerms {
    each: [f64; COUNTED],
    /// So many of them may be more than none.
    used: usize,
    /// Transients of a forward pass, and of the output layer.
    forward: f64,
    /// Of a backward pass, with what it computes again.
    backward: f64,
    gathered: f64,
    boundary: f64,
}

impl Default for ClassTerms {
    fn default() -> ClassTerms {
        ClassTerms {
            each: [0.0; COUNTED],
            used: 0,
            forward: 0.0,
            backward: 0.0,
            gathered: 0.0,
            boundary: 0.0,
        }
    }
}

impl LayerTerms {
    /// On stages of a class.
    pub(crate) fn of_class(&self, class: &Class) -> ClassTerms {
        let mut each = [0.0; COUNTED];
        let (mut again, mut forward, mut backward) = (0.0f64, 0.0f64, 0.0f64);
        let mut slots = class.mask;
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize % SLOTS;
            slots &= slots - 1;
            let Some(layer) = self.layers.get(slot) else { continue };
            each[OTHERS + slot] = if self.full { 0.0 } else { layer.saved };
            again = larger(again, if self.full { layer.whole } else { layer.recomputed });
            forward = larger(forward, layer.forward);
            backward = larger(backward, layer.backward);
        }
        each[INPUTS] = if self.full { self.stream } else { 0.0 };
        each[EMBEDDINGS] = self.mask;
        if class.modules {
            backward = larger(backward, self.module.backward);
            each[MODULES] = if self.full { 2.0 * self.stream } else { self.module.saved };
            again = larger(again, if self.full { self.module.whole } else { self.module.recomputed });
            forward = larger(forward, if self.full { 0.0 } else { self.module.forward });
        }
        if class.head {
            let [kept, transient] = self.heads[usize::from(class.modules)];
            each[HEADS] = kept;
            forward = larger(forward, kept + transient);
        }
        ClassTerms {
            each,
            used: COUNTED - class.mask.leading_zeros() as usize,
            forward,
            backward: again + backward,
            gathered: self.gathered[usize::from(class.head)][usize::from(class.experts)],
            boundary: self.boundary,
        }
    }
}

/// What routed experts save of each thing that is alive.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ExpertTerms {
    /// By slot; none where those of no layer save anything.
    layers: Vec<f64>,
    module: f64,
}

impl LayerTerms {
    /// What of these terms is of routed experts; whole layers that are computed again save nothing of theirs.
    pub(crate) fn experts(&self) -> ExpertTerms {
        if self.full {
            return ExpertTerms::default();
        }
        let save = self.layers.iter().any(|layer| layer.experts > 0.0);
        let layers = self.layers.iter().filter(|_| save).map(|layer| layer.experts).collect();
        ExpertTerms { layers, module: self.module.experts }
    }
}

impl ExpertTerms {
    /// Each number joined with another's, by the least or the most of the two.
    pub(crate) fn join(&self, other: &ExpertTerms, of: fn(f64, f64) -> f64) -> ExpertTerms {
        let mut layers = self.layers.clone();
        layers.resize(layers.len().max(other.layers.len()), 0.0);
        for (slot, mine) in layers.iter_mut().enumerate() {
            *mine = of(*mine, other.layers.get(slot).copied().unwrap_or(0.0));
        }
        ExpertTerms { layers, module: of(self.module, other.module) }
    }
}

/// The larger of two numbers, by a comparison: `max` is a call in WebAssembly, which has no instruction for it.
pub(crate) fn larger(one: f64, other: f64) -> f64 {
    if other > one { other } else { one }
}

/// The smaller of two numbers.
pub(crate) fn smaller(one: f64, other: f64) -> f64 {
    if other < one { other } else { one }
}

impl ClassTerms {
    /// Joins each number with another's, by the least or the most of the two.
    pub(crate) fn join(&mut self, other: &ClassTerms, of: fn(f64, f64) -> f64) {
        let mut at = 0;
        self.used = self.used.max(other.used).min(COUNTED);
        while at < self.used {
            self.each[at] = of(self.each[at], other.each[at]);
            at += 1;
        }
        let pairs = [
            (&mut self.forward, other.forward),
            (&mut self.backward, other.backward),
            (&mut self.gathered, other.gathered),
            (&mut self.boundary, other.boundary),
        ];
        for (mine, theirs) in pairs {
            *mine = of(*mine, theirs);
        }
    }
}

/// Stages of a pipeline that hold the same.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StageKind {
    stages: Vec<u64>,
    chunks: Vec<ChunkKind>,
    /// Layers of its chunks, one after the other, by slot.
    chunk_layers: Vec<f64>,
    /// Layers of all its chunks, by slot.
    layers: Vec<f64>,
    /// Its pieces, which decide the state of its ranks.
    blocks: Vec<(Block, u64)>,
    /// Chunks of one of its stages.
    example: Vec<Chunk>,
}

/// What a chunk holds beside layers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ChunkKind {
    embedding: bool,
    modules: f64,
    loss: bool,
}

/// The kinds of stages of a plan's pipeline, whose stages have these chunks, whatever its other axes are.
pub(crate) fn stage_kinds(plan: &Plan, kinds: &[LayerKind], stages: &[Vec<Chunk>]) -> Vec<StageKind> {
    let mut found: Vec<StageKind> = Vec::new();
    // Most stages are like one before them, so that these two are filled anew and seldom kept.
    let (mut chunks, mut chunk_layers) = (Vec::new(), Vec::new());
    for (stage, example) in (0..).zip(stages) {
        chunks.clear();
        chunk_layers.clear();
        for chunk in example {
            chunks.push(ChunkKind::of(plan, chunk));
            put_layers(plan, kinds, chunk, &mut chunk_layers);
        }
        let same = |known: &&mut StageKind| known.chunks == chunks && known.chunk_layers == chunk_layers;
        match found.iter_mut().find(same) {
            Some(known) => known.stages.push(stage),
            None => {
                let blocks = counted_blocks_of(plan, example);
                let mut layers = vec![0.0; slots(kinds)];
                for of_chunk in chunk_layers.chunks(layers.len().max(1)) {
                    layers.iter_mut().zip(of_chunk).for_each(|(sum, count)| *sum += count);
                }
                let (chunks, chunk_layers) = (chunks.clone(), chunk_layers.clone());
                let example = example.clone();
                found.push(StageKind { stages: vec![stage], chunks, chunk_layers, layers, blocks, example });
            }
        }
    }
    found
}

/// Slots of a model's layers: of each kind, then of each kind where it stays in the compute type.
fn slots(kinds: &[LayerKind]) -> usize {
    (2 * kinds.len()).min(SLOTS)
}

/// Adds the layers of a chunk by slot.
fn put_layers(plan: &Plan, kinds: &[LayerKind], chunk: &Chunk, found: &mut Vec<f64>) {
    let before = found.len();
    found.resize(before + slots(kinds), 0.0);
    let Some(layers) = found.get_mut(before..) else { return };
    let recipe = recipe_layers(plan);
    let (start, end) = (chunk.layers.start, chunk.layers.end);
    let (from, to) = (recipe.start.clamp(start, end), recipe.end.clamp(start, end));
    for (range, slot) in [(start..from, kinds.len()), (from..to, 0), (to.max(from)..end, kinds.len())] {
        for (kind, number) in plan.model.kinds_in(range) {
            let at = kinds.iter().position(|known| *known == kind).unwrap_or(0);
            if let Some(count) = layers.get_mut(at + slot) {
                *count += number as f64;
            }
        }
    }
}

impl ChunkKind {
    fn of(plan: &Plan, chunk: &Chunk) -> ChunkKind {
        let modules = if chunk.mtp { plan.model.mtp_layers as f64 } else { 0.0 };
        ChunkKind { embedding: chunk.embedding, modules, loss: chunk.loss }
    }
}

impl StageKind {
    /// Which pieces its stages hold.
    pub(crate) fn class(&self, kinds: &[LayerKind]) -> Class {
        let mut class = Class { mask: 0, modules: false, head: false, experts: false };
        for (slot, _) in self.layers.iter().enumerate().filter(|(_, count)| **count > 0.0) {
            let kind = kinds.get(slot % kinds.len().max(1));
            class.mask |= 1 << slot;
            class.experts |= kind.is_some_and(|kind| kind.mlp == crate::model::Mlp::Moe);
        }
        for chunk in &self.chunks {
            class.modules |= chunk.modules > 0.0;
            class.head |= chunk.loss;
        }
        class
    }

    /// Whether state of its ranks is that of another's.
    pub(crate) fn same_state(&self, other: &StageKind) -> bool {
        self.layers == other.layers && self.blocks == other.blocks
    }
}

/// What of a kind of stage is alive how often, when the most is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Alive {
    /// By thing, up to the last that is more than none: a multiple of four of them, and no more than there are, for a search goes
    /// through those of all its pipelines again and again.
    counts: Box<[f64]>,
    /// Boundary tensors that outlive a step.
    boundary: f64,
}

impl Alive {
    /// Of a pipeline with this kind of stage.
    pub(crate) fn of(pipeline: &Pipeline, kind: &StageKind) -> Alive {
        let live_on = |stage: &u64| schedule::live_chunks(pipeline, *stage);
        let most = kind.stages.iter().map(live_on).max().unwrap_or(0);
        let mut counts = vec![0.0; (OTHERS + kind.layers.len()).next_multiple_of(4)];
        let (mut inputs, mut embeddings, mut modules, mut heads) = (0.0, 0.0, 0.0, 0.0);
        let mut layers = kind.chunk_layers.chunks(kind.layers.len().max(1));
        for (number, chunk) in kind.chunks.iter().enumerate() {
            let live = live_of_chunk(pipeline, most, number as u64) as f64;
            for (all, count) in counts.iter_mut().skip(OTHERS).zip(layers.next().unwrap_or_default()) {
                *all += live * count;
                inputs += live * count;
            }
            embeddings += if chunk.embedding { live } else { 0.0 };
            modules += live * chunk.modules;
            if chunk.loss {
                heads = schedule::live_heads(pipeline).saturating_sub(1) as f64;
            }
        }
        for (at, count) in [(INPUTS, inputs), (EMBEDDINGS, embeddings), (MODULES, modules), (HEADS, heads)] {
            if let Some(place) = counts.get_mut(at) {
                *place = count;
            }
        }
        let last = counts.iter().rposition(|count| *count > 0.0).unwrap_or(0);
        counts.truncate((last + 1).next_multiple_of(4));
        let boundary = state::boundary_count(pipeline.stages, pipeline.chunks).float();
        Alive { counts: counts.into(), boundary }
    }

    /// Whether stages of this kind never take more than those of another, given that their ranks' state does not.
    pub(crate) fn within(&self, class: &Class, other: &Alive, others: &Class) -> bool {
        let pieces = class.mask & !others.mask == 0
            && class.experts <= others.experts
            && (class.head, class.modules) == (others.head, others.modules);
        pieces
            && self.boundary <= other.boundary
            && self.counts.len() <= other.counts.len()
            && self.counts.iter().zip(&other.counts).all(|(mine, theirs)| mine <= theirs)
    }
}

/// State of the ranks of a kind of stage, which depends on the rank grid alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GridTerms {
    /// Weights, gradients, optimizer state, and what is held beside them.
    always: f64,
    /// The most of the phases without activations, and of them the one that comes first, which of equals counts.
    least: f64,
    load: f64,
    /// A weight gradient that is not added where it is made.
    weight_gradient: f64,
}

/// Elements of the blocks of a plan, which depend on tensor and expert parallelism alone.
pub(crate) fn blocks(plan: &Plan, kinds: &[LayerKind]) -> Blocks {
    Blocks::new(plan, kinds.iter().copied())
}

/// What a rank of a kind of stage holds.
pub(crate) fn elements(plan: &Plan, blocks: &Blocks, kind: &StageKind) -> StageElements {
    blocks.stage_of(plan, &kind.example, &kind.blocks)
}

impl GridTerms {
    /// Bytes that a rank has allocated at some time, whatever is alive.
    pub(crate) fn least(&self) -> f64 {
        self.always + self.least
    }

    /// Whether it is never more than another's.
    pub(crate) fn within(&self, other: &GridTerms) -> bool {
        self.always <= other.always
            && self.least <= other.least
            && self.weight_gradient <= other.weight_gradient
    }

    /// Of a plan's grid of ranks.
    pub(crate) fn new(plan: &Plan, elements: &StageElements) -> GridTerms {
        let mut state = state::of_buffers(plan, &megatron::buffers(plan, elements, Slot::last(plan)));
        state.held =
            Held { program_copies: state.held.program_copies, ..state::held_on_grid(plan, elements) };
        let held = state.weights + state.gradients + state.optimizer;
        let load = (2 * state.weights + state.gradients).saturating_sub(held);
        let embedding = Quantity::from(plan.training.dtype.size()) * Quantity::from(elements.embedding);
        GridTerms {
            always: (held + state.held.total()).float(),
            least: load.max(embedding).max(state.gradient_copies + state.update_copies).float(),
            load: load.float(),
            weight_gradient: loose_weight_gradient(plan, elements).float(),
        }
    }
}

/// Allocated bytes of a rank at its peak; more of any term is never less of them. All numbers are whole and far below 2^53, so the order of sums is free.
#[inline]
pub(crate) fn allocated(terms: &ClassTerms, grid: &GridTerms, alive: &Alive) -> f64 {
    allocated_with(with_activations(terms, grid, alive), terms, grid, alive)
}

#[inline]
fn allocated_with(at_activations: f64, terms: &ClassTerms, grid: &GridTerms, alive: &Alive) -> f64 {
    grid.always + terms.gathered + alive.boundary * terms.boundary + larger(at_activations, grid.least)
}

/// The most of the phases with activations.
#[inline]
fn with_activations(terms: &ClassTerms, grid: &GridTerms, alive: &Alive) -> f64 {
    let mut saved = 0.0;
    for (each, counts) in terms.each.as_chunks::<4>().0.iter().zip(alive.counts.as_chunks::<4>().0) {
        saved += (each[0] * counts[0] + each[1] * counts[1]) + (each[2] * counts[2] + each[3] * counts[3]);
    }
    saved + larger(terms.forward, terms.backward + grid.weight_gradient)
}

/// The upper end of the likely range of what a rank takes from its GPU, where it has so many bytes outside the allocator;
/// on one grid of ranks, more of any term is never less of it.
pub(crate) fn upper_end(
    plan: &Plan,
    upper: &Upper,
    (terms, experts): (&ClassTerms, &ExpertTerms),
    grid: &GridTerms,
    alive: &Alive,
    outside: u64,
) -> u64 {
    let at_activations = with_activations(terms, grid, alive);
    // Experts count where the most is alive while they save something; of equal phases the first is the peak.
    let saving = upper.grows && at_activations > grid.load && at_activations >= grid.least;
    let experts = match saving {
        true => {
            let mut layers = 0.0;
            for (bytes, count) in experts.layers.iter().zip(alive.counts.iter().skip(OTHERS)) {
                layers += bytes * count;
            }
            layers + experts.module * alive.counts.get(MODULES).copied().unwrap_or(0.0)
        }
        false => 0.0,
    };
    // As for what is taken, casts of floats saturate.
    let bytes = |float: f64| (float as u64).min(super::MOST);
    let allocated = bytes(allocated_with(at_activations, terms, grid, alive));
    let high = upper.allocated((0, allocated), bytes(experts));
    upper.taken(high, reserved(plan, allocated, 0), outside)
}

/// Bytes of a plan's ranks outside the allocator.
pub(crate) fn outside(plan: &Plan) -> u64 {
    outside_bytes(plan)
}

/// Bytes that a rank takes from its GPU with so many allocated, and so many outside the allocator.
#[inline]
pub(crate) fn taken(plan: &Plan, allocated: f64, outside: u64) -> u64 {
    // Casts of floats saturate, and what is that large fits nowhere.
    reserved(plan, (allocated as u64).min(super::MOST), 0).saturating_add(outside)
}
