//! What can't go on says what is lost, and a world with fewer ranks ends as any does: nothing hangs.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::cases::{EXPERTS, SLOTS};
use super::nonuniform;
use crate::harness::{PATIENCE, Run, free_port, set, wait_until};

/// Starts `ranks` ranks of a plan, of which each must end with these words.
fn refused(plan: &Value, ranks: u64, words: &str) {
    let mut run = Run::prepare(plan);
    run.restart(ranks, &[]);
    for (rank, finished) in run.finish(PATIENCE).iter().enumerate() {
        assert!(!finished.success && finished.stderr.contains(words), "rank {rank}: {}", finished.stderr);
    }
}

/// The first case with other failures.
fn failed(gpus: Value) -> Value {
    let mut plan = nonuniform(&SLOTS[0]);
    set(&mut plan, "cluster.failed", gpus);
    plan
}

#[test]
fn what_is_lost_is_said() {
    let gpu = |rank: u64| json!({"rank": rank});
    refused(&failed(json!([gpu(0), gpu(2)])), 2, "all 2 replicas would run reduced");
    refused(&failed(json!([gpu(0), gpu(1)])), 2, "so none is left to go on with");
    refused(&failed(json!([gpu(4)])), 2, "4");
    let mut experts = super::uniform(&EXPERTS[0]);
    let first = failed(json!([gpu(0)]));
    for (path, value) in [("cluster", &first["cluster"]), ("layout", &first["layout"])] {
        set(&mut experts, path, value.clone());
    }
    set(&mut experts, "model.architecture.moe.routing.balance", "global_aux_loss");
    refused(&experts, 2, "the gradient of the first would need the routing of the second");
    set(&mut experts, "layout.ep", 2);
    refused(&experts, 2, "1 slots are left, which are no whole block of etp 1 x ep 2 ranks");
    set(&mut experts, "layout.ep", 1);
    set(&mut experts, "layout.etp", 2);
    refused(&experts, 2, "1 slots are left, which are no whole block of etp 2 x ep 1 ranks");
    let mut large = failed(json!([gpu(0)]));
    set(&mut large, "training.micro_batch_size", 4);
    refused(&large, 2, "less than one micro batch");
    refused(
        &failed(json!([gpu(0)])),
        2,
        "the plan is for 4 ranks (1 nodes of 4 GPUs, 3 of which go on), but WORLD_SIZE is 2",
    );
}

#[test]
fn a_killed_rank_of_a_healthy_replica_is_named() {
    for victim in [2, 3] {
        let mut plan = failed(json!([{"rank": 0}]));
        set(&mut plan, "run.steps", 100_000);
        let mut run = Run::prepare(&plan);
        run.restart(4, &[]);
        wait_until(|| run.first_steps().len() >= 2, || "steps".to_owned());
        kill(Pid::from_raw(run.pid(victim)), Signal::SIGKILL).unwrap();
        let ends = run.finish(PATIENCE);
        assert!(ends[0].success, "a rank on a slot that is left out has ended well: {}", ends[0].stderr);
        for (rank, end) in ends.iter().enumerate().filter(|(rank, _)| ![0, victim].contains(rank)) {
            assert!(
                !end.success && end.stderr.contains(&format!("rank {victim} (process ")),
                "rank {rank}: {}",
                end.stderr
            );
        }
    }
}

#[test]
fn a_rank_that_goes_on_and_does_not_come_is_named() {
    let mut run = Run::prepare(&failed(json!([{"rank": 0}])));
    let port = free_port();
    for rank in [0, 1, 3] {
        run.start_rank(&crate::harness::Start {
            rank,
            world: 4,
            port,
            // The first that goes on gives up first, and tells the others.
            arguments: if rank == 3 { &["--timeout-s", "60"] } else { &["--timeout-s", "15"] },
            program: None,
            plan: None,
            variables: &[],
        });
    }
    let ends = run.finish(PATIENCE);
    assert!(ends[0].success, "{}", ends[0].stderr);
    for end in &ends[1..] {
        assert!(
            !end.success && end.stderr.contains("2 of 3 ranks joined within 15 s; missing are ranks [2]"),
            "{}",
            end.stderr
        );
    }
}
