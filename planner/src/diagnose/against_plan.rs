//! An out-of-memory error beside the plan's prediction, and what of the plan would lower it.

use serde::{Deserialize, Serialize};

use super::oom::OutOfMemory;
use crate::layout::coordinates;
use crate::memory;
use crate::plan::Plan;
use crate::units::Bytes;
use crate::wire::{RankClass, Runtime};

/// Changes that are told.
const MOST_ADVICE: usize = 4;

/// Figures of the error beside the plan's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgainstPlan {
    /// What the plan predicts that the allocator takes on this rank.
    pub predicted_reserved_bytes: u64,
    /// What it predicts in tensors at the peak.
    pub predicted_allocated_bytes: u64,
    /// What the GPU has, by the plan.
    pub capacity_bytes: Option<u64>,
    /// What the error says was in tensors, with what was asked for.
    pub needed_bytes: Option<u64>,
    /// What that says, in sentences.
    pub said: String,
    /// Changes of the plan that lower its prediction: those after which it fits first, the fastest first.
    pub advice: Vec<String>,
}

/// Sets an error against a plan; none where the plan has no such rank.
pub(super) fn compare(found: &OutOfMemory, plan: &Plan, rank: Option<u32>) -> Option<AgainstPlan> {
    let answer = memory::answer(plan);
    let class = class_of(plan, &answer.rank_classes, rank)?;
    let needed = found.allocated_bytes.map(|used| used.saturating_add(found.tried_bytes.unwrap_or(0)));
    let predicted = class.peak_allocated_bytes;
    let gib = |bytes: u64| format!("{:.2} GiB", Bytes(bytes).gib());
    let mut said =
        format!("the plan predicts {} in tensors at the peak of rank {}", gib(predicted), class.example_rank);
    match needed {
        Some(needed) if needed > predicted => said.push_str(&format!(
            "; the run needed at least {}, {} more: it is not this plan, another phase (loading, evaluation, saving), or the \
             prediction is too low",
            gib(needed),
            gib(needed - predicted)
        )),
        Some(needed) => said.push_str(&format!("; the run had {} when it ended, on its way there", gib(needed))),
        None => said.push_str("; the error says no figures of the allocator"),
    }
    if let (Some(said_capacity), Some(capacity)) = (found.capacity_bytes, answer.capacity_bytes)
        && said_capacity.abs_diff(capacity) > capacity / 20
    {
        said.push_str(&format!("; the GPU has {}, and the plan's {}", gib(said_capacity), gib(capacity)));
    }
    let others = found.capacity_bytes.zip(found.in_use_bytes).zip(found.free_bytes);
    if let Some(((capacity, in_use), free)) = others
        && capacity.saturating_sub(in_use).saturating_sub(free) > capacity / 20
    {
        let other = capacity - in_use - free;
        said.push_str(&format!("; {} of the GPU belong to other processes", gib(other)));
    }
    Some(AgainstPlan {
        predicted_reserved_bytes: class.peak_reserved_bytes,
        predicted_allocated_bytes: predicted,
        capacity_bytes: answer.capacity_bytes,
        needed_bytes: needed,
        said,
        advice: advice(plan),
    })
}

/// The class of a rank; of the fullest where the rank is not known.
fn class_of<'a>(plan: &Plan, classes: &'a [RankClass], rank: Option<u32>) -> Option<&'a RankClass> {
    let is_grid = matches!(plan.runtime, Runtime::Megatron | Runtime::Native);
    let stage = rank
        .map(u64::from)
        .filter(|rank| *rank < plan.world_size() && is_grid && plan.nonuniform.is_none())
        .map(|rank| coordinates(&plan.layout, rank).pp);
    let fullest = || classes.iter().max_by_key(|class| class.peak_reserved_bytes);
    match stage {
        Some(stage) => classes.iter().find(|class| class.stage == stage).or_else(fullest),
        None => fullest(),
    }
}

/// The planner's own advice, in words.
fn advice(plan: &Plan) -> Vec<String> {
    let advice = crate::advice::advice(&plan.file, None);
    let lowering = advice.lowering().filter(|advice| advice.saved_bytes > 0);
    lowering
        .take(MOST_ADVICE)
        .map(|advice| {
            let saved = Bytes(advice.saved_bytes.unsigned_abs()).gib();
            let peak = Bytes(advice.peak_bytes).gib();
            format!(
                "{}: the plan then predicts {peak:.2} GiB for the fullest GPU, {saved:.2} GiB less",
                advice.title
            )
        })
        .collect()
}
