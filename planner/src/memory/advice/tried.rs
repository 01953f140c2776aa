//! A plan with what is compared: memory, seconds of a step, what is computed again, what warns.

use super::{HOST_BYTES_PER_SECOND, Host, runs};
use crate::finding::Severity;
use crate::memory::{live_chunks, live_of_chunk};
use crate::plan::Plan;
use crate::time;
use crate::wire::{Advice, MemoryAnswer, PlanFile, RankClass, Runtime, StepCost, TimeAnswer};

/// Share of a step from which a longer part is worth a word.
const WORTH_SAYING: f64 = 0.001;

/// A plan that has no error, and its answers.
pub(super) struct Tried {
    pub(super) plan: Plan,
    pub(super) memory: MemoryAnswer,
    time: Option<TimeAnswer>,
    warnings: Vec<String>,
}

impl Tried {
    /// None for a plan with errors.
    pub(super) fn of(file: &PlanFile) -> Option<Tried> {
        let resolved = Plan::resolve(file);
        let plan = resolved.plan?;
        let is_warning = |finding: &&crate::Finding| finding.severity == Severity::Warning;
        let warnings =
            resolved.findings.iter().filter(is_warning).map(|found| found.message.clone()).collect();
        let memory = crate::memory::answer(&plan);
        let time = time::answer(&plan).0;
        Some(Tried { plan, memory, time, warnings })
    }

    /// Whether nothing warns that did not warn before, and the executor runs it if it ran the other.
    pub(super) fn is_as_sound_as(&self, base: &Tried) -> bool {
        self.warnings.iter().all(|warning| base.warnings.contains(warning))
            && (base.plan.runtime != Runtime::Native || !runs(&base.plan) || runs(&self.plan))
    }

    fn fullest(&self) -> Option<&RankClass> {
        self.memory.rank_classes.iter().max_by_key(|class| crate::memory::interval::taken(class))
    }

    /// What is different from `base`, of which `hosts` says what goes to the host.
    pub(super) fn against(&self, base: &Tried, hosts: impl Iterator<Item = Host>) -> Advice {
        let (before, after) = (base.time.as_ref(), self.time.as_ref());
        let ratio = before.zip(after).map(|(before, after)| after.step_seconds / before.step_seconds);
        let flops = |plan: &Plan| time::flops::recomputed_flops(plan) / plan.world_size() as f64;
        let host_bytes: u64 = hosts.map(|host| self.copied(base, host)).fold(0, u64::saturating_add);
        let mut notes = Vec::new();
        if host_bytes > 0 {
            notes.push(
                "copies to and from the host are not in the step's seconds; their own are those of PCIe 4.0 x16 if nothing hides them"
                    .to_owned(),
            );
        }
        Advice {
            title: String::new(),
            changes: Vec::new(),
            saved_bytes: base.memory.peak_bytes as i64 - self.memory.peak_bytes as i64,
            peak_bytes: self.memory.peak_bytes,
            interval_bytes: self.memory.interval_bytes,
            stage: self.fullest().map_or(0, |class| class.stage),
            verdict: self.memory.verdict,
            step_seconds: after.map(|time| time.step_seconds),
            step_ratio: ratio.map(time::rounded),
            costs: before.zip(after).map(|(before, after)| costs(before, after)).unwrap_or_default(),
            extra_flops_per_rank: time::rounded(flops(&self.plan) - flops(&base.plan)),
            host_bytes,
            host_seconds: time::rounded(host_bytes as f64 / HOST_BYTES_PER_SECOND),
            changes_training: false,
            notes,
        }
    }

    /// Bytes that a rank of the stage that is the fullest before copies in a step.
    fn copied(&self, base: &Tried, host: Host) -> u64 {
        let Some(before) = base.fullest() else { return 0 };
        let now = self.memory.rank_classes.iter().find(|class| class.stage == before.stage);
        let Some(now) = now else { return 0 };
        let microbatches = self.plan.microbatches().max(1);
        match host {
            Host::Nothing => 0,
            Host::Activations => {
                // What is gone is that of the micro batches in flight; each step moves all of them, out and back.
                let (live, _) = live_chunks(&base.plan, before.stage);
                let in_flight = live_of_chunk(&base.plan, live, 0).max(1);
                let gone = before.activations_bytes.saturating_sub(now.activations_bytes);
                (gone / in_flight).saturating_mul(microbatches).saturating_mul(2)
            }
            Host::Optimizer => {
                // Of fp32 master weight and two moments, a gradient of four bytes leaves and a weight of two comes.
                before.optimizer_bytes.saturating_sub(now.optimizer_bytes) / 2
            }
            Host::Shards => {
                let shards = before.weights_bytes.saturating_sub(now.weights_bytes);
                let gradients = before.gradients_bytes.saturating_sub(now.gradients_bytes);
                (shards.saturating_mul(2).saturating_add(gradients)).saturating_mul(microbatches)
            }
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
    costs.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    costs
}
