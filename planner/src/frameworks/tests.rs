//! Every field of a plan is an option of a framework, or one that it has none for.

use serde_json::{Value, json};

use super::{Holds, Source, Table, at, automodel, bridge, megatron_lm, torchtitan};
use crate::plan::{Framework, Plan, parse_plan};
use crate::runtime::Runtime;

/// Paths of all fields of filled plans of a runtime; sections that are one value are leaves.
fn paths(runtime: Runtime) -> Vec<String> {
    fn walk(path: String, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) if !map.is_empty() && !matches!(path.as_str(), "model" | "run.data") => {
                for (key, value) in map {
                    walk(if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, value, found);
                }
            }
            _ => found.push(path),
        }
    }
    let mut found = Vec::new();
    for training in [json!({}), json!({"optimizer": {"precision_aware": true, "core_master": true}})] {
        let file = json!({
            "version": 1, "model": {"preset": "tiny-moe"}, "runtime": runtime, "training": training,
            "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 8},
            "software": {"torch": "2.11.0"},
        });
        let filled = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap().file;
        walk(String::new(), &serde_json::to_value(filled).unwrap(), &mut found);
    }
    found.sort();
    found.dedup();
    found
}

#[track_caller]
fn check(runtime: Runtime, table: Table) {
    let unknown: Vec<String> = paths(runtime).into_iter().filter(|path| !table.knows(path)).collect();
    assert_eq!(unknown, Vec::<String>::new(), "neither a row nor a gap under {}", runtime.name());
}

#[test]
fn automodel_has_every_field_as_a_row_or_a_gap() {
    check(Runtime::Fsdp2, automodel::table(Runtime::Fsdp2));
    check(Runtime::MegatronFsdp, automodel::table(Runtime::MegatronFsdp));
}

#[test]
fn bridge_has_every_field_as_a_row_or_a_gap() {
    check(Runtime::Megatron, bridge::table());
}

#[test]
fn megatron_lm_has_every_field_as_a_row_or_a_gap() {
    check(Runtime::Megatron, megatron_lm::table());
    check(Runtime::MegatronFsdp, megatron_lm::table());
}

#[test]
fn torchtitan_has_every_field_as_a_row_or_a_gap() {
    for version in [Framework::Torchtitan03, Framework::Torchtitan02, Framework::TorchtitanMain] {
        check(Runtime::Fsdp2, torchtitan::table(version));
    }
}

#[test]
fn what_is_set_and_has_no_option_is_said() {
    let said = |training: Value, layout: Value| -> Vec<&'static str> {
        let file = json!({
            "version": 1, "model": {"preset": "llama-3-8b"}, "runtime": "fsdp2", "training": training, "layout": layout,
            "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 8},
        });
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
        let always = ["model", "training.seq_len", "layout.fsdp.sharded_dtype"];
        let missing = automodel::table(plan.runtime).write(&plan).missing.into_iter();
        missing.map(|missing| missing.field).filter(|field| !always.contains(field)).collect()
    };
    assert_eq!(said(json!({}), json!({})), Vec::<&str>::new());
    assert_eq!(said(json!({"attention_backend": "flash"}), json!({})), ["training.attention_backend"]);
    assert_eq!(said(json!({"optimizer": {"kind": "sgd"}}), json!({})), ["training.optimizer.kind"]);
    assert_eq!(said(json!({}), json!({"fsdp": {"loss_dtype": "bf16"}})), ["layout.fsdp.loss_dtype"]);
    // What is written out as it would be by itself is nothing to be said.
    assert_eq!(said(json!({"attention_backend": "auto"}), json!({})), Vec::<&str>::new());
    let file = json!({"a": {"b": [1]}});
    assert_eq!((at(&file, "a.b"), at(&file, "a.c.d")), (&json!([1]), &Value::Null));
}

/// Every table, with what it is of.
fn tables() -> Vec<(String, Table)> {
    let mut tables =
        vec![("Megatron-LM".to_owned(), megatron_lm::table()), ("Bridge".to_owned(), bridge::table())];
    for runtime in [Runtime::Fsdp2, Runtime::MegatronFsdp] {
        tables.push((format!("Automodel, {}", runtime.name()), automodel::table(runtime)));
    }
    for version in [Framework::Torchtitan03, Framework::Torchtitan02, Framework::TorchtitanMain] {
        tables.push((version.name().to_owned(), torchtitan::table(version)));
    }
    tables
}

#[test]
fn every_row_and_every_gap_has_its_source() {
    // Short enough to be sent to a browser.
    const MOST: usize = 70;
    let mut without = Vec::new();
    for (name, table) in tables() {
        let rows = table.rows().filter(|row| row.source.trim().is_empty());
        let rows = rows.map(|row| format!("{} {}", row.option, row.field));
        let gaps = table.gaps().filter(|gap| match gap.source {
            Source::Read(file) => !file.contains('/') || file.len() > MOST,
            // What no framework could have is never missed.
            Source::Own => !matches!(gap.holds, Holds::Nothing),
        });
        let gaps = gaps.map(|gap| gap.field.to_owned());
        without.extend(rows.chain(gaps).map(|field| format!("{name}: {field}")));
    }
    assert_eq!(without, Vec::<String>::new());
}

#[test]
fn no_field_is_a_gap_twice() {
    let mut twice = Vec::new();
    for (name, table) in tables() {
        let mut fields: Vec<&str> = table.gaps().map(|gap| gap.field).collect();
        fields.sort_unstable();
        twice.extend(
            fields.windows(2).filter(|two| two[0] == two[1]).map(|two| format!("{name}: {}", two[0])),
        );
    }
    assert_eq!(twice, Vec::<String>::new());
}
