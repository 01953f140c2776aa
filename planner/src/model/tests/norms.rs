//! Norms of queries and keys, by kind and left out.

use serde_json::{Value, json};

use crate::model::{Beside, count, import_megatron, presets};

/// Parameters of a model that Megatron's switches describe.
fn megatron(changes: &Value) -> u64 {
    let mut config = json!({
        "num_layers": 3, "hidden_size": 64, "ffn_hidden_size": 96, "num_attention_heads": 4, "kv_channels": 16,
        "normalization": "RMSNorm"
    });
    for (name, value) in changes.as_object().unwrap() {
        config[name] = value.clone();
    }
    count(&import_megatron(config.as_object().unwrap(), Beside::default()).unwrap()).0
}

#[test]
fn norms_of_heads_are_of_the_layers_kind() {
    let of = |normalization: &str, there: bool| {
        megatron(&json!({"normalization": normalization, "qk_layernorm": there}))
    };
    // A weight of a head's width for queries and for keys, and with LayerNorm as many biases, in three layers.
    assert_eq!(of("RMSNorm", true) - of("RMSNorm", false), 3 * 2 * 16);
    assert_eq!(of("LayerNorm", true) - of("LayerNorm", false), 3 * 4 * 16);
}

#[test]
fn latent_attention_may_have_none() {
    let of = |there: bool| {
        megatron(&json!({
            "multi_latent_attention": true, "q_lora_rank": 24, "kv_lora_rank": 32, "qk_head_dim": 16,
            "qk_pos_emb_head_dim": 8, "v_head_dim": 16, "qk_layernorm": there
        }))
    };
    assert_eq!(of(true) - of(false), 3 * (24 + 32));
    // Whoever writes an architecture leaves it out for the usual one.
    let preset = presets().iter().find(|preset| preset.id == "deepseek-v3").unwrap();
    let architecture = crate::model::import_hf(preset.hf_config.as_ref().unwrap()).architecture.unwrap();
    let mut json = serde_json::to_value(&architecture).unwrap();
    assert_eq!(json["attention"].get("qk_norm"), None);
    json["attention"]["qk_norm"] = json!(false);
    let without = serde_json::from_value(json).unwrap();
    assert_eq!(count(&architecture).0 - count(&without).0, 61 * (1536 + 512));
}
