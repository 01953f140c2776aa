//! Plans that are computed one by one: whatever no kept terms cover, FSDP runtimes among them.
//!
//! What ranks hold is listed once for all micro batches and sets of a grid's pipeline. Bounds spare most plans their memory: on seconds,
//! on what ranks hold, and on what a plan takes with whole layers computed again, than which no other set takes less.

use super::candidate::Candidate;
use super::fast::Times;
use super::fewest::on_one_gpu;
use super::plan_of::set_pipe;
use super::request::RecomputeWords;
use super::space::replicas;
use super::stages::Pipe;
use super::tables::Clock;
use super::tally::Tally;
use super::worker::{Grids, PipeStages, seconds};
use crate::memory::{Peak, States, kept};
use crate::plan::{Plan, Training};
use crate::rules::{Aspect, Shape, first_broken};
use crate::settings::Granularity;
use crate::shard::fsdp::Placements;
use crate::shard::{self, padded_vocabulary};
use crate::time::{self, DataParallel, Longest, Stages, State, StepOverhead, step_of};

/// Bytes that all ranks of a replica of an FSDP runtime have allocated at least, together: as many as a single GPU would; 0 under
/// other runtimes.
pub(super) fn held_by_all(plan: &Plan, placements: &mut Placements) -> f64 {
    let one = on_one_gpu(plan);
    States::of(&one, placements).map_or(0.0, |states| states.least(&one))
}

/// What is known for plans that are computed one by one.
pub(super) struct OneByOne<'a> {
    /// Pipelines as time sees them.
    pub(super) stages: &'a PipeStages,
    /// Of each pipeline, the first whose stages hold the same, by number of stages.
    pub(super) firsts: &'a [Vec<usize>],
    /// Where parameters go.
    pub(super) placements: &'a mut Placements,
    /// Bytes that all ranks of a replica have allocated at least, together; none where no bounds are asked for.
    pub(super) held_by_all: Option<f64>,
}

/// What is known of a pipeline on a grid from the micro batches that were tried.
#[derive(Debug, Clone)]
struct KnownPipe {
    /// State of its ranks, once it was asked for.
    states: Option<States>,
    /// Bytes that its fullest rank takes at least with any micro batch; none where no bounds are asked for.
    held_bytes: Option<u64>,
    /// The same with any micro batch that was not tried and of which there are alike few.
    least_bytes: Option<u64>,
    /// Of each set, whether a smaller micro batch was too large already, of which there are alike few.
    too_large: Vec<bool>,
    /// How few micro batches there are.
    few: Few,
}

/// Whether a step has a single micro batch, whose gradients are none's but its own, and whether it has a single round of them, after which
/// a chunk's gradients are reduced before the next one's: among as few, larger micro batches take no less memory.
type Few = [bool; 2];

/// Of each set, the rule of the grid that refuses it, once it was asked for: of a pipeline without chunks, and of one with some, for
/// these rules look at no more of a pipeline.
#[derive(Default)]
struct RefusedSets([Option<Vec<Option<&'static str>>>; 2]);

impl KnownPipe {
    fn new(held_bytes: Option<u64>, sets: usize) -> KnownPipe {
        KnownPipe {
            states: None,
            held_bytes,
            least_bytes: held_bytes,
            too_large: vec![false; sets],
            few: Few::default(),
        }
    }

    /// Forgets what does not hold of so few micro batches.
    fn turn_to(&mut self, few: Few) {
        if self.few != few {
            self.few = few;
            self.least_bytes = self.held_bytes;
            self.too_large.fill(false);
        }
    }
}

impl Grids<'_> {
    /// Computes every plan for itself. Rules that are no constants are counted in `tally`.
    pub(super) fn run(&mut self, mut clock: Option<&mut Clock>, mut known: OneByOne<'_>, tally: &mut Tally) {
        let usual = [self.subspace.usual_sp(self.part.tp)];
        let subspace = self.subspace;
        for &sp in subspace.sp.as_deref().unwrap_or(&usual) {
            let mut batches: Vec<Batch> = subspace.micro_batches.iter().map(|_| Batch::Unknown).collect();
            for (stages, &pp) in subspace.stages.iter().enumerate() {
                self.set_grid(pp, sp);
                let fsdp = self.plan.runtime.facts().shards_parameters;
                for size in replicas(subspace.replicas.as_ref(), fsdp, self.plan.layout.dp) {
                    self.grid((stages, size, sp), clock.as_deref_mut(), (&mut batches, &mut known), tally);
                }
            }
        }
    }

    /// Finds out what is known of a micro batch whatever the stages are, where that may say that it can't matter.
    fn batch(&mut self, clock: &mut Clock, known: &PipeStages, micro_batch: u64, sp: bool) -> Batch {
        let Some((_, training)) = self.subspace.recompute.first() else { return Batch::Unknown };
        self.set_grid(1, sp);
        clock.shape.vocabulary = padded_vocabulary(self.plan) as f64;
        self.plan.training.micro_batch_size = micro_batch;
        self.set_recompute(training);
        if !self.divides_batch(micro_batch) {
            // A rule refuses it, which is counted as long as that is told.
            return if self.sink.dismisses() { Batch::Closed } else { Batch::Unknown };
        }
        let times = self.times(clock);
        match known.are_whole && self.sink.is_hopeless(self.least_seconds(&times)) {
            true => Batch::Closed,
            false => Batch::Open(Box::new(times)),
        }
    }

    /// Bytes that the fullest rank of a grid takes at least, whatever its pipeline is, before anything of it is listed.
    fn least_bytes(&self, held_by_all: f64) -> u64 {
        let layout = &self.plan.layout;
        // Replicas hold the same, but for experts that are split over the ranks of all of them.
        let apart = layout.ep == 1 || self.plan.runtime.facts().experts_within_replica;
        let replicas = if apart { layout.dp_replicate.max(1) } else { 1 };
        let each = held_by_all * replicas as f64 / self.plan.world_size() as f64;
        self.taken(each)
    }

    /// All pipelines, micro batches and sets of a grid with so many replicas.
    fn grid(
        &mut self,
        (stages, replicas, sp): (usize, u64, bool),
        mut clock: Option<&mut Clock>,
        (batches, known): (&mut [Batch], &mut OneByOne<'_>),
        tally: &mut Tally,
    ) {
        let subspace = self.subspace;
        let Some((pipes, &pp)) = subspace.pipes.get(stages).zip(subspace.stages.get(stages)) else { return };
        let put_grid = |grids: &mut Self| {
            grids.set_grid(pp, sp);
            grids.plan.layout.dp_replicate = replicas;
        };
        put_grid(self);
        let least_bytes = known.held_by_all.map(|held| self.least_bytes(held));
        if self.sink.dismisses() && least_bytes.is_some_and(|bytes| self.sink.is_too_large(bytes)) {
            return;
        }
        let mut pipes_known = vec![KnownPipe::new(least_bytes, subspace.recompute.len()); pipes.len()];
        for (place, &micro_batch) in subspace.micro_batches.iter().enumerate() {
            let Some(batch) = batches.get_mut(place) else { continue };
            if let (Batch::Unknown, Some(clock)) = (&batch, clock.as_deref_mut())
                && self.sink.knows_enough()
            {
                *batch = self.batch(clock, known.stages, micro_batch, sp);
                put_grid(self);
            }
            let times = match batch {
                Batch::Closed => continue,
                Batch::Open(times) => clock.as_deref().zip(Some(&**times)),
                Batch::Unknown => None,
            };
            self.plan.training.micro_batch_size = micro_batch;
            if let Some((_, times)) = times.filter(|_| known.stages.are_whole) {
                let waits = known.stages.waits.get(stages).copied().unwrap_or(0.0);
                let microbatches = self.microbatches_on(micro_batch, pp).unwrap_or(u64::MAX);
                let least = self.least_seconds(times) * (1.0 + waits / microbatches as f64);
                if self.sink.is_hopeless(least) {
                    continue;
                }
            }
            if let Some((_, training)) = subspace.recompute.first() {
                self.set_recompute(training);
            }
            if let Some((rule, _)) = first_broken(&Shape::of(self.plan), Aspect::Grid) {
                self.refuse(rule, self.sets_and_pipes(stages));
                continue;
            }
            if let Some(rule) = self.broken_shards() {
                tally.add(&rule, self.sets_and_pipes(stages));
                continue;
            }
            self.refuse_pipes(stages);
            let microbatches = self.plan.microbatches();
            let few = [microbatches <= 1, microbatches <= pp];
            let mut sets = RefusedSets::default();
            for (number, pipe) in pipes.iter().enumerate() {
                let of_row = known.firsts.get(stages).and_then(|row| row.get(number));
                let first = of_row.copied().unwrap_or(number);
                // What ranks of equal stages hold is listed once, and lies with the first of them.
                let states = pipes_known.get_mut(first).and_then(|known| known.states.take());
                if let Some(of_pipe) = pipes_known.get_mut(number) {
                    of_pipe.states = states;
                    of_pipe.turn_to(few);
                    let row = known.stages.rows.get(stages).and_then(|row| row.get(number));
                    let timed = times.zip(row).map(|((clock, times), stages)| (clock, times, stages));
                    self.pipe((stages, number), pipe, timed, (of_pipe, known.placements, &mut sets));
                    let states = of_pipe.states.take();
                    if let Some(first) = pipes_known.get_mut(first) {
                        first.states = states;
                    }
                }
            }
        }
    }

    /// Rules that look at shards; only a tensor-parallel plan of an FSDP runtime has any.
    fn broken_shards(&self) -> Option<String> {
        let plans = self.plan.runtime.facts().shards_parameters;
        let findings = if plans { shard::tp_plan::check(self.plan) } else { Vec::new() };
        findings.into_iter().find(|one| one.severity == crate::Severity::Error).map(|one| one.rule)
    }

    /// Rules of the grid that refuse sets of the plan's pipeline, by set.
    fn refused_sets<'r>(&mut self, known: &'r mut RefusedSets) -> &'r [Option<&'static str>] {
        let place = usize::from(self.plan.layout.vpp > 1);
        let broken = |plan: &Plan| first_broken(&Shape::of(plan), Aspect::Grid).map(|(rule, _)| rule);
        let slot = known.0.get_mut(place);
        slot.map_or(&[], |slot| slot.get_or_insert_with(|| self.with_sets(broken)))
    }

    /// All sets of one pipeline.
    fn pipe(
        &mut self,
        (stages, number): (usize, usize),
        pipe: &Pipe,
        times: Option<(&Clock, &Times, &Stages)>,
        (known, placements, sets): (&mut KnownPipe, &mut Placements, &mut RefusedSets),
    ) {
        let subspace = self.subspace;
        set_pipe(self.plan, pipe);
        self.learn_held(known);
        let too_large = |bytes: u64| self.sink.is_too_large(bytes);
        if self.sink.dismisses() && known.least_bytes.is_some_and(too_large) {
            return;
        }
        let timed = times.map(|(clock, times, stages)| Timed::of(self.plan, clock, times, stages));
        if timed.as_ref().is_some_and(|timed| self.sink.is_hopeless(timed.least())) {
            return;
        }
        for aspect in [Aspect::Overlap, Aspect::Batch] {
            if let Some((rule, _)) = first_broken(&Shape::of(self.plan), aspect) {
                self.refused.add(rule, self.sets());
                return;
            }
        }
        self.refuse_sets(1);
        let refused = self.refused_sets(sets);
        refused.iter().flatten().for_each(|rule| self.refused.add(rule, 1));
        let is_valid = |set: usize| refused.get(set).is_some_and(Option::is_none);
        let valid = (0..refused.len()).filter(|&set| is_valid(set)).count() as u64;
        if known.least_bytes.is_some_and(|bytes| self.sink.all_far(valid, bytes)) {
            return;
        }
        // Whole layers that are computed again leave the least, so whatever that takes bounds all other sets.
        let first = whole_recompute(&subspace.recompute);
        let first = first.filter(|_| self.sink.only_first() && self.plan.runtime.facts().shards_parameters);
        let rest = (0..subspace.recompute.len()).filter(|set| Some(*set) != first);
        for set in first.into_iter().chain(rest).filter(|set| is_valid(*set)) {
            let hopeless = timed.as_ref().is_some_and(|timed| self.sink.is_hopeless(timed.seconds(set)));
            // Listing what ranks hold takes far longer than its seconds.
            if hopeless {
                continue;
            }
            if known.least_bytes.is_some_and(|bytes| self.sink.all_far(1, bytes)) {
                continue;
            }
            if known.too_large.get(set).is_none_or(|too_large| *too_large) {
                self.sink.count_too_large();
                continue;
            }
            let candidate = Candidate { recompute: set as u16, ..self.candidate(stages, number) };
            self.lend(set);
            if known.states.is_none() {
                known.states = States::of(self.plan, placements);
                self.learn_held(known);
                if known.least_bytes.is_some_and(|bytes| self.sink.all_far(1, bytes)) {
                    self.lend(set);
                    continue;
                }
            }
            let peak = match &known.states {
                Some(states) => states.peak(self.plan),
                None => Peak::of_plan(self.plan),
            };
            // Nothing is kept of what is too large but the smallest, which no larger micro batch is.
            if let Some(too_large) = known.too_large.get_mut(set) {
                *too_large = self.sink.only_first() && self.sink.is_too_large(peak.bytes);
            }
            if Some(set) == first {
                let least = self.taken(peak.allocated as f64);
                known.least_bytes = known.least_bytes.map(|known| known.max(least));
            }
            let (plan, values) = (&*self.plan, self.values);
            self.sink.put(
                candidate,
                peak.bytes,
                || peak.high,
                0.0,
                || time::setup(plan).map_or(f64::INFINITY, |setup| seconds(setup.predict(values).total())),
            );
            self.lend(set);
        }
    }

    /// Takes into a pipeline's bounds what its ranks hold, where that is known.
    fn learn_held(&self, known: &mut KnownPipe) {
        if let (Some(held), Some(states)) = (known.held_bytes, &known.states) {
            let held = held.max(self.taken(states.least(self.plan)));
            known.held_bytes = Some(held);
            known.least_bytes = known.least_bytes.map(|least| least.max(held));
        }
    }

    /// Bytes that a rank takes which has so many allocated.
    fn taken(&self, allocated: f64) -> u64 {
        kept::taken(self.plan, allocated, kept::outside(self.plan))
    }

    /// Lends the plan the settings of a set, or takes them back: cloning them takes longer than what is computed.
    fn lend(&mut self, set: usize) {
        let micro_batch_size = self.plan.training.micro_batch_size;
        if let Some(training) = self.lent.get_mut(set) {
            training.micro_batch_size = micro_batch_size;
            std::mem::swap(&mut self.plan.training, training);
        }
    }
}

/// What is known of a micro batch on a part, whatever the stages are.
enum Batch {
    /// It can't matter.
    Closed,
    /// Its seconds.
    Open(Box<Times>),
    /// Nothing.
    Unknown,
}

/// A pipeline's seconds, before anything is known of its memory.
struct Timed<'a> {
    clock: &'a Clock,
    times: &'a Times,
    stages: &'a Stages,
    pipe: time::Pipe,
    data: DataParallel,
}

impl<'a> Timed<'a> {
    fn of(plan: &Plan, clock: &'a Clock, times: &'a Times, stages: &'a Stages) -> Timed<'a> {
        let inputs = time::inputs_at_least(plan, clock.profile);
        Timed { clock, times, stages, pipe: inputs.pipe(), data: inputs.data() }
    }

    /// Seconds at least, whatever is recomputed; 0 where nothing is known.
    fn least(&self) -> f64 {
        // Only stages that hold each layer once are bounded by the sums over all layers.
        let bounded = self.stages.are_whole(&self.clock.shape);
        if bounded { self.times.whole.least_of_pipe(&self.pipe) } else { 0.0 }
    }

    /// Seconds with a set at least, for activations that wait on the host are not copied here; 0 where nothing is known beforehand.
    fn seconds(&self, set: usize) -> f64 {
        let Some(again) = self.clock.again.get(set).and_then(Option::as_ref) else { return 0.0 };
        let host_share = self.clock.host_shares.get(set).copied().unwrap_or(1.0);
        let pipe = time::Pipe { host_share, ..self.pipe };
        let (machine, terms) = (&self.clock.machine, self.times.works.terms(again));
        let state = State::of(machine, &terms, self.stages, &pipe, &self.data);
        let around = StepOverhead::of(machine, &terms, &pipe, &self.data, &state);
        let longest = Longest::of(machine, &terms, self.stages, &pipe);
        seconds(step_of(machine, &longest, &pipe, &state, &around).total())
    }
}

/// The set that computes every layer again as a whole, one after the other; none where some set lets activations wait on the host.
fn whole_recompute(sets: &[(RecomputeWords, Training)]) -> Option<usize> {
    let waits = |training: &Training| training.offload.layers > 0 || !training.offload.modules.is_empty();
    if sets.iter().any(|(_, training)| waits(training)) {
        return None;
    }
    sets.iter().position(|(_, training)| {
        training.recompute == Granularity::Full
            && training.recompute_method.as_deref() != Some("block")
            && training.recompute_layers.unwrap_or(1) <= 1
    })
}

/// The first of the pipelines whose stages hold the same as this one's: only one schedule places chunks in a way of its own.
pub(super) fn same_stages(pipes: &[Pipe], number: usize) -> usize {
    let key = |pipe: &Pipe| (pipe.vpp, pipe.schedule.kind().in_v);
    let Some(own) = pipes.get(number) else { return number };
    let same = |pipe: &Pipe| key(pipe) == key(own) && pipe.split == own.split;
    pipes.iter().position(same).unwrap_or(number)
}
