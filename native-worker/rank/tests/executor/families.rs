//! What published families compute gives the same model whatever the layout: windows, caps, rotations, norms, branches.

use serde_json::{Value, json};

use crate::harness::set;
use crate::parity::{check, same};

fn model(plan: &mut Value, parts: Value) {
    for (name, value) in parts.as_object().unwrap() {
        set(plan, &format!("model.architecture.{name}"), value.clone());
    }
}

fn scores(plan: &mut Value, scores: Value) {
    set(plan, "model.architecture.attention.scores", scores);
}

fn layout(sizes: Value) -> impl Fn(&mut Value) {
    move |plan| {
        for (name, value) in sizes.as_object().unwrap() {
            set(plan, &format!("layout.{name}"), value.clone());
        }
    }
}

/// Gemma's kind: a window with a rotation of its own in one layer, caps, multipliers, a scale, norms on both sides.
fn gemma(plan: &mut Value) {
    let full = json!({"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8, "qk_norm": "per_head",
                      "scores": {"scale": 0.3, "soft_cap": 0.5}});
    let mut window = full.clone();
    window["scores"]["window"] = json!(5);
    window["scores"]["rope"] = json!({"theta": 500.0});
    model(
        plan,
        json!({
            "attention": window,
            "other_mixers": [{"attention": full}],
            "pattern": [{"mlp": "dense"}, {"mixer": 1, "mlp": "dense"}],
            "post_norms": true,
            "tied_embeddings": true,
            "embedding_multiplier": 8.0,
            "residual_multiplier": 0.5,
            "logit_multiplier": 0.7,
            "logit_cap": 2.0,
            "activation": "gelu",
            "rope_scaling": {"kind": "linear", "factor": 8.0},
        }),
    );
}

/// Gemma 4's kind: full layers whose values are their keys, on heads of another width and number, of which a part turns;
/// norms of values, a dense MLP beside experts with norms of their own, and a router with scales.
fn gemma4(plan: &mut Value) {
    let scores = json!({"scale": 1.0, "window": 5, "rope": {"theta": 500.0}});
    let window = json!({"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8, "qk_norm": "per_head",
                        "value_norm": true, "scores": scores});
    let full = json!({"kind": "gqa", "heads": 8, "kv_heads": 2, "head_dim": 16, "rotary_dim": 4, "qk_norm": "per_head",
                      "value_norm": true, "values_are_keys": true, "scores": {"scale": 1.0}});
    model(
        plan,
        json!({
            "attention": window,
            "other_mixers": [{"attention": full}],
            "pattern": [{}, {"mixer": 1}],
            "post_norms": true,
            "tied_embeddings": true,
            "rope_scaling": {"kind": "proportional", "factor": 1.0},
            "moe": {"experts": 8, "top_k": 2, "ffn_hidden_size": 24, "shared_ffn_hidden_size": 32, "scaled_branches": true},
        }),
    );
}

/// gpt-oss's kind: sinks, windows, YaRN, bounded gates, biases everywhere, experts.
fn gpt_oss(plan: &mut Value) {
    let experts = json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 24, "router_bias": true});
    model(plan, json!({"moe": experts, "mlp_bias": true, "activation": "gpt_oss", "activation_limit": 0.05}));
    for part in ["sinks", "out_bias", "qkv_bias"] {
        set(plan, &format!("model.architecture.attention.{part}"), true);
    }
    scores(plan, json!({"window": 6}));
    let yarn = json!({"kind": "yarn", "factor": 32.0, "original_positions": 4096, "untruncated": true});
    model(plan, json!({"rope_scaling": yarn}));
}

/// Llama 4's kind: chunks, a layer without rotation and with a temperature, norms without weights, weighed inputs.
fn llama4(plan: &mut Value) {
    let sizes = json!({"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8});
    let (mut chunks, mut unrotated) = (sizes.clone(), sizes);
    chunks["qk_norm"] = json!("plain");
    chunks["scores"] = json!({"chunk": 6, "norm_after_rotation": true});
    unrotated["scores"] =
        json!({"positions": "none", "temperature": {"tokens": 3, "factor": 0.1, "shift": 1}});
    model(
        plan,
        json!({
            "attention": chunks,
            "other_mixers": [{"attention": unrotated}],
            "pattern": [{}, {"mixer": 1}],
            "moe": {"experts": 8, "top_k": 1, "ffn_hidden_size": 24, "shared_ffn_hidden_size": 24,
                    "weighs_inputs": true, "routing": {"score": "sigmoid", "normalize": false}},
        }),
    );
}

/// OLMo's kind: norms behind the parts alone, over all heads.
fn olmo(plan: &mut Value) {
    model(plan, json!({"no_pre_norms": true, "post_norms": true}));
    set(plan, "model.architecture.attention.qk_norm", "full");
    scores(plan, json!({"window": 7}));
}

/// Cohere's kind: both parts on one norm without a bias, and norms of each head; a bias of the logits besides.
fn cohere(plan: &mut Value) {
    model(plan, json!({"branches": "one_norm", "norm": "layer_weight", "head_bias": true}));
    set(plan, "model.architecture.attention.qk_norm", "each_head");
}

/// Apertus's kind: an activation that learns.
fn apertus(plan: &mut Value) {
    model(plan, json!({"gated": false, "activation": "xielu"}));
    set(plan, "model.architecture.attention.qk_norm", "per_head");
}

/// GPT-NeoX's kind.
fn neox(plan: &mut Value) {
    model(
        plan,
        json!({"branches": "side_by_side", "norm": "layer", "gated": false, "mlp_bias": true, "activation": "gelu_erf"}),
    );
}

/// Llama-Nemotron's kind: layers of a search, with attention and MLPs of their own sizes, one matrix, or nothing.
fn searched(plan: &mut Value) {
    let attention = |kv_heads: u64| json!({"kind": "gqa", "heads": 8, "kv_heads": kv_heads, "head_dim": 8});
    let pattern = json!([
        {"mlp": "dense", "ffn": 48}, {"mixer": null, "mlp": "dense"}, {"mixer": 2, "mlp": "dense"},
        {"mixer": 1, "mlp": "none"}, {"mlp": "linear"}, {"mixer": null, "mlp": "none"},
    ]);
    let others = json!([{"attention": attention(2)}, "linear"]);
    model(
        plan,
        json!({"num_layers": 6, "attention": attention(4), "other_mixers": others, "pattern": pattern}),
    );
}

#[test]
fn layers_of_a_search() {
    check(2, 2, searched, layout(json!({"sp": false})));
    check(4, 4, searched, same);
    check(4, 2, searched, layout(json!({"pp": 2})));
    check(2, 1, searched, layout(json!({"cp": 2})));
    check(2, 1, searched, layout(json!({"pp": 2, "schedule": "zb-h1"})));
}

#[test]
fn windows_caps_and_multipliers() {
    check(2, 2, gemma, same);
    check(2, 1, gemma, layout(json!({"cp": 2})));
    check(4, 2, gemma, layout(json!({"pp": 2})));
}

#[test]
fn values_that_are_keys_and_scaled_branches() {
    check(2, 2, gemma4, layout(json!({"ep": 2})));
    // More ranks than full layers have key-value heads.
    check(4, 4, gemma4, layout(json!({"ep": 2, "etp": 2})));
    check(4, 1, gemma4, layout(json!({"cp": 2, "ep": 2})));
    check(4, 2, gemma4, layout(json!({"pp": 2, "ep": 2})));
}

#[test]
fn sinks_in_windows_and_bounded_gates() {
    check(4, 2, gpt_oss, layout(json!({"ep": 2})));
    check(4, 1, gpt_oss, layout(json!({"cp": 2, "ep": 2})));
}

#[test]
fn chunks_and_layers_without_rotation() {
    check(4, 2, llama4, layout(json!({"ep": 2, "etp": 2})));
    check(4, 1, llama4, layout(json!({"cp": 2, "pp": 2})));
}

#[test]
fn norms_behind_the_parts() {
    check(4, 2, olmo, layout(json!({"cp": 2})));
    check(2, 1, olmo, layout(json!({"pp": 2})));
}

#[test]
fn branches_side_by_side() {
    check(4, 2, cohere, layout(json!({"cp": 2})));
    check(2, 2, neox, layout(json!({"sp": false})));
}

#[test]
fn an_activation_that_learns() {
    check(2, 2, apertus, same);
    check(2, 2, apertus, layout(json!({"sp": false})));
    check(2, 1, apertus, layout(json!({"pp": 2, "schedule": "zb-h1"})));
}

#[test]
fn muon_of_them() {
    let muon = json!({"kind": "muon", "distributed": false});
    for family in [gemma4, searched, apertus] {
        let change = |plan: &mut Value| {
            family(plan);
            set(plan, "training.optimizer", muon.clone());
        };
        check(4, 4, change, same);
    }
}

#[test]
fn recomputation_of_them() {
    for recompute in [
        json!({"granularity": "full", "method": "uniform", "num_layers": 1}),
        json!({"granularity": "selective", "modules": ["core_attn", "mlp"]}),
    ] {
        for family in [gemma, gemma4, apertus, olmo, cohere, searched] {
            check(2, 2, family, |plan| set(plan, "training.recompute", recompute.clone()));
        }
    }
}
