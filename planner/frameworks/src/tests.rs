//! Every field of a plan is an option of a framework, or one that it has none for, or one that is said to be neither yet.

use serde_json::{Value, json};

use super::path::at;
use super::{Holds, Source, Table, automodel, bridge, megatron_lm, torchtitan};
use planner::parse::parse_plan;
use planner::plan::Plan;
use planner::runtime::Runtime;
use planner::software::Framework;

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
    let unread: Vec<&str> = table.unread().map(|gap| gap.field).collect();
    let is_said = |path: &String| table.knows(path) || unread.contains(&path.as_str());
    let unknown: Vec<String> = paths(runtime).into_iter().filter(|path| !is_said(path)).collect();
    assert_eq!(unknown, Vec::<String>::new(), "no row, no gap and no setting under {}", runtime.name());
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

/// What a framework is told of a tiny model with experts, as `option=value`, and which fields are missing.
fn told(table: &Table, runtime: Runtime, training: Value, run: Value) -> (Vec<String>, Vec<&'static str>) {
    let file = json!({
        "version": 1, "model": {"preset": "tiny-moe"}, "runtime": runtime, "training": training, "run": run,
        "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 8},
    });
    let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
    let plan = resolved.plan.unwrap_or_else(|| panic!("{file}: {:?}", resolved.findings));
    let written = table.write(&plan);
    let options = written.options.iter().map(|(row, word)| format!("{}={word}", row.option)).collect();
    (options, written.missing.iter().map(|missing| missing.field).collect())
}

#[test]
fn what_nobody_has_read_is_said_where_it_is_set() {
    let nothing = Table { rows: &[], gaps: &[super::gap::UNDER_ALL] };
    let set = json!({"deterministic": true, "overlap": {"p2p": true}, "moe": {"capacity_factor": 1.5}});
    let (options, missing) = told(&nothing, Runtime::Megatron, set, json!({}));
    assert_eq!(options, Vec::<String>::new());
    let training: Vec<&str> = missing.into_iter().filter(|field| field.starts_with("training.")).collect();
    // What is as it would be by itself is nothing to be said.
    assert_eq!(training, ["training.deterministic", "training.moe.capacity_factor"]);
}

#[test]
fn what_options_say_is_not_missing() {
    const CONSTANTS: [&str; 2] = ["training.optimizer.beta1", "training.optimizer.beta2"];
    let adam = json!({"deterministic": true, "moe": {"force_balance": true}, "optimizer": {"beta1": 0.8, "beta2": 0.99}});
    let sgd = json!({"optimizer": {"kind": "sgd", "momentum": 0.5}});
    #[track_caller]
    fn has(options: &[String], wanted: &[&str]) {
        for option in wanted {
            assert!(options.iter().any(|said| said == option), "{option}: {options:?}");
        }
    }
    for version in [Framework::Torchtitan03, Framework::Torchtitan02, Framework::TorchtitanMain] {
        let table = torchtitan::table(version);
        let (options, missing) = told(&table, Runtime::Fsdp2, adam.clone(), json!({}));
        has(&options, &["debug.deterministic=true", "debug.moe_force_load_balance=true"]);
        let in_toml = version == Framework::Torchtitan02;
        if in_toml {
            has(&options, &["optimizer.beta1=0.8", "optimizer.beta2=0.99", "optimizer.eps=0.00000001"]);
        }
        assert!(CONSTANTS.iter().all(|field| missing.contains(field) != in_toml), "{version:?}: {missing:?}");
        assert!(!missing.contains(&"training.deterministic"), "{missing:?}");
        // Of another optimizer than Adam nothing is an option.
        let (options, missing) = told(&table, Runtime::Fsdp2, sgd.clone(), json!({}));
        assert!(!options.iter().any(|option| option.contains("beta")), "{options:?}");
        assert!(missing.contains(&"training.optimizer.momentum"), "{version:?}: {missing:?}");
    }
    let table = automodel::table(Runtime::Fsdp2);
    let (options, missing) = told(&table, Runtime::Fsdp2, adam, json!({}));
    has(&options, &["optimizer.betas=[0.8,0.99]", "optimizer.eps=0.00000001"]);
    assert!(!CONSTANTS.iter().any(|field| missing.contains(field)), "{missing:?}");
    let (_, missing) = told(&table, Runtime::Fsdp2, sgd, json!({}));
    assert!(missing.contains(&"training.optimizer.momentum"), "{missing:?}");
    // What is to be captured stands in the recipe file, and is not dropped in silence.
    let (_, missing) = told(&table, Runtime::Fsdp2, json!({"cuda_graphs": "iteration"}), json!({}));
    assert!(missing.contains(&"training.cuda_graphs"), "{missing:?}");
}

#[test]
fn bridge_is_told_of_documents_what_its_data_set_has_fields_for() {
    let documents = |documents: Value| {
        told(&bridge::table(), Runtime::Megatron, json!({}), json!({"documents": documents}))
    };
    let of_documents = |missing: &[&'static str]| {
        missing.iter().copied().filter(|field| field.starts_with("run.documents")).collect::<Vec<_>>()
    };
    let (options, missing) = documents(json!({"reset_positions": true, "mask_eod_loss": true}));
    assert!(options.contains(&"dataset.reset_position_ids=true".to_owned()), "{options:?}");
    assert!(options.contains(&"dataset.eod_mask_loss=true".to_owned()), "{options:?}");
    assert_eq!(of_documents(&missing), Vec::<&str>::new());
    let (options, missing) = documents(json!({"reset_attention": true, "eod_token": 0}));
    assert!(options.contains(&"dataset.eod_mask_loss=false".to_owned()), "{options:?}");
    assert_eq!(of_documents(&missing), ["run.documents.reset_attention", "run.documents.eod_token"]);
    // Where a plan says nothing, a recipe is not told.
    let (options, _) = documents(json!({}));
    assert!(!options.iter().any(|option| option.starts_with("dataset.reset")), "{options:?}");
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
            Source::Own | Source::Unread => !matches!(gap.holds, Holds::Nothing),
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
