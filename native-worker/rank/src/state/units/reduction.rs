//! Gradients of units: kept until they are summed over the ranks, or added to those that wait. A sum goes on beside the backward that
//! follows, until the next one begins.

use planner::memory::At;
use planner::shard::fsdp::CopyOut;
use tch::Tensor;

use super::super::{Buffer, length, view};
use super::{DOUBLED, Persistent, Unit, Units, strided};
use crate::collectives::{Begun, Collective, Collectives, Reduce};

/// A reduction that may go on.
pub(super) struct Reduction {
    unit: usize,
    input: Tensor,
    /// What it comes to, where that is added to what the rank keeps afterwards.
    sum: Option<Tensor>,
    begun: Vec<Begun>,
}

impl Reduction {
    /// What it reads, and makes for itself.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        std::iter::once(&self.input).chain(&self.sum)
    }
}

impl Units {
    /// Sums a unit's gradients over the ranks, or adds them to those that wait.
    pub(super) fn settle(
        &self,
        number: usize,
        reduces: bool,
        buffers: &[Buffer],
        world: &dyn Collectives,
    ) -> anyhow::Result<()> {
        let unit = &self.units[number];
        let kind = self.reduce;
        let wait = |parameter: usize| -> anyhow::Result<()> {
            let mut now = self.now.borrow_mut();
            let Some(fresh) = now.fresh[parameter].take() else { return Ok(()) };
            let sum = match now.waiting[parameter].take() {
                Some(mut sum) => {
                    let _ = sum.f_add_(&fresh)?;
                    sum
                }
                // Its own copy: it is changed in place from here on.
                None => fresh.f_to_dtype(kind, false, true)?,
            };
            now.waiting[parameter] = Some(sum);
            Ok(())
        };
        let waiting = |&(parameter, _): &(usize, u64)| self.now.borrow().waiting[parameter].is_some();
        if !reduces || unit.starts.iter().any(waiting) {
            self.note(At::Adding(unit.planned.section), &[], &[])?;
        }
        if !reduces {
            return unit.starts.iter().try_for_each(|&(parameter, _)| wait(parameter));
        }
        let mut gradients = Vec::new();
        for &(parameter, _) in &unit.starts {
            if self.now.borrow().waiting[parameter].is_some() {
                wait(parameter)?;
            }
            let mut now = self.now.borrow_mut();
            gradients.push(now.waiting[parameter].take().or_else(|| now.fresh[parameter].take()));
        }
        let planned = &unit.planned;
        let copied: u64 = planned.copies.iter().map(CopyOut::elements).sum();
        let size = [length(planned.slice * planned.members)?];
        let form = (kind, unit.storage.device());
        let complete = copied == planned.slice * planned.members && gradients.iter().all(Option::is_some);
        // What the reduction before has read and made is freed first.
        self.finish_reduction(buffers, world)?;
        let mut input = match self.next_input(planned.persistent) {
            Some(input) => input,
            None => Tensor::f_empty(size, form)?,
        };
        if !complete {
            let _ = input.f_zero_()?;
        }
        self.note(At::Reducing(planned.section), &gradients, &[&input])?;
        for ((parameter, _), gradient) in unit.starts.iter().zip(gradients) {
            let Some(gradient) = gradient else { continue };
            let gradient = gradient.f_contiguous()?;
            for copy in planned.copies.iter().filter(|copy| copy.parameter == *parameter) {
                let mut there = strided(&input, copy, &copy.gathered, 0)?;
                there.f_copy_(&strided(&gradient, copy, &copy.local, 0)?)?;
            }
        }
        let reduction = self.reduce(number, input, buffers, world)?;
        let done = reduction.begun.iter().all(Begun::was_done);
        self.now.borrow_mut().reducing = Some(reduction);
        self.note(At::Summing(planned.section), &[], &[])?;
        if done { self.add_sum(buffers) } else { Ok(()) }
    }

    /// Adds what the last reduction came to to what the rank keeps, where it is not there yet.
    fn add_sum(&self, buffers: &[Buffer]) -> anyhow::Result<()> {
        let sum =
            self.now.borrow_mut().reducing.as_mut().and_then(|last| Some((last.unit, last.sum.take()?)));
        let Some((unit, sum)) = sum else { return Ok(()) };
        let mut kept = self.gradients_of(unit, buffers)?;
        let _ = kept.f_add_(&sum.f_to_device(kept.device())?)?;
        Ok(())
    }

    /// Has computing wait for the last reduction, and gives back what it has read and made.
    pub(super) fn finish_reduction(&self, buffers: &[Buffer], world: &dyn Collectives) -> anyhow::Result<()> {
        let begun = self.now.borrow_mut().reducing.as_mut().map(|last| std::mem::take(&mut last.begun));
        begun.into_iter().flatten().try_for_each(|begun| world.wait(begun))?;
        self.add_sum(buffers)?;
        self.now.borrow_mut().reducing = None;
        Ok(())
    }

    /// The gradients that the rank keeps of a unit.
    fn gradients_of(&self, unit: usize, buffers: &[Buffer]) -> anyhow::Result<Tensor> {
        let planned = &self.units[unit].planned;
        view(&buffers[planned.buffer].gradients, planned.start, planned.slice)
    }

    /// The next persistent input of a reduction, for units that have them.
    fn next_input(&self, number: Option<usize>) -> Option<Tensor> {
        let turn = &mut self.now.borrow_mut().turns;
        let turn = turn.get_mut(number?)?;
        *turn = (*turn + 1) % DOUBLED;
        let place = Persistent::places(number?).nth(*turn)?;
        self.persistent.gradients.get(place).map(Tensor::shallow_clone)
    }

    /// Begins to sum a unit's gradients over the ranks.
    fn reduce(
        &self,
        number: usize,
        input: Tensor,
        buffers: &[Buffer],
        world: &dyn Collectives,
    ) -> anyhow::Result<Reduction> {
        let Unit { planned, group, replicas, .. } = &self.units[number];
        let kept = self.gradients_of(number, buffers)?;
        let first = !std::mem::replace(&mut self.now.borrow_mut().reduced[number], true);
        let direct = first && kept.kind() == input.kind() && kept.device() == input.device();
        let mut sum = match direct {
            true => kept,
            false => Tensor::f_empty([length(planned.slice)?], (input.kind(), input.device()))?,
        };
        let mut begun = Vec::new();
        match planned.members {
            1 => sum.f_copy_(&input)?,
            _ => {
                let scatter = Collective::ReduceScatter { input: &input, output: &mut sum };
                begun.push(world.begin(*group, scatter)?);
            }
        }
        if let Some(replicas) = replicas {
            // Behind it, as what is begun follows each other.
            begun.push(world.begin(*replicas, Collective::AllReduce(Reduce::Sum, &mut sum))?);
        }
        Ok(Reduction { unit: number, input, sum: (!direct).then_some(sum), begun })
    }
}
