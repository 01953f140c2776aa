//! `shardplan diagnose` as people read it: logs of the corpus, and files that are no logs.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use planner::wire::{Event, Joined, Outcome};

use crate::support::{Workshop, log};

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
        [(&["no-such.log"][..], "no-such.log"), (&["."], "no run's"), (&["-", "-"], "once only")]
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

#[test]
fn the_folder_of_a_watched_command_is_read_with_its_plan() {
    let shop = Workshop::new();
    let script = "echo fine; echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.' >&2; exit 1";
    shop.ask(&["wrap", "--plan", "tiny.json", "--", "bash", "-c", script]);
    let folder = shop.run_folder();
    let folder = folder.to_str().expect("UTF-8");
    let answer = shop.ask(&["diagnose", folder, "--json"]);
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));
    let found: diagnose::Answer = serde_json::from_value(answer.json()).expect("an answer");
    let first = &found.verdicts[0];
    assert_eq!((first.cause.as_str(), first.rank_count), ("cuda-oom", 0), "{found:?}");
    assert!(first.against_plan.is_some(), "{found:?}");
    // The line of the log that has the record.
    let evidence = &first.evidence[0];
    let log = std::fs::read_to_string(&evidence.file).expect("a log");
    let line = log.lines().nth(evidence.line as usize - 1).expect("a line");
    assert!(line.contains("OutOfMemoryError"), "{line}");
}

#[test]
fn a_plan_that_predicts_nothing_is_told_by_who_watches() {
    let shop = Workshop::new();
    shop.write("bad.json", &crate::support::TINY.replace(r#""tp": 2"#, r#""tp": 3"#));
    let answer = shop.ask(&["wrap", "--plan", "bad.json", "--", "true"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.stderr.contains("nothing is predicted"), "{answer:?}");
}

#[test]
fn the_folder_of_a_run_tells_which_rank_began() {
    let shop = Workshop::new();
    shop.run("if [ $RANK = 2 ]; then echo last words >&2; kill -KILL $$; fi; trap '' TERM; while :; do sleep 0.2; done");
    let folder = shop.run_folder();
    let answer = shop.ask(&["diagnose", folder.to_str().expect("UTF-8"), "--json"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let found: diagnose::Answer = serde_json::from_value(answer.json()).expect("an answer");
    let end = found.exit.expect("an end");
    assert_eq!((end.origin.rank, end.code, end.signal.as_deref()), (Some(2), Some(137), Some("SIGKILL")));

    let shop = Workshop::new();
    shop.run(
        "if [ $RANK = 1 ]; then echo \"ModuleNotFoundError: No module named 'x'\" >&2; exit 7; fi; sleep 60",
    );
    let answer = shop.ask(&["diagnose", shop.run_folder().to_str().expect("UTF-8"), "--json"]);
    let found: diagnose::Answer = serde_json::from_value(answer.json()).expect("an answer");
    assert_eq!(found.verdicts[0].ranks, [1], "{found:?}");
    assert_eq!(found.exit.and_then(|end| end.code), Some(7));
}

#[test]
fn a_rank_that_was_killed_is_to_blame_and_not_its_peer() {
    for (signal, code) in [("KILL", 137), ("ABRT", 134)] {
        let shop = Workshop::new();
        let says =
            "shardplan-rank: rank 1 (process 7 on node1) is gone: its connection closed without a goodbye";
        shop.run(&format!(
            "if [ $RANK = 1 ]; then sleep 0.3; kill -{signal} $$; fi; sleep 0.4; echo \"{says}\" >&2; exit 1"
        ));
        let folder = shop.run_folder();
        let answer = shop.ask(&["diagnose", folder.to_str().expect("UTF-8"), "--json"]);
        let found: diagnose::Answer = serde_json::from_value(answer.json()).expect("an answer");
        assert_eq!(found.verdicts[0].culprit.rank, Some(1), "{found:?}");
        let end = found.exit.as_ref().expect("an end");
        assert_eq!((end.origin.rank, end.code), (Some(1), Some(code)), "{found:?}");
        assert!(found.standing.is_some_and(|standing| standing.reason.starts_with("Rank 1 was ended")));
    }
}

#[test]
fn a_folder_tells_how_its_run_stands() {
    let shop = Workshop::new();
    let info = r#"{"version":1,"id":"r","name":"n","user":"u","host":"h","started_unix_ms":1,"command":[],"versions":{},"world_size":1}"#;
    shop.write("run/run.json", info);
    let told = |outcome: Outcome, reason: &str| {
        let ended = Event::Ended { outcome, reason: reason.into() };
        let text = log(&[ended]);
        shop.write("run/launcher-a.log", &text);
        let answer = shop.ask(&["diagnose", "run"]);
        let size = format!("{} bytes", text.len());
        assert!(answer.stdout.contains(&size), "{answer:?}");
        (answer.code, answer.stdout)
    };
    let (code, stopped) = told(Outcome::Stopped, "Stopped on request");
    assert!(code == Some(0) && stopped.starts_with("stopped: the run was stopped on request"), "{stopped}");
    let (code, done) = told(Outcome::Completed, "Every step was done");
    assert!(code == Some(0) && done.starts_with("completed\n"), "{done}");
    let (code, failed) = told(Outcome::Failed, "2 ranks hung after the others had ended");
    assert!(code == Some(1) && failed.contains("2 ranks hung"), "{failed}");
}

#[test]
fn a_run_folders_plan_that_is_not_valid_is_told() {
    let shop = Workshop::new();
    shop.write("run/run.json", "{}");
    let failed = Event::Ended { outcome: Outcome::Failed, reason: "No space left on device".into() };
    shop.write("run/rank-00000.log", &log(&[failed]));
    let said = |plan: &str| {
        shop.write("run/plan.json", plan);
        shop.ask(&["diagnose", "run"]).stderr
    };
    assert_eq!(said(crate::support::TINY), "");
    let invalid = said(&crate::support::TINY.replace(r#""tp": 2"#, r#""tp": 3"#));
    assert!(invalid.contains("plan.json is left out: layout.tp"), "{invalid}");
    let garbage = said("[");
    assert!(garbage.contains("plan.json is left out: it is no plan file"), "{garbage}");
}

#[test]
fn a_run_folder_without_logs_is_named() {
    let shop = Workshop::new();
    shop.write("run/run.json", "{}");
    let answer = shop.ask(&["diagnose", "run"]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("no logs") && answer.stderr.contains("run"), "{answer:?}");
}

#[test]
fn of_a_run_that_went_on_the_newest_part_is_read() {
    let joined = |rank, attempt| {
        Event::Joined(Joined {
            rank,
            world_size: 2,
            attempt,
            host: "node".into(),
            pid: 1,
            device: "cpu".into(),
            torch: "2.11.0".into(),
            plan_sha256: String::new(),
        })
    };
    let failed = |reason: &str| Event::Ended { outcome: Outcome::Failed, reason: reason.into() };
    let memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
    let disk = "OSError: [Errno 28] No space left on device";
    let shop = Workshop::new();
    shop.write("run/run.json", "{}");
    shop.write("run/rank-00000.log", &log(&[joined(0, 1), failed(memory), joined(0, 2), failed(disk)]));
    // It is in no part but the first.
    shop.write("run/rank-00001.log", &log(&[joined(1, 1), failed(memory)]));
    let answer = shop.ask(&["diagnose", "run", "--json"]);
    let found: diagnose::Answer = serde_json::from_value(answer.json()).expect("an answer");
    let causes: Vec<&str> = found.verdicts.iter().map(|verdict| verdict.cause.as_str()).collect();
    assert_eq!((causes, found.looked_at.ranks), (vec!["disk-full"], 1), "{found:?}");
    assert_eq!(found.verdicts[0].evidence[0].line, 4);
}
