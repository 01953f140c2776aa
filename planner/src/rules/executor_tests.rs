use serde_json::{Value, json};

use crate::model::presets;
use crate::plan::Plan;

/// The limits of a plan with these parts.
fn limits(model: Value, layout: Value, training: Value) -> Vec<String> {
    let plan = json!({"version": 1, "model": model, "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 8},
                      "runtime": "native", "layout": layout, "training": training});
    let file = crate::parse::parse_plan(&plan.to_string()).unwrap();
    let resolved = Plan::resolve(&file);
    let plan = resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings));
    super::executor::executor_limits(&plan).into_iter().map(|finding| finding.message).collect()
}

#[track_caller]
fn check(model: &str, layout: Value, training: Value, expected: &str) {
    let found = limits(json!({"preset": model}), layout, training).join("; ");
    assert!(if expected.is_empty() { found.is_empty() } else { found.contains(expected) }, "{found}");
}

#[test]
fn dense_mixed_and_latent_models_run() {
    let none = || json!({});
    check("tiny-dense", json!({"tp": 2, "cp": 2}), none(), "");
    check("tiny-moe", json!({"tp": 2, "ep": 4, "etp": 2}), none(), "");
    check("llama-3-8b", json!({"tp": 8}), none(), "");
    check("deepseek-v3", json!({"ep": 8}), none(), "");
    check("gpt-oss-20b", json!({"tp": 2, "ep": 4}), none(), "");
    check("mistral-7b", json!({"tp": 2}), json!({"seq_len": 8192}), "");
    check("llama-3.1-405b", json!({"tp": 8}), none(), "");
    check("gemma-2-9b", json!({"tp": 2, "cp": 2}), none(), "");
    check("llama-4-scout", json!({"tp": 2, "ep": 4}), none(), "");
    check("minimax-m2", json!({"tp": 8}), none(), "");
    check("gemma-4-26b-a4b", json!({"tp": 4, "ep": 4}), none(), "");
    check("llama-nemotron-super-49b", json!({"tp": 8}), none(), "");
    // Also where tp cuts through key-value heads.
    let muon = json!({"optimizer": {"kind": "muon", "distributed": false}});
    check("qwen3-30b-a3b", json!({"tp": 8}), muon, "");
}

/// Limits of a preset's config.json with these fields besides.
fn with(preset: &str, more: Value) -> Vec<String> {
    let config = presets().iter().find(|known| known.id == preset).unwrap().hf_config.clone().unwrap();
    let mut config = Value::Object(config);
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    limits(json!({"hf_config": config}), json!({}), json!({"seq_len": 4096}))
}

#[test]
fn a_part_that_nobody_knows_is_refused_by_name() {
    for (preset, more, name) in [
        ("llama-3-8b", json!({"a_part_of_next_year": 0.5}), "a_part_of_next_year"),
        ("llama-3-8b", json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}), "rope_scaling"),
        ("llama-3-8b", json!({"rope_parameters": {"rope_type": "yarn", "turns": 8.0}}), "rope_parameters"),
        ("llama-3-8b", json!({"rope_scaling": {"rope_type": "longer", "factor": 2.0}}), "rope_scaling"),
        (
            "llama-3-8b",
            json!({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "alpha": 1.0}}),
            "rope_scaling",
        ),
        ("llama-3-8b", json!({"attention_multiplier": 0.01}), "attention_multiplier"),
        ("llama-3-8b", json!({"logits_scaling": 8}), "logits_scaling"),
        ("llama-3-8b", json!({"final_logit_softcapping": 30.0}), "final_logit_softcapping"),
        ("gpt-oss-20b", json!({"swiglu_alpha": 1.5}), "swiglu_alpha"),
        ("mixtral-8x7b", json!({"router_jitter_noise": 0.01}), "router_jitter_noise"),
        ("deepseek-v3", json!({"topk_method": "group_limited_greedy"}), "topk_method"),
        ("deepseek-v3", json!({"scoring_func": "sqrtsoftplus"}), "scoring_func"),
        ("qwen3-8b", json!({"attention_dropout": 0.1}), "attention_dropout"),
        (
            "llama-nemotron-super-49b",
            json!({"num_hidden_layers": 1, "block_configs": [{"attention": {"n_heads_in_group": 8, "window_length": 64}, "ffn": {"ffn_mult": 1}}]}),
            "block_configs",
        ),
    ] {
        let found = with(preset, more.clone());
        assert_eq!(found.len(), 1, "{preset} {more}: {found:?}");
        assert!(found[0].contains(&format!("does not run `{name}`")), "{found:?}");
    }
}

#[test]
fn parts_that_change_nothing_are_executed() {
    for (preset, more) in [
        (
            "llama-3-8b",
            json!({"attention_dropout": 0.0, "bos_token_id": 1, "torch_dtype": "bfloat16", "use_cache": true}),
        ),
        (
            "llama-3-8b",
            json!({"rope_scaling": {"type": "default"}, "logits_scaling": 1.0, "a_part_of_next_year": null}),
        ),
        ("mistral-7b", json!({"sliding_window": 4096})),
        ("llama-3-8b", json!({"rope_scaling": {"rope_type": "yarn", "factor": 8.0}})),
        ("llama-3-8b", json!({"hidden_act": "gelu"})),
        (
            "qwen3-8b",
            json!({"sliding_window": 128, "use_sliding_window": false, "max_window_layers": 36, "layer_types": vec!["full_attention"; 36]}),
        ),
        (
            "mixtral-8x7b",
            json!({"router_jitter_noise": 0.0, "output_router_logits": false, "router_aux_loss_coef": 0.02}),
        ),
        ("mixtral-8x7b", json!({"router_z_loss_coef": 0.001})),
    ] {
        assert_eq!(with(preset, more.clone()), Vec::<String>::new(), "{preset} {more}");
    }
}

/// Every preset is executed as it is, or refused with the name of each part that is not.
#[test]
fn presets_are_executed_or_each_part_is_named() {
    let mut executed = Vec::new();
    for preset in presets() {
        let plan = json!({"version": 1, "model": {"preset": preset.id}, "runtime": "native",
                          "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 1}, "training": {"seq_len": 1024}});
        let resolved = Plan::resolve(&crate::parse::parse_plan(&plan.to_string()).unwrap());
        let plan = resolved.plan.unwrap_or_else(|| panic!("{}: {:?}", preset.id, resolved.findings));
        let said: Vec<String> =
            super::executor::executor_limits(&plan).into_iter().map(|finding| finding.message).collect();
        for (part, value) in &plan.model.parts {
            let named = said.iter().any(|message| message.contains(part.as_str()));
            assert_eq!(named, !super::executor::executes_part(&plan, part, value), "{}: {said:?}", preset.id);
            let finding =
                resolved.findings.iter().find(|finding| finding.message.starts_with("planned without"));
            assert!(finding.is_some_and(|finding| finding.message.contains(part.as_str())), "{}", preset.id);
        }
        if said.is_empty() {
            executed.push(preset.id.as_str());
        }
    }
    insta::assert_snapshot!(executed.join("\n"));
}

#[test]
fn what_is_missing_is_named() {
    let none = || json!({});
    check("deepseek-v3.2", none(), none(), "no sparse attention by an indexer");
    check("deepseek-v4-flash", none(), none(), "no key shared by all heads");
    check("kimi-linear-48b-a3b", none(), none(), "no Kimi delta attention");
    check("gemma-3n-e4b", none(), none(), "no keys and values of an earlier layer");
    check("tiny-dense", none(), json!({"hidden_dropout": 0.1}), "no dropout");
    let capacity = json!({"moe": {"capacity_factor": 1.5}});
    check("tiny-moe", none(), capacity.clone(), "drops no tokens");
    // Without experts it says nothing.
    check("tiny-dense", none(), capacity, "");
}
