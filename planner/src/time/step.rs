//! Seconds of a step from the stage that takes longest: pipeline, data parallelism, optimizer.
//!
//! No allocation and a few dozen multiplications, so that a search can ask millions of times.

use super::collectives::GroupSize;
use super::constants::ConstantRole;
use super::exchange::{Exchange, Exchanged};
use super::host_copies::HostBytes;
use super::machine::{Machine, overlap};
use super::parts::Parts;
use super::stage::Longest;
use super::stages::Stages;
use super::terms::Terms;
use crate::settings::Schedule;

/// How parameters and gradients are kept over data parallelism.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataParallel {
    /// Ranks that share dense parameters' state, context parallelism among them.
    pub dense: GroupSize,
    /// Ranks that share experts' state.
    pub experts: GroupSize,
    /// Replicas of a sharded group (HSDP, Megatron-FSDP's outer size); 1 for none.
    pub replicas: GroupSize,
    /// Whether parameters are gathered for every micro batch, and how often: 2 when they are dropped in between.
    pub gathers: f64,
    /// Reductions of gradients behind every micro batch: 1, or 0 where there is one a step.
    pub reduces: f64,
    /// Ranks that they are gathered from the second time, where those are fewer than the first time.
    pub gathered_again_from: Option<f64>,
    /// Bytes of an element of a gradient as it is reduced.
    pub gradient_bytes: f64,
    /// Bytes of an element of a parameter as it is gathered.
    pub parameter_bytes: f64,
    /// Bytes that the optimizer moves for an element of its state.
    pub optimizer_bytes: f64,
    /// FLOPs of a rank's products in a step's update, in 16 bits.
    pub update_flops: f64,
    /// Whether optimizer state is split over the group.
    pub distributed: bool,
    /// Whether reduction hides behind backward.
    pub overlap_reduce: bool,
    /// Whether gathering hides behind forward.
    pub overlap_gather: bool,
    /// Whether each layer is reduced, and gathered, in a call of its own, as FSDP does, rather than in buckets. What is gathered at
    /// once where layers are reduced apart is in no buckets either.
    pub by_layer: [bool; 2],
    /// Share of the parameters that is trained.
    pub trained: f64,
    /// What is copied to the host and back.
    pub host: HostBytes,
    /// Seconds of what goes between ranks of a tensor-parallel group where other replicas have fewer of them: to those that sum gradients,
    /// beside their reduction, and back, which nothing hides.
    pub extras: [f64; 2],
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
    /// Gathering for every micro batch that computing hides: no part of the step.
    pub hidden_gathering: f64,
    /// Copies to the host and back, as far as no computing hides them.
    pub copies: f64,
    /// Of them, those of every micro batch.
    pub copying: f64,
    /// Copies that computing hides: no part of the step.
    pub hidden_copies: f64,
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
            + self.copies
            + self.optimizer
            + self.fixed
    }
}

impl StepTime {
    /// What a step takes besides its pipeline.
    pub(crate) fn outside_pipeline(&self) -> f64 {
        self.data - self.gathering + (self.copies - self.copying) + self.optimizer + self.fixed
    }
}

/// How many times longer a micro batch takes because parameters are gathered and tensors copied for it.
pub(super) fn slowdown(
    machine: &Machine,
    terms: &Terms,
    stages: &Stages,
    pipe: &Pipe,
    data: &DataParallel,
) -> f64 {
    let longest = Longest::of(machine, terms, stages, pipe);
    let state = State::of(machine, terms, stages, pipe, data);
    let more = state.sharded(machine, longest.seconds) + state.copied(&longest);
    1.0 + more / longest.seconds.max(1e-12)
}

/// Seconds of a step.
pub fn step(machine: &Machine, terms: &Terms, stages: &Stages, pipe: &Pipe, data: &DataParallel) -> StepTime {
    let state = State::of(machine, terms, stages, pipe, data);
    let around = StepOverhead::of(machine, terms, pipe, data, &state);
    step_of(machine, &Longest::of(machine, terms, stages, pipe), pipe, &state, &around)
}

/// What a step takes from parameters, gradients and optimizer state of its fullest stage. It depends on the stages and on
/// the groups that state is kept over alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct State {
    /// Communication of a micro batch that parameters are gathered for; none where they stay.
    gathering: f64,
    /// Whether that goes on beside computing.
    beside: bool,
    /// What is exchanged once a step: of dense parameters and of experts.
    exchanges: [Exchange; 2],
    /// What nothing hides.
    exposed: f64,
    /// Optimizer.
    optimizer: f64,
    /// Copies to the host and back in the forward and in the backward of a micro batch.
    copying: [f64; 2],
    /// Those of a step besides.
    copied: f64,
}

impl State {
    /// Of stages over groups.
    pub fn of(machine: &Machine, terms: &Terms, stages: &Stages, pipe: &Pipe, data: &DataParallel) -> State {
        let mut elements = [0.0; 2];
        let mut fullest = None;
        for class in &stages.classes {
            let here = terms.elements(class, pipe.stages);
            if here[0] + here[1] > elements[0] + elements[1] {
                (elements, fullest) = (here, Some(class));
            }
        }
        let kept = [elements[0] / shard_of(data, data.dense), elements[1] / shard_of(data, data.experts)];
        let moved = data.optimizer_bytes * (kept[0] + kept[1]);
        // What waits on the host the host updates.
        let here = (1.0 - data.host.updated) * moved + CAST_BYTES * (elements[0] + elements[1]);
        let optimizer = data.trained
            * (here * machine.of(ConstantRole::OptimizerTraffic) / machine.memory
                + data.host.updated * moved / machine.of(ConstantRole::HostMemory));
        let products = data.trained * data.update_flops / machine.gemm16.flops;
        let mut found = State { optimizer: optimizer + products, ..State::default() };
        let tensor = machine.of(ConstantRole::HostTensor);
        if tensor > 0.0 {
            found.optimizer += tensor * fullest.map_or(0.0, |class| terms.tensors(class));
        }
        found.gathering = gathering(machine, stages, data, elements);
        found.beside = if data.gathers > 0.0 { data.overlap_gather } else { data.overlap_reduce };
        let (link, host) = (machine.of(ConstantRole::HostLink), &data.host);
        let kept = kept[0] + kept[1];
        found.copying = host.passes.map(|bytes| (host.saved + kept * bytes) / link);
        found.copied = data.trained * kept * host.once / link;
        let sharded = data.gathers > 0.0;
        if !sharded && terms.tied && pipe.stages > 1.0 {
            // First and last stage add up their gradients of the tied embedding, when all others are done.
            let ends = GroupSize { size: 2.0, inside: if pipe.inside { 2.0 } else { 1.0 } };
            let bytes = data.trained * data.gradient_bytes * terms.embedding;
            found.exposed += 2.0 * machine.gather(ends, bytes);
        }
        // What is in no layer is a unit too.
        let (layers, units) = (stages.most_layers(), stages.most_layers() + 1.0);
        // The first stage's, whose exchange ends last.
        let groups = [(data.dense, elements[0], terms.embedding), (data.experts, elements[1], 0.0)];
        for (exchange, (group, elements, embedding)) in found.exchanges.iter_mut().zip(groups) {
            if elements <= 0.0 {
                continue;
            }
            let mut calls = Calls::default();
            // Shards of replicas are summed as soon as they are reduced, on a stream of its own beside backward (torch 2.6,
            // `_fsdp_param_group.py`, `all_reduce_stream`).
            let replicas = elements / shard_of(data, group);
            if sharded {
                calls.all_reduce(machine, data, data.replicas, replicas);
            } else if data.distributed {
                match data.reduces > 0.0 {
                    true => calls.all_reduce(machine, data, data.replicas, replicas),
                    false => calls.reduce(machine, data, group, elements),
                }
                calls.gather(machine, data, group, elements);
                if group.size > 1.0 {
                    // The host takes every tensor apart before it is reduced, and puts it together when gathered.
                    found.exposed +=
                        2.0 * LAYER_TENSORS * layers * group.size * machine.of(ConstantRole::SliceCopy);
                }
            } else {
                calls.all_reduce(machine, data, group, elements);
            }
            if let Some(widest) = calls.widest {
                let (elements, embedding) = (data.trained * elements, data.trained * embedding);
                let (seconds, rounds) = (calls.seconds, calls.rounds);
                let quicker = machine.quicker(widest);
                *exchange = Exchange { elements, embedding, units, seconds, rounds, quicker };
            }
        }
        found
    }

    /// Whether parameters stay where they are over a step.
    pub(super) fn is_whole(&self) -> bool {
        self.gathering <= 0.0 && self.copying == [0.0; 2]
    }

    /// What gathering parameters for every micro batch adds to a stage of `seconds`.
    fn sharded(&self, machine: &Machine, seconds: f64) -> f64 {
        if self.gathering <= 0.0 || !self.beside {
            return self.gathering;
        }
        overlap(seconds * (1.0 + machine.of(ConstantRole::FsdpContention)), self.gathering) - seconds
    }

    /// What copies add to a micro batch of the longest stage: they run beside each pass.
    fn copied(&self, longest: &Longest) -> f64 {
        let [forward, backward] = self.copying;
        positive(forward - longest.forward) + positive(backward - longest.backward)
    }
}

/// Calls of one group's exchange, once a step.
#[derive(Default)]
struct Calls {
    seconds: [f64; 2],
    rounds: [f64; 2],
    /// The largest group of them.
    widest: Option<GroupSize>,
}

impl Calls {
    /// Gradients are reduced, each rank's shard to it.
    fn reduce(&mut self, machine: &Machine, data: &DataParallel, group: GroupSize, elements: f64) {
        self.add(machine, group, 0, 1.0, data.trained * data.gradient_bytes * elements);
    }

    /// Gradients are summed on all ranks: both ways, of gradients.
    fn all_reduce(&mut self, machine: &Machine, data: &DataParallel, group: GroupSize, elements: f64) {
        self.add(machine, group, 0, 2.0, data.trained * data.gradient_bytes * elements);
    }

    /// Parameters are gathered.
    fn gather(&mut self, machine: &Machine, data: &DataParallel, group: GroupSize, elements: f64) {
        self.add(machine, group, 1, 1.0, data.trained * data.parameter_bytes * elements);
    }

    fn add(&mut self, machine: &Machine, group: GroupSize, which: usize, times: f64, bytes: f64) {
        if group.size <= 1.0 || bytes <= 0.0 {
            return;
        }
        self.seconds[which] += times * machine.ring_bytes(group, bytes);
        self.rounds[which] += times * machine.bucket_round(group);
        self.widest = self.widest.filter(|known| known.size >= group.size).or(Some(group));
    }
}

/// What a step takes around its stages' work, whatever that is.
#[derive(Debug, Clone, Copy)]
pub struct StepOverhead {
    /// Sends between stages.
    sends: f64,
    /// Share of a micro batch's backward that hides reduction.
    reduce_window: f64,
    /// Share of a micro batch's forward that hides gathering.
    gather_window: f64,
    /// Reduction once a step.
    reduce: Exchanged,
    /// Gathering once a step.
    gather: Exchanged,
    /// What nothing hides of what state takes.
    exposed: f64,
    /// Optimizer, what a step takes besides, and copies to the host and back once a step.
    rest: [f64; 3],
}

impl StepOverhead {
    /// Of a pipeline, with what its state takes. Of `terms` only the size of a send is looked at.
    #[inline]
    pub fn of(
        machine: &Machine,
        terms: &Terms,
        pipe: &Pipe,
        data: &DataParallel,
        state: &State,
    ) -> StepOverhead {
        // With chunks, the last micro batches of a stage drain chunk by chunk.
        let drained = if pipe.chunks > 1.0 { pipe.stages } else { 1.0 };
        let window =
            |overlaps: bool| if overlaps { machine.of(ConstantRole::DpWindow) * drained } else { 0.0 };
        let (mut reduce, mut gather) = (Exchanged::default(), Exchanged::default());
        for exchange in &state.exchanges {
            exchange.add_to([&mut reduce, &mut gather], machine, pipe, data);
        }
        let [to, back] = data.extras;
        if to > 0.0 {
            // Bucket by bucket, as the reduction that waits for it.
            reduce.alone += to * if reduce.all > 0.0 { reduce.alone / reduce.all } else { 1.0 };
            reduce.all += to;
        }
        StepOverhead {
            sends: sends(machine, terms, pipe),
            reduce_window: window(data.overlap_reduce),
            gather_window: window(data.overlap_gather),
            reduce,
            gather,
            exposed: state.exposed + back,
            rest: [state.optimizer, machine.of(ConstantRole::Fixed), state.copied],
        }
    }
}

impl StepOverhead {
    /// Seconds that nothing hides.
    pub(super) fn least(&self) -> f64 {
        self.unhidden() + self.reduce.alone + self.gather.alone
    }

    /// Seconds if nothing was hidden.
    pub(super) fn most(&self) -> f64 {
        self.unhidden() + self.reduce.all + self.gather.all
    }

    fn unhidden(&self) -> f64 {
        self.sends + self.rest.iter().sum::<f64>() + self.exposed
    }
}

/// Seconds of a step whose longest stage is known.
#[inline]
pub fn step_of(
    machine: &Machine,
    longest: &Longest,
    pipe: &Pipe,
    state: &State,
    around: &StepOverhead,
) -> StepTime {
    let microbatches = pipe.microbatches;
    let sharded = state.sharded(machine, longest.seconds);
    let copied = state.copied(longest);
    let slowed = longest.seconds + sharded + copied;
    let others = positive(longest.sum - longest.seconds) * slowed / positive_or(longest.seconds, 1e-12);
    // Reduction and gathering once a step, as far as neither backward nor forward hides them.
    let exposed = around.reduce.exposed(around.reduce_window * longest.backward)
        + around.gather.exposed(around.gather_window * longest.forward)
        + around.exposed;
    let gathering = microbatches * sharded;
    let [optimizer, fixed, once] = around.rest;
    let copying = microbatches * copied;
    StepTime {
        parts: longest.first.times(microbatches),
        recompute: microbatches * longest.again,
        host: microbatches * longest.host,
        sends: around.sends,
        bubble: bubble(pipe, longest.weights, others),
        data: gathering + exposed,
        gathering,
        hidden_gathering: positive(microbatches * state.gathering - gathering),
        copies: copying + once,
        copying,
        hidden_copies: microbatches * (state.copying[0] + state.copying[1]) - copying,
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

/// Bytes that the optimizer moves for an element that the rank holds: gradients zeroed and weights cast.
const CAST_BYTES: f64 = 6.0;
/// Tensors of a layer: two projections in each half, and two norms.
const LAYER_TENSORS: f64 = 6.0;

fn shard_of(data: &DataParallel, group: GroupSize) -> f64 {
    if data.distributed || data.gathers > 0.0 { (group.size / data.replicas.size).max(1.0) } else { 1.0 }
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
    // Gradients of weights fill what the input gradients leave.
    let kind = pipe.schedule.kind();
    kind.waits_for(others, pipe.chunks) * positive(1.0 - kind.filled * weights)
}

fn sends(machine: &Machine, terms: &Terms, pipe: &Pipe) -> f64 {
    if pipe.stages <= 1.0 {
        return 0.0;
    }
    let each = send_seconds(machine, terms, pipe);
    let hidden = pipe.chunks > 1.0 && pipe.overlap_sends;
    let exposed = if hidden { machine.of(ConstantRole::ExposedP2p) } else { 1.0 };
    2.0 * each * (pipe.microbatches * pipe.chunks * exposed + pipe.stages - 1.0)
}

/// One transfer between neighbouring stages, as far as it is not the host's.
pub(super) fn send_seconds(machine: &Machine, terms: &Terms, pipe: &Pipe) -> f64 {
    let eager = machine.of(ConstantRole::P2pHost) > 0.0;
    machine.send(pipe.inside, terms.stream_bytes)
        - if eager { machine.of(ConstantRole::P2pLatency) } else { 0.0 }
}

/// Communication of a micro batch that parameters are gathered for.
fn gathering(machine: &Machine, stages: &Stages, data: &DataParallel, elements: [f64; 2]) -> f64 {
    let reduces = data.trained * data.reduces;
    if data.gathers + reduces <= 0.0 || data.dense.size / data.replicas.size <= 1.0 {
        return 0.0;
    }
    let layers = stages.most_layers();
    let bytes = data.gathers * data.parameter_bytes + reduces * data.gradient_bytes;
    let messages = (data.gathers + reduces) * layers;
    let of = |group: GroupSize, elements: f64| {
        let inner = inner(group, data.replicas);
        if inner.size <= 1.0 || elements <= 0.0 {
            return 0.0;
        }
        let waits = |group: GroupSize| machine.gather(group, 1.0) - machine.ring_bytes(group, 1.0);
        let all = machine.ring_bytes(inner, elements * bytes) + messages * waits(inner);
        match data.gathered_again_from {
            Some(ranks) if data.gathers > 1.0 => {
                let fewer = GroupSize { size: ranks, inside: inner.inside.min(ranks) };
                let again = elements * (data.gathers - 1.0) * data.parameter_bytes;
                let saved = |group: GroupSize| {
                    machine.ring_bytes(group, again) + (data.gathers - 1.0) * layers * waits(group)
                };
                all - saved(inner) + saved(fewer)
            }
            _ => all,
        }
    };
    of(data.dense, elements[0]) + of(data.experts, elements[1])
}

/// The sharded part of a group with replicas.
fn inner(group: GroupSize, replicas: GroupSize) -> GroupSize {
    let size = (group.size / replicas.size).max(1.0);
    GroupSize { size, inside: group.inside.min(size) }
}
