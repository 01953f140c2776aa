//! A plan file to a plan: its defaults filled, and every rule of every room asked once.

mod alternatives;
#[cfg(test)]
mod tests;

pub use alternatives::valid_values;

use crate::fill::{Filled, fill_among};
use crate::finding::{Finding, Severity, clip, has_error};
use crate::model::{Architecture, Model};
use crate::plan::Plan;
use crate::recipes::Among;
use crate::rules::{LayoutChoice, Shape, valid_layouts};
use crate::wire::{FrameworkAnswer, PlanFile};
use crate::{memory, nonuniform, parse, rules, shard, time};

/// What is told of a plan file; each tells what those before it tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    /// What makes it no plan, and what was found on the way.
    Errors,
    /// What else is worth knowing.
    Remarks,
    /// Other values for what is wrong.
    Offers,
}

/// What became of a plan file.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The plan; none when a finding is an error.
    pub plan: Option<Plan>,
    /// The same with broken rules, where at least model and cluster could be read.
    partial: Option<Plan>,
    /// What is wrong or worth knowing.
    pub findings: Vec<Finding>,
    /// Paths of the fields that were filled by a default.
    pub assumed: Vec<String>,
    /// What the framework that the file names set.
    pub framework: Option<FrameworkAnswer>,
}

impl Resolved {
    /// The plan, or what of it could be made out although rules are broken.
    pub fn plan_or_shape(self) -> Option<Plan> {
        self.partial
    }

    /// The file with every field filled, where model and cluster could be read.
    pub fn filled(&self) -> Option<&PlanFile> {
        self.partial.as_ref().map(|plan| &plan.file)
    }

    /// The architecture, where it could be read.
    pub fn model(&self) -> Option<&Model> {
        self.partial.as_ref().map(|plan| &*plan.model)
    }
}

impl Plan {
    /// Fills every default of `file` and checks every rule.
    pub fn resolve(file: &PlanFile) -> Resolved {
        Plan::resolve_among(file, Among::All)
    }

    /// The same with a choice of recipes: scores ask what a plan gets for which a framework has none.
    pub fn resolve_among(file: &PlanFile, among: Among) -> Resolved {
        Plan::judge_and(file, among, Told::Offers)
    }

    /// The same without other values worth trying.
    pub(crate) fn remark(file: &PlanFile) -> Resolved {
        Plan::judge_and(file, Among::All, Told::Remarks)
    }

    /// The same without remarks, for whoever asks of many plans whether they are valid.
    pub(crate) fn judge(file: &PlanFile) -> Resolved {
        Plan::judge_and(file, Among::All, Told::Errors)
    }

    #[inline(never)]
    fn judge_and(file: &PlanFile, among: Among, told: Told) -> Resolved {
        let Filled { plan: mut partial, mut findings, assumed, framework } = fill_among(file, among);
        if let Some(plan) = &mut partial {
            let broken = rules::check(&Shape::of(plan));
            let is_whole = broken.is_empty();
            findings.extend(broken);
            if told == Told::Offers && cfg!(feature = "offers") {
                alternatives::offer(file, among, plan, &mut findings);
            }
            // What a recipe sets is no remark on what somebody wrote, and no error beside one of theirs: it is left out where the rest excludes it.
            let set = |finding: &Finding| {
                framework.as_ref().is_some_and(|answer| answer.sets.contains_key(&finding.field))
            };
            let remarks = check(plan, is_whole, told).into_iter();
            findings
                .extend(remarks.filter(|finding| !(set(finding) && finding.severity == Severity::Warning)));
            let is_error = |finding: &Finding| finding.severity == Severity::Error;
            if findings.iter().any(|finding| is_error(finding) && !set(finding)) {
                findings.retain(|finding| !(is_error(finding) && set(finding)));
            }
            if cfg!(feature = "nonuniform") && !has_error(&findings) {
                match nonuniform::plan_failures(plan) {
                    Ok(nonuniform) => plan.nonuniform = nonuniform,
                    Err(finding) => findings.push(*finding),
                }
                findings.extend(nonuniform::remarks(plan));
            }
        }
        findings.extend(parse::holding(file));
        crate::order::sort_by_key(&mut findings, |finding| finding.severity);
        let plan = partial.clone().filter(|_| !has_error(&findings));
        Resolved { plan, partial, findings, assumed, framework }
    }
}

/// Every valid layout for a plan file, whose own layout may break rules; none when its model or GPU can't be read.
pub fn valid_layouts_of(file: &PlanFile) -> Option<Vec<LayoutChoice>> {
    Plan::judge(file).plan_or_shape().map(|plan| valid_layouts(&plan))
}

/// What else can be said against a filled plan, which `is_whole` where it breaks none of the rules.
fn check(plan: &Plan, is_whole: bool, told: Told) -> Vec<Finding> {
    let mut findings = time::check(plan);
    let is_whole = is_whole && !has_error(&findings);
    if is_whole {
        findings.extend(shard::check(plan));
    }
    if told < Told::Remarks {
        return findings;
    }
    findings.splice(0..0, rules::remarks(plan));
    if is_whole {
        findings.extend(memory::spares_nothing(plan));
    }
    findings.extend(left_out(&plan.model));
    let how_exact = plan.runtime.facts().how_exact;
    findings.push(
        Finding::info("memory.activations_bytes", serde_json::Value::Null, how_exact)
            .rule("memory categories"),
    );
    findings.extend(memory::assumptions(plan));
    findings
}

/// Parts of a model that no answer counts, and that the worker does not run.
fn left_out(model: &Architecture) -> Option<Finding> {
    let parts: Vec<&str> = model.parts.keys().map(String::as_str).collect();
    (!parts.is_empty()).then(|| {
        let parts = parts.join(", ");
        let message = format!(
            "planned without what is not known to change a size: {parts}; the worker runs no model that it would have to leave them out of"
        );
        Finding::info("model", clip(&parts), message).rule("parts of a model that are not planned")
    })
}
