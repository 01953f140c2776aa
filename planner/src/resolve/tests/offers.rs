//! What is offered in place of a value that breaks a rule.

use serde_json::{Value, json};

use crate::finding::Severity;
use crate::parse::{parse_plan, with_value};
use crate::plan::Plan;
use crate::wire::{Kind, Setting};

/// A plan file on 16 GPUs with these parts.
fn file(preset: &str, parts: Value) -> Value {
    let mut file = json!({
        "version": 1, "model": {"preset": preset}, "cluster": {"gpu": "b200", "nodes": 2}, "layout": {},
        "training": {"global_batch_size": 64},
    });
    for (part, fields) in parts.as_object().unwrap() {
        match (file[part].as_object_mut(), fields.as_object()) {
            (Some(place), Some(fields)) => place.extend(fields.clone()),
            _ => file[part] = fields.clone(),
        }
    }
    file
}

/// What is offered at a field; each of it is taken there.
fn check(preset: &str, parts: Value, path: &str, offered: Value) {
    let file = parse_plan(&file(preset, parts).to_string()).unwrap();
    let at = |findings: Vec<crate::finding::Finding>| {
        findings.into_iter().find(|found| found.field == path && found.severity == Severity::Error)
    };
    let found = at(Plan::resolve(&file).findings).unwrap_or_else(|| panic!("{path} is not refused"));
    assert_eq!(Value::from(found.nearest.clone()), offered, "{found:?}");
    for value in &found.nearest {
        let changed = with_value(&file, path, value).unwrap();
        assert_eq!(at(Plan::resolve(&changed).findings), None, "{path} {value}");
    }
}

#[test]
fn what_is_offered_comes_from_the_row_and_keeps_the_rules() {
    // Sizes that divide, and that are far away.
    check("llama-3-8b", json!({"layout": {"tp": 3}}), "layout.tp", json!([2, 4]));
    check(
        "llama-3-8b",
        json!({"runtime": "megatron_fsdp", "layout": {"vpp": 100}}),
        "layout.vpp",
        json!([1]),
    );
    // A sequence is cut by two axes: tokens of a rank by tensor parallelism too.
    let cut = json!({"layout": {"tp": 8, "cp": 2}, "training": {"seq_len": 4100, "global_batch_size": 64}});
    check("llama-3-8b", cut, "training.seq_len", json!([4096, 4112]));
    // Words: the usual one first; of a scale the next one.
    check("llama-3-8b", json!({"layout": {"schedule": "zbv"}}), "layout.schedule", json!(["1f1b", "gpipe"]));
    let graphs = json!({"training": {"cuda_graphs": "iteration", "cuda_graph_modules": ["attn"]}});
    check("llama-3-8b", graphs, "training.cuda_graphs", json!(["scoped", "none"]));
    // A switch, a text, a fraction and what is better left out.
    check("llama-3-8b", json!({"layout": {"sp": true}}), "layout.sp", json!([false]));
    let order = json!({"layout": {"pp": 2, "tp": 2, "order": "tp-cp-ep-pp-dp"}});
    check("mixtral-8x7b", order, "layout.order", json!(["tp-cp-ep-dp-pp"]));
    let host = json!({"training": {"optimizer": {"offload_fraction": 0.5, "precision_aware": false}}});
    check("llama-3-8b", host, "training.optimizer.offload_fraction", json!([0.0]));
    let capacity = json!({"training": {"moe": {"capacity_factor": 0.0}}});
    check("mixtral-8x7b", capacity, "training.moe.capacity_factor", json!([null]));
    let first = json!({"layout": {"pp": 2, "first_stage_layers": 16, "account_for_loss": true}});
    check("llama-3-8b", first, "layout.first_stage_layers", json!([null]));
    // Numbers or words: which of them go with tensor parallelism, the rules say.
    let reshard =
        |tp: u64| json!({"runtime": "fsdp2", "layout": {"tp": tp, "fsdp": {"reshard_after_forward": 3}}});
    check("llama-3-8b", reshard(1), "layout.fsdp.reshard_after_forward", json!([2, 4]));
    check("llama-3-8b", reshard(2), "layout.fsdp.reshard_after_forward", json!(["default", "always"]));
}

#[test]
fn nothing_is_offered_that_a_row_does_not_take() {
    let parts = json!({
        "layout": {"tp": 3, "vpp": 7, "ep": 5, "sp": true, "microbatch_group_size": 3},
        "training": {"seq_len": 1001, "optimizer": {"instances": 3, "offload_fraction": 0.5, "precision_aware": false}},
    });
    let file = parse_plan(&file("mixtral-8x7b", parts).to_string()).unwrap();
    let findings = Plan::resolve(&file).findings;
    assert!(findings.iter().filter(|found| found.severity == Severity::Error).count() > 3, "{findings:?}");
    for finding in findings.iter().filter(|found| found.severity == Severity::Error) {
        let setting = Setting::at_path(&finding.field).unwrap();
        for value in &finding.nearest {
            let taken = match setting.kind {
                Kind::Whole { .. } => value.as_u64().is_some_and(|value| setting.has(value)),
                Kind::Word(words) => words.iter().any(|word| value == word),
                _ => true,
            };
            assert!(taken && *value != finding.value, "{finding:?}");
        }
    }
}
