//! `shardplan diagnose` as people read it: logs of the corpus, and files that are no logs.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What is printed of some files of the corpus, with the exit code.
fn diagnose(arguments: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shardplan"))
        .arg("diagnose")
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/diagnose"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("shardplan starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // It may end before it has read all.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("an end");
    writer.join().expect("no panic");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn check(name: &str, arguments: &[&str], code: i32) {
    let (found, out, error) = diagnose(arguments, b"");
    assert_eq!((found, error.as_str()), (Some(code), ""), "{out}");
    insta::assert_snapshot!(name, out);
}

#[test]
fn answers() {
    check("diagnose_rank_5_of_many", &["oom-rank5-interleaved.log"], 0);
    check("diagnose_root_cause_of_torchrun", &["child-failed-root.log"], 0);
    check("diagnose_a_straggler", &["watchdog-pg-guid.log"], 0);
    check("diagnose_three_files", &["split.rank_0.log", "split.rank_3.log", "split.slurm.log"], 0);
    check("diagnose_json", &["xid-45-names-its-cause.log", "--json"], 0);
}

#[test]
fn what_is_no_log_of_a_failure() {
    check("diagnose_a_novel", &["novel.log"], 1);
    check("diagnose_a_healthy_run", &["healthy.log"], 1);
    check("diagnose_binary", &["binary.log"], 1);
    check("diagnose_truncated_gzip", &["gz-truncated.log"], 1);
    check("diagnose_empty", &["empty.log"], 1);
}

#[test]
fn what_can_not_be_read_is_named() {
    for (arguments, word) in
        [(&["no-such.log"][..], "no-such.log"), (&["."], "this is a folder"), (&["-", "-"], "once only")]
    {
        let (code, out, error) = diagnose(arguments, b"");
        assert_eq!((code, out.as_str()), (Some(2), ""), "{error}");
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn a_pipe_without_line_ends_is_read_in_bounded_memory() {
    let mut input = vec![0_u8; 64 << 20];
    input.extend_from_slice(
        b"\n[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    );
    let (code, out, error) = diagnose(&["-"], &input);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("cuda-oom") && out.contains("rank 3"), "{out}");
}
