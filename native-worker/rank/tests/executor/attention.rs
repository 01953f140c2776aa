//! Attention of every shape gives the same model whatever the layout.

use serde_json::{Value, json};

use crate::harness::set;
use crate::parity::{check, same};

fn context(plan: &mut Value) {
    set(plan, "layout.cp", 2);
}

#[test]
fn context_parallel() {
    check(2, 1, same, context);
    check(4, 2, same, context);
    check(4, 1, same, |plan| set(plan, "layout.cp", 4));
}

#[test]
fn fewer_key_value_heads_than_ranks() {
    let change =
        |heads: u64| move |plan: &mut Value| set(plan, "model.architecture.attention.kv_heads", heads);
    check(2, 2, change(1), same);
    check(4, 4, change(2), same);
    let all = |plan: &mut Value| {
        change(1)(plan);
        set(plan, "model.architecture.attention.qk_norm", "per_head");
        set(plan, "model.architecture.attention.qkv_bias", true);
        set(plan, "model.architecture.attention.output_gate", true);
    };
    check(4, 2, all, context);
    check(2, 2, all, |plan| set(plan, "layout.sp", false));
}

#[test]
fn norms_over_all_heads() {
    let change = |plan: &mut Value| set(plan, "model.architecture.attention.qk_norm", "full");
    check(2, 2, change, same);
    check(4, 2, change, context);
}

#[test]
fn sinks_gates_and_biases() {
    let change = |plan: &mut Value| {
        for part in ["sinks", "output_gate", "out_bias", "qkv_bias"] {
            set(plan, &format!("model.architecture.attention.{part}"), true);
        }
    };
    check(2, 2, change, same);
    check(4, 2, change, context);
}

fn latent(plan: &mut Value) {
    set(
        plan,
        "model.architecture.attention",
        json!({"kind": "mla", "heads": 4, "kv_lora_rank": 16, "qk_nope_dim": 8, "qk_rope_dim": 4, "v_dim": 6, "output_gate": true}),
    );
}

#[test]
fn latent_attention_without_low_rank_queries() {
    check(2, 2, latent, same);
    check(2, 2, latent, |plan| set(plan, "layout.sp", false));
    check(4, 2, latent, context);
}

/// GPT-3's kind: LayerNorm, GELU without a gate, biases, learned positions, tied embeddings; and norms behind the parts.
#[test]
fn the_parts_of_older_models() {
    let change = |plan: &mut Value| {
        for (part, value) in [
            ("norm", json!("layer")),
            ("gated", json!(false)),
            ("activation", json!("gelu")),
            ("mlp_bias", json!(true)),
            ("learned_positions", json!(16)),
            ("tied_embeddings", json!(true)),
            ("post_norms", json!(true)),
        ] {
            set(plan, &format!("model.architecture.{part}"), value);
        }
        set(plan, "model.architecture.attention.out_bias", true);
        set(plan, "model.architecture.attention.qkv_bias", true);
    };
    check(2, 2, change, same);
    check(4, 2, change, context);
    check(2, 2, change, |plan| set(plan, "layout.sp", false));
}
