//! What one subspace of the space keeps over its parts: pipelines as memory and time see them, the machine, layers alive.

use super::cells::Spare;
use super::plan_of::set_pipe;
use super::space::Subspace;
use super::stages::waits_at_least;
use crate::layout::chunks_of_stages;
use crate::memory::kept::{self, Alive, Class, GridTerms, StageKind};
use crate::model::LayerKind;
use crate::plan::Plan;
use crate::shard::megatron::Blocks;
use crate::shard::padded_vocabulary;
use crate::time::constants::Profile;
use crate::time::{
    self, DenseTables, Inputs, LayerSplit, Machine, ModelShape, Recompute, Stages, WorkTables,
};

/// What the time model needs of a subspace, whatever is split how.
#[derive(Debug)]
pub(super) struct Clock {
    /// What a rank can do.
    pub machine: Machine,
    /// Whose constants.
    pub profile: &'static Profile,
    /// Sizes of the model; the vocabulary is that of the part at work.
    pub shape: ModelShape,
    /// What is computed again, by set; none where that depends on the pipeline.
    pub again: Vec<Option<Recompute>>,
    /// Share of host time that graphs leave, by set: a recipe's graphs go with some sets only.
    pub host_shares: Vec<f64>,
    /// What does not depend on how experts are split, by how all else is, for the subspace, tensor and sequence parallelism at work.
    dense: Vec<(LayerSplit, DenseTables)>,
    at_work: (usize, u64, bool),
}

impl Clock {
    /// Of a subspace; none where its time is not known.
    pub(super) fn of(subspace: &Subspace, values: &[f64]) -> Option<Clock> {
        let plan = &subspace.plan;
        let profile = time::profile(plan)?;
        let setup = time::setup(plan).ok()?;
        let machine = setup.machine(values);
        let mut scratch = plan.clone();
        let (mut again, mut host_shares) = (Vec::new(), Vec::new());
        for (_, training) in &subspace.recompute {
            scratch.training.clone_from(training);
            host_shares.push(time::host_share(&scratch, profile, &machine));
            again.push(match training.recompute_method.as_deref() {
                Some("block") => None,
                _ => Some(time::recompute(&scratch)),
            });
        }
        let (dense, at_work) = (Vec::new(), (0, 0, false));
        Some(Clock { machine, profile, shape: setup.shape, again, host_shares, dense, at_work })
    }

    /// Seconds of a micro batch in every kind of layer of a plan of a subspace.
    pub(super) fn works(&mut self, subspace: usize, inputs: &Inputs<'_>) -> WorkTables {
        let Clock { machine, shape, dense, at_work, .. } = self;
        let (split, options) = (inputs.split(), inputs.options());
        let own = (subspace, inputs.tp, inputs.sp);
        if *at_work != own {
            dense.clear();
            *at_work = own;
        }
        let any = split.tp_group;
        let key = LayerSplit { ep: 1.0, etp: 1.0, ep_group: any, etp_group: any, ..split };
        let at = dense.iter().position(|one| one.0 == key).unwrap_or_else(|| {
            dense.push((key, DenseTables::new(machine, &split, &options, shape)));
            dense.len() - 1
        });
        match dense.get(at) {
            Some((_, dense)) => WorkTables::with(dense, machine, &split, &options, shape),
            None => WorkTables::new(machine, &split, &options, shape),
        }
    }
}

/// Tables of a subspace.
#[derive(Debug)]
pub(super) struct Tables {
    /// Kinds of layers.
    pub kinds: Vec<LayerKind>,
    /// What the time model needs.
    pub clock: Clock,
    /// Classes of stages of all pipelines.
    pub classes: Vec<Class>,
    /// Numbers of micro batches that were met.
    microbatches: Vec<u64>,
    /// By number of stages.
    pub rows: Vec<Row>,
    /// Whether the stages of every pipeline hold each layer of the model once.
    pub are_whole: bool,
    /// Ranks' state by the parts that were worked on, which are few.
    parts: Vec<(PartKey, PartState)>,
    /// The part at work, whose state is not among them.
    part: Option<PartKey>,
    state: PartState,
    /// Of cells that are done with.
    pub spare: Spare,
}

/// What decides the state of ranks of a kind of stage: tensor, expert and expert tensor parallelism, and whether tensor parallelism
/// hides, which takes workspaces.
type PartKey = ([u64; 3], bool);

/// State of the ranks of a part, as far as it was asked for.
#[derive(Debug, Default)]
struct PartState {
    /// Elements of the blocks.
    blocks: Option<Blocks>,
    /// By number of stages, of each of the row's kinds.
    terms: Vec<Vec<Option<GridTerms>>>,
}

/// Pipelines of one number of stages.
#[derive(Debug)]
pub(super) struct Row {
    /// As time sees them, each composition of stages once; and whether it holds each layer once.
    pub times: Vec<(Stages, bool)>,
    /// Stages whose ranks have state of their own kind.
    pub states: Vec<StageKind>,
    /// The pipelines, in the subspace's order.
    pub pipes: Vec<PipeTable>,
    /// Micro batches for which each of them waits at least.
    pub waits: f64,
}

/// A pipeline.
#[derive(Debug)]
pub(super) struct PipeTable {
    /// Its composition among the row's.
    pub time: usize,
    /// Its kinds of stages.
    kinds: Vec<StageKind>,
    /// Of each, its class among the tables', and its kind of state among the row's.
    places: Vec<(usize, usize)>,
    /// What is alive in them, by number of micro batches.
    alive: Vec<Option<Vec<Held>>>,
}

/// What one kind of stage of a pipeline holds, with some number of micro batches.
#[derive(Debug, Clone)]
pub(super) struct Held {
    /// Its class among the tables'.
    pub class: usize,
    /// Its kind of state among the row's.
    pub state: usize,
    /// What is alive.
    pub alive: Alive,
    /// Kinds of the same pipeline that hold no less alive, as places in the list.
    pub under: Vec<usize>,
}

impl Tables {
    /// Whether the plans of a subspace are computed from kept terms.
    pub(super) fn cover(subspace: &Subspace) -> bool {
        subspace.recompute.iter().all(|(_, training)| kept::covers(&subspace.plan, training))
    }

    /// Of a subspace that they cover, from those of one whose ranks hold the same, where they are at hand.
    pub(super) fn of(subspace: &Subspace, clock: Clock, known: Option<Box<Tables>>) -> Box<Tables> {
        if let Some(mut tables) = known {
            // The vocabulary is that of the part at work.
            let vocabulary = tables.clock.shape.vocabulary;
            tables.clock = clock;
            tables.clock.shape.vocabulary = vocabulary;
            return tables;
        }
        let plan = &subspace.plan;
        let kinds = kept::kinds(plan);
        let mut scratch = plan.clone();
        let mut classes = Vec::new();
        let rows = subspace.pipes.iter().map(|pipes| {
            let waits = waits_at_least(pipes);
            let mut row = Row { times: Vec::new(), states: Vec::new(), pipes: Vec::new(), waits };
            for pipe in pipes.iter() {
                set_pipe(&mut scratch, pipe);
                row.add(&scratch, &kinds, &clock.shape, &mut classes);
            }
            row
        });
        let rows: Vec<Row> = rows.collect();
        let are_whole = rows.iter().flat_map(|row| &row.times).all(|(_, whole)| *whole);
        let (parts, part, state) = (Vec::new(), None, PartState::default());
        let microbatches = Vec::new();
        Box::new(Tables {
            kinds,
            clock,
            classes,
            microbatches,
            rows,
            are_whole,
            parts,
            part,
            state,
            spare: Spare::new(),
        })
    }

    /// The place of a number of micro batches among those that were met.
    pub(super) fn place_of(&mut self, microbatches: u64) -> usize {
        let known = self.microbatches.iter().position(|known| *known == microbatches);
        known.unwrap_or_else(|| {
            self.microbatches.push(microbatches);
            self.microbatches.len() - 1
        })
    }

    /// Turns to the part of a plan: its vocabulary, and its state as far as that is known.
    pub(super) fn turn_to(&mut self, plan: &Plan) {
        let part = ([plan.layout.tp, plan.layout.ep, plan.layout.etp], plan.training.overlap.tp);
        if self.part != Some(part) {
            let known = self.parts.iter().position(|(known, _)| *known == part);
            let known = known.map(|place| self.parts.swap_remove(place).1).unwrap_or_default();
            let state = std::mem::replace(&mut self.state, known);
            if let Some(earlier) = self.part.replace(part) {
                self.parts.push((earlier, state));
            }
            self.state.terms.resize_with(self.rows.len(), Vec::new);
            self.clock.shape.vocabulary = padded_vocabulary(plan) as f64;
        }
    }

    /// Fills in the state in the part at work of the kinds that a pipeline has, and gives the most bytes of the least that each
    /// of them takes. Context parallelism is no matter: as many ranks more as have a sequence are fewer that have another, and
    /// they share state alike.
    pub(super) fn fill_states(
        &mut self,
        plan: &Plan,
        (stages, number): (usize, usize),
        found: &mut Vec<Option<GridTerms>>,
    ) -> f64 {
        let Tables { rows, kinds, state: PartState { blocks, terms }, .. } = self;
        let Some((Row { states, pipes, .. }, terms)) = rows.get(stages).zip(terms.get_mut(stages)) else {
            return 0.0;
        };
        terms.resize(states.len(), None);
        found.resize(states.len(), None);
        let mut least = 0.0f64;
        for &(_, at) in pipes.get(number).map_or(&[][..], |pipe| &pipe.places) {
            let (Some(state), Some(slot)) = (states.get(at), terms.get_mut(at)) else { continue };
            let terms = slot.get_or_insert_with(|| {
                let blocks = blocks.get_or_insert_with(|| kept::blocks(plan, kinds));
                GridTerms::new(plan, &kept::elements(plan, blocks, state))
            });
            least = kept::larger(least, terms.least());
            if let Some(found) = found.get_mut(at) {
                *found = Some(*terms);
            }
        }
        least
    }
}

impl Row {
    fn add(&mut self, plan: &Plan, kinds: &[LayerKind], shape: &ModelShape, classes: &mut Vec<Class>) {
        let held = chunks_of_stages(&plan.layout, plan.model.num_layers);
        let stages = match &held {
            Some(held) => Stages::of_chunks(shape, held),
            None => Stages::spread(shape, plan.layout.pp),
        };
        let whole = stages.are_whole(shape);
        let time = place(&mut self.times, (stages, whole), |known, one| known.0 == one.0);
        let found = kept::stage_kinds(plan, kinds, &held.unwrap_or_default());
        let places = found.iter().map(|kind| {
            let class = place(classes, kind.class(kinds), Class::eq);
            (class, place(&mut self.states, kind.clone(), StageKind::same_state))
        });
        let places = places.collect();
        self.pipes.push(PipeTable { time, kinds: found, places, alive: Vec::new() });
    }
}

/// The place of something in a list of what is different, to which it is added where it is new.
fn place<T>(all: &mut Vec<T>, one: T, same: impl Fn(&T, &T) -> bool) -> usize {
    all.iter().position(|known| same(known, &one)).unwrap_or_else(|| {
        all.push(one);
        all.len() - 1
    })
}

impl PipeTable {
    /// What its kinds of stages hold with so many micro batches as have this place, once [`PipeTable::held`] was asked.
    pub(super) fn known(&self, place: usize) -> &[Held] {
        self.alive.get(place).and_then(Option::as_deref).unwrap_or_default()
    }

    /// What its kinds of stages hold with so many micro batches, which have this place; `plan` has this pipeline and that
    /// many once `prepare` was called.
    pub(super) fn held(
        &mut self,
        place: usize,
        plan: &mut Plan,
        classes: &[Class],
        prepare: impl FnOnce(&mut Plan),
    ) -> &[Held] {
        if self.alive.len() <= place {
            self.alive.resize(place + 1, None);
        }
        let Some(slot) = self.alive.get_mut(place) else { return &[] };
        slot.get_or_insert_with(|| {
            prepare(plan);
            let pipeline = plan.pipeline();
            let alive: Vec<Alive> = self.kinds.iter().map(|kind| Alive::of(&pipeline, kind)).collect();
            let under = |one: usize| {
                let within = |one: usize, other: usize| -> Option<bool> {
                    let (class, others) = (self.places.get(one)?.0, self.places.get(other)?.0);
                    let (class, others) = (classes.get(class)?, classes.get(others)?);
                    Some(alive.get(one)?.within(class, alive.get(other)?, others))
                };
                // Of two that hold the same, the second is under the first and not the other way round.
                let is_under = |other: usize| {
                    other != one
                        && within(one, other) == Some(true)
                        && (other < one || within(other, one) != Some(true))
                };
                (0..alive.len()).filter(|other| is_under(*other)).collect()
            };
            let under: Vec<Vec<usize>> = (0..alive.len()).map(under).collect();
            let kinds = self.places.iter().zip(alive).zip(under);
            kinds.map(|((&(class, state), alive), under)| Held { class, state, alive, under }).collect()
        })
    }
}
