//! A step of FSDP2 as the worker carries it out: units as `alive.rs` has them at each moment, and beside them what operators keep and
//! need as the executor's do (`memory/native.rs`). Sharded gradients are there from the start.

use super::alive::{Alive, At, Compute, Event, persistent, step};
use super::gathered::Gathered;
use super::layer::{TorchLayer, mtp_module};
use super::walk::Moment;
use crate::layout::{Chunk, chunks_of_stage};
use crate::memory::head::{HeadBytes, head};
use crate::memory::layer::norm;
use crate::memory::moe::{executor_backward, routed_tokens};
use crate::memory::native;
use crate::memory::parts::{SavedBytes, Saver};
use crate::memory::recompute::of_layer;
use crate::memory::setting::PlanTerms;
use crate::memory::stage::LayerTerms;
use crate::model::{Experts, FeedForward, LayerKind, MlpOperations};
use crate::plan::Plan;
use crate::schedule::{Action, ActionKind, Pipeline, live_chunks};
use crate::settings::Granularity;
use crate::shard::UPDATED_AT_ONCE;
use crate::shard::fsdp::{Handling, Section};
use crate::units::{Dtype, Quantity};

/// The most of a layer's backward where gradients of weights stay until all of their unit are there, and where each is added to
/// those that wait as soon as it is there.
fn backward(terms: &LayerTerms<'_>, kind: LayerKind) -> (Quantity, Quantity) {
    let (at, all) = (&terms.at, terms.layer(kind).backward);
    if native::is_split(at.plan) {
        // Gradients of weights are made apart.
        return (all, all);
    }
    let [staying, added] = match at.plan.model.feed_forward(kind) {
        FeedForward::Dense(mlp) => [true, false].map(|stay| native::mlp_backward(at, &mlp, stay)),
        FeedForward::Experts(of) => [true, false].map(|stay| executor_backward(at, &of, stay)),
        FeedForward::Linear | FeedForward::None => return (all, all),
    };
    // The feed-forward part's is the most of the layer's, or another part's is.
    (all.max(staying), if staying >= all { added } else { all })
}

/// What norms feed behind attention, a layer's MLP or experts, has given back all that it kept by the time of that norm's backward,
/// and the gradients of its weights are there.
#[derive(Debug, Clone, Copy, Default)]
struct Fed {
    /// Of what the layer saves.
    saved: SavedBytes,
    /// Of what it recomputes.
    again: Quantity,
    /// Elements of its weights.
    weights: Quantity,
}

impl Fed {
    fn of(
        terms: &LayerTerms<'_>,
        (kind, recompute): (LayerKind, Granularity),
        bytes: &TorchLayer,
    ) -> Option<Fed> {
        let (at, known) = (&terms.at, terms.layer(kind));
        let matrices = |mlp: &MlpOperations, ranks: Quantity| {
            mlp.matrices() * Quantity::from(mlp.stream) * (Quantity::from(mlp.width) / ranks)
        };
        let (parts, module, weights): (&[Saver], _, _) = match at.plan.model.feed_forward(kind) {
            _ if at.plan.model.no_pre_norms => return None,
            FeedForward::Dense(mlp) => (&[Saver::Mlp], "mlp", matrices(&mlp, at.tp)),
            FeedForward::Experts(Experts { moe, routed, shared }) => {
                let local = Quantity::from(moe.experts) / Quantity::from(at.plan.layout.ep.max(1));
                let shared = shared.map_or(Quantity::ZERO, |shared| matrices(&shared, at.tp));
                let weights = local * matrices(&routed, Quantity::of(1)) + shared;
                (&[Saver::Router, Saver::Experts, Saver::SharedExperts], "moe", weights)
            }
            FeedForward::Linear | FeedForward::None => return None,
        };
        // The norm's output is given back too.
        let output = norm(at) - at.stream();
        let mut kept = SavedBytes::of(Saver::Norms, output);
        parts.iter().for_each(|&part| kept.put(part, known.saved.get(part)));
        let selected = at.recomputes(module);
        Some(match recompute {
            Granularity::Full => {
                let selected = if selected { known.recomputed } else { Quantity::ZERO };
                Fed { saved: SavedBytes::default(), again: kept.total() + selected, weights }
            }
            _ if selected => {
                let again = bytes.whole.saturating_sub(bytes.saved.total());
                Fed { saved: SavedBytes::default(), again, weights }
            }
            _ => Fed { saved: kept, again: Quantity::ZERO, weights },
        })
    }
}

/// A kind of layer, and how much of it is computed again.
struct Known {
    kind: (LayerKind, Granularity),
    bytes: TorchLayer,
    /// The most of its backward where gradients are added to those that wait.
    adding: Quantity,
    fed: Option<Fed>,
    /// What it keeps for gradients of weights that are put off.
    for_weights: Quantity,
}

/// One layer of a kind, of which so much is computed again.
pub(super) fn layer(terms: &LayerTerms<'_>, kind: LayerKind, recompute: Granularity) -> TorchLayer {
    let (at, known) = (&terms.at, terms.layer(kind));
    let saved = match recompute {
        Granularity::Full => SavedBytes::of(Saver::Norms, at.stream()),
        Granularity::Selective | Granularity::None => known.saved,
    };
    // The activated half of a gated unit beside what is made of it.
    let between = |mlp: &MlpOperations| mlp.between * Quantity::from(mlp.width);
    let made = match at.plan.model.feed_forward(kind) {
        FeedForward::Dense(mlp) => at.full * between(&mlp) / at.tp,
        FeedForward::Experts(of) => routed_tokens(at) * between(&of.routed),
        FeedForward::Linear | FeedForward::None => Quantity::ZERO,
    };
    let forward = known.forward.max(at.size * made);
    TorchLayer { saved, whole: known.whole(), forward, backward: backward(terms, kind).0 }
}

/// What a chunk makes for itself before its layers, for one micro batch.
fn of_chunk(at: &PlanTerms<'_>, embedding: bool) -> SavedBytes {
    let mut saved = SavedBytes::of(Saver::Attention, native::own_rotation_tables(at));
    if embedding {
        saved.put(Saver::Embedding, native::token_numbers(at));
    }
    saved
}

/// Micro batches that are walked through at most, where a schedule has no steady state that shows all.
const WALKED: u64 = 64;

/// A pipeline that shows all moments that a longer step does, and how many chunks of micro batches more that one has alive.
fn shown(plan: &Pipeline, stage: u64) -> (Pipeline, u64) {
    let short = plan.shortened();
    let most = WALKED.max(4 * plan.stages);
    let microbatches = short.microbatches.min(most);
    let walked = Pipeline { microbatches, group_size: short.group_size.min(microbatches), ..short };
    (walked, live_chunks(plan, stage).saturating_sub(live_chunks(&walked, stage)))
}

/// A walk under way.
struct Walk<'a> {
    at: PlanTerms<'a>,
    units: &'a [Gathered],
    chunks: Vec<Chunk>,
    layers: Vec<Known>,
    module: TorchLayer,
    head: HeadBytes,
    /// Prediction modules, each with a loss of its own, and of those and the model's own how many forward or backward has been
    /// through.
    modules: u64,
    heads: u64,
    param: Quantity,
    reduce: Quantity,
    /// Whether gradients wait for the last micro batch, in the type in which they are made.
    waits: bool,
    added: bool,
    /// What is saved, by all micro batches in flight.
    live: SavedBytes,
    /// Backwards begun of each chunk.
    backwards: Vec<u64>,
    found: Vec<Moment>,
}

/// Elements of the largest part of a parameter that a rank of FSDP2 keeps.
pub(super) fn updated_at_once(plan: &Plan, units: &[Gathered]) -> Quantity {
    let mesh = plan.mesh();
    let members = Quantity::from(mesh.dp_shard * mesh.cp).max(Quantity::of(1));
    units.iter().map(|unit| unit.largest).max().unwrap_or(Quantity::ZERO).div_ceil(members)
}

/// All moments of a step that can be its fullest, on the fullest rank of `stage`, which has these units and updates so many elements
/// of a parameter at most.
pub(super) fn walk(
    terms: &LayerTerms<'_>,
    stage: u64,
    units: &[Gathered],
    handling: &Handling,
    updated: Quantity,
) -> Vec<Moment> {
    let (plan, at) = (terms.at.plan, terms.at);
    let chunks = chunks_of_stage(&plan.layout, plan.model.num_layers, stage).unwrap_or_default();
    let modules = if chunks.iter().any(|chunk| chunk.mtp) { plan.model.mtp_layers } else { 0 };
    let mut layers: Vec<Known> = Vec::new();
    for (chunk, number) in
        chunks.iter().flat_map(|chunk| chunk.layers.clone().map(move |number| (chunk, number)))
    {
        let kind = (plan.model.layer_kind(number), of_layer(plan, chunk, number));
        if !layers.iter().any(|known| known.kind == kind) {
            let bytes = layer(terms, kind.0, kind.1);
            let fed = Fed::of(terms, kind, &bytes);
            let for_weights = terms.kept_for_weights_of(kind.0);
            layers.push(Known { kind, bytes, adding: backward(terms, kind.0).1, fed, for_weights });
        }
    }
    let mut walk = Walk {
        at,
        units,
        module: if modules > 0 { mtp_module(terms) } else { TorchLayer::default() },
        head: head(&at, modules),
        modules,
        heads: 0,
        param: Quantity::from(handling.compute.size()),
        reduce: Quantity::from(handling.reduce.size()),
        waits: handling.waits,
        added: handling.reduce == handling.compute,
        live: SavedBytes::default(),
        backwards: vec![0; chunks.len()],
        found: Vec::new(),
        layers,
        chunks,
    };
    let (pipeline, more) = shown(&plan.pipeline(), stage);
    let of_all: SavedBytes =
        (0..walk.chunks.len()).fold(SavedBytes::default(), |sum, chunk| sum + walk.saved_by(chunk));
    let each = more / (walk.chunks.len() as u64).max(1);
    walk.live = of_all.times(Quantity::from(each));
    step(plan, stage, units, handling, &pipeline, |action, event, alive| {
        walk.comes_to(action, event, alive);
    });
    let temporaries = update(handling.kept, updated);
    let Alive { gathered, reducing, .. } = persistent(units, handling);
    walk.found.push(Moment {
        phase: "optimizer",
        unsharded: gathered,
        scatter: reducing,
        temporaries,
        ..Moment::default()
    });
    walk.found
}

impl Walk<'_> {
    fn known(&self, number: u64) -> Option<&Known> {
        let chunk = self.chunks.iter().find(|chunk| chunk.layers.contains(&number))?;
        let kind = (self.at.plan.model.layer_kind(number), of_layer(self.at.plan, chunk, number));
        self.layers.iter().find(|known| known.kind == kind)
    }

    fn layer(&self, number: u64) -> TorchLayer {
        self.known(number).map(|known| known.bytes).unwrap_or_default()
    }

    /// The most of a layer's backward in this micro batch.
    fn backward_of(&self, compute: Compute, bytes: &TorchLayer, chunk: usize) -> Quantity {
        let Compute::Layer(number) = compute else { return bytes.backward };
        let known = self.known(number).filter(|_| self.adds(chunk));
        known.map_or(bytes.backward, |known| known.adding)
    }

    /// Whether gradients are added to those that wait as soon as they are there.
    fn adds(&self, chunk: usize) -> bool {
        self.waits && self.added && self.backwards.get(chunk).is_some_and(|&done| done > 0)
    }

    /// What a chunk saves for a micro batch.
    fn saved_by(&self, chunk: usize) -> SavedBytes {
        let Some(chunk) = self.chunks.get(chunk) else { return SavedBytes::default() };
        let layers = chunk.layers.clone().map(|number| self.layer(number).saved);
        let own = layers.fold(of_chunk(&self.at, chunk.embedding), |sum, saved| sum + saved);
        if chunk.loss { own + self.module.saved + self.head.saved } else { own }
    }

    fn comes_to(&mut self, action: &Action, event: Event, alive: Alive) {
        let chunk = action.chunk as usize;
        match (action.kind, event) {
            (ActionKind::Forward, Event::At(At::Begun)) => {
                let embeds = self.chunks.get(chunk).is_some_and(|chunk| chunk.embedding);
                self.live += of_chunk(&self.at, embeds);
            }
            (ActionKind::Forward, Event::At(At::ForwardDone)) => {
                if self.chunks.get(chunk).is_some_and(|chunk| chunk.loss) {
                    self.live += self.head.saved;
                    self.note("head", self.live, alive, self.loss());
                }
                self.heads = 0;
            }
            (ActionKind::Forward, Event::At(At::Keeping(_))) => {
                self.note("forward", self.live + self.of_heads(), alive, self.at.stream());
            }
            (ActionKind::Forward, Event::Compute(Compute::Head)) => {
                // The weights of a tied output layer can be given back before the chunk's forward is done.
                self.heads += 1;
                self.note("head", self.live + self.of_heads(), alive, self.loss());
            }
            (ActionKind::Forward, Event::Compute(compute)) => {
                let Some(bytes) = self.of(compute) else { return };
                // What a checkpoint will recompute is made in forward too.
                let made = bytes.whole.saturating_sub(bytes.saved.total());
                self.live += bytes.saved;
                self.note("forward", self.live, alive, made.max(bytes.forward));
            }
            (ActionKind::Backward, Event::Compute(compute)) => self.backward(chunk, compute, alive),
            (ActionKind::BackwardInput, Event::Compute(compute)) => self.backward_of_inputs(compute, alive),
            (ActionKind::BackwardWeight, Event::Compute(compute)) => {
                self.weight_gradients(chunk, compute, alive);
            }
            (_, Event::Gathered) => {
                // Beside what is saved, the gradient of what the section made.
                self.note("backward", self.live, alive, self.at.stream());
            }
            (ActionKind::Forward, Event::At(_)) => {}
            (kind, Event::At(At::BackwardDone)) => self.backward_done(chunk, kind, alive),
            (ActionKind::BackwardInput, Event::At(_)) => {}
            (kind, Event::At(at)) => {
                // Of what was put off only gradients of weights are there.
                let whole = kind == ActionKind::Backward;
                self.behind(chunk, at, alive, if whole { self.at.stream() } else { Quantity::ZERO });
            }
        }
    }

    fn of(&self, compute: Compute) -> Option<TorchLayer> {
        match compute {
            Compute::Layer(number) => Some(self.layer(number)),
            Compute::Mtp(_) => Some(self.module),
            Compute::Embedding | Compute::Norm | Compute::Head => None,
        }
    }

    /// What a loss makes and gives back: with the gradient of the output layer its own temporaries are gone.
    fn loss(&self) -> Quantity {
        self.head.transient.saturating_sub(self.param * self.of_output())
    }

    /// Elements of the output layer.
    fn of_output(&self) -> Quantity {
        let part = usize::from(!self.at.plan.model.tied_embeddings);
        self.units.iter().map(|unit| unit.computed.parts[part]).sum()
    }

    /// Backward of a part, before its gradients are counted among what waits for a reduction.
    fn backward(&mut self, chunk: usize, compute: Compute, alive: Alive) {
        if compute == Compute::Head {
            self.head_backward(alive, self.adds(chunk));
        }
        if compute == Compute::Norm {
            self.live = self.live - self.of_one_head();
            self.heads = 0;
        }
        let Some(bytes) = self.of(compute) else { return };
        let recomputed = bytes.whole.saturating_sub(bytes.saved.total());
        let most = self.backward_of(compute, &bytes, chunk);
        self.note("backward", self.live, alive, recomputed + most);
        if let Compute::Layer(number) = compute
            && let Some(fed) = self.known(number).and_then(|known| known.fed)
        {
            let fresh = if self.adds(chunk) { Quantity::ZERO } else { self.param * fed.weights };
            let beside = Alive { gradients: alive.gradients + fresh, ..alive };
            // The gradients of the norm's output and of the stream.
            let norm = 2 * self.at.stream() + native::norm_backward(&self.at);
            self.note("backward", self.live - fed.saved, beside, recomputed.saturating_sub(fed.again) + norm);
        }
        self.live = self.live - bytes.saved;
        // The first norm's, beside all of the unit's gradients: its input, the gradient of its output and that of the stream.
        let section = match compute {
            Compute::Layer(number) => Section::Layer(number),
            Compute::Mtp(number) => Section::Mtp(number),
            _ => return,
        };
        let stream = self.at.stream();
        let end = Alive { gradients: alive.gradients + self.fresh(section, chunk), ..alive };
        let norm = native::norm_backward(&self.at);
        self.note("backward", self.live + SavedBytes::of(Saver::Norms, 3 * stream), end, norm);
    }

    /// Backward of a part without gradients of weights: what those need is kept, inputs of matrices and the gradients of their outputs,
    /// which are as wide as all that the part makes.
    fn backward_of_inputs(&mut self, compute: Compute, alive: Alive) {
        if compute == Compute::Head {
            self.note("head", self.live, alive, self.at.size * self.at.full * self.at.hidden);
            self.live = self.live - SavedBytes::of(Saver::Head, self.at.stream());
        }
        let Some(bytes) = self.of(compute) else { return };
        let recomputed = bytes.whole.saturating_sub(bytes.saved.total());
        self.note("backward", self.live, alive, recomputed + bytes.backward);
        self.live = self.live - bytes.saved + SavedBytes::of(Saver::Mlp, self.for_weights(compute, &bytes));
    }

    /// What a layer, or a module, keeps for those.
    fn for_weights(&self, compute: Compute, bytes: &TorchLayer) -> Quantity {
        let Compute::Layer(number) = compute else { return bytes.whole };
        self.known(number).map_or(bytes.whole, |known| known.for_weights)
    }

    /// Gradients of a part's weights that were put off.
    fn weight_gradients(&mut self, chunk: usize, compute: Compute, alive: Alive) {
        if compute == Compute::Head {
            let output = Alive { gradients: alive.gradients + self.param * self.of_output(), ..alive };
            self.note("head", self.live, output, Quantity::ZERO);
            let kept = self.of_one_head().get(Saver::Head).saturating_sub(self.at.stream());
            self.live = self.live - SavedBytes::of(Saver::Head, kept);
        }
        let Some(bytes) = self.of(compute) else { return };
        let section = match compute {
            Compute::Mtp(number) => Section::Mtp(number),
            Compute::Layer(number) => Section::Layer(number),
            _ => return,
        };
        let of_section = self.units.iter().filter(|unit| unit.section == section);
        let largest = of_section.map(|unit| unit.computed.largest).max().unwrap_or(Quantity::ZERO);
        self.note("backward", self.live, alive, self.param * largest);
        self.live = self.live - SavedBytes::of(Saver::Mlp, self.for_weights(compute, &bytes));
        let end = Alive { gradients: alive.gradients + self.fresh(section, chunk), ..alive };
        self.note("backward", self.live, end, Quantity::ZERO);
    }

    /// A chunk's backward is done, or one of a split one's halves: positions are needed in the first, words in the last.
    fn backward_done(&mut self, chunk: usize, kind: ActionKind, alive: Alive) {
        let embeds = self.chunks.get(chunk).is_some_and(|chunk| chunk.embedding);
        let own = of_chunk(&self.at, embeds);
        let words = SavedBytes::of(Saver::Embedding, own.get(Saver::Embedding));
        let given_back = match kind {
            ActionKind::BackwardInput => own - words,
            ActionKind::BackwardWeight => words,
            _ => own,
        };
        if kind != ActionKind::BackwardInput
            && let Some(done) = self.backwards.get_mut(chunk)
        {
            *done += 1;
        }
        self.live = self.live - given_back;
        self.note("backward", self.live, alive, Quantity::ZERO);
    }

    /// What one of the losses has kept.
    fn of_one_head(&self) -> SavedBytes {
        SavedBytes::of(Saver::Head, self.head.saved.get(Saver::Head) / Quantity::from(1 + self.modules))
    }

    /// What those have kept that forward has been through, before the chunk's forward is done.
    fn of_heads(&self) -> SavedBytes {
        self.of_one_head().times(Quantity::from(self.heads))
    }

    /// Backward of an output layer: the modules' before the model's own, the last one's first.
    fn head_backward(&mut self, alive: Alive, adds: bool) {
        let made = self.param * self.of_output();
        let output = Alive { gradients: alive.gradients + made, ..alive };
        self.note("head", self.live, output, self.at.size * self.at.full * self.at.hidden);
        if self.heads > 0 && !adds {
            // The sum is made beside both, when the loss has given back what it kept.
            let sum = Alive { gradients: output.gradients + made, ..alive };
            let live = self.live - self.of_one_head();
            self.note("head", live + SavedBytes::of(Saver::Head, 2 * self.at.stream()), sum, Quantity::ZERO);
        }
        if self.heads < self.modules {
            self.live = self.live - self.of_one_head();
        }
        self.heads += 1;
    }

    /// Gradients of a section that a backward makes, where they are not added to those that wait.
    fn fresh(&self, section: Section, chunk: usize) -> Quantity {
        let units = self.units.iter().filter(|unit| unit.section == section && !self.adds(chunk));
        units.map(|unit| self.param * unit.computed.all()).sum()
    }

    /// What follows a section's backward, beside its input and the gradient of that, each so many bytes.
    fn behind(&mut self, chunk: usize, at: At, alive: Alive, stream: Quantity) {
        match at {
            At::Reducing(Section::Root) => self.note("reduction", self.live, alive, Quantity::ZERO),
            At::Reducing(_) | At::Summing(_) => {
                self.note("backward", self.live + SavedBytes::of(Saver::Norms, stream), alive, stream);
            }
            At::Adding(section) if !self.adds(chunk) && self.has_gradients(section, chunk) => {
                // The first are copied, the others are brought into the type of those that wait, one by one.
                let of_section = self.units.iter().filter(|unit| unit.section == section);
                let largest = of_section.map(|unit| unit.computed.largest).max().unwrap_or(Quantity::ZERO);
                let saved = self.live + SavedBytes::of(Saver::Norms, stream);
                self.note("backward", saved, alive, self.reduce * largest);
            }
            _ => {}
        }
    }

    /// Whether a chunk's backward makes gradients of a section: of what is used throughout only the chunks at the ends do.
    fn has_gradients(&self, section: Section, chunk: usize) -> bool {
        let at_an_end = || self.chunks.get(chunk).is_some_and(|chunk| chunk.embedding || chunk.loss);
        matches!(section, Section::Layer(_) | Section::Mtp(_)) || at_an_end()
    }

    fn note(&mut self, phase: &'static str, activations: SavedBytes, alive: Alive, temporaries: Quantity) {
        self.found.push(Moment {
            phase,
            activations,
            unsharded: alive.gathered,
            gather: alive.gathering,
            scatter: alive.reducing,
            gradients: alive.gradients,
            temporaries,
            ..Moment::default()
        });
    }
}

/// Temporaries of an update of the largest part of a parameter that a rank keeps: the gradient and its square, then what is divided.
fn update(kept: Dtype, largest: Quantity) -> Quantity {
    let exact = Quantity::from(kept.size()).max(Quantity::of(4));
    2 * exact * largest.min(Quantity::from(UPDATED_AT_ONCE))
}
