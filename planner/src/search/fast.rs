//! Candidates of a part from kept terms: rules, layer terms and state each at the outermost loop that they depend on, so
//! that a candidate itself is a few dozen multiplications.
//!
//! Rank grids are outermost, then micro batches, then pipelines, then what is recomputed. What `run` of a worker computes
//! plan by plan comes out the same: a test holds both against each other.

use super::cells::{Cell, Cells, OfPipe, OfStep, Saved, Spare, telling_kinds};
use super::plan_of::set_pipe;
use super::sink::Sink;
use super::sizes::Sizes;
use super::stages as pipes;
use super::tables::{Clock, Row, Tables};
use super::worker::{Grids, alike};
use crate::memory::kept::{self, GridTerms, LayerTerms, Upper};
use crate::model::LayerKind;
use crate::rules::{Aspect, FULL_RULE, Shape, broken_batch, first_broken, wants_full_stages};
use crate::settings::Schedule;
use crate::time::{self, DataParallel, ModelBound, Pipe, Recompute, State, StepOverhead, WorkTables};

/// What depends on the rank grid, stages included.
struct Grid {
    dp: u64,
    pipe: Pipe,
    data: DataParallel,
    /// By kind of state; of those that some pipeline which can matter has.
    states: Vec<Option<GridTerms>>,
    /// Pipelines that may still matter.
    open: Vec<u16>,
    /// What a step takes from the state of each composition of stages, once it was asked for.
    times: Vec<Option<State>>,
    /// Bytes outside the allocator.
    outside: u64,
    /// Which number of stages.
    stages: usize,
    /// What is known of each pipeline, once it was asked for.
    pipes: Vec<Option<OnGrid>>,
}

impl Grid {
    /// Whether no pipeline on it fits with a larger micro batch than was tried, or matters where it does not.
    fn is_too_large(&self, sink: &Sink) -> bool {
        self.open.iter().all(|&number| {
            let known = self.pipes.get(usize::from(number)).copied().flatten();
            known.is_some_and(|known| known.is_closed(sink))
        })
    }
}

/// What holds of a pipeline on a grid whatever the micro batch is.
#[derive(Clone, Copy)]
struct OnGrid {
    /// The rule of hidden communication that refuses it.
    refused: Option<&'static str>,
    /// Bytes that its fullest rank takes at least.
    least_bytes: u64,
    /// Whether it was too large with a smaller micro batch, whatever is recomputed. A larger one takes no less: each sequence
    /// takes what it takes, and no fewer of them are alive.
    too_large: bool,
}

impl OnGrid {
    /// Whether it is refused, or too large with any micro batch that was not tried.
    fn is_closed(&self, sink: &Sink) -> bool {
        let far = sink.dismisses() && sink.is_too_large(self.least_bytes);
        far || self.too_large || self.refused.is_some()
    }
}

/// Seconds that depend on the rank grid without its stages, and on the micro batch.
pub(super) struct Times {
    pub(super) works: WorkTables,
    /// By what is recomputed, with the share of host time that graphs leave, and what every pipeline takes at least.
    sets: Vec<(Recompute, f64, ModelBound)>,
    /// What holds for every set.
    pub(super) whole: ModelBound,
}

impl Grids<'_> {
    /// Computes all candidates of the part from kept terms.
    pub(super) fn run_kept(&mut self, tables: &mut Tables) {
        let usual = [self.subspace.usual_sp(self.part.tp)];
        let subspace = self.subspace;
        let Some((_, training)) = subspace.recompute.first() else {
            // Nothing is left to compute, but what was refused is counted.
            return self.refuse_everything();
        };
        for &sp in subspace.sp.as_deref().unwrap_or(&usual) {
            self.plan.training.micro_batch_size = 1;
            self.set_recompute(training);
            if self.sink.dismisses() && !subspace.micro_batches.iter().any(|&size| self.divides_batch(size)) {
                continue;
            }
            if self.is_hopeless_whatever_the_batch(tables, sp) {
                continue;
            }
            let longer = if self.sink.only_first() { self.times_as_long(tables) } else { Vec::new() };
            let mut sizes = Sizes::new(subspace.micro_batches.len(), self.least_known(sp), longer);
            self.find_first(tables, &mut sizes, sp);
            let mut grids = None;
            for (place, &micro_batch) in subspace.micro_batches.iter().enumerate() {
                // Nothing that fits is left for a larger micro batch.
                let full = |grids: &Vec<Grid>| grids.iter().all(|grid| grid.is_too_large(self.sink));
                if self.sink.only_first() && grids.as_ref().is_some_and(full) {
                    break;
                }
                if self.sink.dismisses() && !self.is_open(&sizes, grids.as_deref(), place) {
                    continue;
                }
                if self.is_slow(tables, &mut sizes, (place, micro_batch), sp) {
                    continue;
                }
                let times = sizes.take(place);
                self.plan.training.micro_batch_size = 1;
                let grids = grids.get_or_insert_with(|| self.grids(tables, sp, &sizes));
                self.plan.training.micro_batch_size = micro_batch;
                self.micro_batch(tables, grids, (times, &sizes, place), sp);
            }
        }
    }

    /// What a step of the part takes at least whatever the micro batch is; 0 where that was not asked for.
    fn least_known(&self, sp: bool) -> f64 {
        self.least.get(&alike(self.subspace, &self.part, sp, self.part.cp)).copied().unwrap_or(0.0)
    }

    /// Finds the smallest micro batch with which a step may be fast enough, among those that may be at all: with a smaller one
    /// a step takes longer, so half of them are left out at each look.
    fn find_first(&mut self, tables: &mut Tables, sizes: &mut Sizes, sp: bool) {
        if !(self.sink.dismisses() && self.sink.knows_enough() && tables.are_whole) {
            return;
        }
        let all = self.subspace.micro_batches.iter().copied().enumerate();
        let open: Vec<(usize, u64)> = all.filter(|(place, _)| self.is_open(sizes, None, *place)).collect();
        let (mut from, mut to) = (0, open.len());
        while from < to {
            let middle = from + (to - from) / 2;
            match open.get(middle) {
                Some(size) if self.is_slow(tables, sizes, *size, sp) => from = middle + 1,
                _ => to = middle,
            }
        }
    }

    /// Whether a step with the micro batch at a place takes too long, whatever its pipeline is.
    fn is_slow(
        &mut self,
        tables: &mut Tables,
        sizes: &mut Sizes,
        (place, micro_batch): (usize, u64),
        sp: bool,
    ) -> bool {
        self.plan.training.micro_batch_size = micro_batch;
        if self.sink.is_hopeless(sizes.least(place)) {
            return true;
        }
        if !sizes.knows(place)
            && let Some(times) = self.times_of_all(tables, sp)
        {
            let least = self.least_seconds(&times);
            sizes.learn(place, times, least);
        }
        self.sink.is_hopeless(sizes.least(place))
    }

    /// Whether some number of stages goes with a micro batch, may be fast enough, and is not too large with a smaller one.
    fn is_open(&self, sizes: &Sizes, grids: Option<&[Grid]>, place: usize) -> bool {
        match grids {
            Some(grids) => grids.iter().any(|grid| {
                !self.is_stage_hopeless(sizes, grid.stages, place) && !grid.is_too_large(self.sink)
            }),
            None => sizes.least_on_any(place).is_some_and(|least| !self.sink.is_hopeless(least)),
        }
    }

    /// Whether a number of stages does not go with the micro batch at a place, or can't matter for the first row with it.
    fn is_stage_hopeless(&self, sizes: &Sizes, stages: usize, place: usize) -> bool {
        sizes.least_on(place, stages).is_none_or(|least| self.sink.is_hopeless(least))
    }

    /// Times as long as its work that a step takes at least, by micro batch: whatever the number of stages is, then by it. A stage stands
    /// still for some micro batches.
    fn times_as_long(&self, tables: &Tables) -> Vec<f64> {
        let mut longer = Vec::new();
        for &micro_batch in &self.subspace.micro_batches {
            let first = longer.len();
            longer.push(f64::INFINITY);
            for (&pp, row) in self.subspace.stages.iter().zip(&tables.rows) {
                let on = self
                    .microbatches_on(micro_batch, pp)
                    .map_or(f64::INFINITY, |count| 1.0 + row.waits / count as f64);
                longer.push(on);
                if let Some(shortest) = longer.get_mut(first) {
                    *shortest = shortest.min(on);
                }
            }
        }
        longer
    }

    /// Whether no micro batch of the part can matter for the first row.
    ///
    /// A sequence takes the longer the fewer of them are computed at once, for each time is a share of the work and what a start
    /// costs; and context parallelism makes rows fewer and sends more. So the largest micro batch bounds all others, and without
    /// context parallelism it bounds all parts that differ in that alone.
    fn is_hopeless_whatever_the_batch(&mut self, tables: &mut Tables, sp: bool) -> bool {
        if !self.sink.knows_enough() || !tables.are_whole {
            return false;
        }
        let mut sizes = [1, self.part.cp].into_iter();
        sizes.any(|cp| {
            let least = self.least_of_batches(tables, sp, cp);
            self.sink.is_hopeless(least)
        })
    }

    /// What a step of any pipeline and micro batch takes at least, were `cp` the part's context parallelism.
    fn least_of_batches(&mut self, tables: &mut Tables, sp: bool, cp: u64) -> f64 {
        let key = alike(self.subspace, &self.part, sp, cp);
        if let Some(least) = self.least.get(&key) {
            return *least;
        }
        let micro_batch = self.subspace.micro_batches.iter().copied().max().unwrap_or(1);
        let part = std::mem::replace(&mut self.part.cp, cp);
        self.plan.training.micro_batch_size = micro_batch;
        let least = self.times_of_all(tables, sp).map_or(0.0, |times| self.least_seconds(&times));
        self.plan.training.micro_batch_size = 1;
        self.part.cp = part;
        self.least.insert(key, least);
        least
    }

    /// Whether a micro batch divides the batch with some number of stages.
    pub(super) fn divides_batch(&self, micro_batch: u64) -> bool {
        self.subspace.stages.iter().any(|&pp| self.microbatches_on(micro_batch, pp).is_some())
    }

    /// Micro batches of so many sequences on so many stages; none where they don't divide the batch, or the axes the ranks.
    pub(super) fn microbatches_on(&self, micro_batch: u64, pp: u64) -> Option<u64> {
        self.microbatches(micro_batch, self.replicas(pp)?)
    }

    /// The same with so many replicas.
    fn microbatches(&self, micro_batch: u64, replicas: u64) -> Option<u64> {
        let samples = micro_batch.saturating_mul(replicas);
        let global = self.plan.training.global_batch_size;
        (samples > 0 && global.is_multiple_of(samples)).then(|| global / samples)
    }

    /// Replicas of so many stages; none where the axes don't divide the ranks.
    fn replicas(&self, pp: u64) -> Option<u64> {
        let ranks = self.part.tp.saturating_mul(self.part.cp).saturating_mul(pp);
        self.divides(pp).then(|| self.plan.world_size() / ranks.max(1))
    }

    /// Seconds of the part at work with the plan's micro batch, where they bound every pipeline's step and that is asked for.
    fn times_of_all(&mut self, tables: &mut Tables, sp: bool) -> Option<Times> {
        if !self.sink.knows_enough() || !tables.are_whole {
            return None;
        }
        self.set_grid(1, sp);
        tables.turn_to(self.plan);
        Some(self.times(&mut tables.clock))
    }

    /// What a step takes at least, however many stages it has: stages share the work, and as many ranks fewer share the batch.
    pub(super) fn least_seconds(&self, times: &Times) -> f64 {
        let training = &self.plan.training;
        let micro_batches = training.global_batch_size as f64 / training.micro_batch_size.max(1) as f64;
        times.whole.least() * micro_batches * (self.part.tp * self.part.cp) as f64
            / self.plan.world_size() as f64
    }

    fn refuse_everything(&mut self) {
        let all = self.subspace.candidates_of_grid();
        for (rule, count) in &self.subspace.refused_recompute {
            let sets = self.sets().max(1);
            self.refuse(rule, all / sets * count);
        }
    }

    /// The grids that rules allow whatever the micro batch is, and that may be fast enough with some.
    fn grids(&mut self, tables: &mut Tables, sp: bool, sizes: &Sizes) -> Vec<Grid> {
        let subspace = self.subspace;
        let mut found = Vec::new();
        let by_batch = self.plan.training.low_precision.is_some();
        for (stages, &pp) in subspace.stages.iter().enumerate() {
            let hopeless = |place: usize| self.is_stage_hopeless(sizes, stages, place);
            if self.sink.dismisses() && (0..subspace.micro_batches.len()).all(hopeless) {
                continue;
            }
            self.set_grid(pp, sp);
            self.plan.layout.dp_replicate = 1;
            // In low precision the micro batch decides, unless there are no whole ranks at all.
            let broken = first_broken(&Shape::of(self.plan), Aspect::Grid);
            if let Some((rule, _)) = broken.filter(|_| !by_batch || !self.divides(pp)) {
                let batches = subspace.micro_batches.len() as u64;
                self.refuse(rule, self.sets_and_pipes(stages).saturating_mul(batches));
                continue;
            }
            tables.turn_to(self.plan);
            let inputs = time::inputs_at_least(self.plan, tables.clock.profile);
            found.push(Grid {
                dp: self.plan.layout.dp,
                pipe: inputs.pipe(),
                data: inputs.data(),
                states: Vec::new(),
                open: (0..subspace.pipes.get(stages).map_or(0, |pipes| pipes.len()))
                    .map(|number| number as u16)
                    .collect(),
                times: Vec::new(),
                outside: kept::outside(self.plan),
                stages,
                pipes: vec![None; subspace.pipes.get(stages).map_or(0, |pipes| pipes.len())],
            });
        }
        found
    }

    /// Whether the axes divide the ranks.
    fn divides(&self, pp: u64) -> bool {
        let world = self.plan.world_size();
        let whole =
            |one: u64, other: u64| world.is_multiple_of(one.saturating_mul(other).saturating_mul(pp).max(1));
        whole(self.part.tp, self.part.cp) && whole(self.part.ep, self.part.etp)
    }

    fn micro_batch(
        &mut self,
        tables: &mut Tables,
        grids: &mut [Grid],
        (mut times, sizes, size): (Option<Times>, &Sizes, usize),
        sp: bool,
    ) {
        let subspace = self.subspace;
        let by_batch = self.plan.training.low_precision.is_some();
        let hides = self.hides();
        let sets = self.sets();
        let whole = times.as_ref().map(|times| times.whole);
        let mut cells: Option<Cells> = None;
        let mut kinds: Vec<usize> = Vec::new();
        let (micro, global) = (self.plan.training.micro_batch_size, self.plan.training.global_batch_size);
        for grid in grids {
            let stages = grid.stages;
            if self.sink.dismisses()
                && (self.is_stage_hopeless(sizes, stages, size) || grid.is_too_large(self.sink))
            {
                continue;
            }
            let Some((&pp, pipes)) = subspace.stages.get(stages).zip(subspace.pipes.get(stages)) else {
                continue;
            };
            self.set_grid(pp, sp);
            if by_batch && let Some((rule, _)) = first_broken(&Shape::of(self.plan), Aspect::Grid) {
                self.refuse(rule, self.sets_and_pipes(stages));
                continue;
            }
            self.refuse_pipes(stages);
            // One rule of batches holds for every pipeline of a grid, and one for those whose micro batches come in groups.
            let batch = (micro, global, grid.dp);
            let alone = broken_batch(batch, (Schedule::OneFOneB, pp, 1));
            if let Some(rule) = alone.filter(|_| !hides) {
                self.refuse(rule, sets.saturating_mul(pipes.len() as u64));
                continue;
            }
            let grouped = broken_batch(batch, (Schedule::Interleaved, pp, 2));
            let microbatches = global.checked_div(micro.saturating_mul(grid.dp)).unwrap_or(1);
            if let Some((whole, row)) = whole.zip(tables.rows.get(stages)) {
                let timed = Pipe { microbatches: microbatches.max(1) as f64, ..grid.pipe };
                if self.sink.is_hopeless(whole.least_with_waits(&timed, row.waits)) {
                    continue;
                }
            }
            let place = tables.place_of(microbatches);
            cells.iter_mut().flat_map(|cells| &mut cells.sets).for_each(|cell| cell.longest.clear());
            let (mut valid, mut in_groups) = (0, 0);
            let dismisses = self.sink.dismisses();
            for at in 0..grid.open.len() {
                let number = grid.open.get(at).map_or(usize::MAX, |number| usize::from(*number));
                let Some(pipe) = pipes.get(number) else { continue };
                let out_of_step = grouped.is_some() && pipe.schedule == Schedule::Interleaved && pipe.vpp > 1;
                if dismisses && out_of_step {
                    continue;
                }
                let timed = Pipe {
                    chunks: pipe.vpp.max(1) as f64,
                    microbatches: microbatches.max(1) as f64,
                    schedule: pipe.schedule,
                    ..grid.pipe
                };
                if whole.is_some_and(|whole| self.sink.is_hopeless(whole.least_of_pipe(&timed))) {
                    continue;
                }
                let known = grid.pipes.get(number).copied().flatten();
                let known = known.unwrap_or_else(|| self.on_grid(grid, tables, (number, pipe)));
                let few = microbatches < pp && wants_full_stages(&self.plan.software, pipe.schedule);
                if let Some(rule) = known.refused.or(alone).or(few.then_some(FULL_RULE)) {
                    self.refuse(rule, sets);
                    continue;
                }
                if out_of_step {
                    in_groups += 1;
                    continue;
                }
                valid += 1;
                let far = self.sink.all_far(subspace.recompute.len() as u64, known.least_bytes);
                if far || known.too_large && self.sink.only_first() {
                    continue;
                }
                let times = &*times.get_or_insert_with(|| self.times(&mut tables.clock));
                let Tables { rows, clock, classes, kinds: layer_kinds, spare, .. } = &mut *tables;
                let Some(Row { times: compositions, pipes, .. }) = rows.get_mut(stages) else { continue };
                let Some(table) = pipes.get_mut(number) else { continue };
                let composition = table.time;
                let Some((stages_of, whole)) = compositions.get(composition) else { continue };
                let (machine, terms) = (&clock.machine, times.works.base());
                if grid.times.len() < compositions.len() {
                    grid.times.resize(compositions.len(), None);
                }
                let Some(state) = grid.times.get_mut(composition) else { continue };
                let state: &State =
                    state.get_or_insert_with(|| State::of(machine, terms, stages_of, &timed, &grid.data));
                let around = StepOverhead::of(machine, terms, &timed, &grid.data, state);
                let of_step = OfStep { machine, stages: stages_of, bounded: *whole, around, timed, state };
                // Bytes of what takes too long are not asked for.
                let least = of_step.least(&times.whole);
                if self.sink.is_hopeless(least) {
                    continue;
                }
                let plan = &mut *self.plan;
                let held = table.held(place, plan, classes, |plan| set_pipe(plan, pipe));
                telling_kinds(&mut kinds, held, &grid.states);
                let cells =
                    cells.get_or_insert_with(|| self.cells((layer_kinds, classes.len()), times, spare));
                let held = table.known(place);
                for held in held {
                    if let Some(class) = classes.get(held.class) {
                        cells.fill(held.class, class);
                    }
                }
                let of_pipe = OfPipe {
                    of_step,
                    works: &times.works,
                    composition,
                    least,
                    outside: grid.outside,
                    kinds: &kinds,
                    held,
                    states: &grid.states,
                    candidate: self.candidate(stages, number),
                };
                let too_large = of_pipe.put(cells, self.plan, self.sink);
                if let Some(slot) = grid.pipes.get_mut(number) {
                    *slot = Some(OnGrid { too_large: known.too_large || too_large, ..known });
                }
            }
            if dismisses {
                let Grid { open, pipes, .. } = grid;
                let known = |number: u16| pipes.get(usize::from(number)).copied().flatten();
                open.retain(|&number| !known(number).is_some_and(|known| known.is_closed(self.sink)));
            }
            if let Some(rule) = grouped {
                self.refuse(rule, sets.saturating_mul(in_groups));
            }
            self.refuse_sets(valid);
        }
        if let Some(cells) = cells {
            cells.give(&mut tables.spare);
        }
    }

    /// What holds of a pipeline on a grid, which is kept there.
    fn on_grid(
        &mut self,
        grid: &mut Grid,
        tables: &mut Tables,
        (number, pipe): (usize, &pipes::Pipe),
    ) -> OnGrid {
        let mut refused = None;
        if self.hides() {
            let layout = &mut self.plan.layout;
            (layout.pp, layout.vpp) = (pipe.pp, pipe.vpp);
            refused = first_broken(&Shape::of(self.plan), Aspect::Overlap).map(|(rule, _)| rule);
        }
        let least = tables.fill_states(self.plan, (grid.stages, number), &mut grid.states);
        let least_bytes = kept::taken(self.plan, least, grid.outside);
        let known = OnGrid { refused, least_bytes, too_large: false };
        if let Some(slot) = grid.pipes.get_mut(number) {
            *slot = Some(known);
        }
        known
    }

    /// Whether some communication hides, which has rules of its own.
    fn hides(&self) -> bool {
        let overlap = &self.plan.training.overlap;
        overlap.tp || overlap.ep || !overlap.p2p
    }

    /// The seconds of a micro batch.
    pub(super) fn times(&self, clock: &mut Clock) -> Times {
        let inputs = time::inputs_at_least(self.plan, clock.profile);
        let works = clock.works(self.part.subspace, &inputs);
        let of = |(again, &host_share): (&Option<Recompute>, &f64)| match again {
            Some(again) => (*again, host_share, ModelBound::of(&clock.machine, &works, again, host_share)),
            None => (Recompute::default(), host_share, ModelBound::default()),
        };
        let sets: Vec<(Recompute, f64, ModelBound)> =
            clock.again.iter().zip(&clock.host_shares).map(of).collect();
        let whole = sets.iter().map(|(_, _, whole)| *whole).reduce(ModelBound::join).unwrap_or_default();
        Times { works, sets, whole }
    }

    /// The cells of a micro batch, of so many classes of stages.
    fn cells(&mut self, (kinds, classes): (&[LayerKind], usize), times: &Times, spare: &mut Spare) -> Cells {
        let layers = self.with_sets(|plan| LayerTerms::new(plan, kinds));
        let cell = |(&(again, host_share, whole), layers): (&_, LayerTerms)| Cell {
            bytes: Saved::new(classes, layers.experts(), spare),
            layers,
            again,
            host_share,
            whole,
            terms: None,
            longest: Vec::new(),
        };
        let sets: Vec<Cell> = times.sets.iter().zip(layers).map(cell).collect();
        let mut joined = |of: fn(f64, f64) -> f64| {
            let mut each = sets.iter().map(|cell| &cell.bytes.experts);
            let first = each.next().cloned().unwrap_or_default();
            Saved::new(classes, each.fold(first, |one, other| one.join(other, of)), spare)
        };
        let bytes = [joined(kept::smaller), joined(kept::larger)];
        let known = vec![false; classes];
        Cells { sets, bytes, known, upper: Upper::of(self.plan) }
    }
}
