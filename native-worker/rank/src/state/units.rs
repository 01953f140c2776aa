//! Parameters that are there only while they are used, as FSDP2 and Megatron-FSDP have them: a unit is gathered for its forward and for its backward,
//! the next one ahead of time, and given back behind each; its gradients are summed over the ranks as soon as they are there.
//!
//! What a rank keeps of a unit is a slice of a buffer; the planner says where its elements go (`CarriedUnit`). A unit's parameters
//! are views of one storage, which is emptied and filled again, so that whoever has such a view has it again in backward.

mod gather;
mod parts;
mod persistent;
mod reduction;

use std::cell::RefCell;

use anyhow::{Context, ensure};
use planner::memory::At;
use planner::shard::ParamShard;
use planner::shard::fsdp::{CarriedUnit, CopyOut, Handling, Section, Weights};
use tch::{Device, Kind, Tensor};

use self::gather::Gather;
use self::parts::Fewer;
use self::persistent::{DOUBLED, Persistent};
use self::reduction::Reduction;
use super::{Buffer, kind_of, length, view};
use crate::collectives::{Collectives, GroupId};
use crate::sys;
use crate::sys::memory::Tracker;
use crate::tape::Moment;

struct Unit {
    planned: CarriedUnit,
    group: GroupId,
    index: u64,
    replicas: Option<GroupId>,
    /// Those that it stays split over between forward and backward, where they are fewer.
    fewer: Option<Fewer>,
    /// Its parameters, whole, one after the other; without memory while it is not gathered.
    storage: Tensor,
    bytes: usize,
    /// The first element of each parameter there.
    starts: Vec<(usize, u64)>,
}

/// A parameter that is computed with.
struct FullParameter {
    name: String,
    unit: usize,
    leaf: Tensor,
}

/// What changes in a step.
#[derive(Default)]
struct Now {
    /// Whether each unit is gathered.
    gathered: Vec<bool>,
    /// The part of each that is kept until it is gathered again.
    parts: Vec<Option<Tensor>>,
    /// Whether each has been reduced in this step.
    reduced: Vec<bool>,
    /// How often each section has been entered and not left.
    open: Vec<u32>,
    /// The section that is gathered ahead, and the buffers of its units.
    ahead: Option<(usize, Vec<Gather>)>,
    /// Buffers of the section that was copied out last: they live until the next is.
    copied: Vec<Gather>,
    /// The last reduction, which may go on beside computing: what it reads and makes lives until the next one.
    reducing: Option<Reduction>,
    /// Gradients of this micro batch, by parameter.
    fresh: Vec<Option<Tensor>>,
    /// Sums of those that wait.
    waiting: Vec<Option<Tensor>>,
    /// Whether gradients are reduced behind this backward.
    reduces: bool,
    /// Which of the persistent buffers each unit has, and which input of a reduction is next of each number.
    lent: Vec<Option<usize>>,
    turns: Vec<usize>,
    /// What was there at each moment, where somebody wants to know.
    watched: Option<Vec<(At, [u64; 4])>>,
}

fn bytes_of(tensor: &Tensor) -> u64 {
    (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64
}

/// The units of a rank.
pub struct Units {
    handling: Handling,
    /// Types of what is computed with, and reduced.
    compute: Kind,
    reduce: Kind,
    units: Vec<Unit>,
    wholes: Vec<FullParameter>,
    /// Sections in the order of the forward pass, each with its units; the root last.
    sections: Vec<(Section, Vec<usize>)>,
    persistent: Persistent,
    now: RefCell<Now>,
}

impl Units {
    /// The planner's units, over parameters of runtime native.
    ///
    /// # Errors
    /// When a group is missing, or memory runs out.
    pub fn new(
        planned: &[CarriedUnit],
        parameters: &[ParamShard],
        buffers: &[Buffer],
        handling: Handling,
        device: Device,
        tracker: &Tracker,
        world: &dyn Collectives,
    ) -> anyhow::Result<Units> {
        let (mut units, mut sections) = (Vec::new(), Vec::<(Section, Vec<usize>)>::new());
        let compute = kind_of(handling.compute);
        let mut wholes: Vec<Option<FullParameter>> = parameters.iter().map(|_| None).collect();
        for planned in planned {
            let (number, whole) = (units.len(), planned.slice * planned.members);
            let storage = match planned.weights {
                Weights::CopiedOut | Weights::Gathered => {
                    Tensor::f_empty([length(whole)?], (compute, device))?
                }
                Weights::Kept => Tensor::f_empty([0], (compute, device))?,
            };
            let computed = match planned.weights {
                Weights::Kept => view(&buffers[planned.buffer].weights, planned.start, whole)?,
                Weights::CopiedOut | Weights::Gathered => storage.shallow_clone(),
            };
            let (mut next, mut starts) = (0, Vec::new());
            for &parameter in &planned.parameters {
                let shard = &parameters[parameter];
                let of_it = |copy: &&CopyOut| copy.parameter == parameter;
                let first = match (planned.weights, planned.copies.iter().find(of_it)) {
                    (Weights::Gathered | Weights::Kept, Some(copy)) => copy.gathered.0,
                    _ => next,
                };
                let shape: Vec<i64> =
                    shard.local_shape.iter().map(|&extent| length(extent)).collect::<Result<_, _>>()?;
                // No view of it: filling the storage must not count as changing what the graph has saved.
                let mut leaf = Tensor::f_empty([0], (compute, device))?;
                leaf.f_set_data(&view(&computed, first, shard.elements())?.f_view(shape.as_slice())?)?;
                let leaf = leaf.f_set_requires_grad(true)?;
                wholes[parameter] = Some(FullParameter { name: shard.name.clone(), unit: number, leaf });
                starts.push((parameter, first));
                next += shard.elements();
            }
            let bytes = storage.numel() * compute.elt_size_in_bytes();
            sys::empty_storage(&storage)?;
            match sections.iter_mut().find(|(known, _)| *known == planned.section) {
                Some((_, units)) => units.push(number),
                None => sections.push((planned.section, vec![number])),
            }
            let group = world.mine(planned.group)?;
            ensure!(
                world.size(group) as u64 == planned.members,
                "the planner splits a unit over {} ranks, and its group has {}",
                planned.members,
                world.size(group)
            );
            units.push(Unit {
                index: world.index(group)? as u64,
                group,
                replicas: planned.replicas.map(|kind| world.mine(kind)).transpose()?,
                fewer: Fewer::of(planned, world)?,
                planned: planned.clone(),
                storage,
                bytes,
                starts,
            });
        }
        let wholes: Vec<FullParameter> =
            wholes.into_iter().collect::<Option<_>>().context("a parameter that is in no unit")?;
        let persistent = Persistent::allocate(planned, [compute, kind_of(handling.reduce)], device, tracker)?;
        let now = Now {
            gathered: units.iter().map(|unit: &Unit| unit.planned.weights == Weights::Kept).collect(),
            parts: units.iter().map(|_| None).collect(),
            reduced: vec![false; units.len()],
            lent: vec![None; units.len()],
            turns: vec![0; persistent.gradients.len() / DOUBLED],
            open: vec![0; sections.len()],
            fresh: wholes.iter().map(|_| None).collect(),
            waiting: wholes.iter().map(|_| None).collect(),
            ..Now::default()
        };
        Ok(Units {
            handling,
            compute,
            reduce: kind_of(handling.reduce),
            units,
            wholes,
            sections,
            persistent,
            now: RefCell::new(now),
        })
    }

    /// The parameter as it is computed with.
    ///
    /// # Panics
    /// When its unit is not gathered: the model uses it outside of its section.
    pub fn leaf(&self, parameter: usize) -> Tensor {
        let whole = &self.wholes[parameter];
        assert!(self.now.borrow().gathered[whole.unit], "{} is used while it is not gathered", whole.name);
        whole.leaf.shallow_clone()
    }

    /// A parameter's name.
    pub fn name(&self, parameter: usize) -> &str {
        &self.wholes[parameter].name
    }

    /// Keeps a gradient until its unit's backward is done, in the type of what is computed with; in the type of those that wait
    /// it is added to them at once.
    ///
    /// # Errors
    /// When shapes don't fit.
    pub fn add_gradient(&self, parameter: usize, gradient: &Tensor) -> anyhow::Result<()> {
        let now = &mut *self.now.borrow_mut();
        if let Some(sum) = now.waiting[parameter].as_mut().filter(|sum| sum.kind() == self.compute) {
            let _ = sum.f_add_(gradient)?;
            return Ok(());
        }
        let slot = &mut now.fresh[parameter];
        *slot = Some(match slot.take() {
            // It may be somebody else's, too: never changed in place.
            Some(sum) => sum.f_add(gradient)?.f_to_kind(self.compute)?,
            None => gradient.f_to_kind(self.compute)?,
        });
        Ok(())
    }

    /// From now on, and from nothing, notes what is there at each moment, for tests.
    pub fn watch(&self) {
        self.now.borrow_mut().watched = Some(Vec::new());
    }

    /// What was there at each moment since the last time: bytes of gathered parameters, of buffers of gathers, of gradients that
    /// are not reduced, of inputs and outputs of reductions.
    pub fn take_watched(&self) -> Vec<(At, [u64; 4])> {
        self.now.borrow_mut().watched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Bytes of units beside those that stay from step to step: gathered parameters, buffers, gradients, and what of reductions
    /// is under way.
    ///
    /// # Errors
    /// When a storage can't be asked.
    pub fn passing_bytes(&self) -> anyhow::Result<u64> {
        Ok(self.there(&self.now.borrow(), &[], &[])?.iter().sum())
    }

    /// The same by kind, and of a unit that is being reduced its gradients and what comes of them.
    fn there(&self, now: &Now, gradients: &[Option<Tensor>], sums: &[&Tensor]) -> anyhow::Result<[u64; 4]> {
        let parts = now.parts.iter().flatten().map(bytes_of).sum::<u64>();
        let storages = self.units.iter().map(|unit| sys::storage_bytes(&unit.storage));
        let gathered = parts + storages.sum::<anyhow::Result<u64>>()?;
        // What one rank has for itself is a view of what it keeps.
        let of_gathers = now.copied.iter().chain(now.ahead.iter().flat_map(|(_, gathers)| gathers));
        let gathering = of_gathers.map(Gather::owned_bytes).sum();
        let gradients = now.fresh.iter().chain(&now.waiting).chain(gradients).flatten().map(bytes_of).sum();
        let persistent = &self.persistent.gradients;
        let stays = |tensor: &&Tensor| persistent.iter().any(|one| one.data_ptr() == tensor.data_ptr());
        let of_last = now.reducing.iter().flat_map(Reduction::tensors);
        let of_steps = of_last.chain(sums.iter().copied()).filter(|tensor| !stays(tensor));
        Ok([gathered, gathering, gradients, of_steps.map(bytes_of).sum()])
    }

    /// Notes what is there with what stays, where somebody wants to know.
    fn note(&self, at: At, gradients: &[Option<Tensor>], sums: &[&Tensor]) -> anyhow::Result<()> {
        let now = &mut *self.now.borrow_mut();
        if now.watched.is_none() {
            return Ok(());
        }
        let [gathered, gathering, gradients, reducing] = self.there(now, gradients, sums)?;
        let weights = self.persistent.weights.iter().map(sys::storage_bytes).sum::<anyhow::Result<u64>>()?;
        let sums: u64 = self.persistent.gradients.iter().map(bytes_of).sum();
        now.watched
            .get_or_insert_default()
            .push((at, [gathered + weights, gathering, gradients, reducing + sums]));
        Ok(())
    }

    fn section(&self, section: Section) -> Option<usize> {
        self.sections.iter().position(|(known, _)| *known == section)
    }

    /// Gathers what is used throughout a micro batch.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn begin(&self, buffers: &[Buffer], world: &dyn Collectives) -> anyhow::Result<()> {
        if let Some(root) = self.section(Section::Root) {
            self.have(root, buffers, world)?;
        }
        self.note(At::Begun, &[], &[])
    }

    /// Frees the buffer of the last gather: a chunk's forward is done, and its loss follows.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn end_forward(&self) -> anyhow::Result<()> {
        self.now.borrow_mut().copied.clear();
        self.note(At::ForwardDone, &[], &[])
    }

    /// Says whether a backward that begins is the last of the step for what it goes through.
    pub fn begin_backward(&self, last: bool) {
        self.now.borrow_mut().reduces = last || !self.handling.waits;
    }

    /// Ends a backward that has put gradients of weights off.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn end_backward_of_inputs(&self) -> anyhow::Result<()> {
        if let Some(root) = self.section(Section::Root).filter(|_| !self.handling.stays) {
            self.sections[root].1.iter().try_for_each(|&unit| self.give_back(unit))?;
        }
        self.note(At::BackwardDone, &[], &[])
    }

    /// Reduces what is used throughout a micro batch, and gives it back; `last` when nothing of the step follows.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn end_backward(
        &self,
        last: bool,
        buffers: &[Buffer],
        world: &dyn Collectives,
    ) -> anyhow::Result<()> {
        if let Some(root) = self.section(Section::Root) {
            let reduces = last || !self.handling.waits;
            for &unit in &self.sections[root].1 {
                if last || !self.handling.stays {
                    self.give_back(unit)?;
                }
                self.settle(unit, reduces, buffers, world)?;
            }
            self.finish_reduction(buffers, world)?;
        }
        if last {
            self.end(buffers, world)?;
        }
        self.note(At::BackwardDone, &[], &[])
    }

    /// Gives everything back: behind a step, and behind an evaluation.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn end(&self, buffers: &[Buffer], world: &dyn Collectives) -> anyhow::Result<()> {
        self.drop_ahead(world)?;
        self.finish_reduction(buffers, world)?;
        (0..self.units.len()).try_for_each(|unit| self.give_back(unit))?;
        let mut now = self.now.borrow_mut();
        now.copied.clear();
        now.parts.fill_with(|| None);
        now.reduced.fill(false);
        Ok(())
    }

    /// Does what FSDP2 does at this moment.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn at(
        &self,
        moment: Moment,
        section: Section,
        buffers: &[Buffer],
        world: &dyn Collectives,
    ) -> anyhow::Result<()> {
        let Some(place) = self.section(section) else { return Ok(()) };
        match moment {
            Moment::BeforeForward | Moment::BeforeBackward => {
                let open = &mut self.now.borrow_mut().open[place];
                *open += 1;
                if *open > 1 {
                    return Ok(());
                }
            }
            Moment::AfterWeights => {}
            Moment::AfterForward | Moment::AfterBackward | Moment::AfterInputs => {
                let open = &mut self.now.borrow_mut().open[place];
                *open -= 1;
                if *open > 0 {
                    return Ok(());
                }
            }
        }
        let units = &self.sections[place].1;
        match moment {
            Moment::BeforeForward => {
                self.have(place, buffers, world)?;
                let next = place + 1;
                if self.follows(place, next) {
                    self.gather_ahead(next, buffers, world)?;
                }
                self.note(At::BeforeForward(section), &[], &[])
            }
            Moment::AfterForward => {
                for &unit in units.iter().filter(|&&unit| self.units[unit].planned.reshard) {
                    if self.keep_part(unit)? {
                        self.note(At::Keeping(section), &[], &[])?;
                    }
                    self.give_back(unit)?;
                }
                self.note(At::AfterForward(section), &[], &[])
            }
            Moment::BeforeBackward => {
                self.have(place, buffers, world)?;
                self.now.borrow_mut().copied.clear();
                if let Some(before) = place.checked_sub(1).filter(|&before| self.follows(before, place)) {
                    self.gather_ahead(before, buffers, world)?;
                }
                self.note(At::BeforeBackward(section), &[], &[])
            }
            Moment::AfterInputs => {
                for &unit in units.iter().filter(|&&unit| self.is_given_back_early(unit)) {
                    self.give_back(unit)?;
                }
                self.note(At::AfterInputs(section), &[], &[])
            }
            Moment::AfterBackward | Moment::AfterWeights => {
                let reduces = self.now.borrow().reduces;
                for &unit in units.iter().filter(|&&unit| reduces || self.is_given_back_early(unit)) {
                    self.give_back(unit)?;
                }
                for &unit in units {
                    self.settle(unit, reduces, buffers, world)?;
                }
                self.note(At::AfterBackward(section), &[], &[])
            }
        }
    }

    /// Whether a unit is given back behind each backward, the last or not.
    fn is_given_back_early(&self, unit: usize) -> bool {
        !self.handling.stays || self.units[unit].planned.reshard
    }

    /// Whether a section is the next one behind another in the same chunk of the model.
    fn follows(&self, place: usize, next: usize) -> bool {
        let section = |place: usize| self.sections.get(place).map(|(section, _)| *section);
        section(place).zip(section(next)).is_some_and(|(one, other)| one.is_before(other))
    }

    fn is_gathered(&self, place: usize) -> bool {
        let now = self.now.borrow();
        self.sections[place].1.iter().all(|&unit| now.gathered[unit])
    }

    /// Makes sure that a section is gathered.
    fn have(&self, place: usize, buffers: &[Buffer], world: &dyn Collectives) -> anyhow::Result<()> {
        if self.is_gathered(place) {
            return Ok(());
        }
        let is_ahead = self.now.borrow().ahead.as_ref().is_some_and(|(ahead, _)| *ahead == place);
        let ahead = if is_ahead { self.now.borrow_mut().ahead.take() } else { None };
        let mut gathered = match ahead {
            Some((_, gathered)) => gathered,
            None => {
                self.drop_ahead(world)?;
                self.gather(place, buffers, world)?
            }
        };
        gathered.iter_mut().try_for_each(|gather| gather.wait(world))?;
        // The last one's is freed first.
        self.now.borrow_mut().copied.clear();
        for (&unit, gathered) in self.sections[place].1.iter().zip(&gathered) {
            self.copy_out(unit, &gathered.elements)?;
        }
        self.now.borrow_mut().copied = gathered;
        Ok(())
    }

    fn gather_ahead(&self, place: usize, buffers: &[Buffer], world: &dyn Collectives) -> anyhow::Result<()> {
        if self.is_gathered(place)
            || self.now.borrow().ahead.as_ref().is_some_and(|(ahead, _)| *ahead == place)
        {
            return Ok(());
        }
        self.drop_ahead(world)?;
        let gathered = self.gather(place, buffers, world)?;
        self.now.borrow_mut().ahead = Some((place, gathered));
        Ok(())
    }

    /// Frees what was gathered ahead and is not used.
    fn drop_ahead(&self, world: &dyn Collectives) -> anyhow::Result<()> {
        let Some((place, mut gathered)) = self.now.borrow_mut().ahead.take() else { return Ok(()) };
        gathered.iter_mut().try_for_each(|gather| gather.wait(world))?;
        for &unit in &self.sections[place].1 {
            let filled = self.units[unit].planned.weights == Weights::Gathered;
            if filled && !self.now.borrow().gathered[unit] {
                self.empty(unit)?;
            }
        }
        Ok(())
    }

    fn give_back(&self, unit: usize) -> anyhow::Result<()> {
        if self.units[unit].planned.weights == Weights::Kept {
            return Ok(());
        }
        if std::mem::take(&mut self.now.borrow_mut().gathered[unit]) {
            self.empty(unit)?;
        }
        Ok(())
    }
}

impl Unit {
    fn start_of(&self, parameter: usize) -> anyhow::Result<u64> {
        let found = self.starts.iter().find(|(known, _)| *known == parameter);
        found.map(|&(_, start)| start).context("a parameter of another unit")
    }
}

/// Elements of a flat tensor as the planner lays them out, from an element on.
fn strided(
    flat: &Tensor,
    copy: &CopyOut,
    (first, strides): &(u64, Vec<u64>),
    from: u64,
) -> anyhow::Result<Tensor> {
    let numbers = |all: &[u64]| all.iter().map(|&number| length(number)).collect::<anyhow::Result<Vec<_>>>();
    let (flat, first) = (flat.f_view([-1])?, length(from + first)?);
    let rest = flat.f_narrow(0, first, flat.numel() as i64 - first)?;
    // From where the rest begins.
    Ok(rest.f_as_strided(numbers(&copy.extent)?, numbers(strides)?, None::<i64>)?)
}
