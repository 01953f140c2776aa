//! Every thread of a rank works with the rank's own GPU, which is not the first of its machine: a thread that has taken none is on that
//! one.

use planner::wire::Outcome;

use crate::gpu::start_each;
use crate::harness::{Finished, PATIENCE, Run, set, tiny};

/// Two ranks, of which NCCL fails the second after some steps, with `variables` besides for that one.
fn failing(variables: &[(&str, &str)]) -> (Run, Vec<Finished>) {
    let mut plan = tiny(2, 2);
    set(&mut plan, "run.steps", 100_000);
    let all: Vec<(&str, &str)> = [("FAKE_NCCL_FAIL_AFTER", "200")].iter().chain(variables).copied().collect();
    let mut run = start_each(&plan, &[], |rank| if rank == 1 { &all } else { &[] });
    let finished = run.finish(PATIENCE);
    (run, finished)
}

#[test]
fn a_run_that_fails_is_ended_by_threads_on_the_ranks_gpu() {
    let (run, finished) = failing(&[]);
    for (rank, finished) in finished.iter().enumerate() {
        let words = &finished.stderr;
        assert!(!finished.success && words.contains("on rank 1: remote process exited"), "{words}");
        assert!(!words.contains("fake GPU: "), "{words}");
        assert_eq!(run.ended(rank).0, Outcome::Failed, "{words}");
    }
    for calls in run.calls() {
        let of = |name: &str| calls.lines().filter(|call| call.starts_with(name)).count();
        assert!(of("abort") > 0);
        assert_eq!(of("abort"), of("init") + of("split"), "all are aborted that were made");
    }
}

#[test]
fn a_thread_that_forgets_its_gpu_is_found() {
    for (thread, call) in
        [("shardplan-rank", ""), ("nccl-watch", "cudaEventQuery in "), ("nccl-abort", "ncclCommRevoke in ")]
    {
        let (_, finished) = failing(&[("FAKE_GPU_FORGETS", &format!("device {thread}"))]);
        let words = &finished[1].stderr;
        assert!(words.contains(&format!("fake GPU: {call}")) && words.contains("GPU 2"), "{thread}: {words}");
    }
}
