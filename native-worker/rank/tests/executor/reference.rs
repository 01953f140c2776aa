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

/// Runs a script on what runs have left: all in one process, because importing torch takes longer than most of them. It
/// must find each equal.
pub fn compared(script: &str, runs: impl IntoIterator<Item = Vec<String>>) {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/executor").join(script);
    let runs: Vec<Vec<String>> = runs.into_iter().collect();
    let mut reference = Command::new(python());
    reference.arg(script).args(runs.iter().flatten()).env("TRANSFORMERS_OFFLINE", "1");
    let output = reference.output().unwrap();
    let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{failed}");
    assert_eq!(said.matches("are equal").count(), runs.len(), "{said}");
    eprint!("{said}");
}

/// A run of three steps of the tiny model with changes.
fn run(change: impl Fn(&mut Value)) -> Run {
    let mut plan = tiny(1, 1);
    set(&mut plan, "run.steps", 3);
    change(&mut plan);
    Run::complete_with_dumps(&plan)
}

#[test]
fn steps_are_those_of_plain_pytorch() {
    let runs = [
        run(|_| {}),
        run(|plan| {
            set(plan, "model.architecture.attention.qk_norm", "per_head");
            set(plan, "model.architecture.attention.qkv_bias", true);
            set(plan, "model.architecture.attention.rotary_dim", 4);
            set(plan, "model.architecture.tied_embeddings", true);
            set(plan, "model.architecture.vocab_size", 250);
        }),
        run(|plan| {
            set(plan, "training.optimizer.beta1", 0.8);
            set(plan, "training.optimizer.beta2", 0.99);
            set(plan, "training.optimizer.eps", 1e-3);
        }),
        run(|plan| {
            set(plan, "training.optimizer.kind", "sgd");
            set(plan, "training.optimizer.momentum", 0.7);
            set(plan, "run.weight_decay", 0.0);
        }),
    ];
    let arguments = |run: &Run| {
        let losses: Vec<String> = run.steps(0).iter().map(|step| format!("{:e}", step.loss)).collect();
        vec![run.folder().display().to_string(), losses.join(",")]
    };
    compared("reference.py", runs.iter().map(arguments));
}
