//! Plans for Megatron-FSDP run as Megatron-FSDP, and train what one process trains.

mod cases;
mod checkpoints;
mod memory;

use planner::Plan;
use planner::runtime::Runtime;
use serde_json::{Value, json};

use crate::fsdp2::{STEPS, model};
use crate::harness::{Run, set};
use crate::parity::{compare, on_one_process};
use cases::{CASES, Case};

/// The plan of a case, and that of one process that trains the same.
fn plans(case: &Case) -> (Value, Value, u64) {
    let dp = case.replicas * case.shards;
    let mut one = model(case.model);
    set(&mut one, "training.global_batch_size", dp * case.micro);
    let mut many = one.clone();
    let world = dp * case.cp * case.tp;
    set(&mut many, "cluster.gpus_per_node", world);
    set(&mut many, "runtime", "megatron_fsdp");
    many["layout"] = json!({"tp": case.tp, "cp": case.cp, "dp_replicate": case.replicas, "fsdp": {"strategy": case.strategy}});
    for one_more in case.also {
        let (path, value) = one_more.split_once('=').unwrap();
        set(&mut many, path, serde_json::from_str::<Value>(value).unwrap_or_else(|_| value.into()));
    }
    // Model and optimizer are the same.
    one["model"] = many["model"].clone();
    if let Some(kind) = many["training"]["optimizer"].get("kind").cloned() {
        set(&mut one, "training.optimizer.kind", kind);
    }
    (one, many, world)
}

fn resolved(plan: &Value) -> Plan {
    let resolved = Plan::resolve(&planner::parse_plan(&plan.to_string()).unwrap());
    resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
}

#[track_caller]
fn runs_as_megatron_fsdp(plan: &Value) {
    let plan = resolved(plan);
    assert_eq!(plan.not_as_megatron_fsdp(), None);
    assert_eq!(plan.executed().runtime, Some(Runtime::MegatronFsdp));
}

/// What each rank keeps is what the planner lists, to the byte.
fn keeps_what_is_listed(plan: &Value, run: &Run, world: u64) {
    let plan = Plan::resolve(&resolved(plan).executed()).plan.unwrap();
    for rank in 0..world {
        let found = run.allocated(rank as usize);
        let buffers = plan.rank_shards(rank).buffers;
        let sum = |of: fn(&planner::shard::BufferShard) -> u64| buffers.iter().map(of).sum::<u64>();
        assert_eq!(
            [found.weights_bytes, found.gradients_bytes, found.optimizer_bytes],
            [
                sum(planner::shard::BufferShard::weights_bytes),
                sum(planner::shard::BufferShard::gradients_bytes),
                sum(planner::shard::BufferShard::optimizer_bytes)
            ],
            "rank {rank}"
        );
    }
}

fn check(cases: &[Case]) {
    for case in cases {
        let (one, many, world) = plans(case);
        runs_as_megatron_fsdp(&many);
        eprintln!("{case:?}");
        let one = on_one_process(&one);
        let run = Run::complete_with_dumps(&many);
        keeps_what_is_listed(&many, &run, world);
        compare(one.get().expect("it was made"), &run, world, STEPS);
    }
}

/// A quarter of the layouts.
fn quarter(number: usize) -> &'static [Case] {
    let each = CASES.len().div_ceil(4);
    CASES.chunks(each).nth(number).unwrap()
}

#[test]
fn first_layouts() {
    check(quarter(0));
}

#[test]
fn second_layouts() {
    check(quarter(1));
}

#[test]
fn third_layouts() {
    check(quarter(2));
}

#[test]
fn last_layouts() {
    check(quarter(3));
}

#[test]
fn what_does_not_run_as_itself_says_why() {
    let refused = |change: &dyn Fn(&mut Value)| {
        let (_, mut plan, _) = plans(&CASES[9]);
        change(&mut plan);
        let plan = resolved(&plan);
        assert_eq!(plan.executed().runtime, Some(Runtime::Native));
        let why = plan.not_as_megatron_fsdp().unwrap();
        assert!(plan.compared_with().contains(&why), "{}", plan.compared_with());
        why
    };
    // Ranks of a tensor-parallel group would have unequal parts of the words.
    let why = refused(&|plan| {
        plan["layout"]["tp"] = 2.into();
        set(plan, "cluster.gpus_per_node", 4);
        set(plan, "model.architecture.vocab_size", 251);
    });
    assert!(why.contains("251"), "{why}");
    let why = refused(&|plan| {
        set(plan, "training.dtype", "bf16");
        plan["layout"]["fsdp"]["preserve_fp32_weights"] = false.into();
    });
    assert!(why.contains("preserve_fp32_weights"), "{why}");
    assert!(refused(&|plan| set(plan, "cluster.gpus_per_node", 1)).contains("one data-parallel rank"));
}
