//! Seconds of a step from the seconds of its layers: pipeline, data parallelism, optimizer.
//!
//! No allocation and a few dozen multiplications, so that a search can ask millions of times.

use super::collectives::Group;
use super::constants::Role;
use super::gemm::{Product, forward, input_gradient, weight_gradient};
use super::layer::{LayerTime, LayerWork, Manner, Recompute, Split, head_time, layer_work};
use super::machine::{Machine, overlap};
use super::parts::Parts;
use super::shape::{MAX_KINDS, ModelShape};
use super::stages::{StageClass, Stages};
use crate::wire::Schedule;

/// Seconds of a micro batch in every kind of layer, and the elements that each kind puts on a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// By kind.
    pub kinds: [LayerTime; MAX_KINDS],
    /// Output layer and loss.
    pub head: LayerTime,
    /// A multi-token-prediction module, with its layers and its output layer.
    pub mtp: LayerTime,
    /// Forward and backward together of each kind, of such a module and of the output layer; beside the first two, what of
    /// it are GEMMs and attention.
    totals: ([[f64; 2]; MAX_KINDS], [f64; 2], f64),
    /// Kinds that the model has.
    known: usize,
    /// Elements of a rank by kind: dense.
    dense: [f64; MAX_KINDS],
    /// Elements of a rank by kind: experts.
    experts: [f64; MAX_KINDS],
    /// Dense and expert elements of such a module.
    mtp_elements: [f64; 2],
    /// Elements of the embedding on a rank.
    embedding: f64,
    /// Whether the output layer is the embedding.
    tied: bool,
    /// Bytes of the stream of a micro batch on a rank.
    pub stream_bytes: f64,
}

/// What terms have in common whatever is computed again.
#[derive(Debug, Clone)]
pub struct Works {
    kinds: Vec<LayerWork>,
    /// Layers of each kind in the model, and modules of multi-token prediction.
    counts: [f64; MAX_KINDS],
    modules: f64,
    /// Kinds of layers of a multi-token-prediction module.
    mtp_layers: Vec<u8>,
    /// Everything but the layers, which are still empty; in the module too.
    terms: Terms,
}

impl Works {
    /// Of a model under a split; what `manner` computes again is not looked at.
    pub fn new(machine: &Machine, split: &Split, manner: &Manner, shape: &ModelShape) -> Works {
        let mut terms = Terms {
            kinds: [LayerTime::default(); MAX_KINDS],
            head: head_time(machine, split, manner, shape),
            mtp: LayerTime::default(),
            totals: ([[0.0; 2]; MAX_KINDS], [0.0; 2], 0.0),
            known: shape.kinds.len(),
            dense: [0.0; MAX_KINDS],
            experts: [0.0; MAX_KINDS],
            mtp_elements: [0.0; 2],
            embedding: shape.vocabulary * shape.hidden / split.tp,
            tied: shape.tied,
            // Without sequence parallelism, each tensor-parallel rank sends its part.
            stream_bytes: 2.0 * split.gathered_tokens() / split.tp * shape.hidden,
        };
        for ((dense, experts), kind) in terms.dense.iter_mut().zip(&mut terms.experts).zip(&shape.kinds) {
            *dense = kind.cut_elements / split.tp + kind.whole_elements;
            *experts = kind.expert_elements / (split.ep * split.etp);
        }
        if !shape.mtp_layers.is_empty() {
            terms.add_mtp(machine, split, manner, shape);
        }
        let kinds = shape.kinds.iter().map(|kind| layer_work(machine, split, manner, shape, kind));
        let mut counts = [0.0; MAX_KINDS];
        for &kind in &shape.layers {
            if let Some(count) = counts.get_mut(usize::from(kind)) {
                *count += 1.0;
            }
        }
        Works {
            kinds: kinds.collect(),
            counts,
            modules: shape.mtp_modules,
            mtp_layers: shape.mtp_layers.clone(),
            terms,
        }
    }

    /// Terms without layers: what is looked at beside them is there.
    pub fn base(&self) -> &Terms {
        &self.terms
    }

    /// A micro batch in each kind of layer.
    pub(super) fn kinds(&self) -> &[LayerWork] {
        &self.kinds
    }

    /// Layers of each kind in the model.
    pub(super) fn counts(&self) -> &[f64] {
        &self.counts
    }

    /// Modules of multi-token prediction.
    pub(super) fn modules(&self) -> f64 {
        self.modules
    }

    /// Kinds of layers of such a module.
    pub(super) fn mtp_layers(&self) -> &[u8] {
        &self.mtp_layers
    }

    /// With what is computed again.
    pub fn terms(&self, again: &Recompute) -> Terms {
        let mut terms = self.terms.clone();
        for ((time, total), work) in terms.kinds.iter_mut().zip(&mut terms.totals.0).zip(&self.kinds) {
            *time = work.time(again);
            *total = [time.total(), time.hot()];
        }
        for &kind in &self.mtp_layers {
            if let Some(time) = terms.kinds.get(usize::from(kind)) {
                terms.mtp.add(time, 1.0);
            }
        }
        terms.totals.1 = [terms.mtp.total(), terms.mtp.hot()];
        terms.totals.2 = terms.head.total();
        terms
    }
}

impl Terms {
    /// The terms of a model under a split.
    pub fn new(machine: &Machine, split: &Split, manner: &Manner, shape: &ModelShape) -> Terms {
        Works::new(machine, split, manner, shape).terms(&manner.recompute)
    }

    /// A multi-token-prediction module without its layers, and the elements of all of it.
    fn add_mtp(&mut self, machine: &Machine, split: &Split, manner: &Manner, shape: &ModelShape) {
        let hidden = shape.hidden;
        let product = Product {
            rows: split.gathered_tokens(),
            outputs: hidden / split.tp,
            inputs: 2.0 * hidden,
            groups: 1.0,
        };
        let weights = weight_gradient(machine, &machine.gemm, product, manner.gradient_bytes);
        self.mtp = self.head;
        self.mtp.forward.gemm += forward(machine, &machine.gemm, product);
        self.mtp.backward.gemm += input_gradient(machine, &machine.gemm, product) + weights;
        self.mtp.weights += weights;
        self.mtp_elements = [2.0 * hidden * hidden / split.tp, 0.0];
        for &kind in &shape.mtp_layers {
            let at = usize::from(kind);
            if let (Some(dense), Some(experts)) = (self.dense.get(at), self.experts.get(at)) {
                self.mtp_elements[0] += dense;
                self.mtp_elements[1] += experts;
            }
        }
    }

    /// A micro batch in the layers of a stage.
    fn stage(&self, class: &StageClass) -> LayerTime {
        let mut sum = LayerTime::default();
        for (time, &count) in self.kinds.iter().zip(&class.layers) {
            if count > 0.0 {
                sum.add(time, count);
            }
        }
        if class.mtp > 0.0 {
            sum.add(&self.mtp, class.mtp);
        }
        sum
    }

    /// Dense and expert elements of a rank of a stage.
    fn elements(&self, class: &StageClass, stages: f64) -> [f64; 2] {
        let of = |each: &[f64; MAX_KINDS]| {
            each.iter().zip(&class.layers).map(|(one, count)| one * count).sum::<f64>()
        };
        // A tied output layer is the embedding itself where one stage holds both, else a copy.
        let head = if self.tied && stages <= 1.0 { 0.0 } else { class.head };
        let outer = self.embedding * (class.embedding + head);
        [
            of(&self.dense) + outer + class.mtp * self.mtp_elements[0],
            of(&self.experts) + class.mtp * self.mtp_elements[1],
        ]
    }
}

impl LayerTime {
    fn add(&mut self, other: &LayerTime, times: f64) {
        self.forward += other.forward.times(times);
        self.backward += other.backward.times(times);
        self.again += other.again.times(times);
        self.weights += times * other.weights;
        self.host += times * other.host;
        self.gaps += times * other.gaps;
    }

    /// GEMMs and attention, forward and backward.
    pub(super) fn hot(&self) -> f64 {
        self.forward.gemm + self.forward.attention + self.backward.gemm + self.backward.attention
    }

    /// GEMMs and attention take `share` of their time.
    fn quicken(&mut self, share: f64) {
        for parts in [&mut self.forward, &mut self.backward, &mut self.again] {
            parts.gemm *= share;
            parts.attention *= share;
        }
        self.weights *= share;
    }

    /// Forward and backward.
    pub fn total(&self) -> f64 {
        self.forward.total() + self.backward.total()
    }
}

/// How parameters and gradients are kept over data parallelism.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataParallel {
    /// Ranks that share dense parameters' state, context parallelism among them.
    pub dense: Group,
    /// Ranks that share experts' state.
    pub experts: Group,
    /// Replicas of a sharded group (HSDP, Megatron-FSDP's outer size); 1 for none.
    pub replicas: Group,
    /// Whether parameters are gathered for every micro batch, and how often: 2 when they are dropped in between.
    pub gathers: f64,
    /// Bytes of an element of a gradient as it is reduced.
    pub gradient_bytes: f64,
    /// Bytes of an element of a parameter as it is gathered.
    pub parameter_bytes: f64,
    /// Whether optimizer state is split over the group.
    pub distributed: bool,
    /// Whether reduction hides behind backward.
    pub overlap_reduce: bool,
    /// Whether gathering hides behind forward.
    pub overlap_gather: bool,
    /// Share of the parameters that is trained.
    pub trained: f64,
}

/// The pipeline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pipe {
    /// Stages.
    pub stages: f64,
    /// Chunks of a stage.
    pub chunks: f64,
    /// Micro batches of a step.
    pub microbatches: f64,
    /// Schedule.
    pub schedule: Schedule,
    /// Whether neighbouring stages share an NVLink domain.
    pub inside: bool,
    /// Whether sends hide behind compute.
    pub overlap_sends: bool,
    /// Share of host time that CUDA graphs leave.
    pub host_share: f64,
}

/// Seconds of a step by what they are spent on, on the stage that takes longest.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepTime {
    /// The first pass of all micro batches.
    pub parts: Parts,
    /// What is computed again, with its communication.
    pub recompute: f64,
    /// GPU waiting for the host to launch work.
    pub host: f64,
    /// Sends between stages.
    pub sends: f64,
    /// Waiting for other stages.
    pub bubble: f64,
    /// Exposed reduction of gradients and gathering of parameters.
    pub data: f64,
    /// Of that, what gathering for every micro batch adds to them.
    pub gathering: f64,
    /// Optimizer.
    pub optimizer: f64,
    /// What a step takes besides.
    pub fixed: f64,
}

impl StepTime {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.parts.total()
            + self.recompute
            + self.host
            + self.sends
            + self.bubble
            + self.data
            + self.optimizer
            + self.fixed
    }
}

impl StepTime {
    /// What a step takes besides its pipeline.
    pub fn outside_pipeline(&self) -> f64 {
        self.data - self.gathering + self.optimizer + self.fixed
    }
}

/// Seconds of one micro batch on a stage, with what the host adds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StageTime {
    pub time: LayerTime,
    pub head: LayerTime,
    pub host: f64,
    pub seconds: f64,
}

/// Seconds of one micro batch on a stage without and with its output layer, the host's share among them.
fn stage_seconds(machine: &Machine, terms: &Terms, pipe: &Pipe, class: &StageClass) -> StageSeconds {
    let (totals, mtp, head) = &terms.totals;
    let (mut work, mut hot) = (class.mtp * mtp[0], class.mtp * mtp[1]);
    let (mut launch, mut gaps) = (class.mtp * terms.mtp.host, class.mtp * terms.mtp.gaps);
    for ((total, time), &count) in totals.iter().zip(&terms.kinds).zip(&class.layers).take(terms.known) {
        work += count * total[0];
        hot += count * total[1];
        launch += count * time.host;
        gaps += count * time.gaps;
    }
    (launch, gaps) = (launch * pipe.host_share, gaps * pipe.host_share);
    let cooler = cooler(machine, hot / overlap(work + gaps, launch).max(1e-12));
    work -= (1.0 - cooler) * hot;
    if pipe.stages > 1.0 {
        launch += 2.0 * machine.of(Role::P2pHost) * machine.of(Role::P2pLatency);
    }
    let layers = overlap(work + gaps, launch);
    StageSeconds { cooler, host: layers - work, seconds: layers + class.head * head }
}

struct StageSeconds {
    /// What GEMMs and attention take of their time under load.
    cooler: f64,
    host: f64,
    seconds: f64,
}

/// Least share of time under load from which the clock still rises: below, it is at its highest (1.45 times as high).
const LEAST_DUTY: f64 = 0.33;

/// Time of GEMMs and attention over that under load without a pause, when they have the share `duty` of all time: power
/// that waiting, communication and memory-bound work leave lets the clock rise.
pub(super) fn cooler(machine: &Machine, duty: f64) -> f64 {
    match machine.of(Role::PowerSlack) {
        0.0 => 1.0,
        power => libm::pow(duty.clamp(LEAST_DUTY, 1.0), power),
    }
}

fn stage_time(machine: &Machine, terms: &Terms, pipe: &Pipe, class: &StageClass) -> StageTime {
    let StageSeconds { cooler, host, seconds } = stage_seconds(machine, terms, pipe, class);
    let (mut time, mut head) = (terms.stage(class), LayerTime::default());
    time.quicken(cooler);
    head.add(&terms.head, class.head);
    StageTime { time, head, host, seconds }
}

/// Forward, backward and, of the backward, weights' gradients of a micro batch in what `class` holds; the host's share
/// lies on both passes alike.
pub fn chunk_time(machine: &Machine, terms: &Terms, pipe: &Pipe, class: &StageClass) -> [f64; 3] {
    let stage = stage_time(machine, terms, pipe, class);
    let slower = 1.0 + stage.host / stage.time.total().max(1e-12);
    [
        stage.time.forward.total() * slower + stage.head.forward.total(),
        stage.time.backward.total() * slower + stage.head.backward.total(),
        stage.time.weights * slower + stage.head.weights,
    ]
}

/// The stage that takes longest, and what a step takes from it for every micro batch. It depends neither on the schedule nor
/// on the number of micro batches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Longest {
    /// Its first pass.
    first: Parts,
    /// What it computes again.
    again: f64,
    /// What the host adds.
    host: f64,
    /// Forward.
    forward: f64,
    /// Backward.
    backward: f64,
    /// Of the backward, gradients of weights, as a share of all of it.
    weights: f64,
    /// All of it.
    seconds: f64,
    /// All stages together.
    sum: f64,
}

impl Longest {
    /// Of stages.
    pub fn of(machine: &Machine, terms: &Terms, stages: &Stages, pipe: &Pipe) -> Longest {
        let mut longest = (None, 0.0);
        let (mut sum, mut shortest) = (0.0, f64::INFINITY);
        for class in &stages.classes {
            let seconds = stage_seconds(machine, terms, pipe, class).seconds;
            sum += class.count * seconds;
            shortest = if seconds < shortest { seconds } else { shortest };
            if seconds > longest.1 {
                longest = (Some(class), seconds);
            }
        }
        let mut longest =
            longest.0.map_or_else(StageTime::default, |class| stage_time(machine, terms, pipe, class));
        if stages.spread && pipe.stages > 1.0 {
            let layers: f64 =
                stages.classes.iter().map(|class| class.count * class.layers.iter().sum::<f64>()).sum();
            longest = even_out(longest, shortest, sum / pipe.stages, layers / (pipe.stages * pipe.chunks));
        }
        Longest::from_stage(&longest, sum)
    }

    /// Of a stage, with the seconds of all stages together.
    pub(super) fn from_stage(stage: &StageTime, sum: f64) -> Longest {
        let StageTime { time, head, host, seconds } = *stage;
        let work = time.forward + time.backward + head.forward + head.backward;
        Longest {
            first: work + time.again.times(-1.0),
            again: time.again.total(),
            host,
            forward: time.forward.total() + head.forward.total(),
            backward: time.backward.total() + head.backward.total(),
            weights: (time.weights + head.weights) / seconds.max(1e-12),
            seconds,
            sum,
        }
    }

    /// Mean seconds of a micro batch over so many stages, as a share of the longest stage's.
    pub(super) fn mean_share(&self, stages: f64) -> f64 {
        (self.sum / stages.max(1.0) / self.seconds.max(1e-12)).min(1.0)
    }
}

/// How many times longer a micro batch takes because parameters are gathered for it.
pub(super) fn slowdown(
    machine: &Machine,
    terms: &Terms,
    stages: &Stages,
    pipe: &Pipe,
    data: &DataParallel,
) -> f64 {
    let longest = Longest::of(machine, terms, stages, pipe);
    let state = State::of(machine, terms, stages, pipe, data);
    1.0 + state.sharded(machine, longest.seconds) / longest.seconds.max(1e-12)
}

/// Seconds of a step.
pub fn step(machine: &Machine, terms: &Terms, stages: &Stages, pipe: &Pipe, data: &DataParallel) -> StepTime {
    let state = State::of(machine, terms, stages, pipe, data);
    let around = Around::of(machine, terms, pipe, data, &state);
    step_of(machine, &Longest::of(machine, terms, stages, pipe), pipe, &state, &around)
}

/// What a step takes from parameters, gradients and optimizer state of its fullest stage. It depends on the stages and on
/// the groups that state is kept over alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct State {
    /// Communication of a micro batch that parameters are gathered for; none where they stay.
    gathering: f64,
    /// Reduction of gradients once a step.
    reduce: f64,
    /// Gathering of parameters once a step.
    gather: f64,
    /// What nothing hides.
    exposed: f64,
    /// Optimizer.
    optimizer: f64,
}

impl State {
    /// Of stages over groups.
    pub fn of(machine: &Machine, terms: &Terms, stages: &Stages, pipe: &Pipe, data: &DataParallel) -> State {
        let mut elements = [0.0; 2];
        for class in &stages.classes {
            let here = terms.elements(class, pipe.stages);
            if here[0] + here[1] > elements[0] + elements[1] {
                elements = here;
            }
        }
        let kept = [elements[0] / shard_of(data, data.dense), elements[1] / shard_of(data, data.experts)];
        let optimizer = data.trained
            * (OPTIMIZER_BYTES * (kept[0] + kept[1]) + CAST_BYTES * (elements[0] + elements[1]))
            / machine.memory;
        let mut found = State { optimizer, ..State::default() };
        found.gathering = gathering(machine, stages, data, elements);
        if data.gathers > 0.0 {
            // Shards are reduced over replicas once.
            let shard = |group: Group, elements: f64| elements / (group.size / data.replicas.size).max(1.0);
            let bytes =
                data.gradient_bytes * (shard(data.dense, elements[0]) + shard(data.experts, elements[1]));
            found.exposed = 2.0 * machine.gather(data.replicas, data.trained * bytes);
            return found;
        }
        for (group, elements) in [(data.dense, elements[0]), (data.experts, elements[1])] {
            if group.size <= 1.0 || elements <= 0.0 {
                continue;
            }
            let elements = data.trained * elements;
            let buckets = (elements / machine.of(Role::BucketElements)).ceil();
            let latency = buckets * (group.size - 1.0) * machine.of(Role::BucketStep);
            found.reduce += machine.ring_bytes(group, data.gradient_bytes * elements) + latency;
            found.gather += machine.ring_bytes(group, data.parameter_bytes * elements) + latency;
        }
        found
    }

    /// Whether parameters stay where they are over a step.
    pub(super) fn is_whole(&self) -> bool {
        self.gathering <= 0.0
    }

    /// What gathering parameters for every micro batch adds to a stage of `seconds`.
    fn sharded(&self, machine: &Machine, seconds: f64) -> f64 {
        if self.gathering <= 0.0 {
            return 0.0;
        }
        overlap(seconds * (1.0 + machine.of(Role::FsdpContention)), self.gathering) - seconds
    }
}

/// What a step takes around its stages' work, whatever that is.
#[derive(Debug, Clone, Copy)]
pub struct Around {
    /// Sends between stages.
    sends: f64,
    /// Share of a micro batch's backward that hides reduction.
    reduce_window: f64,
    /// Share of a micro batch's forward that hides gathering.
    gather_window: f64,
    /// Reduction, gathering, and what nothing hides.
    data: [f64; 3],
    /// Optimizer and what a step takes besides.
    rest: [f64; 2],
}

impl Around {
    /// Of a pipeline, with what its state takes. Of `terms` only the size of a send is looked at.
    #[inline]
    pub fn of(machine: &Machine, terms: &Terms, pipe: &Pipe, data: &DataParallel, state: &State) -> Around {
        // With chunks, the last micro batches of a stage drain chunk by chunk.
        let drained = if pipe.chunks > 1.0 { pipe.stages } else { 1.0 };
        let window = |overlaps: bool| if overlaps { machine.of(Role::DpWindow) * drained } else { 0.0 };
        Around {
            sends: sends(machine, terms, pipe),
            reduce_window: window(data.overlap_reduce),
            gather_window: window(data.overlap_gather),
            data: [state.reduce, state.gather, state.exposed],
            rest: [state.optimizer, machine.of(Role::Fixed)],
        }
    }
}

impl Around {
    /// Seconds that nothing hides.
    pub(super) fn least(&self) -> f64 {
        self.sends + self.rest[0] + self.rest[1]
    }

    /// Seconds if nothing was hidden.
    pub(super) fn most(&self) -> f64 {
        self.least() + self.data[0] + self.data[1] + self.data[2]
    }
}

/// Seconds of a step whose longest stage is known.
#[inline]
pub fn step_of(
    machine: &Machine,
    longest: &Longest,
    pipe: &Pipe,
    state: &State,
    around: &Around,
) -> StepTime {
    let microbatches = pipe.microbatches;
    let sharded = state.sharded(machine, longest.seconds);
    let slowed = longest.seconds + sharded;
    let others = positive(longest.sum - longest.seconds) * slowed / positive_or(longest.seconds, 1e-12);
    let [reduce, gather, exposed] = around.data;
    // Reduction and gathering once a step, as far as neither backward nor forward hides them.
    let exposed = positive(reduce - around.reduce_window * longest.backward)
        + positive(gather - around.gather_window * longest.forward)
        + exposed;
    let gathering = microbatches * sharded;
    let [optimizer, fixed] = around.rest;
    StepTime {
        parts: longest.first.times(microbatches),
        recompute: microbatches * longest.again,
        host: microbatches * longest.host,
        sends: around.sends,
        bubble: bubble(pipe, longest.weights, others),
        data: gathering + exposed,
        gathering,
        optimizer,
        fixed,
    }
}

/// The number, and 0 where it is below. A comparison rather than `max`, which WebAssembly has no instruction for.
fn positive(number: f64) -> f64 {
    positive_or(number, 0.0)
}

fn positive_or(number: f64, least: f64) -> f64 {
    if number > least { number } else { least }
}

/// Bytes that the optimizer moves for an element of its state, and for an element that the rank holds: master weight,
/// moments and gradient read and written; gradients zeroed and weights cast.
const OPTIMIZER_BYTES: f64 = 30.0;
const CAST_BYTES: f64 = 6.0;

fn shard_of(data: &DataParallel, group: Group) -> f64 {
    if data.distributed || data.gathers > 0.0 { (group.size / data.replicas.size).max(1.0) } else { 1.0 }
}

/// Whoever cuts a model by hand puts fewer layers beside the output layer, so the longest stage is little over the mean:
/// as long as the output layer, or as whole layers of a stage of layers alone (`shortest`, with `each` to a chunk).
fn even_out(longest: StageTime, shortest: f64, mean: f64, each: f64) -> StageTime {
    let whole = shortest * (each.ceil() / each.max(1e-12));
    let share = (mean.max(longest.head.total()).max(whole) / longest.seconds.max(1e-12)).min(1.0);
    let scale = |time: &LayerTime| {
        let mut scaled = LayerTime::default();
        scaled.add(time, share);
        scaled
    };
    StageTime {
        time: scale(&longest.time),
        head: scale(&longest.head),
        host: share * longest.host,
        seconds: share * longest.seconds,
    }
}

/// Waiting, when all other stages together take `others` seconds for a micro batch, and gradients of weights are the share
/// `weights` of the longest.
///
/// Equal to the simulation for 1F1B, GPipe and interleaved with whole groups of micro batches, free transfers and any
/// extra work on the last chunk. For stages that differ by up to 20 % it is too slow: 1F1B by 0.9 % (median; worst
/// 6.5 %), interleaved by 1.5 % (11.4 %), ZB-H1 by 0.3 % (2.4 %); for ZBV it is too fast, by 2.7 % (6.8 %) with equal
/// stages. The figures are of two to nine groups of micro batches on two to eight stages (`closed_form_tests`).
pub(super) fn bubble(pipe: &Pipe, weights: f64, others: f64) -> f64 {
    if pipe.stages <= 1.0 {
        return 0.0;
    }
    match pipe.schedule {
        Schedule::OneFOneB | Schedule::Gpipe => others,
        Schedule::Interleaved => others / pipe.chunks,
        // Gradients of weights fill what the input gradients leave: once in H1, from both sides in V.
        Schedule::ZbH1 => others * positive(1.0 - 2.0 * weights),
        Schedule::Zbv => others * positive(1.0 - 3.0 * weights),
    }
}

fn sends(machine: &Machine, terms: &Terms, pipe: &Pipe) -> f64 {
    if pipe.stages <= 1.0 {
        return 0.0;
    }
    let each = send_seconds(machine, terms, pipe);
    let hidden = pipe.chunks > 1.0 && pipe.overlap_sends;
    let exposed = if hidden { machine.of(Role::ExposedP2p) } else { 1.0 };
    2.0 * each * (pipe.microbatches * pipe.chunks * exposed + pipe.stages - 1.0)
}

/// One transfer between neighbouring stages, as far as it is not the host's.
pub(super) fn send_seconds(machine: &Machine, terms: &Terms, pipe: &Pipe) -> f64 {
    let eager = machine.of(Role::P2pHost) > 0.0;
    machine.send(pipe.inside, terms.stream_bytes) - if eager { machine.of(Role::P2pLatency) } else { 0.0 }
}

/// Communication of a micro batch that parameters are gathered for.
fn gathering(machine: &Machine, stages: &Stages, data: &DataParallel, elements: [f64; 2]) -> f64 {
    if data.gathers <= 0.0 || data.dense.size / data.replicas.size <= 1.0 {
        return 0.0;
    }
    let layers: f64 = stages.classes.iter().map(|class| class.layers.iter().sum::<f64>()).fold(1.0, f64::max);
    let bytes = data.gathers * data.parameter_bytes + data.trained * data.gradient_bytes;
    let messages = (data.gathers + data.trained) * layers;
    let of = |group: Group, elements: f64| {
        let inner = inner(group, data.replicas);
        if inner.size <= 1.0 || elements <= 0.0 {
            return 0.0;
        }
        machine.ring_bytes(inner, elements * bytes)
            + messages * (machine.gather(inner, 1.0) - machine.ring_bytes(inner, 1.0))
    };
    of(data.dense, elements[0]) + of(data.experts, elements[1])
}

/// The sharded part of a group with replicas.
fn inner(group: Group, replicas: Group) -> Group {
    let size = (group.size / replicas.size).max(1.0);
    Group { size, inside: group.inside.min(size) }
}
