//! Peaks of all kinds of ranks against what is predicted of them: cores and extras hand each other gradients and weights around an
//! update that is the fullest moment of a step with so few tokens.

use planner::Plan;
use planner::wire::{RankClass, RankRole};
use serde_json::{Value, json};

use crate::harness::{Run, set};

/// Few tokens for large matrices, on CPUs of which some failed.
fn plan(gpus: u64, failed: &[u64], layout: Value) -> Value {
    let failed: Vec<Value> = failed.iter().map(|rank| json!({"rank": rank})).collect();
    json!({
        "version": 1,
        "model": {"architecture": {
            "num_layers": 2, "hidden_size": 192, "ffn_hidden_size": 512, "vocab_size": 1024,
            "attention": {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 24}
        }},
        "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": gpus, "failed": failed},
        "runtime": "native",
        "layout": layout,
        "training": {"seq_len": 16, "micro_batch_size": 1, "global_batch_size": 8, "dtype": "bf16"},
        "run": {"steps": 2, "clip_grad": 0.1},
    })
}

/// The same with one field set.
fn with(mut plan: Value, path: &str, value: impl Into<Value>) -> Value {
    set(&mut plan, path, value);
    plan
}

/// Of each class what its fullest rank had in its fullest step, and what is predicted of it.
#[track_caller]
fn check(plan: &Value) {
    let file = planner::parse_plan(&plan.to_string()).unwrap();
    let classes = planner::estimate(&file).memory.unwrap().rank_classes;
    let resolved = Plan::resolve(&file).plan.unwrap();
    let run = Run::complete(plan);
    let roles = [RankRole::Reduced, RankRole::Core, RankRole::Extra];
    assert!(roles.iter().all(|role| classes.iter().any(|class| class.role == Some(*role))));
    for class in &classes {
        let of_it =
            |rank: &u64| resolved.role_of(*rank) == class.role && resolved.place_of(*rank).pp == class.stage;
        let ranks: Vec<u64> = resolved.active_ranks().into_iter().filter(of_it).collect();
        assert_eq!(ranks.len() as u64, class.count, "{plan}");
        let fullest = ranks.iter().flat_map(|&rank| run.steps(rank as usize));
        let fullest = fullest.max_by_key(|step| step.memory.peak_allocated_bytes).unwrap();
        same(class, "peak", fullest.memory.peak_allocated_bytes, class.peak_allocated_bytes, plan);
        // And apart from the phase in which its peak is.
        let updating = class.phases.iter().find(|phase| phase.name == "optimizer").unwrap();
        let updated = fullest.phase_peaks["optimizer"];
        same(class, "update", updated, updating.allocated_bytes, plan);
    }
}

#[track_caller]
fn same(class: &RankClass, what: &str, measured: u64, predicted: u64, plan: &Value) {
    let error = measured as f64 / predicted as f64 - 1.0;
    let RankClass { role, stage, .. } = class;
    assert!(
        error.abs() < 0.01,
        "{what} of {role:?} of stage {stage}: {measured}, predicted {predicted}: {:+.2}%: {plan}",
        100.0 * error
    );
}

#[test]
fn two_slots() {
    check(&plan(4, &[1], json!({"tp": 2})));
    check(&plan(4, &[2], json!({"tp": 2, "sp": false})));
}

#[test]
fn four_slots() {
    // Two extras for two cores, and three for one, which takes in more than each hands on.
    check(&plan(8, &[3], json!({"tp": 4})));
    check(&plan(8, &[0, 1, 2], json!({"tp": 4})));
}

#[test]
fn replicas_context_and_stages() {
    check(&with(plan(6, &[1], json!({"tp": 2})), "training.global_batch_size", 12));
    check(&plan(8, &[1, 3], json!({"tp": 2, "cp": 2})));
    check(&plan(8, &[5], json!({"tp": 2, "pp": 2})));
}

#[test]
fn more_layers_and_words() {
    check(&with(plan(4, &[1], json!({"tp": 2})), "model.architecture.num_layers", 8));
    // A slice of so many rows is handed on in pieces.
    check(&with(plan(4, &[1], json!({"tp": 2})), "model.architecture.vocab_size", 8192));
}

#[test]
fn types_and_updates() {
    for dtype in ["fp32", "fp64"] {
        check(&with(plan(4, &[1], json!({"tp": 2})), "training.dtype", dtype));
    }
    let whole = with(plan(4, &[1], json!({"tp": 2})), "training.optimizer.distributed", false);
    check(&with(whole.clone(), "training.grad_dtype", "bf16"));
    check(&with(whole, "training.optimizer.kind", "sgd"));
}
