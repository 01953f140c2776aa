//! A rule is asked of its owner's plans alone, and names who refuses.

use serde_json::{Value, json};

use super::{check, errors, file};
use crate::answer::estimate;

/// Errors of a plan under each of these frameworks, as fields.
fn under(preset: &str, runtime: &str, parts: &Value, expected: &[(Option<&str>, &[&str])]) {
    for (framework, fields) in expected {
        let mut parts = parts.clone();
        parts["runtime"] = runtime.into();
        parts["software"] = json!({"framework": framework});
        check(preset, &parts, fields);
    }
}

#[test]
fn prediction_modules_go_with_context_parallelism_where_no_framework_refuses_them() {
    let cp: &[&str] = &["layout.cp"];
    let both = json!({"layout": {"cp": 2}, "training": {"mtp_layers": 1}});
    under(
        "deepseek-v3",
        "fsdp2",
        &both,
        &[(None, cp), (Some("automodel 0.7"), cp), (Some("torchtitan 0.3"), cp), (Some("worker"), &[])],
    );
    under(
        "deepseek-v3",
        "megatron_fsdp",
        &both,
        &[(None, cp), (Some("automodel 0.7"), cp), (Some("megatron-lm core_v0.19"), &[])],
    );
    let mut parts = both.clone();
    parts["runtime"] = "megatron_fsdp".into();
    parts["software"] = json!({"framework": "megatron-lm core_v0.19"});
    let answer = estimate(&file("deepseek-v3", &parts));
    assert!(answer.memory.is_some() && answer.time.is_some(), "{:?}", answer.findings);
    let pp: &[&str] = &["layout.pp"];
    let staged = json!({"layout": {"pp": 2}, "training": {"mtp_layers": 1}});
    under("deepseek-v3", "fsdp2", &staged, &[(None, &[]), (Some("torchtitan 0.3"), pp)]);
}

#[test]
fn what_megatron_core_asks_of_settings_is_not_asked_of_automodel() {
    let whole = json!({"training": {"optimizer": {"distributed": false}}});
    let refused: &[&str] = &["training.optimizer.distributed"];
    under(
        "llama-3-8b",
        "megatron_fsdp",
        &whole,
        &[(None, refused), (Some("megatron-lm core_v0.19"), refused), (Some("automodel 0.7"), &[])],
    );
    // Eight key-value heads over sixteen ranks.
    let heads = json!({"layout": {"cp": 16, "cp_kind": "a2a"}});
    let cp: &[&str] = &["layout.cp"];
    under(
        "llama-3-8b",
        "megatron_fsdp",
        &heads,
        &[(Some("megatron-lm core_v0.19"), cp), (Some("automodel 0.7"), &[])],
    );
}

#[test]
fn that_sequence_parallelism_splits_nothing_is_said_of_automodels_plan_alone() {
    let said = |framework: Option<&str>| {
        let parts =
            json!({"runtime": "megatron_fsdp", "layout": {"tp": 2}, "software": {"framework": framework}});
        let found = estimate(&file("llama-3-8b", &parts)).findings;
        found.iter().any(|finding| finding.field == "layout.sp")
    };
    assert!(said(None) && said(Some("automodel 0.7")));
    assert!(!said(Some("megatron-lm core_v0.19")) && !said(Some("bridge 26.08")));
}

#[test]
fn types_of_state_that_a_runtime_does_not_read_are_said_to_change_nothing() {
    let said = |runtime: &str, training: serde_json::Value| -> Vec<String> {
        let parts = json!({"runtime": runtime, "training": training});
        let found = estimate(&file("llama-3-8b", &parts)).findings.into_iter();
        let idle = found.filter(|finding| finding.message.contains("changes nothing"));
        idle.map(|finding| finding.field).collect()
    };
    for runtime in ["native", "fsdp2"] {
        for dtype in ["bf16", "fp32", "fp64"] {
            assert!(said(runtime, json!({"dtype": dtype})).is_empty(), "{runtime} {dtype}");
        }
        for dtype in ["fp16", "bf16"] {
            let masters = said(runtime, json!({"optimizer": {"master_dtype": dtype}}));
            assert_eq!(masters, ["training.optimizer.master_dtype"], "{runtime} {dtype}");
        }
        let first = said(runtime, json!({"optimizer": {"exp_avg_dtype": "bf16"}}));
        assert_eq!(first, ["training.optimizer.exp_avg_dtype"], "{runtime}");
    }
    assert!(said("megatron", json!({"optimizer": {"exp_avg_dtype": "bf16"}})).is_empty());
}

#[test]
fn torchtitan_splits_experts_within_a_replica() {
    let split = json!({"layout": {"dp_replicate": 4, "ep": 8}});
    let ep: &[&str] = &["layout.ep"];
    under(
        "mixtral-8x7b",
        "fsdp2",
        &split,
        &[(None, &[]), (Some("automodel 0.7"), &[]), (Some("torchtitan 0.3"), ep)],
    );
}

#[test]
fn who_refuses_is_named() {
    let rules = |runtime: &str, framework: Option<&str>, parts: Value| -> Vec<String> {
        let mut parts = parts;
        parts["runtime"] = runtime.into();
        parts["software"] = json!({"framework": framework});
        errors(&file("llama-3-8b", &parts)).into_iter().map(|finding| finding.rule).collect()
    };
    let heads = || json!({"layout": {"tp": 16}});
    for (framework, named) in [
        (None, "NeMo Automodel"),
        (Some("automodel 0.7"), "NeMo Automodel"),
        (Some("torchtitan 0.3"), "torchtitan"),
        (Some("worker"), "plans on a device mesh"),
    ] {
        let found = rules("fsdp2", framework, heads());
        assert!(found.iter().all(|rule| rule.contains(named)) && !found.is_empty(), "{found:?}");
    }
    let muon = || json!({"training": {"optimizer": {"kind": "muon"}}});
    for (runtime, framework, named) in [
        ("megatron_fsdp", None, "Megatron-LM validate_args"),
        ("megatron_fsdp", Some("automodel 0.7"), "NeMo Automodel optim"),
        ("fsdp2", None, "is not planned"),
        ("fsdp2", Some("torchtitan 0.3"), "is not planned"),
    ] {
        let found = rules(runtime, framework, muon());
        assert!(found.len() == 1 && found[0].contains(named), "{runtime} {framework:?}: {found:?}");
    }
}

#[test]
fn what_torchtitan_and_automodel_refuse_at_their_start_is_refused() {
    let titan = |preset: &str, parts: Value, version: &str, fields: &[&str]| {
        let mut parts = parts;
        parts["runtime"] = "fsdp2".into();
        parts["software"] = json!({"framework": version});
        check(preset, &parts, fields);
    };
    let (old, new, automodel) = ("torchtitan 0.2", "torchtitan 0.3", "automodel 0.7");
    let staged = json!({"layout": {"pp": 2}});
    titan("qwen3-0.6b", staged.clone(), new, &["layout.pp"]);
    titan("qwen3-8b", staged, new, &[]);
    let graphs = |ep: u64| json!({"layout": {"ep": ep}, "training": {"cuda_graphs": "iteration"}});
    titan("qwen3-30b-a3b", graphs(8), new, &["training.cuda_graphs"]);
    titan("qwen3-30b-a3b", graphs(1), new, &[]);
    let length = |seq_len: u64| json!({"layout": {"tp": 4, "cp": 2}, "training": {"seq_len": seq_len}});
    for version in [old, new] {
        titan("llama-3-8b", length(3000), version, &["training.seq_len"]);
        titan("llama-3-8b", length(3008), version, &[]);
    }
    titan("llama-3-8b", length(3000), automodel, &[]);
    // Of eight GPUs two replicas of four stages, with two micro batches each.
    let few = |schedule: Value| json!({"cluster": {"nodes": 1}, "layout": {"pp": 4, "schedule": schedule}, "training": {"global_batch_size": 4}});
    let batch: &[&str] = &["training.global_batch_size"];
    for version in [new, automodel] {
        titan("llama-3-8b", few(json!("1f1b")), version, batch);
        // A batch that nobody says has enough of them.
        let unsaid =
            json!({"cluster": {"nodes": 500}, "layout": {"pp": 4}, "training": {"global_batch_size": null}});
        titan("llama-3-8b", unsaid, version, &[]);
    }
    titan("llama-3-8b", few(json!("gpipe")), new, &[]);
    titan("llama-3-8b", few(json!("gpipe")), automodel, batch);
    titan("llama-3-8b", few(json!("1f1b")), "worker", &[]);
}
