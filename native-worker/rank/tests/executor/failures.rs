//! What fails, fails fast, everywhere, with a sentence that names it.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::wire::Outcome;
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Run, Start, free_port, set, tiny, wait_until};

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
    // Within this the ranks find each other first, on a busy machine, too.
    let mut run = Run::start(&plan, &["--timeout-s", "15"]);
    run.wait_for_steps(2);
    let pid = Pid::from_raw(run.pid(1));
    kill(pid, Signal::SIGSTOP).unwrap();
    run.wait_for_end(0);
    kill(pid, Signal::SIGCONT).unwrap();
    let finished = run.finish(PATIENCE);
    assert!(
        finished[0].stderr.contains("rank 1 did not join") && finished[0].stderr.contains("within 15 s"),
        "{}",
        finished[0].stderr
    );
    assert!(!finished[1].success);
}

/// Starts a plan that must be refused by every rank before it joins.
#[track_caller]
fn check_refused(plan: &Value, expected: &[&str]) {
    let mut run = Run::start(plan, &[]);
    for finished in run.finish(PATIENCE) {
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
    set(&mut plan, "training.hidden_dropout", 0.1);
    check_refused(&plan, &["training.hidden_dropout", "no dropout"]);
    let mut plan = tiny(1, 1);
    set(&mut plan, "model", json!({"preset": "deepseek-v3.2"}));
    check_refused(&plan, &["model", "indexer"]);
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
    for finished in run.finish(PATIENCE) {
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
    for finished in run.finish(PATIENCE) {
        assert!(!finished.success);
        assert!(
            finished.stderr.contains("token 195") && finished.stderr.contains("vocabulary of 128"),
            "{}",
            finished.stderr
        );
    }
    assert_eq!(run.ended(0).0, Outcome::Failed);
}

/// Its own words name no rank, so its number is told with them.
#[test]
fn a_rank_that_fails_by_itself_is_named_on_the_others() {
    let mut plan = tiny(3, 1);
    set(&mut plan, "training.global_batch_size", 6);
    set(&mut plan, "run.steps", 100_000);
    let mut run = Run::prepare(&plan);
    let port = free_port();
    for rank in 0..3 {
        // A folder that can't be made.
        let arguments: &[&str] = if rank == 1 { &["--dump=/dev/null/dump"] } else { &[] };
        run.start_rank(&Start { rank, world: 3, port, arguments, program: None, plan: None, variables: &[] });
    }
    let finished = run.finish(PATIENCE);
    assert!(
        finished.iter().all(|rank| !rank.success && rank.stderr.contains("/dev/null/dump")),
        "{finished:?}"
    );
    let reasons = [0, 1, 2].map(|rank| run.ended(rank).1);
    assert!(
        reasons.iter().all(|reason| reason.starts_with("rank 1: ") && reason == &reasons[0]),
        "{reasons:?}"
    );
}

#[test]
fn ranks_with_different_plans_are_refused_at_join() {
    let plan = tiny(2, 1);
    let mut run = Run::prepare(&plan);
    let mut other = plan.clone();
    set(&mut other, "run.lr", 0.5);
    let other_path = run.folder().join("other.json");
    std::fs::write(&other_path, other.to_string()).unwrap();
    let port = free_port();
    let start = Start { rank: 0, world: 2, port, arguments: &[], program: None, plan: None, variables: &[] };
    run.start_rank(&start);
    run.start_rank(&Start { rank: 1, plan: Some(&other_path), ..start });
    for finished in run.finish(PATIENCE) {
        assert!(!finished.success);
        let said = &finished.stderr;
        assert!(said.contains("rank 0 on ") && said.contains("rank 1 on "), "{said}");
        assert!(said.contains("plan (SHA-256)") && said.contains(" against "), "{said}");
    }
}

#[test]
fn ranks_of_different_builds_are_refused_at_join() {
    let mut run = Run::prepare(&tiny(2, 1));
    // The same program with a byte behind its end is another build.
    let other = run.folder().join("other-rank");
    let mut bytes = std::fs::read(env!("CARGO_BIN_EXE_shardplan-rank")).unwrap();
    bytes.push(0);
    std::fs::write(&other, bytes).unwrap();
    std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let port = free_port();
    let start = Start { rank: 0, world: 2, port, arguments: &[], program: None, plan: None, variables: &[] };
    run.start_rank(&start);
    run.start_rank(&Start { rank: 1, program: Some(&other), ..start });
    for finished in run.finish(PATIENCE) {
        assert!(!finished.success);
        let said = &finished.stderr;
        let builds: Vec<&str> = said.split("(build ").skip(1).map(|rest| &rest[..12]).collect();
        assert!(said.contains("do not match: shardplan-rank "), "{said}");
        assert!(matches!(builds.as_slice(), [a, b] if a != b), "{said}");
    }
}

#[test]
fn two_jobs_on_one_port_do_not_mix() {
    let (mut first, mut second) = (Run::prepare(&tiny(2, 1)), Run::prepare(&tiny(2, 1)));
    let port = free_port();
    let start = Start { rank: 0, world: 2, port, arguments: &[], program: None, plan: None, variables: &[] };
    first.start_rank(&start);
    // The first job must have the port before the second asks for it.
    let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    wait_until(listens, || "rank 0 to listen".to_owned());
    second.start_rank(&start);
    second.start_rank(&Start { rank: 1, arguments: &["--timeout-s", "3"], ..start });
    let ends = second.finish(PATIENCE);
    assert!(
        ends[0].stderr.contains(&format!("can't listen on MASTER_ADDR:MASTER_PORT 127.0.0.1:{port}")),
        "{ends:?}"
    );
    let said = &ends[1].stderr;
    assert!(said.contains("does not know this run's key") && said.contains("set MASTER_PORT"), "{said}");
    // The first job goes on as if nothing had been.
    first.start_rank(&Start { rank: 1, ..start });
    first.succeed();
    assert_eq!(first.steps(0).len(), 5);
}

#[test]
fn a_plan_larger_than_the_machine_is_refused() {
    let mut plan = tiny(1, 1);
    set(&mut plan, "model", json!({"preset": "llama-3-70b"}));
    set(&mut plan, "training.dtype", "bf16");
    check_refused(&plan, &["rank 0 keeps ", "this machine's ", "more tensor or pipeline parallelism"]);
}

/// Nothing but a file that the owner alone can read holds the run's key.
#[test]
fn the_key_is_shown_nowhere() {
    let mut plan = tiny(2, 1);
    set(&mut plan, "run.steps", 100_000);
    let mut run = Run::start(&plan, &[]);
    run.wait_for_steps(2);
    let key = std::fs::read_to_string(run.folder().join("key")).unwrap();
    let key = key.trim();
    assert_eq!(key.len(), 64);
    for rank in 0..2 {
        for file in ["cmdline", "environ"] {
            let text = std::fs::read(format!("/proc/{}/{file}", run.pid(rank))).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains(key), "{file}");
        }
        kill(Pid::from_raw(run.pid(rank)), Signal::SIGTERM).unwrap();
    }
    for finished in run.finish(PATIENCE) {
        assert!(!finished.stderr.contains(key), "{}", finished.stderr);
    }
    for entry in std::fs::read_dir(run.folder()).unwrap().flatten() {
        use std::os::unix::fs::PermissionsExt;
        let name = entry.file_name().into_string().unwrap();
        let text = std::fs::read_to_string(entry.path()).unwrap();
        assert!(name == "key" || !text.contains(key), "{name}");
        if name == "key" || name.ends_with(".log") {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        }
    }
}
