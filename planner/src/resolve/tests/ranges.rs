//! Ranges of rows against the reader: what a row takes is in range, and what it does not take is refused.

use serde_json::{Value, json};

use crate::finding::{Finding, Severity};
use crate::parse::{parse_plan, with_value};
use crate::plan::Plan;
use crate::runtime::Runtime;
use crate::wire::{Kind, PlanFile, Setting};

/// Fields that are no part of a plan that was filled: the version, and what a search is asked for.
const APART: [&str; 2] = ["version", "deadline_days"];

/// A plan in which each setting is read under one runtime at least: with experts, loss scaling, evaluation and checkpoints.
fn plan(runtime: Runtime) -> PlanFile {
    let file = json!({
        "version": 1, "model": {"preset": "tiny-moe"}, "cluster": {"gpu": "h100-sxm"}, "runtime": runtime.name(),
        "training": {"dtype": "fp16", "global_batch_size": 64, "optimizer": {"kind": "sgd"}},
        "run": {
            "data": {"kind": "text", "path": "a.txt"}, "checkpoint": {"save": true},
            "evaluation": {"data": {"kind": "text", "path": "b.txt"}},
        },
    });
    parse_plan(&file.to_string()).unwrap()
}

/// Errors at a field of each runtime's plan with a value there; of those that take it at all.
fn errors(path: &str, value: &Value) -> Vec<Finding> {
    let changed = Runtime::ALL.into_iter().filter_map(|runtime| with_value(&plan(runtime), path, value).ok());
    let findings = changed.flat_map(|file| Plan::judge(&file).findings);
    findings.filter(|found| found.severity == Severity::Error && found.field == path).collect()
}

fn check(path: &str, value: impl Into<Value>, taken: bool) {
    let value = value.into();
    let errors = errors(path, &value);
    if taken {
        let of_range =
            |found: &&Finding| found.rule == "range of plan files" || found.message.contains("must be");
        assert_eq!(errors.iter().find(of_range), None, "{path} {value} is in the range of its row");
    } else {
        assert!(!errors.is_empty(), "{path} {value} is out of the range of its row, and nothing refuses it");
    }
}

#[test]
fn ends_of_ranges_are_taken_and_what_is_beyond_is_refused() {
    for runtime in Runtime::ALL {
        let plan = Plan::judge(&plan(runtime));
        assert!(plan.filled().is_some());
    }
    for setting in Setting::all().filter(|setting| !APART.contains(&setting.path)) {
        let path = setting.path;
        match setting.kind {
            Kind::Whole { least, most } => {
                check(path, least, true);
                // What a plan of this size allows is another question than what a row does.
                if !["cluster.nodes", "layout.first_stage_layers", "layout.last_stage_layers"].contains(&path)
                {
                    check(path, most, true);
                }
                let below = least.checked_sub(1);
                let beyond = below.into_iter().chain(most.checked_add(1));
                beyond.for_each(|value| check(path, value, false));
            }
            Kind::Real { least, most } => {
                for end in [least, most].into_iter().filter(|end| end.is_finite()) {
                    check(path, end, setting.but != Some(end));
                }
                check(path, least - 1.0, false);
                if most.is_finite() {
                    check(path, most + 1.0, false);
                }
                assert!(setting.but.is_none_or(|end| end == least || end == most), "{path}");
            }
            _ => assert_eq!(setting.but, None, "{path}"),
        }
        assert!(
            !setting.stepped || setting.values != crate::wire::Values::Any,
            "{path} steps through nothing"
        );
    }
}

#[test]
fn what_a_cluster_can_not_be_is_said_in_the_numbers_that_were_written() {
    let answer = |cluster: Value| {
        let mut cluster = cluster;
        cluster["gpu"] = "h100-sxm".into();
        let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": cluster});
        crate::answer::estimate(&parse_plan(&file.to_string()).unwrap())
    };
    let said = |cluster: Value, field: &str, part: &str| {
        let found = answer(cluster).findings;
        let one = found.iter().find(|finding| finding.field == field && finding.severity == Severity::Error);
        assert!(one.is_some_and(|one| one.message.contains(part)), "{field}: {found:?}");
    };
    let million = json!({"nodes": 1_000_000});
    said(
        million.clone(),
        "cluster.nodes",
        "is 1000000; it must be between 1 and 131072, which of 8 GPUs each",
    );
    assert_eq!(answer(million).plan.unwrap().name.as_deref(), Some("llama-3-8b on 8000000 h100-sxm"));
    said(json!({"gpu_mtbf_hours": 0}), "cluster.gpu_mtbf_hours", "must be above 0");
    said(json!({"gpu_mtbf_hours": -1}), "cluster.gpu_mtbf_hours", "must be above 0");
    said(json!({"nodes": 2, "nic_gbps": 0}), "cluster.nic_gbps", "on 2 nodes would never end");
    let alone = answer(json!({"nodes": 1, "nic_gbps": 0})).findings;
    assert!(alone.iter().all(|finding| finding.severity != Severity::Error), "{alone:?}");
}
