//! The mathematics of released models against Hugging Face's transformers: the same weights and tokens give the same
//! loss and gradients in fp64.

use serde_json::{Value, json};

use crate::harness::{Run, set, tiny};
use crate::reference::compared;

/// What makes the tiny model one of a family.
type Change = fn(&mut Value);

/// One step of the tiny model with changes.
fn run(change: Change) -> Run {
    let mut plan = tiny(1, 1);
    set(&mut plan, "run.steps", 1);
    change(&mut plan);
    Run::complete_with_dumps(&plan)
}

fn qwen3(plan: &mut Value) {
    set(plan, "model.architecture.attention.qk_norm", "per_head");
    set(plan, "model.architecture.tied_embeddings", true);
}

fn qwen3_moe(plan: &mut Value, normalize: bool) {
    set(plan, "model.architecture.attention.qk_norm", "per_head");
    let routing = json!({"normalize": normalize});
    let moe = json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 24, "routing": routing});
    set(plan, "model.architecture.moe", moe);
}

fn deepseek_v3(plan: &mut Value) {
    // transformers' norms of low-rank streams have this epsilon whatever the config says.
    set(plan, "model.architecture.norm_eps", 1e-6);
    set(
        plan,
        "model.architecture.attention",
        json!({"kind": "mla", "heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_dim": 8, "qk_rope_dim": 4, "v_dim": 6}),
    );
    set(plan, "model.architecture.pattern", json!([{"mlp": "dense"}, {"mlp": "moe"}]));
    set(
        plan,
        "model.architecture.moe",
        json!({"experts": 8, "top_k": 4, "ffn_hidden_size": 16, "shared_ffn_hidden_size": 16, "router_bias_buffer": 8,
               "routing": {"score": "sigmoid", "scale": 2.5, "groups": 4, "group_top_k": 2}}),
    );
}

#[test]
fn steps_are_those_of_transformers() {
    let families: [(&str, Change); 5] = [
        ("Llama", |_| {}),
        ("Qwen3", qwen3),
        ("Qwen3Moe", |plan| qwen3_moe(plan, true)),
        ("Qwen3Moe", |plan| qwen3_moe(plan, false)),
        ("DeepseekV3", deepseek_v3),
    ];
    let runs: Vec<(&str, Run)> = families.into_iter().map(|(family, change)| (family, run(change))).collect();
    let arguments = |(family, run): &(&str, Run)| {
        vec![(*family).to_owned(), run.folder().display().to_string(), format!("{:e}", run.steps(0)[0].loss)]
    };
    compared("transformers_reference.py", runs.iter().map(arguments));
}
