//! What a micro batch of a part takes, and pipelines with it: bytes and seconds of each set of what is recomputed.

use super::candidate::Candidate;
use super::sink::Sink;
use super::tables::Held;
use super::worker::seconds;
use crate::memory::kept::{self, Class, ClassTerms, ExpertTerms, GridTerms, LayerTerms, Upper};
use crate::plan::Plan;
use crate::time::{
    Longest, Machine, ModelBound, Pipe, Recompute, Stages, State, StepOverhead, Terms, WorkTables, step_of,
};

/// What depends on the rank grid without its stages, and on the micro batch.
pub(super) struct Cells {
    /// By what is recomputed.
    pub(super) sets: Vec<Cell>,
    /// What holds for every set: bytes at least and at most.
    pub(super) bytes: [Saved; 2],
    /// Classes of stages whose bytes are known.
    pub(super) known: Vec<bool>,
    /// The high end of likely ranges.
    pub(super) upper: Upper,
}

/// Bytes of one set, or bounds of those of all.
pub(super) struct Saved {
    /// By class of stages; of those that some pipeline has asked for.
    pub(super) classes: Vec<ClassTerms>,
    pub(super) experts: ExpertTerms,
}

/// Lists of bytes by class whose cells are done with: they are long, and each micro batch of each part needs some.
pub(super) type Spare = Vec<Vec<ClassTerms>>;

impl Saved {
    pub(super) fn new(classes: usize, experts: ExpertTerms, spare: &mut Spare) -> Saved {
        // What is in them is some other cell's: they are read where they were filled.
        let mut of_classes = spare.pop().unwrap_or_default();
        of_classes.resize(classes, ClassTerms::default());
        Saved { classes: of_classes, experts }
    }
}

/// Of cells, what depends on what is recomputed.
pub(super) struct Cell {
    pub(super) layers: LayerTerms,
    pub(super) bytes: Saved,
    pub(super) again: Recompute,
    /// Share of host time that graphs leave.
    pub(super) host_share: f64,
    /// What every pipeline takes at least.
    pub(super) whole: ModelBound,
    /// Once they were asked for: the step of few candidates is computed.
    pub(super) terms: Option<Box<Terms>>,
    /// The longest stage of each composition of one grid, once it was asked for.
    pub(super) longest: Vec<Option<Longest>>,
}

impl Cells {
    /// Gives their lists back.
    pub(super) fn give(self, spare: &mut Spare) {
        let of_sets = self.sets.into_iter().map(|cell| cell.bytes);
        spare.extend(of_sets.chain(self.bytes).map(|bytes| bytes.classes));
    }

    /// Makes sure that bytes of stages of a class are known: few pipelines come so far.
    pub(super) fn fill(&mut self, number: usize, class: &Class) {
        let Some(known) = self.known.get_mut(number).filter(|known| !**known) else { return };
        *known = true;
        let [least, most] = &mut self.bytes;
        for (place, cell) in self.sets.iter_mut().enumerate() {
            let Some(terms) = cell.bytes.classes.get_mut(number) else { continue };
            *terms = cell.layers.of_class(class);
            let bounds = least.classes.get_mut(number).zip(most.classes.get_mut(number));
            let Some((least, most)) = bounds else { continue };
            if place == 0 {
                (*least, *most) = (*terms, *terms);
            } else {
                least.join(terms, kept::smaller);
                most.join(terms, kept::larger);
            }
        }
    }
}

/// Finds the kinds of stages that may be the fullest, those of which no other takes as much whatever is recomputed.
pub(super) fn telling_kinds(kinds: &mut Vec<usize>, held: &[Held], states: &[Option<GridTerms>]) {
    let state = |held: &Held| states.get(held.state)?.as_ref();
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

/// The step of a pipeline on a grid with a micro batch: all but what is recomputed.
pub(super) struct OfStep<'a> {
    pub(super) machine: &'a Machine,
    /// Its stages as time sees them.
    pub(super) stages: &'a Stages,
    /// Whether these hold each layer once, so that a step has a bound.
    pub(super) bounded: bool,
    pub(super) around: StepOverhead,
    pub(super) timed: Pipe,
    pub(super) state: &'a State,
}

impl OfStep<'_> {
    /// Seconds at least, with what a micro batch takes in all stages; 0 where nothing is known.
    pub(super) fn least(&self, whole: &ModelBound) -> f64 {
        match self.bounded {
            true => whole.least_seconds(self.machine, &self.timed, self.state, &self.around),
            false => 0.0,
        }
    }
}

/// The same with its memory.
pub(super) struct OfPipe<'a> {
    pub(super) of_step: OfStep<'a>,
    pub(super) works: &'a WorkTables,
    /// Which of the compositions of stages these are.
    pub(super) composition: usize,
    /// Seconds at least with every set.
    pub(super) least: f64,
    pub(super) outside: u64,
    /// What its kinds of stages hold, of which these may be the fullest.
    pub(super) held: &'a [Held],
    pub(super) kinds: &'a [usize],
    pub(super) states: &'a [Option<GridTerms>],
    pub(super) candidate: Candidate,
}

impl OfPipe<'_> {
    /// The upper end of the likely range of those bytes: not always the fullest rank's, so every kind of stage is looked at.
    pub(super) fn high(&self, plan: &Plan, upper: &Upper, saved: &Saved) -> u64 {
        let ends = self.held.iter().filter_map(|held| {
            let (terms, state) = saved.classes.get(held.class).zip(self.states.get(held.state)?.as_ref())?;
            Some(kept::upper_end(plan, upper, (terms, &saved.experts), state, &held.alive, self.outside))
        });
        ends.max().unwrap_or(0)
    }

    /// Bytes that the fullest rank takes of the GPU with these terms by class.
    #[inline]
    pub(super) fn taken(&self, plan: &Plan, bytes: &[ClassTerms]) -> u64 {
        let mut most = 0.0f64;
        for held in self.kinds.iter().filter_map(|&kind| self.held.get(kind)) {
            let state = self.states.get(held.state).and_then(Option::as_ref);
            if let Some((terms, state)) = bytes.get(held.class).zip(state) {
                most = kept::larger(most, kept::allocated(terms, state, &held.alive));
            }
        }
        kept::taken(plan, most, self.outside)
    }

    /// Computes all sets. Gives whether all of them are too large.
    pub(super) fn put(&self, cells: &mut Cells, plan: &Plan, sink: &mut Sink) -> bool {
        let OfPipe { of_step, works, composition, .. } = self;
        let OfStep { machine, stages, timed, state, around, .. } = of_step;
        let Cells { sets, bytes, upper, .. } = cells;
        let ([least, most], upper) = (&*bytes, &*upper);
        let least_bytes = self.taken(plan, &least.classes);
        let too_large = sink.is_too_large(least_bytes);
        if sink.all_far(sets.len() as u64, least_bytes) {
            return too_large;
        }
        let bounds = [least_bytes, self.taken(plan, &most.classes)];
        let highs = [least, most].map(|bytes| move || self.high(plan, upper, bytes));
        if sink.all_beaten(sets.len() as u64, bounds, highs, self.least) {
            return too_large;
        }
        for (set, cell) in sets.iter_mut().enumerate() {
            let least = of_step.least(&cell.whole);
            if sink.is_hopeless(least) {
                continue;
            }
            let peak_bytes = self.taken(plan, &cell.bytes.classes);
            let high = || self.high(plan, upper, &cell.bytes);
            let candidate = Candidate { recompute: set as u16, ..self.candidate };
            sink.put(candidate, peak_bytes, high, least, || {
                let timed = &Pipe { host_share: cell.host_share, ..*timed };
                if cell.longest.len() <= *composition {
                    cell.longest.resize(composition + 1, None);
                }
                let Some(longest) = cell.longest.get_mut(*composition) else { return f64::INFINITY };
                let longest = longest.get_or_insert_with(|| {
                    let terms = cell.terms.get_or_insert_with(|| Box::new(works.terms(&cell.again)));
                    Longest::of(machine, terms, stages, timed)
                });
                seconds(step_of(machine, longest, timed, state, around).total())
            });
        }
        too_large
    }
}
