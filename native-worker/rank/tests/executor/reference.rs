//! The maths against plain PyTorch: the same weights and tokens give the same losses, gradients and updates
//! in fp64.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Run, set, tiny};

/// The Python of the environment that libtorch comes from.
pub fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("SHARDPLAN_TORCH_PYTHON") {
        return PathBuf::from(python);
    }
    let libtorch = std::env::var_os("LIBTORCH")
        .expect("set LIBTORCH to the torch folder, or SHARDPLAN_TORCH_PYTHON to a Python with torch");
    let environment = PathBuf::from(libtorch).ancestors().nth(4).map(|root| root.join("bin/python3"));
    environment
        .filter(|python| python.exists())
        .expect("LIBTORCH is in no virtual environment; set SHARDPLAN_TORCH_PYTHON to a Python with torch")
}

fn check(change: impl Fn(&mut Value)) {
    let mut plan = tiny(1, 1);
    set(&mut plan, "run.steps", 3);
    change(&mut plan);
    let mut run = Run::start(&plan, &["--dump"]);
    run.succeed();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/executor/reference.py");
    let losses = run.steps(0).into_iter().map(|step| format!("{:e}", step.loss));
    let output = Command::new(python()).arg(script).arg(run.folder()).args(losses).output().unwrap();
    let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{failed}");
    assert!(said.contains("equal"), "{said}");
}

#[test]
fn steps_are_those_of_plain_pytorch() {
    check(|_| {});
    check(|plan| {
        set(plan, "model.architecture.attention.qk_norm", "per_head");
        set(plan, "model.architecture.attention.qkv_bias", true);
        set(plan, "model.architecture.attention.rotary_dim", 4);
        set(plan, "model.architecture.tied_embeddings", true);
        set(plan, "model.architecture.vocab_size", 250);
    });
}
