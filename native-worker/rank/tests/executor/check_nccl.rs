//! `shardplan-rank --check-nccl`: NCCL in a world of one, against the library of our own, on host memory and on GPUs of it.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{gpu, nccl};

/// What a check printed, what it said, what it called, and whether it exited with 0.
struct Checked {
    found: Value,
    said: String,
    calls: Vec<String>,
    success: bool,
}

fn checked(arguments: &[&str], variables: &[(&str, &str)]) -> Checked {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardplan-rank"));
    command.arg("--check-nccl").args(arguments).envs(variables.iter().copied()).stdin(Stdio::null());
    command.env("FAKE_NCCL_LOG", folder.path().join("calls")).env("OMP_NUM_THREADS", "1");
    let output = command.output().unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap().flatten();
    let texts = files.map(|file| std::fs::read_to_string(file.path()).unwrap());
    let calls = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    Checked {
        found: serde_json::from_slice(&output.stdout).unwrap_or_default(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
        calls,
        success: output.status.success(),
    }
}

/// Names of what was off.
fn off(found: &Value) -> Vec<&str> {
    let rows = found["checks"].as_array().unwrap();
    rows.iter().filter(|row| row["within"] != true).map(|row| row["check"].as_str().unwrap()).collect()
}

/// All rows are within, and each function of NCCL that the executor calls was called.
#[track_caller]
fn check_complete(checked: &Checked) {
    let Checked { found, said, calls, success } = checked;
    assert!(success, "{said} {found}");
    assert!(off(found).is_empty(), "{found}");
    // Eleven calls in five types on two streams, eleven before an abort, and what becomes of communicators.
    assert_eq!(found["checks"].as_array().unwrap().len(), 11 * 5 * 2 + 11 + 6, "{found}");
    let count = |name: &str| calls.iter().filter(|call| call.split(' ').next() == Some(name)).count();
    for (name, expected) in
        [("init", 2), ("split", 1), ("finalize", 2), ("destroy", 2), ("revoke", 1), ("abort", 1)]
    {
        assert_eq!(count(name), expected, "{name}");
    }
    for name in ["all_reduce", "all_gather", "reduce_scatter", "reduce"] {
        assert_eq!(count(name), 22, "{name}");
    }
    assert_eq!((count("broadcast"), count("send"), count("recv")), (33, 33, 33));
    for kind in [4, 6, 7, 8, 9] {
        let of = calls.iter().filter(|call| call.ends_with(&format!(" type {kind}"))).count();
        assert!(of > 0, "element type {kind}");
    }
}

#[test]
fn one_rank_does_all_that_ranks_do_with_nccl() {
    check_complete(&checked(&["--nccl-library", nccl::library()], &[("FAKE_NCCL_DELAYS", "300")]));
}

#[test]
fn one_gpu_does_all_that_ranks_do_with_nccl() {
    let library = gpu::library();
    let checked =
        checked(&["--nccl-library", library], &[("LD_PRELOAD", library), ("FAKE_NCCL_DELAYS", "300")]);
    check_complete(&checked);
    assert_eq!(checked.found["device"], "Cuda(0)");
    assert!(checked.calls.contains(&"device 0".to_owned()), "the GPU is taken before NCCL is asked");
}

#[test]
fn what_is_off_is_named() {
    let library = nccl::library();
    let wrong = checked(&["--nccl-library", library], &[("FAKE_NCCL_WRONG", "all_gather")]);
    assert!(!wrong.success);
    let names = off(&wrong.found);
    assert!(names.len() == 11 && names.iter().all(|name| name.starts_with("all_gather, ")), "{names:?}");

    let failing = checked(&["--nccl-library", library], &[("FAKE_NCCL_FAIL_AFTER", "15")]);
    assert!(!failing.success);
    assert_eq!(off(&failing.found), ["all that follows"]);
    let text = failing.found.to_string();
    assert!(text.contains("remote process exited") && text.contains(", on libtorch's stream"), "{text}");
}

#[test]
fn without_a_gpu_or_a_library_it_says_so() {
    for (arguments, expected) in [
        (&[][..], "NCCL needs a GPU, and libtorch sees none"),
        (&["--nccl-library", "/nowhere/libnccl.so"], "NCCL can't be opened: /nowhere/libnccl.so"),
        (&["--nccl-library", "libc.so.6"], "libc.so.6 is no NCCL of 2.18 or newer"),
    ] {
        let checked = checked(arguments, &[("CUDA_VISIBLE_DEVICES", "")]);
        assert!(!checked.success && checked.said.contains(expected), "{}", checked.said);
    }
}
