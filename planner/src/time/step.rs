//! Seconds of a step from the seconds of its layers: pipeline, data parallelism, optimizer.
//!
//! No allocation and a few dozen multiplications, so that a search can ask millions of times.

use super::collectives::Group;
use super::constants::Role;
use super::gemm::{Product, forward, input_gradient, weight_gradient};
use super::layer::{LayerTime, Manner, Split, head_time, layer_time};
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

impl Terms {
    /// The terms of a model under a split.
    pub fn new(machine: &Machine, split: &Split, manner: &Manner, shape: &ModelShape) -> Terms {
        let mut terms = Terms {
            kinds: [LayerTime::default(); MAX_KINDS],
            head: head_time(machine, split, manner, shape),
            mtp: LayerTime::default(),
            dense: [0.0; MAX_KINDS],
            experts: [0.0; MAX_KINDS],
            mtp_elements: [0.0; 2],
            embedding: shape.vocabulary * shape.hidden / split.tp,
            tied: shape.tied,
            // Without sequence parallelism, each tensor-parallel rank sends its part.
            stream_bytes: 2.0 * split.gathered_tokens() / split.tp * shape.hidden,
        };
        let slots = terms.kinds.iter_mut().zip(&mut terms.dense).zip(&mut terms.experts);
        for (((time, dense), experts), kind) in slots.zip(&shape.kinds) {
            *time = layer_time(machine, split, manner, shape, kind);
            *dense = kind.cut_elements / split.tp + kind.whole_elements;
            *experts = kind.expert_elements / (split.ep * split.etp);
        }
        if !shape.mtp_layers.is_empty() {
            terms.add_mtp(machine, split, manner, shape);
        }
        terms
    }

    fn add_mtp(&mut self, machine: &Machine, split: &Split, manner: &Manner, shape: &ModelShape) {
        let hidden = shape.hidden;
        let product = Product {
            rows: split.gathered_tokens(),
            outputs: hidden / split.tp,
            inputs: 2.0 * hidden,
            groups: 1.0,
        };
        let weights = weight_gradient(machine, &machine.gemm, product, manner.gradient_bytes);
        let mut mtp = self.head;
        mtp.forward.gemm += forward(machine, &machine.gemm, product);
        mtp.backward.gemm += input_gradient(machine, &machine.gemm, product) + weights;
        mtp.weights += weights;
        let mut elements = [2.0 * hidden * hidden / split.tp, 0.0];
        for &kind in &shape.mtp_layers {
            let at = usize::from(kind);
            if let (Some(time), Some(dense), Some(experts)) =
                (self.kinds.get(at), self.dense.get(at), self.experts.get(at))
            {
                mtp.add(time, 1.0);
                elements = [elements[0] + dense, elements[1] + experts];
            }
        }
        self.mtp = mtp;
        self.mtp_elements = elements;
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

fn stage_time(machine: &Machine, terms: &Terms, pipe: &Pipe, class: &StageClass) -> StageTime {
    let time = terms.stage(class);
    let mut head = LayerTime::default();
    head.add(&terms.head, class.head);
    let work = time.total();
    let mut launch = time.host * pipe.host_share;
    if pipe.stages > 1.0 {
        launch += 2.0 * machine.of(Role::P2pHost) * machine.of(Role::P2pLatency);
    }
    let seconds = overlap(work, launch);
    StageTime { time, head, host: seconds - work, seconds: seconds + head.total() }
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

/// The stage that takes longest, seconds of a micro batch on all stages, and the most elements of a rank: what a step's
/// time takes from its layers. It depends neither on the schedule nor on the number of micro batches.
#[derive(Debug, Clone, Copy)]
pub struct Longest {
    stage: StageTime,
    sum: f64,
    elements: [f64; 2],
}

impl Longest {
    /// Of stages.
    pub fn of(machine: &Machine, terms: &Terms, stages: &Stages, pipe: &Pipe) -> Longest {
        let mut longest = StageTime::default();
        let (mut sum, mut shortest, mut elements) = (0.0, f64::INFINITY, [0.0; 2]);
        for class in &stages.classes {
            let stage = stage_time(machine, terms, pipe, class);
            sum += class.count * stage.seconds;
            shortest = stage.seconds.min(shortest);
            if stage.seconds > longest.seconds {
                longest = stage;
            }
            let here = terms.elements(class, pipe.stages);
            if here[0] + here[1] > elements[0] + elements[1] {
                elements = here;
            }
        }
        if stages.spread && pipe.stages > 1.0 {
            let layers: f64 =
                stages.classes.iter().map(|class| class.count * class.layers.iter().sum::<f64>()).sum();
            longest = even_out(longest, shortest, sum / pipe.stages, layers / (pipe.stages * pipe.chunks));
        }
        Longest { stage: longest, sum, elements }
    }

    /// Mean seconds of a micro batch over so many stages, as a share of the longest stage's.
    pub(super) fn mean_share(&self, stages: f64) -> f64 {
        (self.sum / stages.max(1.0) / self.stage.seconds.max(1e-12)).min(1.0)
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
    let Longest { stage, elements, .. } = Longest::of(machine, terms, stages, pipe);
    1.0 + sharded(machine, stages, data, stage.seconds, elements) / stage.seconds.max(1e-12)
}

/// Seconds of a step.
pub fn step(machine: &Machine, terms: &Terms, stages: &Stages, pipe: &Pipe, data: &DataParallel) -> StepTime {
    step_of(machine, terms, &Longest::of(machine, terms, stages, pipe), stages, pipe, data)
}

/// Seconds of a step whose longest stage is known.
pub fn step_of(
    machine: &Machine,
    terms: &Terms,
    longest: &Longest,
    stages: &Stages,
    pipe: &Pipe,
    data: &DataParallel,
) -> StepTime {
    let Longest { stage: longest, sum, elements } = *longest;
    let mut found = StepTime::default();
    let microbatches = pipe.microbatches;
    let sharded = sharded(machine, stages, data, longest.seconds, elements);
    let slowed = longest.seconds + sharded;
    let work = longest.time.forward + longest.time.backward + longest.head.forward + longest.head.backward;
    found.parts = (work + longest.time.again.times(-1.0)).times(microbatches);
    found.recompute = microbatches * longest.time.again.total();
    found.host = microbatches * longest.host;
    found.gathering = microbatches * sharded;
    found.data = found.gathering;
    found.bubble =
        bubble(pipe, &longest, (sum - longest.seconds).max(0.0) * slowed / longest.seconds.max(1e-12));
    found.sends = sends(machine, terms, pipe);
    let exposed = exposed_data(machine, pipe, data, &longest, elements);
    found.data += exposed;
    let kept = [elements[0] / shard_of(data, data.dense), elements[1] / shard_of(data, data.experts)];
    found.optimizer = data.trained
        * (OPTIMIZER_BYTES * (kept[0] + kept[1]) + CAST_BYTES * (elements[0] + elements[1]))
        / machine.memory;
    found.fixed = machine.of(Role::Fixed);
    found
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

/// Waiting, when all other stages together take `others` seconds for a micro batch.
///
/// Equal to the simulation for 1F1B, GPipe and interleaved with whole groups of micro batches, free transfers and any
/// extra work on the last chunk. For stages that differ by up to 20 % it is too slow: 1F1B by 0.9 % (median; worst
/// 6.5 %), interleaved by 1.5 % (11.4 %), ZB-H1 by 0.3 % (2.4 %); for ZBV it is too fast, by 2.7 % (6.8 %) with equal
/// stages. The figures are of two to nine groups of micro batches on two to eight stages (`closed_form_tests`).
pub(super) fn bubble(pipe: &Pipe, longest: &StageTime, others: f64) -> f64 {
    if pipe.stages <= 1.0 {
        return 0.0;
    }
    let weights = (longest.time.weights + longest.head.weights) / longest.seconds.max(1e-12);
    match pipe.schedule {
        Schedule::OneFOneB | Schedule::Gpipe => others,
        Schedule::Interleaved => others / pipe.chunks,
        // Gradients of weights fill what the input gradients leave: once in H1, from both sides in V.
        Schedule::ZbH1 => others * (1.0 - 2.0 * weights).max(0.0),
        Schedule::Zbv => others * (1.0 - 3.0 * weights).max(0.0),
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

/// What gathering parameters for every micro batch adds to a stage of `seconds`.
fn sharded(machine: &Machine, stages: &Stages, data: &DataParallel, seconds: f64, elements: [f64; 2]) -> f64 {
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
    let communication = of(data.dense, elements[0]) + of(data.experts, elements[1]);
    overlap(seconds * (1.0 + machine.of(Role::FsdpContention)), communication) - seconds
}

/// The sharded part of a group with replicas.
fn inner(group: Group, replicas: Group) -> Group {
    let size = (group.size / replicas.size).max(1.0);
    Group { size, inside: group.inside.min(size) }
}

/// Reduction and gathering once a step, as far as neither backward nor forward hides it.
fn exposed_data(
    machine: &Machine,
    pipe: &Pipe,
    data: &DataParallel,
    longest: &StageTime,
    elements: [f64; 2],
) -> f64 {
    let mut reduce = 0.0;
    let mut gather = 0.0;
    if data.gathers > 0.0 {
        // Shards are reduced over replicas once.
        let shard = |group: Group, elements: f64| elements / (group.size / data.replicas.size).max(1.0);
        let bytes = data.gradient_bytes * (shard(data.dense, elements[0]) + shard(data.experts, elements[1]));
        return 2.0 * machine.gather(data.replicas, data.trained * bytes);
    }
    for (group, elements) in [(data.dense, elements[0]), (data.experts, elements[1])] {
        if group.size <= 1.0 || elements <= 0.0 {
            continue;
        }
        let elements = data.trained * elements;
        let buckets = (elements / machine.of(Role::BucketElements)).ceil();
        let latency = buckets * (group.size - 1.0) * machine.of(Role::BucketStep);
        reduce += machine.ring_bytes(group, data.gradient_bytes * elements) + latency;
        gather += machine.ring_bytes(group, data.parameter_bytes * elements) + latency;
    }
    // With chunks, the last micro batches of a stage drain chunk by chunk.
    let drained = if pipe.chunks > 1.0 { pipe.stages } else { 1.0 };
    let window = |overlaps: bool, seconds: f64| {
        if overlaps { machine.of(Role::DpWindow) * drained * seconds } else { 0.0 }
    };
    let backward = longest.time.backward.total() + longest.head.backward.total();
    let forward = longest.time.forward.total() + longest.head.forward.total();
    (reduce - window(data.overlap_reduce, backward)).max(0.0)
        + (gather - window(data.overlap_gather, forward)).max(0.0)
}
