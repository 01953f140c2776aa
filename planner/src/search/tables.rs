//! What one corner of the space keeps over its parts: pipelines as memory and time see them, the machine, layers alive.

use super::space::{Corner, set_pipe};
use crate::memory::StageElements;
use crate::memory::kept::{self, Alive, StageKind};
use crate::model::LayerKind;
use crate::plan::Plan;
use crate::shard::padded_vocabulary;
use crate::time::constants::Profile;
use crate::time::{self, Machine, ModelShape, Stages};

/// Tables of a corner.
#[derive(Debug)]
pub struct Tables {
    /// Kinds of layers.
    pub kinds: Vec<LayerKind>,
    /// What a rank can do.
    pub machine: Machine,
    /// Share of host time that graphs leave.
    pub host_share: f64,
    /// Whose constants.
    pub profile: &'static Profile,
    /// Sizes of the model; the vocabulary is that of the part at work.
    pub shape: ModelShape,
    /// By number of stages.
    pub rows: Vec<Row>,
    /// The part whose elements are kept: tensor, expert and expert tensor parallel.
    part: Option<[u64; 3]>,
}

/// Pipelines of one number of stages.
#[derive(Debug)]
pub struct Row {
    /// As time sees them, each composition of stages once.
    pub times: Vec<Stages>,
    /// Stages whose ranks have state of their own kind.
    pub states: Vec<StageKind>,
    /// What the ranks of each of those hold, once it was asked for.
    pub elements: Vec<(StageElements, u64)>,
    /// The pipelines, in the corner's order.
    pub pipes: Vec<PipeTable>,
}

/// A pipeline.
#[derive(Debug)]
pub struct PipeTable {
    /// Its composition among the row's.
    pub time: usize,
    /// Its kinds of stages, each with the kind of state among the row's.
    pub kinds: Vec<(StageKind, usize)>,
    /// Layers alive in each of them, by number of micro batches.
    alive: Vec<(u64, Vec<Alive>)>,
}

impl Tables {
    /// Of a corner; none where its plans are not computed from kept terms, or their time is not known.
    pub fn of(corner: &Corner, values: &[f64]) -> Option<Tables> {
        let plan = &corner.plan;
        if !corner.recompute.iter().all(|(_, training)| kept::covers(plan, training)) {
            return None;
        }
        let profile = time::profile(plan)?;
        let setup = time::setup(plan).ok()?;
        let machine = setup.machine(values);
        let host_share = setup.pipe(&machine).host_share;
        let (kinds, shape) = (kept::kinds(plan), setup.shape);
        let mut scratch = plan.clone();
        let rows = corner.pipes.iter().map(|pipes| {
            let mut row =
                Row { times: Vec::new(), states: Vec::new(), elements: Vec::new(), pipes: Vec::new() };
            for pipe in pipes {
                set_pipe(&mut scratch, pipe);
                row.add(&scratch, &kinds, &shape);
            }
            row
        });
        let rows = rows.collect();
        Some(Tables { kinds, machine, host_share, profile, shape, rows, part: None })
    }

    /// Turns to the part of a plan: its vocabulary, and no elements known yet where the part is another.
    pub fn turn_to(&mut self, plan: &Plan) {
        let part = Some([plan.layout.tp, plan.layout.ep, plan.layout.etp]);
        if self.part != part {
            self.part = part;
            self.shape.vocabulary = padded_vocabulary(plan) as f64;
            self.rows.iter_mut().for_each(|row| row.elements.clear());
        }
    }
}

impl Row {
    fn add(&mut self, plan: &Plan, kinds: &[LayerKind], shape: &ModelShape) {
        let stages = Stages::of(shape, &plan.layout);
        let time = self.times.iter().position(|known| *known == stages).unwrap_or_else(|| {
            self.times.push(stages);
            self.times.len() - 1
        });
        let of_state = |kind: StageKind| {
            let state = self.states.iter().position(|known| known.same_state(&kind)).unwrap_or_else(|| {
                self.states.push(kind.clone());
                self.states.len() - 1
            });
            (kind, state)
        };
        let kinds = kept::stage_kinds(plan, kinds).into_iter().map(of_state).collect();
        self.pipes.push(PipeTable { time, kinds, alive: Vec::new() });
    }

    /// Makes sure that elements of the part at work are known.
    pub fn fill_elements(&mut self, plan: &Plan, kinds: &[LayerKind], blocks: &mut Option<kept::Blocks>) {
        if self.elements.is_empty() && !self.states.is_empty() {
            let blocks = blocks.get_or_insert_with(|| kept::blocks(plan, kinds));
            let of = |state: &StageKind| kept::elements(plan, blocks, kinds, state);
            self.elements = self.states.iter().map(of).collect();
        }
    }
}

impl PipeTable {
    /// Whether layers alive with so many micro batches are known.
    pub fn knows(&self, microbatches: u64) -> bool {
        self.alive.iter().any(|(known, _)| *known == microbatches)
    }

    /// Counts layers alive with so many micro batches; `plan` has this pipeline and that many.
    pub fn learn(&mut self, plan: &Plan, kinds: &[LayerKind], microbatches: u64) {
        let of = |(kind, _): &(StageKind, usize)| Alive::of(plan, kinds, kind);
        self.alive.push((microbatches, self.kinds.iter().map(of).collect()));
    }

    /// Layers alive in each kind of stage, and the kinds with their states.
    pub fn alive(&self, microbatches: u64) -> (&[Alive], &[(StageKind, usize)]) {
        let found = self.alive.iter().find(|(known, _)| *known == microbatches);
        (found.map_or(&[], |(_, alive)| alive), &self.kinds)
    }
}
