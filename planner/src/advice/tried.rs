//! A plan with what is compared: memory, seconds of a step, what is computed again, what warns.

use super::runs;
use crate::finding::Severity;
use crate::plan::Plan;
use crate::search::{FitGroup, Margin, Room};
use crate::time;
use crate::wire::{Advice, MemoryAnswer, PlanFile, RankClass, StepCost, TimeAnswer, Verdict};

/// Share of a step from which a longer part is worth a word.
const WORTH_SAYING: f64 = 0.001;

/// A plan that has no error, and its answers.
pub(super) struct Tried {
    pub(super) plan: Plan,
    pub(super) memory: MemoryAnswer,
    /// Whether it fits, as a search says it.
    pub(super) verdict: Verdict,
    time: Option<TimeAnswer>,
    warnings: Vec<String>,
}

impl Tried {
    /// None for a plan with errors. With a margin it only fits where that stays free.
    pub(super) fn of(file: &PlanFile, margin: Option<Margin>) -> Option<Tried> {
        let resolved = Plan::remark(file);
        let plan = resolved.plan?;
        let is_warning = |finding: &&crate::Finding| finding.severity == Severity::Warning;
        let warnings =
            resolved.findings.iter().filter(is_warning).map(|found| found.message.clone()).collect();
        let memory = crate::memory::answer(&plan);
        let time = time::simulated_answer(&plan).0;
        let room = Room::of(memory.capacity_bytes, margin);
        let verdict = match room.group(memory.peak_bytes, || memory.interval_bytes[1]) {
            Some(FitGroup::Fits) => Verdict::Fits,
            Some(FitGroup::Tight) => Verdict::Tight,
            None => Verdict::No,
        };
        Some(Tried { plan, memory, verdict, time, warnings })
    }

    /// Whether nothing warns that did not warn before, and the executor runs it if it ran the other.
    pub(super) fn is_as_sound_as(&self, base: &Tried) -> bool {
        self.warnings.iter().all(|warning| base.warnings.contains(warning))
            && (!base.plan.runtime.facts().is_workers_own || !runs(&base.plan) || runs(&self.plan))
    }

    fn fullest(&self) -> Option<&RankClass> {
        self.memory.rank_classes.iter().max_by_key(|class| crate::memory::taken(class))
    }

    /// What is different from `base`.
    pub(super) fn against(&self, base: &Tried) -> Advice {
        let (before, after) = (base.time.as_ref(), self.time.as_ref());
        let ratio = before.zip(after).map(|(before, after)| after.step_seconds / before.step_seconds);
        let flops = |plan: &Plan| time::flops::recomputed_flops(plan) / plan.world_size() as f64;
        Advice {
            title: String::new(),
            changes: Vec::new(),
            saved_bytes: base.memory.peak_bytes as i64 - self.memory.peak_bytes as i64,
            peak_bytes: self.memory.peak_bytes,
            interval_bytes: self.memory.interval_bytes,
            stage: self.fullest().map_or(0, |class| class.stage),
            verdict: self.verdict,
            gpus: self.plan.world_size(),
            step_seconds: after.map(|time| time.step_seconds),
            interval_seconds: after.map(|time| time.interval_seconds),
            step_ratio: ratio.map(time::rounded),
            costs: before.zip(after).map(|(before, after)| costs(before, after)).unwrap_or_default(),
            extra_flops_per_rank: time::rounded(flops(&self.plan) - flops(&base.plan)),
            changes_training: false,
            notes: Vec::new(),
        }
    }
}

fn costs(before: &TimeAnswer, after: &TimeAnswer) -> Vec<StepCost> {
    let least = WORTH_SAYING * before.step_seconds;
    let parts = before.breakdown.parts().into_iter().zip(after.breakdown.parts());
    let mut costs: Vec<StepCost> = parts
        .map(|((part, before), (_, after))| StepCost {
            part: part.to_owned(),
            seconds: time::rounded(after - before),
        })
        .filter(|cost| cost.seconds >= least)
        .collect();
    crate::order::sort_by(&mut costs, |a, b| b.seconds.total_cmp(&a.seconds));
    costs
}
