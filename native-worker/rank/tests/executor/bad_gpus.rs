//! A GPU that a rank can't use, or that differs from the others', is named before anything is trained, and all ranks end.

use std::time::Duration;

use planner::wire::Outcome;

use crate::gpu::start_each;
use crate::harness::{Run, Start, free_port, set, tiny};

/// Of two ranks, the second with `variables`: both end, long before they have waited for each other, and say this.
#[track_caller]
fn check(variables: &[(&str, &str)], expected: &[&str]) {
    let mut run = start_each(&tiny(2, 1), &[], |rank| if rank == 1 { variables } else { &[] });
    for (rank, finished) in run.finish(Duration::from_secs(60)).iter().enumerate() {
        assert!(!finished.success, "rank {rank}");
        for part in expected {
            assert!(finished.stderr.contains(part), "rank {rank}: {part:?} in {}", finished.stderr);
        }
        let (outcome, reason) = run.ended(rank);
        assert!(outcome == Outcome::Failed && reason.contains(expected[0]), "rank {rank}: {reason}");
        assert!(run.steps(rank).is_empty());
    }
}

#[test]
fn a_plan_of_gpus_goes_on_on_the_cpu_where_that_is_asked_for_alone() {
    let mut plan = tiny(1, 1);
    set(&mut plan, "cluster.gpu", "h100-sxm");
    let run = |arguments: &[&str]| {
        let mut run = Run::prepare(&plan);
        let variables = &[("CUDA_VISIBLE_DEVICES", "")];
        let port = free_port();
        run.start_rank(&Start { rank: 0, world: 1, port, arguments, program: None, plan: None, variables });
        let finished = run.finish(Duration::from_secs(60)).remove(0);
        (finished.success, finished.stderr, run.steps(0).len())
    };
    let (success, words, steps) = run(&[]);
    assert!(!success && steps == 0, "{words}");
    let said = "rank 0: the plan is of h100-sxm GPUs, but libtorch sees no GPU";
    assert!(words.contains(said) && words.contains("--device cpu computes on its CPU"), "{words}");
    let (success, words, steps) = run(&["--device", "cpu"]);
    assert!(success && steps > 0, "{words}");
}

#[test]
fn a_driver_that_is_too_old() {
    let driver = [
        "rank 1: the driver runs CUDA up to 12.4, and this torch is built for CUDA 13.0",
        "update the driver",
    ];
    check(&[("FAKE_GPU_DRIVER", "12040")], &driver);
}

#[test]
fn a_machine_without_a_driver_has_no_gpus() {
    // CUDA's runtime calls that a driver that is too old, too.
    check(&[("FAKE_GPU_DRIVER", "0")], &["rank 1: --device is cuda, but libtorch sees no GPU"]);
}

#[test]
fn a_gpu_that_is_not_for_everybody() {
    let whose = "rank 1: can't use GPU 2 of the 8 that it sees";
    check(
        &[("FAKE_GPU_MODE", "3")],
        &[whose, "in exclusive mode, and another process has it", "CUDA error 46"],
    );
    check(&[("FAKE_GPU_MODE", "2")], &[whose, "in prohibited mode", "CUDA error 46"]);
}

#[test]
fn a_gpu_that_others_fill() {
    let full = ["rank 1: GPU 2 has 0.0 GiB free of 80.0", "80.0 GiB are in use by other processes"];
    check(&[("FAKE_GPU_FREE", "4096")], &full);
}

#[test]
fn gpus_of_two_kinds() {
    let kinds = [
        "ranks have different GPUs: compute capability 9.0, 132 multiprocessors on rank 0 (GPU 0000:01:00.0 of ",
        "compute capability 9.0, 114 multiprocessors on rank 1 (GPU 0000:02:00.0 of ",
        "start ranks on GPUs of one kind",
    ];
    check(&[("FAKE_GPU_MULTIPROCESSORS", "114")], &kinds);
    let memory = ["ranks have different GPU memory: 80.0 GiB on rank 0 (GPU ", "40.0 GiB on rank 1 (GPU "];
    check(&[("FAKE_GPU_GIB", "40")], &memory);
}

#[test]
fn two_versions_of_nccl() {
    let versions = [
        "ranks have different versions of NCCL: 2.28.0 on rank 0 (GPU 0000:01:00.0 of ",
        "2.27.3 on rank 1",
        "install the same torch",
    ];
    check(&[("FAKE_NCCL_VERSION", "22703")], &versions);
}
