//! Working on parts: every candidate of a part checked by the rules, its memory and its step computed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Search;
use super::candidate::Candidate;
use super::one_by_one::{OneByOne, held_by_all, same_stages};
use super::partial::Partial;
use super::plan_of::{set_grid, set_pipe};
use super::sink::Sink;
use super::space::{Part, Subspace};
use super::stages::{Pipe, waits_at_least};
use super::tables::{Clock, Tables};
use super::tally::Refusals;
use crate::plan::{Plan, Training};
use crate::shard::fsdp::Placements;
use crate::time::Stages;

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
    /// Of each pipeline whose plans are computed one by one, the first whose stages hold the same, by number of stages.
    firsts: Vec<Vec<usize>>,
    /// Where parameters go, of plans that are computed one by one.
    placements: Placements,
    /// Bytes that all ranks of a replica have allocated at least, together, for bounds on plans that are computed one by one; none where
    /// there are none.
    held_by_all: Option<f64>,
}

/// Stages of a subspace's pipelines.
#[derive(Debug, Default)]
pub(super) struct PipeStages {
    /// By number of stages and pipeline.
    pub(super) rows: Vec<Vec<Stages>>,
    /// Micro batches for which pipelines of each number of stages wait at least.
    pub(super) waits: Vec<f64>,
    /// Whether those of every pipeline hold each layer once.
    pub(super) are_whole: bool,
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
        let SubspaceTables { plan, sets, tables, clock, stages, firsts, placements, held_by_all, .. } =
            &mut *cache;
        let mut grids = Grids {
            subspace,
            part,
            values: &search.values,
            plan,
            lent: sets,
            least: &mut self.least,
            refused: Refusals::default(),
            sink: &mut sink,
        };
        match tables {
            Some(tables) => grids.run_kept(tables),
            None => {
                let known = OneByOne { stages, firsts, placements, held_by_all: *held_by_all };
                grids.run(clock.as_mut(), known, &mut into.refused);
            }
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
        let mut placements = Placements::default();
        let tables_cover = tables.is_some();
        let firsts = |pipes: &Arc<[Pipe]>| (0..pipes.len()).map(|one| same_stages(pipes, one)).collect();
        let bounded = !tables_cover && !one_by_one;
        let held_by_all = bounded.then(|| held_by_all(&subspace.plan, &mut placements));
        SubspaceTables {
            subspace: number,
            alike: subspace.alike,
            held: subspace.held,
            plan: subspace.plan.clone(),
            sets,
            tables,
            clock,
            stages,
            firsts: if tables_cover { Vec::new() } else { subspace.pipes.iter().map(firsts).collect() },
            placements,
            held_by_all,
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

/// Seconds of a step, infinite where it never ends.
#[inline]
pub(super) fn seconds(found: f64) -> f64 {
    if found > 0.0 && found < MOST_SECONDS { found } else { f64::INFINITY }
}
