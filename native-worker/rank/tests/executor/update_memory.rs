//! What updates of weights take for a while, against its prediction: peaks of plans whose tokens are so few that the update is the
//! fullest moment of a step, and peaks of random plans over all that an update goes by.

use planner::Plan;
use planner::layout::coordinates;
use planner::wire::RankClass;
use serde_json::{Value, json};

use crate::harness::{Run, set};
use crate::layouts::dice;

/// Few tokens for large matrices, on two ranks.
fn few_tokens(layout: Value) -> Value {
    json!({
        "version": 1,
        "model": {"architecture": {
            "num_layers": 2, "hidden_size": 192, "ffn_hidden_size": 512, "vocab_size": 512,
            "attention": {"kind": "gqa", "heads": 6, "kv_heads": 2, "head_dim": 32}
        }},
        "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 2},
        "runtime": "native",
        "layout": layout,
        "training": {"seq_len": 8, "micro_batch_size": 1, "global_batch_size": 2, "dtype": "bf16", "optimizer": {"kind": "muon"}},
        "run": {"steps": 2, "clip_grad": 0.1},
    })
}

/// Of each stage what its fullest rank had in its fullest step over what is predicted, less one, and the phase that is predicted to be
/// the fullest. Of ranks that hold the same one alone sums the squares of gradients.
fn errors(plan: &Value) -> Vec<(f64, String)> {
    let file = planner::parse_plan(&plan.to_string()).unwrap();
    let memory = planner::estimate(&file).memory.unwrap();
    let layout = Plan::resolve(&file).plan.unwrap().layout;
    let run = Run::complete(plan);
    let world = plan["cluster"]["gpus_per_node"].as_u64().unwrap();
    let of = |class: &RankClass| {
        let ranks = (0..world).filter(|&rank| coordinates(&layout, rank).pp == class.stage);
        let steps = ranks.flat_map(|rank| run.steps(rank as usize));
        let measured = steps.map(|step| step.memory.peak_allocated_bytes).max().unwrap();
        (measured as f64 / class.peak_allocated_bytes as f64 - 1.0, class.peak_phase.clone())
    };
    memory.rank_classes.iter().map(of).collect()
}

#[track_caller]
fn check(plan: &Value) {
    for (stage, (error, phase)) in errors(plan).into_iter().enumerate() {
        assert_eq!(phase, "optimizer", "{plan}");
        assert!(error.abs() < 0.002, "stage {stage}: {:+.3}% of what is predicted: {plan}", 100.0 * error);
    }
}

#[test]
fn matrices_that_muon_puts_together() {
    for layout in [json!({}), json!({"tp": 2}), json!({"tp": 2, "sp": false}), json!({"pp": 2})] {
        let plan = few_tokens(layout);
        check(&plan);
        // What is largest is as wide as it is high, and nobody splits state.
        let mut square = plan;
        set(&mut square, "model.architecture.ffn_hidden_size", 96);
        set(&mut square, "model.architecture.vocab_size", 128);
        set(&mut square, "training.optimizer.distributed", false);
        set(&mut square, "training.dtype", "fp32");
        check(&square);
    }
}

#[test]
fn matrices_of_experts() {
    for layout in [json!({}), json!({"ep": 2}), json!({"tp": 2, "ep": 1, "etp": 2})] {
        let mut plan = few_tokens(layout);
        let moe = json!({"experts": 2, "top_k": 1, "ffn_hidden_size": 512, "routing": {"balance": "forced"}});
        set(&mut plan, "model.architecture.moe", moe);
        check(&plan);
        // Gradients are brought into the type of the momentum.
        set(&mut plan, "training.grad_dtype", "bf16");
        check(&plan);
    }
}

/// A plan with random settings of all that an update goes by, and of what else is kept beside it.
fn random(seed: u64) -> Value {
    let mut drawn = 0;
    let mut below = |choices: usize| {
        drawn += 1;
        dice(seed, 5_000 + drawn, choices)
    };
    let layouts =
        [json!({}), json!({"tp": 2}), json!({"cp": 2}), json!({"pp": 2}), json!({"tp": 2, "sp": false})];
    let mut plan = few_tokens(layouts[below(layouts.len())].clone());
    set(&mut plan, "training.optimizer.kind", ["adam", "sgd", "muon"][below(3)]);
    set(&mut plan, "training.optimizer.distributed", below(2) == 0);
    let dtype = ["fp32", "bf16", "fp16", "fp64"][below(4)];
    set(&mut plan, "training.dtype", dtype);
    if below(2) == 0 && dtype != "fp64" {
        set(&mut plan, "training.grad_dtype", if dtype == "fp32" { "fp32" } else { dtype });
    }
    set(&mut plan, "run.clip_grad", [0.0, 0.1][below(2)]);
    set(&mut plan, "run.weight_decay", [0.0, 0.1][below(2)]);
    set(&mut plan, "training.seq_len", [8, 64, 128][below(3)]);
    set(&mut plan, "training.global_batch_size", [2, 4][below(2)]);
    set(&mut plan, "model.architecture.vocab_size", [256, 512, 2048][below(3)]);
    set(&mut plan, "model.architecture.tied_embeddings", below(2) == 0);
    if dtype == "fp16" {
        // No step overflows, which would update nothing.
        set(&mut plan, "training.loss_scale", json!({"fixed": 64.0}));
    }
    if below(3) == 0 {
        let moe = json!({"experts": 4, "top_k": 2, "ffn_hidden_size": 256, "routing": {"balance": "forced"}});
        set(&mut plan, "model.architecture.moe", moe);
    }
    plan
}

/// Plans of the test command; `SHARDPLAN_LAYOUTS` and `SHARDPLAN_SEED` ask for others.
const PLANS: u64 = 12;

#[test]
fn whatever_updates_go_by() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let first = number("SHARDPLAN_SEED").unwrap_or(0) << 32;
    // Some are no plans, such as experts beside tensor parallelism without slices of the sequence.
    let is_plan =
        |plan: &Value| Plan::resolve(&planner::parse_plan(&plan.to_string()).unwrap()).plan.is_some();
    let plans = (first..).map(|seed| (seed, random(seed))).filter(|(_, plan)| is_plan(plan));
    let count = number("SHARDPLAN_LAYOUTS").unwrap_or(PLANS);
    let mut off = Vec::new();
    for (seed, plan) in plans.take(usize::try_from(count).unwrap()) {
        for (stage, (error, phase)) in errors(&plan).into_iter().enumerate() {
            eprintln!("seed {seed}, stage {stage}, {phase}: {:+.3}%", 100.0 * error);
            if error.abs() >= 0.02 {
                off.push(format!("seed {seed}, stage {stage}, {phase}: {:+.2}%: {plan}", 100.0 * error));
            }
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
}
