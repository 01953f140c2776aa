//! A training outlives what goes wrong around it, and does not outlive its launcher.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::wire::{Event, Outcome};

use crate::harness::{Finished, PATIENCE, Run, set, tiny};

/// Sets how large a file the ranks may make. A file that is that large takes no byte more, as on a full disk.
pub fn limit_files(run: &Run, ranks: usize, bytes: &str) {
    for rank in 0..ranks {
        let mut prlimit = Command::new("prlimit");
        prlimit.arg("--pid").arg(run.pid(rank).to_string()).arg(format!("--fsize={bytes}:unlimited"));
        assert!(prlimit.status().unwrap().success(), "{prlimit:?}");
    }
}

#[test]
fn a_training_goes_on_when_nothing_can_be_recorded() {
    let mut plan = tiny(2, 2);
    set(&mut plan, "run.steps", 100_000);
    let mut run = Run::start(&plan, &[]);
    run.wait_for_steps(2);
    limit_files(&run, 2, "1");
    // Long enough for many steps, none of which can be written.
    std::thread::sleep(Duration::from_secs(3));
    let before = run.steps(0).len();
    limit_files(&run, 2, "unlimited");
    run.wait_for_steps(before + 2);
    std::fs::write(run.folder().join("control"), "stop").unwrap();
    let finished = run.finish(PATIENCE);
    for (rank, finished) in finished.iter().enumerate() {
        assert!(finished.success, "rank {rank}: {}", finished.stderr);
        assert!(finished.stderr.contains("missing: File too large"), "rank {rank}: {}", finished.stderr);
        let records = run.records(rank);
        assert!(records.windows(2).all(|pair| pair[0].seq < pair[1].seq));
        let missing: u64 = records
            .iter()
            .map(|record| if let Event::Gap(gap) = &record.event { gap.records } else { 0 })
            .sum();
        let numbers = records.last().unwrap().seq + 1;
        assert!(missing > 2 && records.len() as u64 + missing == numbers, "rank {rank}: {missing} missing");
        let (outcome, reason) = run.ended(rank);
        assert_eq!(outcome, Outcome::Stopped, "{reason}");
        // Steps that were trained while nothing could be recorded count.
        let done: u64 = reason.split(' ').rev().nth(3).unwrap().parse().unwrap();
        assert!(done > run.steps(rank).len() as u64, "{reason}");
    }
}

/// Every rank has ended as failed, after the same step, and says who is gone.
fn check_ended(run: &Run, ranks: usize) {
    let done = run.steps(0).len();
    for rank in 0..ranks {
        let (outcome, reason) = run.ended(rank);
        assert_eq!(outcome, Outcome::Failed, "{reason}");
        assert!(reason.starts_with("the launcher (process 4242) is gone"), "{reason}");
        assert!(
            reason.contains(&format!("after {done} of 100000 steps; it saves no checkpoints")),
            "{reason}"
        );
        assert_eq!(run.steps(rank).len(), done);
    }
}

#[test]
fn ranks_end_after_their_step_when_the_launcher_is_gone() {
    let mut plan = tiny(4, 2);
    set(&mut plan, "run.steps", 100_000);
    let mut run = Run::start(&plan, &["--launcher", "4242"]);
    run.wait_for_steps(2);
    // The input of one ends first, and the others hear of it from that one: they say the same.
    run.let_go_of(2);
    let finished = run.finish(PATIENCE);
    let tells = |finished: &Finished| !finished.success && finished.stderr.contains("4242");
    assert!(finished.iter().all(tells), "{finished:?}");
    check_ended(&run, 4);
}

#[test]
fn a_rank_that_waits_for_a_hung_one_ends_with_the_lease() {
    let mut plan = tiny(2, 1);
    set(&mut plan, "run.steps", 100_000);
    let mut run = Run::start(&plan, &["--launcher", "4242", "--lease-s", "1"]);
    run.wait_for_steps(2);
    let hung = Pid::from_raw(run.pid(1));
    kill(hung, Signal::SIGSTOP).unwrap();
    run.let_go();
    run.wait_for_end(0);
    let (outcome, reason) = run.ended(0);
    assert_eq!(outcome, Outcome::Failed);
    assert!(
        reason.starts_with("the launcher (process 4242) is gone") && reason.contains("within 1 s"),
        "{reason}"
    );
    kill(hung, Signal::SIGCONT).unwrap();
    run.finish(PATIENCE);
    let (outcome, reason) = run.ended(1);
    assert_eq!(outcome, Outcome::Failed);
    assert!(reason.starts_with("the launcher (process 4242) is gone"), "{reason}");
}

#[test]
fn a_rank_that_waits_for_others_does_not_wait_without_a_launcher() {
    let plan = tiny(2, 1);
    let mut run = Run::prepare(&plan);
    run.start_rank(&crate::harness::Start {
        rank: 0,
        world: 2,
        port: crate::harness::free_port(),
        arguments: &["--launcher", "4242"],
        program: None,
        plan: None,
        variables: &[],
    });
    run.let_go();
    let finished = run.finish(PATIENCE);
    assert!(!finished[0].success && finished[0].stderr.contains("had not begun to train"), "{finished:?}");
    assert_eq!(run.ended(0).0, Outcome::Failed);
}
