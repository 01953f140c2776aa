//! What fails, fails fast, everywhere, with a sentence that names it.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::wire::Outcome;
use serde_json::{Value, json};

use crate::harness::{Run, set, tiny};

#[test]
fn a_killed_rank_ends_the_others_within_ten_seconds_and_is_named() {
    let mut plan = tiny(4, 2);
    set(&mut plan, "run.steps", 100_000);
    let mut run = Run::start(&plan, &[]);
    run.wait_for_steps(3);
    let pid = run.pid(3);
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let finished = run.finish(Duration::from_secs(10));
    for (rank, finished) in finished.iter().enumerate().take(3) {
        assert!(!finished.success);
        let (outcome, reason) = run.ended(rank);
        assert_eq!(outcome, Outcome::Failed);
        for text in [&reason, &finished.stderr] {
            assert!(text.contains(&format!("rank 3 (process {pid} on ")), "rank {rank}: {text}");
        }
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    }
    // What the killed rank had written is whole.
    assert!(run.steps(3).len() >= 2);
}

#[test]
fn a_stopped_rank_is_named_when_the_others_have_waited_long_enough() {
    let mut plan = tiny(2, 1);
    set(&mut plan, "run.steps", 100_000);
    let mut run = Run::start(&plan, &["--timeout-s", "3"]);
    run.wait_for_steps(2);
    let pid = Pid::from_raw(run.pid(1));
    kill(pid, Signal::SIGSTOP).unwrap();
    std::thread::sleep(Duration::from_secs(6));
    kill(pid, Signal::SIGCONT).unwrap();
    let finished = run.finish(Duration::from_secs(20));
    assert!(
        finished[0].stderr.contains("rank 1 did not join") && finished[0].stderr.contains("within 3 s"),
        "{}",
        finished[0].stderr
    );
    assert!(!finished[1].success);
}

/// Starts a plan that must be refused by every rank before it joins.
#[track_caller]
fn check_refused(plan: &Value, expected: &[&str]) {
    let mut run = Run::start(plan, &[]);
    for finished in run.finish(Duration::from_secs(30)) {
        assert!(!finished.success);
        for part in expected {
            assert!(finished.stderr.contains(part), "{part:?} is not in {:?}", finished.stderr);
        }
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    }
    assert!(!run.folder().join("rank-00000.log").exists());
}

#[test]
fn plans_beyond_the_executor_are_refused_before_anything_is_allocated() {
    let mut plan = tiny(2, 1);
    set(&mut plan, "layout.pp", 2);
    check_refused(&plan, &["dp x tp", "pp 2"]);
    let mut plan = tiny(1, 1);
    set(&mut plan, "model", json!({"preset": "tiny-moe"}));
    check_refused(&plan, &["experts"]);
    let mut plan = tiny(1, 1);
    set(&mut plan, "training.dtype", "fp16");
    check_refused(&plan, &["training.dtype", "loss scaling"]);
}

#[test]
fn broken_plans_are_refused() {
    let mut plan = tiny(4, 1);
    set(&mut plan, "layout.tp", 3);
    check_refused(&plan, &["layout.tp", "3"]);
    let mut plan = tiny(1, 1);
    set(&mut plan, "layout.tpp", 2);
    check_refused(&plan, &["tpp"]);
    let mut plan = tiny(1, 1);
    set(&mut plan, "cluster.nodes", 2);
    check_refused(&plan, &["the plan is for 2 ranks", "WORLD_SIZE is 1"]);
}

#[track_caller]
fn check_diverged(lr: f64, expected: &str) {
    let mut plan = tiny(2, 1);
    set(&mut plan, "training.dtype", "fp32");
    set(&mut plan, "run", json!({"steps": 50, "lr": lr, "clip_grad": 0.0}));
    let mut run = Run::start(&plan, &[]);
    for finished in run.finish(Duration::from_secs(60)) {
        assert!(!finished.success);
        assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    }
    let (outcome, reason) = run.ended(0);
    assert!(outcome == Outcome::Failed && reason.contains(expected), "{reason}");
    assert_eq!(run.steps(0).len(), 1);
}

#[test]
fn numbers_that_are_none_name_step_and_rank() {
    check_diverged(1e30, "the gradient is NaN in step 2 on rank 0");
    check_diverged(1e39, "the loss is NaN in step 2 on rank 0");
}

#[test]
fn a_token_out_of_range_is_named_on_all_ranks() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "Motörhead ".repeat(100)).unwrap();
    let mut plan = tiny(2, 1);
    set(&mut plan, "model.architecture.vocab_size", 128);
    set(&mut plan, "run.data", json!({"kind": "text", "path": file.path()}));
    let mut run = Run::start(&plan, &[]);
    for finished in run.finish(Duration::from_secs(60)) {
        assert!(!finished.success);
        assert!(
            finished.stderr.contains("token 195") && finished.stderr.contains("vocabulary of 128"),
            "{}",
            finished.stderr
        );
    }
    assert_eq!(run.ended(0).0, Outcome::Failed);
}
