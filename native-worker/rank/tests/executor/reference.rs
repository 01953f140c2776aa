//! The maths against plain PyTorch: the same weights and tokens give the same losses, gradients and updates
//! in fp64.

use serde_json::Value;

use crate::harness::{Run, set, tiny};
use crate::python;

/// Runs a script on what runs have left, all in one process. It must find each equal.
pub fn compared(script: &str, runs: impl IntoIterator<Item = Vec<String>>) {
    let runs: Vec<Vec<String>> = runs.into_iter().collect();
    let said = python::run(script, &runs.concat());
    are_equal(runs.len(), &said);
}

/// What a script has said of so many runs.
pub fn are_equal(runs: usize, said: &python::Said) {
    assert!(said.success, "{}{}", said.stdout, said.stderr);
    assert_eq!(said.stdout.matches("are equal").count(), runs, "{}", said.stdout);
    eprint!("{}", said.stdout);
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
