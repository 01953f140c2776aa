//! What is there of a rank's units at each moment of a step, as the worker carries it out and torch orders it
//! (`_fsdp_param_group.py`): parameters while they are gathered, the buffers of gathers, gradients until they are reduced,
//! inputs and outputs of reductions.
//!
//! Forward gathers the next section while one is at work, and a gather's buffer lives until the next one is copied out.
//! Backward gathers the section before while one is at work, and gives a gather's buffer back at once; the input of a reduction
//! lives until the next reduction begins, and so does what it makes, where it goes on beside computing until then.

use serde::Serialize;

use super::gathered::Gathered;
pub(super) use super::marks::Compute;
use super::marks::{Mark, marks};
use crate::layout::chunks_of_stage;
use crate::plan::Plan;
use crate::schedule::{Action, ActionKind, Pipeline, actions};
use crate::shard::fsdp::{DOUBLED, Handling, Section, Weights};
use crate::units::Quantity;

/// A moment of a step at which something of that has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// A chunk's forward begins, with what is used throughout.
    Begun,
    /// A section's forward begins.
    BeforeForward(Section),
    /// Of a unit that stays split over fewer ranks the part is there that a rank keeps, and the whole still is.
    Keeping(Section),
    /// It is done.
    AfterForward(Section),
    /// A chunk's forward is done, but for the loss.
    ForwardDone,
    /// A section's backward begins.
    BeforeBackward(Section),
    /// A unit's gradients are about to be added to those that wait.
    Adding(Section),
    /// A unit's gradients are about to be copied into the input of their reduction.
    Reducing(Section),
    /// Their reduction is begun.
    Summing(Section),
    /// A section's backward is done but for the gradients of weights, which a schedule puts off.
    AfterInputs(Section),
    /// A section's backward is done.
    AfterBackward(Section),
    /// A chunk's backward is done.
    BackwardDone,
}

/// Bytes that are there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alive {
    /// Gathered parameters.
    pub gathered: Quantity,
    /// Buffers of gathers.
    pub gathering: Quantity,
    /// Gradients that are not reduced.
    pub gradients: Quantity,
    /// Inputs and outputs of reductions.
    pub reducing: Quantity,
}

impl Alive {
    /// As numbers, in that order.
    pub fn bytes(&self) -> [u64; 4] {
        [self.gathered, self.gathering, self.gradients, self.reducing].map(u64::from)
    }
}

/// What a step comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A moment, after what happens then.
    At(At),
    /// A section is gathered for its backward: the buffer of its gather is still there.
    Gathered,
    /// The forward of a part, or, in an action that is a backward, its backward before it has made gradients.
    Compute(Compute),
}

/// The gradients of a part of a unit: those of this micro batch, and sums that wait.
#[derive(Debug, Clone, Copy, Default)]
struct Gradients {
    fresh: bool,
    waiting: bool,
}

/// A step under way.
struct Step<'u> {
    units: &'u [Gathered],
    /// Sections in the order of their first units, each with its units.
    sections: Vec<(Section, Vec<usize>)>,
    /// Bytes of an element that is computed with, and that is reduced.
    compute: Quantity,
    reduce: Quantity,
    /// Whether gradients wait for the last micro batch, and parameters that stay gathered do so until then.
    waits: bool,
    stays: bool,
    /// Whether reductions of a step's first micro batch go right into the gradients that are kept.
    direct: bool,
    /// Whether reductions go on beside computing, as they do where ranks talk by NCCL, so that what they make is added when the next
    /// one begins.
    beside: bool,
    tied: bool,
    gathered: Vec<bool>,
    /// Whether a part of each is kept for its next gather.
    kept: Vec<bool>,
    reduced: Vec<bool>,
    open: Vec<u32>,
    ahead: Option<usize>,
    copied: Quantity,
    gradients: Vec<[Gradients; 3]>,
    /// Which units have one of the persistent buffers of gathered weights, and how many of each number nobody has.
    lent: Vec<bool>,
    free: Vec<u64>,
    /// Bytes of persistent inputs of reductions.
    persistent: Quantity,
    alive: Alive,
}

/// Bytes of persistent buffers, there throughout: of gathered weights and of inputs of reductions.
pub(super) fn persistent(units: &[Gathered], handling: &Handling) -> Alive {
    let mut alive = Alive::default();
    for unit in pairs(units) {
        let of = |size: u64| Quantity::from(DOUBLED) * Quantity::from(size) * unit.whole;
        if unit.weights == Weights::Gathered {
            alive.gathered += of(handling.compute.size());
        }
        alive.reducing += of(handling.reduce.size());
    }
    alive
}

/// The first unit of each number of persistent buffers.
fn pairs(units: &[Gathered]) -> impl Iterator<Item = &Gathered> {
    (0..).map_while(|pair| units.iter().find(|unit| unit.persistent == Some(pair)))
}

impl<'u> Step<'u> {
    fn new(plan: &Plan, units: &'u [Gathered], handling: &Handling) -> Step<'u> {
        let mut sections: Vec<(Section, Vec<usize>)> = Vec::new();
        for (number, unit) in units.iter().enumerate().filter(|(_, unit)| unit.shard > Quantity::ZERO) {
            match sections.iter_mut().find(|(known, _)| *known == unit.section) {
                Some((_, units)) => units.push(number),
                None => sections.push((unit.section, vec![number])),
            }
        }
        let alive = persistent(units, handling);
        Step {
            units,
            lent: vec![false; units.len()],
            free: pairs(units)
                .map(|unit| if unit.weights == Weights::Gathered { DOUBLED } else { 0 })
                .collect(),
            persistent: alive.reducing,
            compute: Quantity::from(handling.compute.size()),
            reduce: Quantity::from(handling.reduce.size()),
            waits: handling.waits,
            stays: handling.stays,
            direct: handling.kept == handling.reduce && !handling.on_host,
            beside: plan.cluster.gpu.capacity_bytes.is_some(),
            tied: plan.model.tied_embeddings,
            gathered: units.iter().map(|unit| unit.weights == Weights::Kept).collect(),
            kept: vec![false; units.len()],
            reduced: vec![false; units.len()],
            open: vec![0; sections.len()],
            ahead: None,
            copied: Quantity::ZERO,
            gradients: vec![[Gradients::default(); 3]; units.len()],
            alive,
            sections,
        }
    }

    fn place(&self, section: Section) -> Option<usize> {
        self.sections.iter().position(|(known, _)| *known == section)
    }

    /// Bytes of the buffers that gather a section. One rank alone has nothing to gather.
    fn buffers(&self, place: usize) -> Quantity {
        let units = self.sections[place].1.iter().map(|&unit| &self.units[unit]);
        let takes = |unit: &&Gathered| unit.members > 1 && unit.weights == Weights::CopiedOut;
        units.filter(takes).map(|unit| self.compute * unit.whole).sum()
    }

    /// Units of a section that a gather fills right away, and has not filled yet.
    fn filled_by_gathers(&self, place: usize) -> Vec<usize> {
        let fills = |&unit: &usize| !self.gathered[unit] && self.units[unit].weights == Weights::Gathered;
        self.sections[place].1.iter().copied().filter(fills).collect()
    }

    /// A unit gets memory for its parameters: a persistent buffer, where there is one for it.
    fn fill(&mut self, unit: usize) {
        match self.free_for(unit) {
            Some(free) if *free > 0 => {
                *free -= 1;
                self.lent[unit] = true;
            }
            _ => self.alive.gathered += self.compute * self.units[unit].whole,
        }
    }

    fn empty(&mut self, unit: usize) {
        match std::mem::take(&mut self.lent[unit]) {
            true => {
                if let Some(free) = self.free_for(unit) {
                    *free += 1;
                }
            }
            false => self.alive.gathered -= self.compute * self.units[unit].whole,
        }
    }

    /// How many of the persistent buffers that serve a unit nobody has.
    fn free_for(&mut self, unit: usize) -> Option<&mut u64> {
        self.units[unit].persistent.and_then(|pair| self.free.get_mut(pair))
    }

    /// A section's units are gathered, before they are copied out.
    fn gather(&mut self, place: usize) {
        let buffers = self.buffers(place);
        self.alive.gathering += buffers;
        self.filled_by_gathers(place).into_iter().for_each(|unit| self.fill(unit));
    }

    fn is_gathered(&self, place: usize) -> bool {
        self.sections[place].1.iter().all(|&unit| self.gathered[unit])
    }

    fn free_copied(&mut self) {
        self.alive.gathering -= std::mem::replace(&mut self.copied, Quantity::ZERO);
    }

    fn drop_ahead(&mut self) {
        if let Some(ahead) = self.ahead.take() {
            let buffers = self.buffers(ahead);
            self.alive.gathering -= buffers;
            self.filled_by_gathers(ahead).into_iter().for_each(|unit| self.empty(unit));
        }
    }

    fn have(&mut self, place: usize) {
        if self.is_gathered(place) {
            return;
        }
        if self.ahead == Some(place) {
            self.ahead = None;
        } else {
            self.drop_ahead();
            self.gather(place);
        }
        self.free_copied();
        self.copied = self.buffers(place);
        for unit in self.sections[place].1.clone() {
            let copied_out = self.units[unit].weights == Weights::CopiedOut;
            if !std::mem::replace(&mut self.gathered[unit], true) && copied_out {
                self.fill(unit);
                self.drop_part(unit);
            }
        }
    }

    fn gather_ahead(&mut self, place: usize) {
        if self.is_gathered(place) || self.ahead == Some(place) {
            return;
        }
        self.drop_ahead();
        self.gather(place);
        self.ahead = Some(place);
    }

    fn give_back(&mut self, unit: usize) {
        if self.units[unit].weights != Weights::Kept && std::mem::take(&mut self.gathered[unit]) {
            self.empty(unit);
        }
    }

    /// The part of a unit that stays is made.
    fn keep_part(&mut self, unit: usize, tell: &mut impl FnMut(Event, Alive)) {
        let of = &self.units[unit];
        if of.kept_part > Quantity::ZERO && self.gathered[unit] {
            self.alive.gathered += self.compute * of.kept_part;
            self.kept[unit] = true;
            tell(Event::At(At::Keeping(of.section)), self.alive);
        }
    }

    fn drop_part(&mut self, unit: usize) {
        if std::mem::take(&mut self.kept[unit]) {
            self.alive.gathered -= self.compute * self.units[unit].kept_part;
        }
    }

    /// The sections before and behind one, where they are of the same chunk.
    fn next(&self, place: usize) -> Option<usize> {
        let next = place + 1;
        self.sections
            .get(next)
            .is_some_and(|(other, _)| self.sections[place].0.is_before(*other))
            .then_some(next)
    }

    fn before(&self, place: usize) -> Option<usize> {
        let before = place.checked_sub(1)?;
        self.sections[before].0.is_before(self.sections[place].0).then_some(before)
    }

    fn enters(&mut self, place: usize) -> bool {
        self.open[place] += 1;
        self.open[place] == 1
    }

    fn leaves(&mut self, place: usize) -> bool {
        self.open[place] -= 1;
        self.open[place] == 0
    }

    fn forward(&mut self, marks: &[Mark], tell: &mut impl FnMut(Event, Alive)) {
        if let Some(root) = self.place(Section::Root) {
            self.have(root);
        }
        tell(Event::At(At::Begun), self.alive);
        for mark in marks {
            match *mark {
                Mark::Enter(section) => {
                    let Some(place) = self.place(section) else { continue };
                    if !self.enters(place) {
                        continue;
                    }
                    self.have(place);
                    if let Some(next) = self.next(place) {
                        self.gather_ahead(next);
                    }
                    tell(Event::At(At::BeforeForward(section)), self.alive);
                }
                Mark::Leave(section) => {
                    let Some(place) = self.place(section) else { continue };
                    if !self.leaves(place) {
                        continue;
                    }
                    for unit in self.sections[place].1.clone() {
                        if self.units[unit].reshard {
                            self.keep_part(unit, tell);
                            self.give_back(unit);
                        }
                    }
                    tell(Event::At(At::AfterForward(section)), self.alive);
                }
                Mark::Compute(compute) => tell(Event::Compute(compute), self.alive),
            }
        }
        self.free_copied();
        tell(Event::At(At::ForwardDone), self.alive);
    }

    /// A backward that puts gradients of weights off.
    fn backward_of_inputs(&mut self, marks: &[Mark], tell: &mut impl FnMut(Event, Alive)) {
        for mark in marks.iter().rev() {
            match *mark {
                Mark::Leave(section) => self.begins_backward(section, tell),
                Mark::Enter(section) => {
                    let Some(place) = self.place(section) else { continue };
                    if !self.leaves(place) {
                        continue;
                    }
                    for unit in self.sections[place].1.clone() {
                        if self.is_given_back_early(unit) {
                            self.give_back(unit);
                        }
                    }
                    tell(Event::At(At::AfterInputs(section)), self.alive);
                }
                Mark::Compute(compute) => tell(Event::Compute(compute), self.alive),
            }
        }
        if let Some(root) = self.place(Section::Root).filter(|_| !self.stays) {
            self.sections[root].1.clone().into_iter().for_each(|unit| self.give_back(unit));
        }
        tell(Event::At(At::BackwardDone), self.alive);
    }

    /// Whether a unit is given back behind each backward, the last or not.
    fn is_given_back_early(&self, unit: usize) -> bool {
        !self.stays || self.units[unit].reshard
    }

    fn begins_backward(&mut self, section: Section, tell: &mut impl FnMut(Event, Alive)) {
        let Some(place) = self.place(section) else { return };
        if !self.enters(place) {
            return;
        }
        self.have(place);
        tell(Event::Gathered, self.alive);
        self.free_copied();
        if let Some(before) = self.before(place) {
            self.gather_ahead(before);
        }
        tell(Event::At(At::BeforeBackward(section)), self.alive);
    }

    /// A backward, or what a split one has put off: `last` of its chunk, and `ends` the step.
    fn backward(
        &mut self,
        marks: &[Mark],
        whole: bool,
        (last, ends): (bool, bool),
        tell: &mut impl FnMut(Event, Alive),
    ) {
        let reduces = last || !self.waits;
        for mark in marks.iter().rev() {
            match *mark {
                Mark::Leave(section) if whole => self.begins_backward(section, tell),
                Mark::Leave(_) => {}
                Mark::Enter(section) => {
                    let Some(place) = self.place(section) else { continue };
                    if whole && !self.leaves(place) {
                        continue;
                    }
                    let units = self.sections[place].1.clone();
                    for &unit in &units {
                        if reduces || self.is_given_back_early(unit) {
                            self.give_back(unit);
                        }
                    }
                    units.iter().for_each(|&unit| self.settle(unit, reduces, tell));
                    tell(Event::At(At::AfterBackward(section)), self.alive);
                }
                Mark::Compute(compute) => {
                    tell(Event::Compute(compute), self.alive);
                    self.make_gradients(compute);
                }
            }
        }
        if let Some(root) = self.place(Section::Root) {
            let reduces = ends || !self.waits;
            for unit in self.sections[root].1.clone() {
                if ends || !self.stays {
                    self.give_back(unit);
                }
                self.settle(unit, reduces, tell);
            }
            self.alive.reducing = self.persistent;
        }
        if ends {
            (0..self.units.len()).for_each(|unit| {
                self.give_back(unit);
                self.drop_part(unit);
            });
            self.drop_ahead();
            self.free_copied();
            self.alive.reducing = self.persistent;
            self.reduced.fill(false);
        }
        tell(Event::At(At::BackwardDone), self.alive);
    }

    fn make_gradients(&mut self, compute: Compute) {
        for (number, unit) in self.units.iter().enumerate() {
            let outer = !matches!(unit.section, Section::Layer(_) | Section::Mtp(_));
            let parts: &[usize] = match compute {
                Compute::Embedding if outer => &[0],
                Compute::Head if outer => &[if self.tied { 0 } else { 1 }],
                Compute::Norm if outer => &[2],
                Compute::Layer(layer) if unit.section == Section::Layer(layer) => &[0, 1, 2],
                Compute::Mtp(module) if unit.section == Section::Mtp(module) => &[0, 1, 2],
                _ => &[],
            };
            for &part in parts {
                let gradients = &mut self.gradients[number][part];
                // In the type of those that wait it is added to them at once.
                let added = gradients.waiting && self.compute == self.reduce;
                if !added && !std::mem::replace(&mut gradients.fresh, true) {
                    self.alive.gradients += self.compute * unit.computed.parts[part];
                }
            }
        }
    }

    /// Adds a unit's gradients to those that wait, or reduces them.
    fn settle(&mut self, number: usize, reduces: bool, tell: &mut impl FnMut(Event, Alive)) {
        let unit = &self.units[number];
        if unit.shard == Quantity::ZERO {
            return;
        }
        if !reduces || self.gradients[number].iter().any(|gradients| gradients.waiting) {
            tell(Event::At(At::Adding(unit.section)), self.alive);
        }
        for (gradients, &elements) in self.gradients[number].iter_mut().zip(&unit.computed.parts) {
            if gradients.fresh && (gradients.waiting || !reduces) {
                gradients.fresh = false;
                self.alive.gradients -= self.compute * elements;
                if !std::mem::replace(&mut gradients.waiting, true) {
                    self.alive.gradients += self.reduce * elements;
                }
            }
        }
        if !reduces {
            return;
        }
        let own = if unit.persistent.is_some() { Quantity::ZERO } else { self.reduce * unit.whole };
        let input = self.persistent + own;
        self.alive.reducing = input;
        tell(Event::At(At::Reducing(unit.section)), self.alive);
        for (gradients, &elements) in self.gradients[number].iter_mut().zip(&unit.computed.parts) {
            if std::mem::take(&mut gradients.fresh) {
                self.alive.gradients -= self.compute * elements;
            }
            if std::mem::take(&mut gradients.waiting) {
                self.alive.gradients -= self.reduce * elements;
            }
        }
        let first = !std::mem::replace(&mut self.reduced[number], true);
        let output = if first && self.direct { Quantity::ZERO } else { self.reduce * unit.shard };
        let summing = Alive { reducing: input + output, ..self.alive };
        if self.beside {
            self.alive = summing;
        }
        tell(Event::At(At::Summing(unit.section)), summing);
    }
}

/// Tells of a step of a stage with these units and this pipeline: with each event what is there, behind it.
pub(super) fn step(
    plan: &Plan,
    stage: u64,
    units: &[Gathered],
    handling: &Handling,
    pipeline: &Pipeline,
    mut tell: impl FnMut(&Action, Event, Alive),
) {
    let chunks = chunks_of_stage(&plan.layout, plan.model.num_layers, stage).unwrap_or_default();
    let chunks: Vec<Vec<Mark>> = chunks.iter().map(|chunk| marks(plan, chunk)).collect();
    let mut step = Step::new(plan, units, handling);
    let mut done = vec![0; chunks.len()];
    for action in actions(pipeline, stage) {
        let chunk = action.chunk as usize;
        let Some(marks) = chunks.get(chunk) else { continue };
        let mut tell = |event: Event, alive: Alive| tell(&action, event, alive);
        if action.kind == ActionKind::Forward {
            step.forward(marks, &mut tell);
            continue;
        }
        if action.kind == ActionKind::BackwardInput {
            step.backward_of_inputs(marks, &mut tell);
            continue;
        }
        done[chunk] += 1;
        let last = done[chunk] == pipeline.microbatches;
        let ends = done.iter().all(|&done| done == pipeline.microbatches);
        step.backward(marks, action.kind == ActionKind::Backward, (last, ends), &mut tell);
    }
}

/// What the units of a rank of a stage hold at each moment of a step that the worker carries out.
pub fn moments_of_units(plan: &Plan, stage: u64) -> Vec<(At, Alive)> {
    let mut found = Vec::new();
    let units = match plan.computed_as_native() {
        Some(computed) => Gathered::of_flat_units(plan, &computed.rank_shards(0)).0,
        None => Gathered::of_stage(plan, stage),
    };
    step(plan, stage, &units, &Handling::of(plan), &plan.pipeline(), |_, event, alive| {
        if let Event::At(at) = event {
            found.push((at, alive));
        }
    });
    found
}
