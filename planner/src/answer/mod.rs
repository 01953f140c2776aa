//! What page and command show of a plan file: everything that the rooms below say of it, put together.

mod failures;
mod sizing;

pub use failures::without_distributed_optimizer;
pub use sizing::{SizingRow, sizing_rows};

use serde_json::Value;

use crate::finding::{Finding, Severity};
use crate::plan::Plan;
use crate::recipes::Among;
use crate::rules::executor_limits;
use crate::software::Named;
use crate::wire::{Answer, GroupSizes, ParameterCounts, PlanFile, TimeAnswer, VERSION, Verdict};
use crate::{memory, model, shard, time};

/// The answer to a plan file: counts, groups, memory, findings. Never fails: what can't be computed is absent, and a
/// finding says why.
pub fn estimate(file: &PlanFile) -> Answer {
    estimate_among(file, Among::All)
}

/// The same with a choice of recipes.
pub fn estimate_among(file: &PlanFile, among: Among) -> Answer {
    answered(file, among).0
}

/// The same with the plan that it is of, where there is one.
pub fn estimate_with_plan(file: &PlanFile) -> (Answer, Option<Plan>) {
    answered(file, Among::All)
}

fn answered(file: &PlanFile, among: Among) -> (Answer, Option<Plan>) {
    let resolved = Plan::resolve_among(file, among);
    let counted = resolved.model().map(|model| model::count(model));
    let filled = resolved.filled().cloned();
    let plan = resolved.plan.as_ref();
    let mut findings = resolved.findings;
    let time = plan.and_then(|plan| {
        let (time, remarks) = time::simulated_answer(plan);
        findings.extend(remarks);
        time
    });
    let memory = plan.map(memory::answer);
    findings.extend(
        plan.zip(memory.as_ref()).and_then(|(plan, memory)| memory::gives_back(plan, &memory.rank_classes)),
    );
    let sizing = plan.zip(memory.as_ref()).map(|(plan, memory)| memory::sizing(plan, memory));
    findings.extend(
        sizing
            .as_ref()
            .zip(memory.as_ref())
            .and_then(|(sizing, memory)| memory::disagreement(sizing, memory)),
    );
    if let (Some(plan), Some(sizing), Some(memory)) = (plan, &sizing, &memory) {
        findings.extend(memory::of_8_bits(plan, sizing, memory));
    }
    findings.extend(plan.into_iter().flat_map(not_executed));
    if let (Some(time), Some(memory)) = (&time, &memory) {
        findings.extend(unnamed(file, time, memory.verdict));
    }
    if let Some((plan, answer)) = plan.zip(time.as_ref()) {
        findings.extend(time::over_the_network(plan, answer));
    }
    crate::order::sort_by_key(&mut findings, |finding| finding.severity);
    let parameters = counted.map(|(total, active)| ParameterCounts {
        total,
        active,
        per_rank_max: plan.map_or(0, shard::parameters_per_rank_max),
    });
    let answer = Answer {
        version: VERSION,
        plan: filled,
        groups: plan.map(|plan| GroupSizes {
            world: plan.world_size(),
            tp: plan.layout.tp,
            cp: plan.layout.cp,
            pp: plan.layout.pp,
            ep: plan.layout.ep,
            etp: plan.layout.etp,
            dp: plan.layout.dp,
            edp: plan.layout.edp,
        }),
        memory,
        sizing,
        nonuniform: plan
            .and_then(|plan| failures::lived_with(plan, time.as_ref().map(|time| time.step_seconds))),
        parameters,
        assumed: resolved.assumed,
        framework: resolved.framework,
        chosen: Vec::new(),
        findings,
        time,
    };
    (answer, resolved.plan)
}

/// What the worker does not do of a plan that only it could train.
fn not_executed(plan: &Plan) -> Vec<Finding> {
    if !plan.runtime.facts().is_workers_own {
        return Vec::new();
    }
    let limits = executor_limits(plan).into_iter().filter(|finding| finding.severity == Severity::Error);
    limits.map(|finding| Finding { severity: Severity::Warning, ..finding }).collect()
}

/// What a plan that names no framework should know: that its answer would be another one with the usual framework named, by
/// more than the likely range of that allows for, or in its verdict. Its own range is as wide as not to know the framework asks.
fn unnamed(file: &PlanFile, time: &TimeAnswer, verdict: Verdict) -> Option<Finding> {
    const FIELD: &str = "software.framework";
    let software = &file.software;
    if software.framework.is_some() || software.profile.is_some() || software.calibration.is_some() {
        return None;
    }
    let usual = Named::usual_of(file)?;
    let mut named = file.clone();
    named.software.framework = Some(usual.text());
    let resolved = Plan::judge(&named);
    let plan = resolved.plan.filter(|_| resolved.framework.is_some())?;
    let (other, _) = time::answer(&plan);
    let (other, verdict_named) = (other?, memory::answer(&plan).verdict);
    let [low, high] = other.interval_seconds;
    let within = (low..=high).contains(&time.step_seconds);
    if within && verdict == verdict_named {
        return None;
    }
    let message = format!(
        "no framework is named, so the defaults of plan files hold; as {}'s recipe sets it, a step would take {:.3} s and the verdict be {}, not {:.3} s and {}: name what you train with",
        usual.text(),
        other.step_seconds,
        verdict_named.name(),
        time.step_seconds,
        verdict.name()
    );
    Some(Finding::info(FIELD, Value::Null, message).rule("recipes of frameworks").nearest([usual.text()]))
}
