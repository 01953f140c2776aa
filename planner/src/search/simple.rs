//! How simple a plan is: of those that the time model can't tell apart the simplest stands first.

use super::candidate::Candidate;
use super::space::Subspace;
use crate::layout::Split;

/// Classes of plans that are as simple, by their number: fewer axes in use and fewer settings that are not the usual ones
/// are simpler, then an even split and no layout string, then less that is recomputed.
#[derive(Debug, Clone, Default)]
pub(super) struct Classes {
    /// Axes that a pipeline uses, and how its layers are split, by number of stages and pipeline: evenly, by simple words, by a
    /// layout string.
    pipes: Vec<Vec<(u8, u8)>>,
    /// How much is recomputed, by set: nothing, some, everything.
    again: Vec<u8>,
    /// Whether the model has experts, so that their tensor parallelism is an axis.
    experts: bool,
    /// Settings that are not the usual ones.
    unusual: u8,
}

impl Classes {
    /// Of a subspace.
    pub(super) fn of(subspace: &Subspace) -> Classes {
        let pipe = |pipe: &super::stages::Pipe| {
            let used = u8::from(pipe.pp > 1) + u8::from(pipe.vpp > 1);
            let split = match &pipe.split {
                Some(split) if split.listed.is_some() => 2,
                Some(split) if *split != Split::default() => 1,
                _ => 0,
            };
            (used, split)
        };
        Classes {
            pipes: subspace.pipes.iter().map(|pipes| pipes.iter().map(pipe).collect()).collect(),
            again: subspace
                .recompute
                .iter()
                .map(|(set, _)| match set.0.as_str() {
                    "none" => 0,
                    "full" => 2,
                    _ => 1,
                })
                .collect(),
            experts: subspace.plan.model.moe.is_some(),
            unusual: u8::try_from(subspace.unusual.len()).unwrap_or(u8::MAX),
        }
    }

    /// The class of a candidate; the last for one of another subspace.
    pub(super) fn class(&self, one: &Candidate) -> u8 {
        let pipe = self.pipes.get(usize::from(one.stages)).and_then(|pipes| pipes.get(usize::from(one.pipe)));
        let again = self.again.get(usize::from(one.recompute));
        let (Some((used, split)), Some(again)) = (pipe, again) else { return u8::MAX };
        let axes = [one.tp > 1, one.cp > 1, one.ep > 1, self.experts && one.etp > 1, one.replicas > 1];
        let used = (used + axes.iter().map(|on| u8::from(*on)).sum::<u8>()).saturating_add(self.unusual);
        used.saturating_mul(3).saturating_add(*split).saturating_mul(3).saturating_add(*again)
    }
}
