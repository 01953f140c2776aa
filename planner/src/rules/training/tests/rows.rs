//! One plan for each rule that breaks it. What the frameworks refuse is listed here in full: a rule without a row fails.

mod fsdp;
mod grid;
mod model;
mod training;

use std::collections::BTreeSet;

use serde_json::Value;

use super::file;
use crate::answer::estimate;
use fsdp::FSDP;
use grid::GRID;
use model::MODEL;
use training::TRAINING;

/// A preset, the parts of a plan besides, and the field and the rule of what is said of it.
type Row = (&'static str, &'static str, &'static str, &'static str);

/// The files that hold rules.
const SOURCES: &[&str] = &[
    include_str!("../../layout.rs"),
    include_str!("../../mixers.rs"),
    include_str!("../../mesh.rs"),
    include_str!("../../torchtitan.rs"),
    include_str!("../../../model/check.rs"),
    include_str!("../../../shard/remarks.rs"),
    include_str!("../../../shard/tp_plan/validate.rs"),
    include_str!("../experts.rs"),
    include_str!("../graphs.rs"),
    include_str!("../kernels.rs"),
    include_str!("../model.rs"),
    include_str!("../modules.rs"),
    include_str!("../optimizer.rs"),
    include_str!("../overlap.rs"),
    include_str!("../precision.rs"),
    include_str!("../recompute.rs"),
];

/// Texts in quotes that name the framework behind a rule.
fn rules(source: &str) -> impl Iterator<Item = &str> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let of_a_framework = |text: &&str| {
        let names = ["(Megatron", "(NeMo", "(torch", "(TransformerEngine"];
        text.ends_with(')') && !text.contains('{') && names.iter().any(|name| text.contains(name))
    };
    code.split('"').skip(1).step_by(2).filter(of_a_framework)
}

#[test]
fn every_rule_has_a_plan_that_breaks_it() {
    let (mut broken, mut missing) = (BTreeSet::new(), Vec::new());
    for &(preset, parts, field, rule) in [GRID, MODEL, TRAINING, FSDP].into_iter().flatten() {
        let parts: Value = serde_json::from_str(parts).unwrap();
        let findings = estimate(&file(preset, &parts)).findings;
        let said = findings.iter().find(|finding| finding.field == field && finding.rule.contains(rule));
        match said {
            Some(finding) => {
                assert!(!finding.message.is_empty());
                broken.insert(finding.rule.clone());
            }
            None => missing.push(format!("{preset} {parts}: no `{rule}` at {field}: {findings:?}")),
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let all: BTreeSet<&str> = SOURCES.iter().flat_map(|source| rules(source)).collect();
    assert!(all.len() > 70, "{}", all.len());
    let without: Vec<&&str> = all.iter().filter(|rule| !broken.contains(**rule)).collect();
    assert!(without.is_empty(), "no row breaks {without:#?}");
}
