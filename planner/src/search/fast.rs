//! Candidates of a part from kept terms: rules, layer terms and state each at the outermost loop that they depend on, so
//! that a candidate itself is a few dozen multiplications.
//!
//! Rank grids are outermost, then micro batches, then pipelines, then what is recomputed. What `run` of a worker computes
//! plan by plan comes out the same: a test holds both against each other.

use super::candidate::Candidate;
use super::sink::Sink;
use super::space::set_pipe;
use super::stages as pipes;
use super::tables::{Clock, Held, PipeTable, Row, Tables};
use super::worker::{Grids, alike, seconds};
use crate::layout::{Aspect, Shape, broken_batch, first_broken};
use crate::memory::kept::{self, Class, ClassTerms, ExpertTerms, GridTerms, LayerTerms, Upper};
use crate::plan::Plan;
use crate::settings::Schedule;
use crate::time::{
    self, Around, DataParallel, Longest, Machine, Pipe, Recompute, Stages, State, Terms, Whole, Works,
    step_of,
};

/// What depends on the rank grid, stages included.
struct Grid {
    dp: u64,
    pipe: Pipe,
    data: DataParallel,
    /// By kind of state; once some pipeline on the grid can matter.
    states: Vec<GridTerms>,
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
        let known = |pipe: &Option<OnGrid>| {
            pipe.is_some_and(|known| {
                let far = sink.dismisses() && sink.is_too_large(known.least_bytes);
                far || known.too_large || known.refused.is_some()
            })
        };
        self.pipes.iter().all(known)
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

/// Seconds that depend on the rank grid without its stages, and on the micro batch.
pub(super) struct Times {
    pub(super) works: Works,
    /// By what is recomputed, with the share of host time that graphs leave, and what every pipeline takes at least.
    sets: Vec<(Recompute, f64, Whole)>,
    /// What holds for every set.
    pub(super) whole: Whole,
}

/// What depends on the rank grid without its stages, and on the micro batch.
struct Cells {
    works: Works,
    /// By what is recomputed.
    sets: Vec<Cell>,
    /// What holds for every set: bytes at least and at most, and seconds.
    bytes: [Saved; 2],
    /// Classes of stages whose bytes are known.
    known: Vec<bool>,
    whole: Whole,
    /// The high end of likely ranges.
    upper: Upper,
}

/// Bytes of one set, or bounds of those of all.
struct Saved {
    /// By class of stages; of those that some pipeline has asked for.
    classes: Vec<ClassTerms>,
    experts: ExpertTerms,
}

impl Saved {
    fn new(classes: usize, experts: ExpertTerms) -> Saved {
        Saved { classes: vec![ClassTerms::default(); classes], experts }
    }
}

/// Of cells, what depends on what is recomputed.
struct Cell {
    layers: Box<LayerTerms>,
    bytes: Saved,
    again: Recompute,
    /// Share of host time that graphs leave.
    host_share: f64,
    /// What every pipeline takes at least.
    whole: Whole,
    /// Once they were asked for: the step of few candidates is computed.
    terms: Option<Box<Terms>>,
    /// The longest stage of each composition of one grid, once it was asked for.
    longest: Vec<Option<Longest>>,
}

impl Grids<'_> {
    /// Computes all candidates of the part from kept terms.
    pub(super) fn run_kept(&mut self, tables: &mut Tables) {
        let usual = [self.corner.usual_sp(self.part.tp)];
        let corner = self.corner;
        let Some((_, training)) = corner.recompute.first() else {
            // Nothing is left to compute, but what was refused is counted.
            return self.refuse_everything();
        };
        for &sp in corner.sp.as_deref().unwrap_or(&usual) {
            self.plan.training.micro_batch_size = 1;
            self.set_recompute(training);
            if self.is_hopeless_whatever_the_batch(tables, sp) {
                continue;
            }
            let mut grids = None;
            for &micro_batch in &corner.micro_batches {
                self.plan.training.micro_batch_size = micro_batch;
                if self.sink.dismisses() && !self.divides_batch() {
                    continue;
                }
                // Nothing that fits is left for a larger micro batch.
                let full = |grids: &Vec<Grid>| grids.iter().all(|grid| grid.is_too_large(self.sink));
                if self.sink.only_first() && grids.as_ref().is_some_and(full) {
                    break;
                }
                let times = match self.times_of_all(tables, sp) {
                    Some(times) if self.sink.is_hopeless(self.least_seconds(&times)) => continue,
                    times => times,
                };
                self.plan.training.micro_batch_size = 1;
                let grids = grids.get_or_insert_with(|| self.grids(tables, sp));
                self.plan.training.micro_batch_size = micro_batch;
                self.micro_batch(tables, grids, times, sp);
            }
        }
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
        let key = alike(self.corner, &self.part, sp, cp);
        if let Some(least) = self.least.get(&key) {
            return *least;
        }
        let micro_batch = self.corner.micro_batches.iter().copied().max().unwrap_or(1);
        let part = std::mem::replace(&mut self.part.cp, cp);
        self.plan.training.micro_batch_size = micro_batch;
        let least = self.times_of_all(tables, sp).map_or(0.0, |times| self.least_seconds(&times));
        self.plan.training.micro_batch_size = 1;
        self.part.cp = part;
        self.least.insert(key, least);
        least
    }

    /// Whether the plan's micro batch divides the batch with some number of stages.
    pub(super) fn divides_batch(&self) -> bool {
        let (training, world) = (&self.plan.training, self.plan.world_size());
        self.corner.stages.iter().any(|&pp| {
            let ranks = self.part.tp.saturating_mul(self.part.cp).saturating_mul(pp);
            let samples = training.micro_batch_size.saturating_mul(world / ranks.max(1));
            self.divides(pp) && samples > 0 && training.global_batch_size.is_multiple_of(samples)
        })
    }

    /// Seconds of the part at work with the plan's micro batch, where they bound every pipeline's step and that is asked for.
    fn times_of_all(&mut self, tables: &mut Tables, sp: bool) -> Option<Times> {
        if !self.sink.knows_enough() || !tables.are_whole {
            return None;
        }
        self.set_grid(1, sp);
        tables.turn_to(self.plan);
        Some(self.times(&tables.clock))
    }

    /// What a step takes at least, however many stages it has: stages share the work, and as many ranks fewer share the batch.
    pub(super) fn least_seconds(&self, times: &Times) -> f64 {
        let training = &self.plan.training;
        let micro_batches = training.global_batch_size as f64 / training.micro_batch_size.max(1) as f64;
        times.whole.least() * micro_batches * (self.part.tp * self.part.cp) as f64
            / self.plan.world_size() as f64
    }

    fn refuse_everything(&mut self) {
        let all = self.corner.candidates_of_grid();
        for (rule, count) in &self.corner.refused_recompute {
            let sets = self.sets().max(1);
            self.refuse(rule, all / sets * count);
        }
    }

    /// The grids that rules allow whatever the micro batch is.
    fn grids(&mut self, tables: &mut Tables, sp: bool) -> Vec<Grid> {
        let corner = self.corner;
        let mut found = Vec::new();
        let by_batch = self.plan.training.low_precision.is_some();
        for (stages, &pp) in corner.stages.iter().enumerate() {
            self.set_grid(pp, sp);
            self.plan.layout.dp_replicate = 1;
            // In low precision the micro batch decides, unless there are no whole ranks at all.
            let broken = first_broken(&Shape::of(self.plan), Aspect::Grid);
            if let Some((rule, _)) = broken.filter(|_| !by_batch || !self.divides(pp)) {
                let batches = corner.micro_batches.len() as u64;
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
                times: Vec::new(),
                outside: kept::outside(self.plan),
                stages,
                pipes: vec![None; corner.pipes.get(stages).map_or(0, Vec::len)],
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

    fn micro_batch(&mut self, tables: &mut Tables, grids: &mut [Grid], mut times: Option<Times>, sp: bool) {
        let corner = self.corner;
        let by_batch = self.plan.training.low_precision.is_some();
        let hides = self.hides();
        let sets = self.sets();
        let whole = times.as_ref().map(|times| times.whole);
        let mut cells: Option<Cells> = None;
        let mut kinds: Vec<usize> = Vec::new();
        let (micro, global) = (self.plan.training.micro_batch_size, self.plan.training.global_batch_size);
        for grid in grids {
            let stages = grid.stages;
            let Some((&pp, pipes)) = corner.stages.get(stages).zip(corner.pipes.get(stages)) else {
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
            if grid.states.is_empty() {
                let elements = tables.elements(self.plan, stages);
                grid.states = elements.iter().map(|elements| GridTerms::new(self.plan, elements)).collect();
            }
            let place = tables.place_of(microbatches);
            cells.iter_mut().flat_map(|cells| &mut cells.sets).for_each(|cell| cell.longest.clear());
            let (mut valid, mut in_groups) = (0, 0);
            for (number, pipe) in pipes.iter().enumerate() {
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
                if let Some(rule) = known.refused.or(alone) {
                    self.refuse(rule, sets);
                    continue;
                }
                if grouped.is_some() && pipe.schedule == Schedule::Interleaved && pipe.vpp > 1 {
                    in_groups += 1;
                    continue;
                }
                valid += 1;
                let far = self.sink.all_far(corner.recompute.len() as u64, known.least_bytes);
                if far || known.too_large && self.sink.only_first() {
                    continue;
                }
                let Tables { rows, classes, .. } = &mut *tables;
                let Some(row) = rows.get_mut(stages) else { continue };
                let Some(table) = row.pipes.get_mut(number) else { continue };
                let (composition, plan) = (table.time, &mut *self.plan);
                let held = table.held(place, plan, classes, |plan| set_pipe(plan, pipe));
                telling_kinds(&mut kinds, held, &grid.states);
                let cells = cells.get_or_insert_with(|| {
                    let times = times.take().unwrap_or_else(|| self.times(&tables.clock));
                    self.cells(tables, times)
                });
                let Tables { rows, clock, classes, .. } = &*tables;
                let machine = &clock.machine;
                let Some(Row { times, pipes, .. }) = rows.get(stages) else { continue };
                let Some(table) = pipes.get(number) else { continue };
                let Some((stages_of, whole)) = times.get(composition) else { continue };
                for held in table.known(place) {
                    if let Some(class) = classes.get(held.class) {
                        cells.fill(held.class, class);
                    }
                }
                let terms = cells.works.base();
                if grid.times.len() < times.len() {
                    grid.times.resize(times.len(), None);
                }
                let Some(state) = grid.times.get_mut(composition) else { continue };
                let state =
                    *state.get_or_insert_with(|| State::of(machine, terms, stages_of, &timed, &grid.data));
                let of_pipe = OfPipe {
                    machine,
                    composition: (composition, stages_of),
                    bounded: *whole,
                    around: Around::of(machine, terms, &timed, &grid.data, &state),
                    timed,
                    state,
                    outside: grid.outside,
                    kinds: &kinds,
                    held: table.known(place),
                    states: &grid.states,
                    candidate: self.candidate(stages, number),
                };
                let too_large = of_pipe.put(cells, self.plan, self.sink);
                if let Some(slot) = grid.pipes.get_mut(number) {
                    *slot = Some(OnGrid { too_large: known.too_large || too_large, ..known });
                }
            }
            if let Some(rule) = grouped {
                self.refuse(rule, sets.saturating_mul(in_groups));
            }
            self.refuse_sets(valid);
        }
    }

    /// What holds of a pipeline on a grid, which is kept there.
    fn on_grid(&mut self, grid: &mut Grid, tables: &Tables, (number, pipe): (usize, &pipes::Pipe)) -> OnGrid {
        let mut refused = None;
        if self.hides() {
            let layout = &mut self.plan.layout;
            (layout.pp, layout.vpp) = (pipe.pp, pipe.vpp);
            refused = first_broken(&Shape::of(self.plan), Aspect::Overlap).map(|(rule, _)| rule);
        }
        let states = tables.rows.get(grid.stages).and_then(|row| row.pipes.get(number));
        let states = states.into_iter().flat_map(PipeTable::states).filter_map(|at| grid.states.get(at));
        let least = states.map(GridTerms::least).fold(0.0, kept::larger);
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
    pub(super) fn times(&self, clock: &Clock) -> Times {
        let inputs = time::inputs_at_least(self.plan, clock.profile);
        let works = Works::new(&clock.machine, &inputs.split(), &inputs.manner(), &clock.shape);
        let of = |(again, &host_share): (&Option<Recompute>, &f64)| match again {
            Some(again) => (*again, host_share, Whole::of(&clock.machine, &works, again, host_share)),
            None => (Recompute::default(), host_share, Whole::default()),
        };
        let sets: Vec<(Recompute, f64, Whole)> = clock.again.iter().zip(&clock.host_shares).map(of).collect();
        let whole = sets.iter().map(|(_, _, whole)| *whole).reduce(Whole::join).unwrap_or_default();
        Times { works, sets, whole }
    }

    /// The cells of a micro batch.
    fn cells(&mut self, tables: &Tables, times: Times) -> Cells {
        let Times { works, sets, whole } = times;
        let layers = self.with_sets(|plan| Box::new(LayerTerms::new(plan, &tables.kinds)));
        let classes = tables.classes.len();
        let cell = |((again, host_share, whole), layers): (_, Box<LayerTerms>)| Cell {
            bytes: Saved::new(classes, layers.experts()),
            layers,
            again,
            host_share,
            whole,
            terms: None,
            longest: Vec::new(),
        };
        let sets: Vec<Cell> = sets.into_iter().zip(layers).map(cell).collect();
        let joined = |of: fn(f64, f64) -> f64| {
            let all = sets.iter().map(|cell| cell.bytes.experts).reduce(|one, other| one.join(&other, of));
            Saved::new(classes, all.unwrap_or_default())
        };
        let bytes = [joined(kept::smaller), joined(kept::larger)];
        let known = vec![false; classes];
        Cells { works, sets, bytes, known, whole, upper: Upper::of(self.plan) }
    }
}

impl Cells {
    /// Makes sure that bytes of stages of a class are known: few pipelines come so far.
    fn fill(&mut self, number: usize, class: &Class) {
        let Some(known) = self.known.get_mut(number).filter(|known| !**known) else { return };
        *known = true;
        let [least, most] = &mut self.bytes;
        for (place, cell) in self.sets.iter_mut().enumerate() {
            let terms = cell.layers.of_class(class);
            for (bounds, of) in
                [(&mut *least, kept::smaller as fn(f64, f64) -> f64), (&mut *most, kept::larger)]
            {
                if let Some(bound) = bounds.classes.get_mut(number) {
                    *bound = if place == 0 { terms } else { bound.join(&terms, of) };
                }
            }
            if let Some(slot) = cell.bytes.classes.get_mut(number) {
                *slot = terms;
            }
        }
    }
}

/// Finds the kinds of stages that may be the fullest, those of which no other takes as much whatever is recomputed.
fn telling_kinds(kinds: &mut Vec<usize>, held: &[Held], states: &[GridTerms]) {
    let state = |held: &Held| states.get(held.state);
    kinds.clear();
    for (number, one) in held.iter().enumerate() {
        let Some(mine) = state(one) else { continue };
        let is_under =
            |other: &usize| held.get(*other).and_then(state).is_some_and(|others| mine.within(others));
        if !one.under.iter().any(is_under) {
            kinds.push(number);
        }
    }
}

/// A pipeline on a grid with a micro batch: all but what is recomputed.
struct OfPipe<'a> {
    machine: &'a Machine,
    /// Its stages as time sees them, and which of the compositions they are.
    composition: (usize, &'a Stages),
    /// Whether these hold each layer once, so that a step has a bound.
    bounded: bool,
    around: Around,
    timed: Pipe,
    state: State,
    outside: u64,
    /// What its kinds of stages hold, of which these may be the fullest.
    held: &'a [Held],
    kinds: &'a [usize],
    states: &'a [GridTerms],
    candidate: Candidate,
}

impl OfPipe<'_> {
    /// The upper end of the likely range of those bytes: not always the fullest rank's, so every kind of stage is looked at.
    fn high(&self, plan: &Plan, upper: &Upper, saved: &Saved) -> u64 {
        let ends = self.held.iter().filter_map(|held| {
            let (terms, state) = saved.classes.get(held.class).zip(self.states.get(held.state))?;
            Some(kept::upper_end(plan, upper, (terms, &saved.experts), state, &held.alive, self.outside))
        });
        ends.max().unwrap_or(0)
    }

    /// Bytes that the fullest rank takes of the GPU with these terms by class.
    #[inline]
    fn taken(&self, plan: &Plan, bytes: &[ClassTerms]) -> u64 {
        let mut most = 0.0f64;
        for held in self.kinds.iter().filter_map(|&kind| self.held.get(kind)) {
            if let Some((terms, state)) = bytes.get(held.class).zip(self.states.get(held.state)) {
                most = kept::larger(most, kept::allocated(terms, state, &held.alive));
            }
        }
        kept::taken(plan, most, self.outside)
    }

    /// Computes all sets. Gives whether all of them are too large.
    fn put(&self, cells: &mut Cells, plan: &Plan, sink: &mut Sink) -> bool {
        let OfPipe { machine, composition: (number, stages), timed, .. } = self;
        let least = |whole: &Whole| match self.bounded {
            true => whole.least_seconds(machine, timed, &self.state, &self.around),
            false => 0.0,
        };
        let Cells { works, sets, bytes, whole, upper, .. } = cells;
        let (bytes, upper) = (&*bytes, &*upper);
        let bounds = bytes.each_ref().map(|bytes| self.taken(plan, &bytes.classes));
        let highs = bytes.each_ref().map(|bytes| move || self.high(plan, upper, bytes));
        let too_large = sink.is_too_large(bounds[0]);
        if sink.all_beaten(sets.len() as u64, bounds, highs, least(whole)) {
            return too_large;
        }
        for (set, cell) in sets.iter_mut().enumerate() {
            if sink.is_hopeless(least(&cell.whole)) {
                continue;
            }
            let peak_bytes = self.taken(plan, &cell.bytes.classes);
            let high = || self.high(plan, upper, &cell.bytes);
            let candidate = Candidate { recompute: set as u16, ..self.candidate };
            sink.put(candidate, peak_bytes, high, least(&cell.whole), || {
                let timed = &Pipe { host_share: cell.host_share, ..*timed };
                if cell.longest.len() <= *number {
                    cell.longest.resize(number + 1, None);
                }
                let Some(longest) = cell.longest.get_mut(*number) else { return f64::INFINITY };
                let longest = longest.get_or_insert_with(|| {
                    let terms = cell.terms.get_or_insert_with(|| Box::new(works.terms(&cell.again)));
                    Longest::of(machine, terms, stages, timed)
                });
                seconds(step_of(machine, longest, timed, &self.state, &self.around).total())
            });
        }
        too_large
    }
}
