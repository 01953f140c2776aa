//! An out-of-memory error beside the plan's prediction, and what of the plan would lower it.

use serde::{Deserialize, Serialize};

use super::oom::OutOfMemory;
use planner::layout::coordinates;
use planner::memory;
use planner::plan::Plan;
use planner::search::Margin;
use planner::units::Bytes;
use planner::wire::{Advice, MemoryAnswer, RankClass};

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
    /// What the fullest GPU must take less, at the least: by what the error says, and by the plan where its prediction is above
    /// the GPU's memory or below what the run needed.
    pub missing_bytes: u64,
    /// What that says, in sentences.
    pub said: String,
    /// Changes of the plan that lower its prediction by as much, alone or together, the fastest first; where none do, that.
    pub advice: Vec<String>,
}

/// Sets an error against a plan; none where the plan has no such rank.
pub(super) fn compare(found: &OutOfMemory, plan: &Plan, rank: Option<u32>) -> Option<AgainstPlan> {
    let answer = memory::answer(plan);
    let class = class_of(plan, &answer.rank_classes, rank)?;
    let needed = found.allocated_bytes.map(|used| used.saturating_add(found.tried_bytes.unwrap_or(0)));
    let predicted = class.peak_allocated_bytes;
    let words = |bytes: u64| Bytes(bytes).in_words();
    let mut said = format!(
        "the plan predicts {} in tensors at the peak of rank {}",
        words(predicted),
        class.example_rank
    );
    match needed {
        Some(needed) if needed > predicted => said.push_str(&format!(
            "; the run needed at least {}, {} more: it is not this plan, another phase (loading, evaluation, saving), or the \
             prediction is too low",
            words(needed),
            words(needed - predicted)
        )),
        Some(needed) => said.push_str(&format!("; the run had {} when it ended, on its way there", words(needed))),
        None => said.push_str("; the error says no figures of the allocator"),
    }
    if let (Some(said_capacity), Some(capacity)) = (found.capacity_bytes, answer.capacity_bytes)
        && said_capacity.abs_diff(capacity) > capacity / 20
    {
        said.push_str(&format!("; the GPU has {}, and the plan's {}", words(said_capacity), words(capacity)));
    }
    if let Some(held) = found.held_by_others() {
        said.push_str(&format!("; {} of the GPU belong to other processes", words(held)));
    }
    let missing = missing(found, &answer, needed.map_or(0, |needed| needed.saturating_sub(predicted)));
    Some(AgainstPlan {
        predicted_reserved_bytes: class.peak_reserved_bytes,
        predicted_allocated_bytes: predicted,
        capacity_bytes: answer.capacity_bytes,
        needed_bytes: needed,
        missing_bytes: missing,
        said,
        advice: advice(plan, &answer, missing),
    })
}

/// The class of a rank; of the fullest where the rank is not known.
fn class_of<'a>(plan: &Plan, classes: &'a [RankClass], rank: Option<u32>) -> Option<&'a RankClass> {
    let is_grid = !plan.runtime.facts().uses_device_mesh;
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

/// What the fullest GPU must take less: what the allocation lacked, or more where the plan, with what the run needed beyond it,
/// is further above the GPU's memory.
fn missing(found: &OutOfMemory, answer: &MemoryAnswer, beyond_plan: u64) -> u64 {
    let lacked = found.tried_bytes.unwrap_or(0).saturating_sub(found.free_bytes.unwrap_or(0));
    let above = answer
        .capacity_bytes
        .map_or(0, |capacity| answer.peak_bytes.saturating_add(beyond_plan).saturating_sub(capacity));
    lacked.max(above)
}

/// The planner's own advice, in words. What saves less than is missing is no help by itself.
fn advice(plan: &Plan, answer: &MemoryAnswer, missing: u64) -> Vec<String> {
    // A plan whose peak falls by what is missing leaves so much free.
    let margin = answer
        .capacity_bytes
        .filter(|_| missing > 0)
        .map(|capacity| Margin::Bytes(capacity.saturating_add(missing).saturating_sub(answer.peak_bytes)));
    let advice = planner::advice::advice(&plan.file, margin);
    let words = |bytes: u64| Bytes(bytes).in_words();
    let enough = |advice: &&Advice| advice.saved_bytes > 0 && advice.saved_bytes.unsigned_abs() >= missing;
    let enough: Vec<String> = advice
        .lowering()
        .filter(enough)
        .take(MOST_ADVICE)
        .map(|advice| {
            let (peak, saved) = (words(advice.peak_bytes), words(advice.saved_bytes.unsigned_abs()));
            format!("{}: the plan then predicts {peak} for the fullest GPU, {saved} less", advice.title)
        })
        .collect();
    if !enough.is_empty() {
        return enough;
    }
    let helps = advice.lowering().filter(|advice| advice.saved_bytes > 0).take(MOST_ADVICE);
    let helps: Vec<String> = helps
        .map(|advice| format!("{} ({})", advice.title, words(advice.saved_bytes.unsigned_abs())))
        .collect();
    let most = if helps.is_empty() {
        String::new()
    } else {
        format!("; those that lower the peak, and are not enough: {}", helps.join(", "))
    };
    vec![format!(
        "no change that was tried frees the {} that are missing, alone or with others{most}; `shardplan search PLAN` looks at every \
         layout, and says what would fit if none does",
        words(missing)
    )]
}
