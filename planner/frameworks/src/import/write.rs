//! From what a configuration says to a plan file, with what was noticed on the way.

use serde_json::Value;

use super::Imported;
use planner::finding::Finding;
use planner::parse::parse_plan;

/// What was noticed.
pub(crate) struct Notes {
    rule: &'static str,
    findings: Vec<Finding>,
}

impl Notes {
    /// Nothing yet; `rule` says whose settings are read.
    pub(crate) fn new(rule: &'static str) -> Notes {
        Notes { rule, findings: Vec::new() }
    }

    /// Something that the plan leaves out or takes otherwise.
    pub(crate) fn warn(&mut self, field: &str, value: &str, message: &str) {
        self.note(Finding::warning(field, value, format!("{value}: {message}")));
    }

    /// Adds a finding.
    pub(crate) fn note(&mut self, finding: Finding) {
        self.findings.push(finding.rule(self.rule));
    }
}

/// The plan file, or why there is none.
pub(crate) fn finish(plan: Result<Value, String>, notes: Notes) -> Imported {
    let Notes { rule, mut findings } = notes;
    let file = match plan {
        Ok(plan) => match parse_plan(&plan.to_string()) {
            Ok(file) => Some(file),
            Err(more) => {
                findings.extend(more);
                None
            }
        },
        Err(message) => {
            findings.insert(0, Finding::error("arguments", Value::Null, message).rule(rule));
            None
        }
    };
    Imported { file, findings, unknown: Vec::new() }
}
