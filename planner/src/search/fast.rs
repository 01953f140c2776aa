//! Candidates of a part from kept terms: rules, layer terms and state each at the outermost loop that they depend on, so
//! that a candidate itself is a few dozen multiplications.
//!
//! Rank grids are outermost, then micro batches, then pipelines, then what is recomputed. What `run` of a worker computes
//! plan by plan comes out the same: a test holds both against each other.

use super::candidate::Candidate;
use super::sink::Sink;
use super::space::set_pipe;
use super::tables::Tables;
use super::worker::{Grids, seconds};
use crate::layout::{Aspect, Shape, broken_batch, first_broken};
use crate::memory::kept::{self, Alive, GridTerms, LayerTerms, StageKind};
use crate::plan::Plan;
use crate::time::{self, DataParallel, Longest, Machine, Pipe, Stages, Terms, step_of};

/// What depends on the rank grid, stages included.
struct Grid {
    dp: u64,
    pipe: Pipe,
    data: DataParallel,
    /// By kind of state.
    states: Vec<GridTerms>,
    /// Bytes outside the allocator.
    outside: u64,
    /// Which number of stages.
    stages: usize,
}

/// What depends on the rank grid without its stages, on the micro batch and on what is recomputed.
struct Cell {
    bytes: LayerTerms,
    terms: Terms,
    /// The longest stage of the composition that was asked for last, with its number.
    longest: Option<((usize, usize), Longest)>,
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
            let grids = self.grids(tables, sp);
            for &micro_batch in &corner.micro_batches {
                self.plan.training.micro_batch_size = micro_batch;
                self.micro_batch(tables, &grids, sp);
            }
        }
    }

    fn refuse_everything(&mut self) {
        let all = self.corner.candidates_of_grid();
        for (rule, count) in &self.corner.refused_recompute {
            let sets = self.sets().max(1);
            self.refused.add(rule, all / sets * count);
        }
    }

    /// The grids that rules allow whatever the micro batch is.
    fn grids(&mut self, tables: &mut Tables, sp: bool) -> Vec<Grid> {
        let corner = self.corner;
        let mut found = Vec::new();
        let mut blocks = None;
        let by_batch = self.plan.training.low_precision.is_some();
        for (stages, &pp) in corner.stages.iter().enumerate() {
            self.set_grid(pp, sp);
            self.plan.layout.dp_replicate = 1;
            // In low precision the micro batch decides, unless there are no whole ranks at all.
            let broken = first_broken(&Shape::of(self.plan), Aspect::Grid);
            if let Some((rule, _)) = broken.filter(|_| !by_batch || !self.divides(pp)) {
                let batches = corner.micro_batches.len() as u64;
                self.refused.add(rule, self.sets_and_pipes(stages).saturating_mul(batches));
                continue;
            }
            tables.turn_to(self.plan);
            let Some(row) = tables.rows.get_mut(stages) else { continue };
            row.fill_elements(self.plan, &tables.kinds, &mut blocks);
            let states = row
                .elements
                .iter()
                .map(|(elements, quantised)| GridTerms::new(self.plan, elements, *quantised));
            let states = states.collect();
            let inputs = time::inputs(self.plan, tables.profile);
            found.push(Grid {
                dp: self.plan.layout.dp,
                pipe: Pipe { host_share: tables.host_share, ..inputs.pipe() },
                data: inputs.data(),
                states,
                outside: kept::outside(self.plan),
                stages,
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

    fn micro_batch(&mut self, tables: &mut Tables, grids: &[Grid], sp: bool) {
        let corner = self.corner;
        let by_batch = self.plan.training.low_precision.is_some();
        let hides = self.hides();
        let mut cells: Vec<Cell> = Vec::new();
        let (micro, global) = (self.plan.training.micro_batch_size, self.plan.training.global_batch_size);
        for grid in grids {
            let stages = grid.stages;
            let Some((&pp, pipes)) = corner.stages.get(stages).zip(corner.pipes.get(stages)) else {
                continue;
            };
            self.set_grid(pp, sp);
            if by_batch && let Some((rule, _)) = first_broken(&Shape::of(self.plan), Aspect::Grid) {
                self.refused.add(rule, self.sets_and_pipes(stages));
                continue;
            }
            self.refuse_pipes(stages);
            for (number, pipe) in pipes.iter().enumerate() {
                if hides {
                    set_pipe(self.plan, pipe);
                    if let Some((rule, _)) = first_broken(&Shape::of(self.plan), Aspect::Overlap) {
                        self.refused.add(rule, self.sets());
                        continue;
                    }
                }
                let broken = broken_batch((micro, global, grid.dp), (pipe.schedule, pipe.pp, pipe.vpp));
                if let Some(rule) = broken {
                    self.refused.add(rule, self.sets());
                    continue;
                }
                self.refuse_sets();
                if cells.is_empty() {
                    cells = (0..corner.recompute.len()).map(|set| self.cell(tables, set)).collect();
                }
                let microbatches = global / (micro * grid.dp);
                let timed = Pipe {
                    chunks: pipe.vpp.max(1) as f64,
                    microbatches: microbatches.max(1) as f64,
                    schedule: pipe.schedule,
                    ..grid.pipe
                };
                let Tables { rows, kinds, machine, .. } = &mut *tables;
                let Some(row) = rows.get_mut(stages) else { continue };
                let Some(table) = row.pipes.get_mut(number) else { continue };
                let Some(composition) = row.times.get(table.time) else { continue };
                if !table.knows(microbatches) {
                    set_pipe(self.plan, pipe);
                    table.learn(self.plan, kinds, microbatches);
                }
                let of_pipe = OfPipe {
                    machine,
                    composition,
                    number: (stages, table.time),
                    timed,
                    grid,
                    stages: table.alive(microbatches),
                    candidate: self.candidate(stages, number),
                };
                of_pipe.put(&mut cells, self.plan, self.sink);
            }
        }
    }

    /// Whether some communication hides, which has rules of its own.
    fn hides(&self) -> bool {
        let overlap = &self.plan.training.overlap;
        overlap.tp || overlap.ep || !overlap.p2p
    }

    fn cell(&mut self, tables: &Tables, set: usize) -> Cell {
        if let Some((_, training)) = self.corner.recompute.get(set) {
            self.set_recompute(training);
        }
        let inputs = time::inputs(self.plan, tables.profile);
        Cell {
            bytes: LayerTerms::new(self.plan, &tables.kinds),
            terms: Terms::new(&tables.machine, &inputs.split(), &inputs.manner(), &tables.shape),
            longest: None,
        }
    }
}

/// A pipeline on a grid with a micro batch: all but what is recomputed.
struct OfPipe<'a> {
    machine: &'a Machine,
    composition: &'a Stages,
    /// Which composition that is.
    number: (usize, usize),
    timed: Pipe,
    grid: &'a Grid,
    stages: (&'a [Alive], &'a [(StageKind, usize)]),
    candidate: Candidate,
}

impl OfPipe<'_> {
    /// Computes all sets.
    fn put(&self, cells: &mut [Cell], plan: &Plan, sink: &mut Sink) {
        let OfPipe { machine, composition, grid, .. } = *self;
        let (alive, kinds) = self.stages;
        for (set, cell) in cells.iter_mut().enumerate() {
            let mut most = 0.0f64;
            for (alive, (_, state)) in alive.iter().zip(kinds) {
                if let Some(state) = grid.states.get(*state) {
                    most = most.max(kept::allocated(&cell.bytes, state, alive));
                }
            }
            let candidate = Candidate { recompute: set as u16, ..self.candidate };
            sink.put(candidate, kept::taken(plan, most, grid.outside), || {
                let longest = match cell.longest {
                    Some((of, longest)) if of == self.number => longest,
                    _ => {
                        let longest = Longest::of(machine, &cell.terms, composition, &self.timed);
                        cell.longest = Some((self.number, longest));
                        longest
                    }
                };
                let step = step_of(machine, &cell.terms, &longest, composition, &self.timed, &grid.data);
                seconds(step.total())
            });
        }
    }
}
