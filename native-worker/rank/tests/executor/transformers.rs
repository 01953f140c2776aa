//! The mathematics of published models against Hugging Face's transformers: each family's own config.json, scaled down in
//! its sizes alone, is imported as a user's is, and the same weights and tokens give the same loss and gradients in fp64.

use planner::model::presets;
use serde_json::{Map, Value, json};

use crate::harness::{Run, set, tiny};
use crate::python;
use crate::reference::are_equal;

/// Sizes that are made smaller where a config.json says them. Windows, chunks and what grows with positions are so short
/// that they matter within the sequence.
const SIZES: &[(&str, u64)] = &[
    ("attention_chunk_size", 6),
    ("first_k_dense_replace", 1),
    ("global_head_dim", 16),
    ("head_dim", 8),
    ("hidden_size", 64),
    ("intermediate_size", 96),
    ("intermediate_size_mlp", 80),
    ("kv_lora_rank", 16),
    ("moe_intermediate_size", 24),
    ("moe_topk", 2),
    ("n_embd", 64),
    ("n_head", 8),
    ("n_positions", 64),
    ("n_routed_experts", 8),
    ("num_dense_layers", 1),
    ("num_attention_heads", 8),
    ("num_experts", 8),
    ("num_experts_per_tok", 2),
    ("num_global_key_value_heads", 2),
    ("num_local_experts", 8),
    ("q_lora_rank", 24),
    ("qk_nope_head_dim", 8),
    ("qk_rope_head_dim", 8),
    ("rotary_dim", 4),
    ("shared_expert_intermediate_size", 32),
    ("shared_intermediate_size", 40),
    ("sliding_window", 5),
    ("top_k_experts", 2),
    ("v_head_dim", 6),
    ("vocab_size", 256),
];

/// A published config.json with small sizes.
fn small(family: &Value) -> Map<String, Value> {
    let of_preset = |id: &str| presets().iter().find(|preset| preset.id == id)?.hf_config.clone();
    let mut config = match family["preset"].as_str() {
        Some(id) => of_preset(id).unwrap_or_else(|| panic!("no preset {id}")),
        None => family["config"].as_object().unwrap().clone(),
    };
    let more = family["more"].as_object().cloned().unwrap_or_default();
    let kept: Vec<&str> = more.keys().map(String::as_str).filter(|name| *name != "sliding_window").collect();
    config.extend(more.clone());
    let model_type = config["model_type"].as_str().unwrap_or_default().to_owned();
    // What a class has where the file is silent is too long to matter here.
    match model_type.as_str() {
        "gemma2" | "gpt_oss" => drop(config.entry("sliding_window").or_insert(json!(4096))),
        "llama4_text" => {
            config.insert("attention_chunk_size".to_owned(), json!(8192));
            config.insert("floor_scale".to_owned(), json!(3));
        }
        _ => {}
    }
    let heads = |config: &Map<String, Value>, name: &str| config.get(name).and_then(Value::as_u64);
    let shares = heads(&config, "num_attention_heads") != heads(&config, "num_key_value_heads");
    for (name, size) in SIZES {
        if config.get(*name).is_some_and(|value| !value.is_null()) && !kept.contains(name) {
            config.insert((*name).to_owned(), json!(size));
        }
    }
    if config.contains_key("num_key_value_heads") {
        config.insert("num_key_value_heads".to_owned(), json!(if shares { 4 } else { 8 }));
    }
    if config.get("n_group").and_then(Value::as_u64).is_some_and(|groups| groups > 1) {
        for (name, size) in [("n_group", 4), ("topk_group", 2), ("num_experts_per_tok", 2)] {
            config.insert(name.to_owned(), json!(size));
        }
    }
    if model_type == "llama4_text" {
        config.insert("num_experts_per_tok".to_owned(), json!(1));
    }
    let layers = if config.contains_key("n_layer") { "n_layer" } else { "num_hidden_layers" };
    // Lists with something for each layer are those of the first ones.
    let (all, few) =
        (config.get(layers).and_then(Value::as_u64), family["layers"].as_u64().unwrap_or_default());
    for list in
        config.values_mut().filter_map(Value::as_array_mut).filter(|list| Some(list.len() as u64) == all)
    {
        list.truncate(few as usize);
    }
    config.insert(layers.to_owned(), family["layers"].clone());
    config
}

/// One step of a family's model.
fn run(family: &Value) -> Run {
    let mut plan = tiny(1, 1);
    set(&mut plan, "run.steps", 1);
    plan["model"] = json!({"hf_config": small(family)});
    Run::complete_with_dumps(&plan)
}

#[test]
fn steps_are_those_of_transformers() {
    let mut families: Vec<Value> = serde_json::from_str(include_str!("families.json")).unwrap();
    // A loss beside, which changes no tensor.
    families.push(json!({
        "name": "Mixtral, z-loss", "preset": "mixtral-8x7b", "layers": 2,
        "shows": "a loss on the size of the router's logits", "more": {"router_z_loss_coef": 0.5}
    }));
    let wanted = std::env::var("SHARDPLAN_FAMILY").unwrap_or_default();
    let families: Vec<Value> = families
        .into_iter()
        .filter(|family| family["name"].as_str().is_some_and(|name| name.contains(&wanted)))
        .collect();
    let runs: Vec<Run> = families.iter().map(run).collect();
    let arguments = |(family, run): (&Value, &Run)| {
        vec![family.to_string(), run.folder().display().to_string(), format!("{:e}", run.steps(0)[0].loss)]
    };
    // It makes another type of torch's fp32 before transformers is imported, so not in a fork of where it is.
    let mut reference = python::command("transformers_reference.py");
    let output = reference.args(families.iter().zip(&runs).flat_map(arguments)).output().unwrap();
    are_equal(runs.len(), &output.into());
}
