//! Working on parts: every candidate of a part checked by the rules, its memory and its step computed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Search;
use super::candidate::Candidate;
use super::fast::Times;
use super::partial::Partial;
use super::sink::Sink;
use super::space::{Part, Subspace, replicas, set_grid, set_pipe};
use super::stages::{Pipe, waits_at_least};
use super::tables::{Clock, Tables};
use super::tally::{Refusals, Tally};
use crate::memory::{Peak, States};
use crate::plan::{Plan, Training};
use crate::rules::{Aspect, Shape, first_broken};
use crate::shard::{self, padded_vocabulary};
use crate::time::{self, DataParallel, Longest, Stages, State, StepOverhead, step_of};

/// Longest step that is an answer, as for estimates.
const MOST_SECONDS: f64 = 1e9;

/// Works on the parts of a search.
#[derive(Debug)]
pub struct Worker<'a> {
    search: &'a Search,
    cache: PartCache,
}

/// What a worker keeps between the parts of one search.
#[derive(Debug, Default)]
pub struct PartCache {
    /// What was made for the subspace that was worked on last.
    subspace: Option<Box<SubspaceTables>>,
    /// What a step takes at least, once it was asked for.
    least: BTreeMap<Alike, f64>,
    /// Whether plans are computed one by one although kept terms cover them; for tests.
    one_by_one: bool,
}

/// What decides the layers' seconds on a rank, whatever the batch is: the first of subspaces that are alike, how context
/// parallelism exchanges where there is any, tensor, expert, expert tensor and context parallelism, sequence parallelism.
type Alike = (usize, Option<usize>, [u64; 4], bool);

/// What decides the layers' seconds of a part, were `cp` its context parallelism.
pub(super) fn alike(subspace: &Subspace, part: &Part, sp: bool, cp: u64) -> Alike {
    let exchanged = (cp > 1).then_some(subspace.plan.layout.cp_kind as usize);
    (subspace.alike, exchanged, [part.tp, part.ep, part.etp, cp], sp)
}

#[derive(Debug)]
struct SubspaceTables {
    subspace: usize,
    alike: usize,
    held: usize,
    plan: Plan,
    /// Settings by what is recomputed, to be lent to the plan.
    sets: Vec<Training>,
    tables: Option<Box<Tables>>,
    /// What bounds steps where there are no tables.
    clock: Option<Clock>,
    /// The pipelines as time sees them, in the subspace's order, where there is such a clock.
    stages: PipeStages,
}

/// Stages of a subspace's pipelines.
#[derive(Debug, Default)]
struct PipeStages {
    /// By number of stages and pipeline.
    rows: Vec<Vec<Stages>>,
    /// Micro batches for which pipelines of each number of stages wait at least.
    waits: Vec<f64>,
    /// Whether those of every pipeline hold each layer once.
    are_whole: bool,
}

impl PipeStages {
    fn of(subspace: &Subspace, clock: &Clock) -> PipeStages {
        let mut scratch = subspace.plan.clone();
        let mut stages = |pipe: &Pipe| {
            set_pipe(&mut scratch, pipe);
            Stages::of(&clock.shape, &scratch.layout)
        };
        let rows: Vec<Vec<Stages>> =
            subspace.pipes.iter().map(|pipes| pipes.iter().map(&mut stages).collect()).collect();
        let are_whole = rows.iter().flatten().all(|stages| stages.are_whole(&clock.shape));
        let waits = |pipes: &Arc<[Pipe]>| waits_at_least(pipes);
        PipeStages { rows, waits: subspace.pipes.iter().map(waits).collect(), are_whole }
    }
}

impl<'a> Worker<'a> {
    pub(super) fn new(search: &'a Search) -> Worker<'a> {
        Worker { search, cache: PartCache::default() }
    }

    /// Someone who computes each plan as if it were the only one.
    #[cfg(test)]
    pub(super) fn one_by_one(search: &'a Search) -> Worker<'a> {
        Worker { search, cache: PartCache { one_by_one: true, ..PartCache::default() } }
    }

    /// Adds what a part holds; nothing for a number that is no part's.
    pub fn run(&mut self, part: u64, into: &mut Partial) {
        self.cache.run(self.search, part, into);
    }
}

impl PartCache {
    /// Adds what a part of the search holds whose cache this is; nothing for a number that is no part's.
    pub fn run(&mut self, search: &Search, part: u64, into: &mut Partial) {
        if part == 0 {
            // What was refused with whole axis values belongs to no part, and is counted once.
            into.refused.merge(&search.space.refused);
        }
        let Some(&part) = usize::try_from(part).ok().and_then(|part| search.space.parts.get(part)) else {
            return;
        };
        let Some(subspace) = search.space.subspaces.get(part.subspace) else { return };
        // Most parts of a large space go this way, so nothing is made ready for it.
        let known = |sp: bool, cp: u64| self.least.get(&alike(subspace, &part, sp, cp)).copied();
        let hopeless = |least: f64| search.ranking.is_hopeless(into, part.subspace, least);
        // Sequences take no less time over twice as many ranks; where the fewest do not say it, few others do.
        let half = |cp: &u64| cp.is_multiple_of(2).then(|| cp / 2).filter(|half| *half > 1);
        let dismissed = |&sp: &bool| {
            let sizes = std::iter::once(1).chain(std::iter::successors(Some(part.cp), half));
            sizes.filter_map(|cp| known(sp, cp)).any(hopeless)
        };
        let usual = [subspace.usual_sp(part.tp)];
        // More GPUs than are needed are hopeless, however fast.
        if hopeless(0.0) || subspace.sp.as_deref().unwrap_or(&usual).iter().all(dismissed) {
            return;
        }
        let Some(mut sink) = Sink::of(search, part.subspace, into) else { return };
        let mut cache = match self.subspace.take() {
            Some(cache) if cache.subspace == part.subspace => cache,
            Some(mut cache) if cache.alike == subspace.alike => {
                cache.subspace = part.subspace;
                cache.plan.clone_from(&subspace.plan);
                cache
            }
            earlier => {
                Box::new(SubspaceTables::new(search, (part.subspace, subspace), earlier, self.one_by_one))
            }
        };
        let mut grids = Grids {
            subspace,
            part,
            values: &search.values,
            plan: &mut cache.plan,
            lent: &mut cache.sets,
            least: &mut self.least,
            refused: Refusals::default(),
            sink: &mut sink,
        };
        match &mut cache.tables {
            Some(tables) => grids.run_kept(tables),
            None => grids.run(cache.clock.as_mut(), &cache.stages, &mut into.refused),
        }
        grids.refused.give(&mut into.refused);
        sink.give(search, into);
        self.subspace = Some(cache);
    }
}

impl SubspaceTables {
    fn new(
        search: &Search,
        (number, subspace): (usize, &Subspace),
        earlier: Option<Box<SubspaceTables>>,
        one_by_one: bool,
    ) -> SubspaceTables {
        let (mut tables, mut clock) = (None, Clock::of(subspace, &search.values));
        // A machine's own calibration knows more than these terms.
        clock.take_if(|_| subspace.plan.file.software.calibration.is_some() && !Tables::cover(subspace));
        if !one_by_one && Tables::cover(subspace) {
            let known =
                earlier.filter(|earlier| earlier.held == subspace.held).and_then(|earlier| earlier.tables);
            tables = clock.take().map(|clock| Tables::of(subspace, clock, known));
        }
        let sets = subspace.recompute.iter().map(|(_, training)| training.clone()).collect();
        let bounded = clock.as_ref().filter(|_| search.request.only_first);
        let stages = bounded.map(|clock| PipeStages::of(subspace, clock)).unwrap_or_default();
        SubspaceTables {
            subspace: number,
            alike: subspace.alike,
            held: subspace.held,
            plan: subspace.plan.clone(),
            sets,
            tables,
            clock,
            stages,
        }
    }
}

/// The grids of a part.
pub(super) struct Grids<'a> {
    pub(super) subspace: &'a Subspace,
    pub(super) part: Part,
    pub(super) values: &'a [f64],
    /// The plan that is tried.
    pub(super) plan: &'a mut Plan,
    /// Settings by what is recomputed.
    pub(super) lent: &'a mut [Training],
    /// What a step takes at least, once it was asked for.
    pub(super) least: &'a mut BTreeMap<Alike, f64>,
    pub(super) refused: Refusals,
    pub(super) sink: &'a mut Sink,
}

impl Grids<'_> {
    /// Computes every plan for itself. Rules that are no constants are counted in `tally`.
    fn run(&mut self, mut clock: Option<&mut Clock>, known: &PipeStages, tally: &mut Tally) {
        let usual = [self.subspace.usual_sp(self.part.tp)];
        let subspace = self.subspace;
        for &sp in subspace.sp.as_deref().unwrap_or(&usual) {
            let batches =
                clock.as_deref_mut().map(|clock| self.batches(clock, known, sp)).unwrap_or_default();
            if !batches.is_empty() && batches.iter().all(|batch| matches!(batch, Batch::Closed)) {
                continue;
            }
            for (stages, &pp) in subspace.stages.iter().enumerate() {
                self.set_grid(pp, sp);
                let fsdp = self.plan.runtime.facts().shards_parameters;
                for size in replicas(subspace.replicas.as_ref(), fsdp, self.plan.layout.dp) {
                    self.plan.layout.dp_replicate = size;
                    self.grid(stages, clock.as_deref(), (&batches, known), tally);
                }
            }
        }
    }

    /// What is known of each of the subspace's micro batches; nothing where bounds are not asked for.
    fn batches(&mut self, clock: &mut Clock, known: &PipeStages, sp: bool) -> Vec<Batch> {
        let subspace = self.subspace;
        let Some((_, training)) = subspace.recompute.first().filter(|_| self.sink.only_first()) else {
            return Vec::new();
        };
        self.set_grid(1, sp);
        clock.shape.vocabulary = padded_vocabulary(self.plan) as f64;
        let of = |&micro_batch: &u64| {
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
        };
        subspace.micro_batches.iter().map(of).collect()
    }

    /// Puts a grid of ranks into the plan, its pipeline the plainest.
    pub(super) fn set_grid(&mut self, pp: u64, sp: bool) {
        let Part { tp, ep, etp, cp, .. } = self.part;
        set_grid(self.plan, self.subspace, [tp, cp, ep, etp], pp, sp);
    }

    /// Candidates of one pipeline, micro batch and grid: valid or not by themselves.
    pub(super) fn sets(&self) -> u64 {
        let refused = self.subspace.refused_recompute.iter().map(|(_, count)| count).sum::<u64>();
        self.subspace.recompute.len() as u64 + refused
    }

    /// Candidates of one micro batch and grid.
    pub(super) fn sets_and_pipes(&self, stages: usize) -> u64 {
        let pipes = self.subspace.pipes.get(stages).map_or(0, |pipes| pipes.len()) as u64;
        let refused: u64 =
            self.subspace.refused_pipes.get(stages).into_iter().flatten().map(|(_, count)| count).sum();
        (pipes + refused).saturating_mul(self.sets())
    }

    /// Counts the pipelines of a number of stages that rules of theirs refuse.
    pub(super) fn refuse_pipes(&mut self, stages: usize) {
        let sets = self.sets();
        for (rule, count) in self.subspace.refused_pipes.get(stages).into_iter().flatten() {
            self.refused.add(rule, count.saturating_mul(sets));
        }
    }

    /// Counts the sets that rules of theirs refuse, so many times.
    pub(super) fn refuse_sets(&mut self, times: u64) {
        for (rule, count) in &self.subspace.refused_recompute {
            self.refused.add(rule, count.saturating_mul(times));
        }
    }

    /// Counts candidates that a rule refuses.
    pub(super) fn refuse(&mut self, rule: &'static str, count: u64) {
        self.refused.add(rule, count);
    }

    /// All pipelines, micro batches and sets of one grid.
    fn grid(
        &mut self,
        stages: usize,
        clock: Option<&Clock>,
        (batches, known): (&[Batch], &PipeStages),
        tally: &mut Tally,
    ) {
        let subspace = self.subspace;
        let Some(pipes) = subspace.pipes.get(stages) else { return };
        let mut states: Vec<Option<States>> = vec![None; pipes.len()];
        // Of each pipeline with each set, whether a smaller micro batch was too large already.
        let mut too_large = vec![vec![false; subspace.recompute.len()]; pipes.len()];
        for (place, &micro_batch) in subspace.micro_batches.iter().enumerate() {
            let times = match batches.get(place) {
                Some(Batch::Closed) => continue,
                Some(Batch::Open(times)) => clock.zip(Some(&**times)),
                Some(Batch::Unknown) | None => None,
            };
            self.plan.training.micro_batch_size = micro_batch;
            if let Some((_, times)) = times.filter(|_| known.are_whole) {
                let (pp, waits) = (self.plan.layout.pp, known.waits.get(stages).copied().unwrap_or(0.0));
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
            for (number, pipe) in pipes.iter().enumerate() {
                let first = same_stages(pipes, number);
                if let (Some(states), Some(too_large)) = (states.get_mut(first), too_large.get_mut(number)) {
                    let known = known.rows.get(stages).and_then(|row| row.get(number));
                    let timed = times.zip(known).map(|((clock, times), stages)| (clock, times, stages));
                    self.pipe((stages, number), pipe, timed, (states, too_large));
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

    /// Puts settings into the plan, but for the micro batch.
    pub(super) fn set_recompute(&mut self, training: &Training) {
        let micro_batch_size = self.plan.training.micro_batch_size;
        self.plan.training.clone_from(training);
        self.plan.training.micro_batch_size = micro_batch_size;
    }

    /// Computes something of the plan with each set, which it is lent: cloning one takes longer than what is computed.
    pub(super) fn with_sets<T>(&mut self, of: impl Fn(&Plan) -> T) -> Vec<T> {
        let (plan, lent) = (&mut *self.plan, &mut *self.lent);
        let each = lent.iter_mut().map(|training| {
            training.micro_batch_size = plan.training.micro_batch_size;
            std::mem::swap(&mut plan.training, training);
            let found = of(plan);
            std::mem::swap(&mut plan.training, training);
            found
        });
        each.collect()
    }

    /// All sets of one pipeline; what its ranks hold is listed once, and kept in `states`.
    fn pipe(
        &mut self,
        (stages, number): (usize, usize),
        pipe: &Pipe,
        times: Option<(&Clock, &Times, &Stages)>,
        (states, too_large): (&mut Option<States>, &mut [bool]),
    ) {
        let subspace = self.subspace;
        set_pipe(self.plan, pipe);
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
        for (set, (_, training)) in subspace.recompute.iter().enumerate() {
            self.set_recompute(training);
            if let Some((rule, _)) = first_broken(&Shape::of(self.plan), Aspect::Grid) {
                self.refused.add(rule, 1);
                continue;
            }
            // Listing what ranks hold takes far longer than its seconds.
            if timed.as_ref().is_some_and(|timed| self.sink.is_hopeless(timed.seconds(set))) {
                continue;
            }
            let Some(too_large) = too_large.get_mut(set) else { continue };
            if *too_large {
                self.sink.count_too_large();
                continue;
            }
            let candidate = Candidate { recompute: set as u16, ..self.candidate(stages, number) };
            if states.is_none() {
                *states = States::of(self.plan);
            }
            let peak = match states {
                Some(states) => states.peak(self.plan),
                None => Peak::of_plan(self.plan),
            };
            // Nothing is kept of what is too large but the smallest, which no larger micro batch is.
            *too_large = self.sink.only_first() && self.sink.is_too_large(peak.bytes);
            let (plan, values) = (&*self.plan, self.values);
            self.sink.put(
                candidate,
                peak.bytes,
                || peak.high,
                0.0,
                || time::setup(plan).map_or(f64::INFINITY, |setup| seconds(setup.predict(values).total())),
            );
        }
    }

    /// The candidate that the plan is, with the first set.
    pub(super) fn candidate(&self, stages: usize, pipe: usize) -> Candidate {
        let layout = &self.plan.layout;
        Candidate {
            subspace: self.part.subspace as u32,
            tp: layout.tp as u32,
            cp: layout.cp as u32,
            ep: layout.ep as u32,
            etp: layout.etp as u32,
            sp: layout.sp,
            stages: stages as u16,
            pipe: pipe as u16,
            replicas: layout.dp_replicate as u32,
            micro_batch: self.plan.training.micro_batch_size as u32,
            recompute: 0,
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

/// The first of the pipelines whose stages hold the same as this one's: only one schedule places chunks in a way of its own.
fn same_stages(pipes: &[Pipe], number: usize) -> usize {
    let key = |pipe: &Pipe| (pipe.vpp, pipe.schedule.kind().in_v);
    let Some(own) = pipes.get(number) else { return number };
    let same = |pipe: &Pipe| key(pipe) == key(own) && pipe.split == own.split;
    pipes.iter().position(same).unwrap_or(number)
}

/// Seconds of a step, infinite where it never ends.
#[inline]
pub(super) fn seconds(found: f64) -> f64 {
    if found > 0.0 && found < MOST_SECONDS { found } else { f64::INFINITY }
}
