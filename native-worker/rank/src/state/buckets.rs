//! Gradients of a layer that are summed over data-parallel ranks as soon as the last micro batch's backward of that layer is
//! through, beside the backward of those before it, where ranks talk by something that goes on beside computing; and its updated
//! weights, which come back in the same way beside the next step's forward of the layers before it.
//!
//! A bucket is what a layer, or the output layer, has in the planner's flat buffers. Who keeps the state of a part of it gets the sum
//! of that part, so each element is summed over the same ranks in the same order as behind the whole backward, and hands out what it
//! has updated of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use planner::model::Module;
use planner::shard::ParamShard;
use planner::shard::fsdp::Section;
use tch::Tensor;

use super::{Buffer, Parameter, view};
use crate::collectives::{Begun, Collective, Collectives, GroupId, Reduce};
use crate::tape::Moment;

/// What of one buffer is summed at once.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    buffer: usize,
    elements: Range<u64>,
}

/// The gradients of a section of the model.
struct Bucket {
    parameters: Vec<usize>,
    parts: Vec<Part>,
}

/// What changes in a step.
#[derive(Default)]
struct Now {
    /// Whether the backward that goes on is the last of the step for what it goes through.
    last: bool,
    /// Sections whose sums were begun in this step.
    begun: Vec<Section>,
    /// Those sums, in the order in which they were begun.
    under_way: Vec<Begun>,
    /// Weights on their way: of sections, and of what is in none.
    coming: BTreeMap<Option<Section>, Vec<Begun>>,
}

/// The buckets of a rank.
pub struct Buckets {
    sections: BTreeMap<Section, Bucket>,
    /// What is in no section: it is whole when the step's backward is.
    rest: Bucket,
    now: RefCell<Now>,
}

/// Where a parameter's gradient is whole before the end of a backward.
fn section(shard: &ParamShard) -> Option<Section> {
    // Other stages have a part of a shared one.
    if shard.shared_over.is_some() {
        return None;
    }
    let is_output = shard.module == Module::Head;
    shard.layer.map(Section::Layer).or(is_output.then_some(Section::Last))
}

impl Bucket {
    fn of<'s>(parameters: impl Iterator<Item = (usize, &'s ParamShard)>) -> Bucket {
        let (mut numbers, mut parts) = (Vec::new(), Vec::<Part>::new());
        for (number, shard) in parameters {
            numbers.push(number);
            let elements = shard.buffer_offset..shard.buffer_offset + shard.elements();
            parts.push(Part { buffer: shard.buffer, elements });
        }
        parts.sort_by_key(|part| (part.buffer, part.elements.start));
        // What lies side by side is summed together.
        parts.dedup_by(|next, before| {
            let joins = next.buffer == before.buffer && next.elements.start == before.elements.end;
            if joins {
                before.elements.end = next.elements.end;
            }
            joins
        });
        Bucket { parameters: numbers, parts }
    }
}

impl Buckets {
    /// Of these parameters.
    pub fn of(parameters: &[Parameter]) -> Buckets {
        let mut sections = BTreeMap::<Option<Section>, Vec<(usize, &ParamShard)>>::new();
        for (number, parameter) in parameters.iter().enumerate() {
            sections.entry(section(&parameter.shard)).or_default().push((number, &parameter.shard));
        }
        let rest = Bucket::of(sections.remove(&None).into_iter().flatten());
        let of_section = |(section, parameters): (Option<Section>, Vec<_>)| {
            Some((section?, Bucket::of(parameters.into_iter())))
        };
        Buckets {
            sections: sections.into_iter().filter_map(of_section).collect(),
            rest,
            now: RefCell::default(),
        }
    }

    /// Says whether a backward that begins is the last of the step for what it goes through.
    pub fn begin_backward(&self, last: bool) {
        self.now.borrow_mut().last = last;
    }

    /// Says that it is through.
    pub fn end_backward(&self) {
        self.now.borrow_mut().last = false;
    }

    /// The parameters of a section whose gradients are whole at this moment; none at others.
    pub fn whole_at(&self, moment: Moment, section: Section) -> Option<&[usize]> {
        let whole = matches!(moment, Moment::AfterBackward | Moment::AfterWeights);
        let bucket = self.sections.get(&section).filter(|_| whole && self.now.borrow().last)?;
        Some(&bucket.parameters)
    }

    /// Begins the sums of a section.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn begin(&self, section: Section, buffers: &[Buffer], world: &dyn Collectives) -> anyhow::Result<()> {
        let Some(bucket) = self.sections.get(&section) else { return Ok(()) };
        self.now.borrow_mut().begun.push(section);
        self.begin_sums(bucket, buffers, world)
    }

    /// Parameters whose sums are not begun.
    pub fn left(&self) -> Vec<usize> {
        let now = self.now.borrow();
        let left = self.sections.iter().filter(|(section, _)| !now.begun.contains(section));
        let left = left.map(|(_, bucket)| bucket).chain([&self.rest]);
        left.flat_map(|bucket| bucket.parameters.iter().copied()).collect()
    }

    /// Begins those of what is left, and has computing wait for all. Weights that nobody has asked for are there then, too: an
    /// update may follow.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn finish(&self, buffers: &[Buffer], world: &dyn Collectives) -> anyhow::Result<()> {
        self.have_all_weights(world)?;
        let begun = std::mem::take(&mut self.now.borrow_mut().begun);
        let left = self.sections.iter().filter(|(section, _)| !begun.contains(section));
        for bucket in left.map(|(_, bucket)| bucket).chain([&self.rest]) {
            self.begin_sums(bucket, buffers, world)?;
        }
        let under_way = std::mem::take(&mut self.now.borrow_mut().under_way);
        under_way.into_iter().try_for_each(|begun| world.wait(begun))
    }

    /// Begins to hand out what ranks have updated, in the order in which a forward needs it.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn begin_weights(&self, buffers: &[Buffer], world: &dyn Collectives) -> anyhow::Result<()> {
        let sections = self.sections.iter().map(|(section, bucket)| (Some(*section), bucket));
        for (section, bucket) in std::iter::once((None, &self.rest)).chain(sections) {
            let mut coming = Vec::new();
            for part in &bucket.parts {
                let buffer = &buffers[part.buffer];
                let group = world.mine(buffer.shard.group)?;
                if !buffer.is_split() || !buffer.keeps_state() || world.size(group) == 1 {
                    continue;
                }
                let mut parts = shares(&part.elements, buffer.kept.elements)
                    .map(|(member, own)| Ok((member, view(&buffer.weights, own.start, own.end - own.start)?)))
                    .collect::<anyhow::Result<Vec<_>>>()?;
                coming.push(world.begin(group, Collective::BroadcastEach(&mut parts))?);
            }
            self.now.borrow_mut().coming.insert(section, coming);
        }
        Ok(())
    }

    /// Has computing wait for the weights of a section whose forward begins.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn have_weights(&self, section: Section, world: &dyn Collectives) -> anyhow::Result<()> {
        // What is in no section is before layers and behind them.
        let asked: &[Option<Section>] = match section {
            Section::Layer(_) => &[Some(section)],
            Section::Embedding | Section::Last => &[Some(section), None],
            // A module of prediction has layers of its own.
            Section::Mtp(_) | Section::Root => return self.have_all_weights(world),
        };
        for asked in asked {
            let coming = self.now.borrow_mut().coming.remove(asked);
            coming.into_iter().flatten().try_for_each(|begun| world.wait(begun))?;
        }
        Ok(())
    }

    /// Has computing wait for all weights.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn have_all_weights(&self, world: &dyn Collectives) -> anyhow::Result<()> {
        let coming = std::mem::take(&mut self.now.borrow_mut().coming);
        coming.into_values().flatten().try_for_each(|begun| world.wait(begun))
    }

    fn begin_sums(&self, bucket: &Bucket, buffers: &[Buffer], world: &dyn Collectives) -> anyhow::Result<()> {
        for part in &bucket.parts {
            let buffer = &buffers[part.buffer];
            let group = world.mine(buffer.shard.group)?;
            if world.size(group) == 1 {
                continue;
            }
            let begun = begin_sum(buffer, &part.elements, group, world)?;
            self.now.borrow_mut().under_way.push(begun);
        }
        Ok(())
    }
}

/// Begins the sum of elements of a buffer's gradients: on all members, or of each member's part on that member.
fn begin_sum(
    buffer: &Buffer,
    elements: &Range<u64>,
    group: GroupId,
    world: &dyn Collectives,
) -> anyhow::Result<Begun> {
    let gradients = |part: &Range<u64>| -> anyhow::Result<Tensor> {
        buffer.gradients_of(part.start, part.end - part.start)
    };
    if !buffer.is_split() {
        return world.begin(group, Collective::AllReduce(Reduce::Sum, &mut gradients(elements)?));
    }
    let mut parts = shares(elements, buffer.kept.elements)
        .map(|(member, part)| Ok((member, gradients(&part)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    world.begin(group, Collective::ReduceEach(&mut parts))
}

/// What of some elements each member keeps, where members keep `each` one after the other.
fn shares(elements: &Range<u64>, each: u64) -> impl Iterator<Item = (usize, Range<u64>)> {
    let Range { start, end } = *elements;
    let each = each.max(1);
    let members = start / each..end.div_ceil(each);
    members.map(move |member| {
        let own = member * each..(member + 1) * each;
        (member as usize, own.start.max(start)..own.end.min(end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_share_elements_as_they_keep_them() {
        let of = |elements: Range<u64>| shares(&elements, 10).collect::<Vec<_>>();
        assert_eq!(of(0..10), [(0, 0..10)]);
        assert_eq!(of(3..27), [(0, 3..10), (1, 10..20), (2, 20..27)]);
        assert_eq!(of(20..25), [(2, 20..25)]);
        assert_eq!(of(10..10), []);
    }
}
