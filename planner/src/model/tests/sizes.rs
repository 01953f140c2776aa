//! Architectures in Shardplan's own words, with sizes that no model has.

use serde_json::{Value, json};

use crate::answer::estimate;
use crate::finding::has_error;
use crate::model::{import_hf, presets};
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::wire::PlanFile;

fn architecture(id: &str) -> Value {
    let preset = presets().iter().find(|preset| preset.id == id).unwrap();
    let imported = import_hf(preset.hf_config.as_ref().unwrap());
    serde_json::to_value(imported.architecture.unwrap()).unwrap()
}

fn plan(architecture: &Value, layout: &Value) -> PlanFile {
    let file = json!({
        "version": 1, "model": {"architecture": architecture}, "layout": layout,
        "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 4},
        "training": {"global_batch_size": 64, "seq_len": 64},
    });
    parse_plan(&file.to_string()).unwrap()
}

/// Paths of all numbers in a value.
fn numbers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(number) if number.is_u64() => found.push(at.to_owned()),
        Value::Object(fields) => {
            for (name, inner) in fields {
                numbers(inner, &format!("{at}/{name}"), found);
            }
        }
        // Runs of a pattern are alike: the first ones will do.
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate().take(4) {
                numbers(inner, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn any_size_gives_an_answer_or_findings() {
    for id in ["qwen3-next-80b-a3b", "nemotron-3-super", "kimi-k3", "deepseek-v4-flash", "gemma-4-26b-a4b"] {
        let whole = architecture(id);
        let mut paths = Vec::new();
        numbers(&whole, "", &mut paths);
        assert!(paths.len() > 15, "{id}: {paths:?}");
        for path in paths {
            for odd in [0, 1, 7, 65_536, 1 << 24, u64::MAX] {
                let mut changed = whole.clone();
                *changed.pointer_mut(&path).unwrap() = json!(odd);
                let file = plan(&changed, &json!({"tp": 2, "pp": 2}));
                let answer = estimate(&file);
                assert_eq!(answer.memory.is_none(), has_error(&answer.findings), "{id}{path} = {odd}");
            }
        }
    }
}

#[test]
fn patterns_that_can_not_be_are_findings() {
    let refused = |pattern: Value, part: &str| {
        let mut changed = architecture("qwen3-next-80b-a3b");
        changed["pattern"] = pattern;
        let resolved = Plan::resolve(&plan(&changed, &json!({})));
        assert!(resolved.plan.is_none());
        let messages: Vec<&String> = resolved.findings.iter().map(|finding| &finding.message).collect();
        assert!(messages.iter().any(|message| message.contains(part)), "{messages:?}");
    };
    refused(json!([{"mixer": 2}]), "layers with mixer 2, and there are 1 other mixers");
    refused(json!([{"mixer": null, "mlp": "none"}]), "no layer of the pattern has");
    refused(json!([{"count": 0}, {"mlp": "dense"}]), "number of layers in a run of its pattern is 0");
    refused(json!([{"count": 48}, {"mlp": "dense"}]), "the pattern has 49 layers, and the model 48");
}
