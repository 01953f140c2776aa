//! The mathematics of released models against Hugging Face's transformers: the same weights and tokens give the same
//! loss and gradients in fp64.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Run, set, tiny};
use crate::reference::python;

/// Runs one step of the tiny model with `change`s and compares it with transformers' model of `family`.
fn check(family: &str, change: impl Fn(&mut Value)) {
    let mut plan = tiny(1, 1);
    set(&mut plan, "run.steps", 1);
    change(&mut plan);
    let mut run = Run::start(&plan, &["--dump"]);
    run.succeed();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/executor/transformers_reference.py");
    let loss = format!("{:e}", run.steps(0)[0].loss);
    let mut reference = Command::new(python());
    reference.arg(script).arg(family).arg(run.folder()).arg(loss);
    let output = reference.env("TRANSFORMERS_OFFLINE", "1").output().unwrap();
    let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{failed}");
    assert!(said.contains("equal"), "{said}");
}

#[test]
fn llama() {
    check("Llama", |_| {});
}

#[test]
fn qwen3() {
    check("Qwen3", |plan| {
        set(plan, "model.architecture.attention.qk_norm", "per_head");
        set(plan, "model.architecture.tied_embeddings", true);
    });
}

#[test]
fn qwen3_moe() {
    for normalize in [true, false] {
        check("Qwen3Moe", |plan| {
            set(plan, "model.architecture.attention.qk_norm", "per_head");
            let moe =
                json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 24, "routing": {"normalize": normalize}});
            set(plan, "model.architecture.moe", moe);
        });
    }
}

#[test]
fn deepseek_v3() {
    check("DeepseekV3", |plan| {
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
    });
}
