//! Gradients of units: kept until they are summed over the ranks, or added to those that wait.

use planner::memory::At;
use planner::shard::fsdp::CopyOut;
use tch::Tensor;

use super::super::{Buffer, length, view};
use super::{DOUBLED, Persistent, Unit, Units, strided};
use crate::collectives::{Collectives, Reduce};

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
        // The input of the reduction before is freed first.
        self.now.borrow_mut().reducing.clear();
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
        self.reduce(number, &input, buffers, world)?;
        self.now.borrow_mut().reducing.push(input);
        Ok(())
    }

    /// The next persistent input of a reduction, for units that have them.
    fn next_input(&self, number: Option<usize>) -> Option<Tensor> {
        let turn = &mut self.now.borrow_mut().turns;
        let turn = turn.get_mut(number?)?;
        *turn = (*turn + 1) % DOUBLED;
        let place = Persistent::places(number?).nth(*turn)?;
        self.persistent.gradients.get(place).map(Tensor::shallow_clone)
    }

    fn reduce(
        &self,
        number: usize,
        input: &Tensor,
        buffers: &[Buffer],
        world: &dyn Collectives,
    ) -> anyhow::Result<()> {
        let Unit { planned, group, replicas, .. } = &self.units[number];
        let mut kept = view(&buffers[planned.buffer].gradients, planned.start, planned.slice)?;
        let first = !std::mem::replace(&mut self.now.borrow_mut().reduced[number], true);
        let direct = first && kept.kind() == input.kind() && kept.device() == input.device();
        let mut sum = match direct {
            true => kept.shallow_clone(),
            false => Tensor::f_empty([length(planned.slice)?], (input.kind(), input.device()))?,
        };
        match planned.members {
            1 => sum.f_copy_(input)?,
            _ => world.reduce_scatter(*group, input, &mut sum)?,
        }
        if let Some(replicas) = replicas {
            world.all_reduce(*replicas, Reduce::Sum, &mut sum)?;
        }
        let made = (!direct).then_some(&sum);
        self.note(At::Summing(planned.section), &[], &Vec::from_iter(std::iter::once(input).chain(made)))?;
        if !direct {
            let _ = kept.f_add_(&sum.f_to_device(kept.device())?)?;
        }
        Ok(())
    }
}
