//! Logs of the worker's own runs, and what their folders say.

use super::tests::of;
use super::*;

/// What a peer says of a rank that is gone.
fn lost(rank: u64) -> String {
    format!(
        "shardplan-rank: rank {rank} (process 7 on node1) is gone: its connection closed without a goodbye"
    )
}

#[test]
fn a_peer_that_is_gone_is_no_cause() {
    for (signal, name, cause) in [
        (9, "KILL", "killed"),
        (6, "ABRT", "aborted"),
        (11, "SEGV", "segfault"),
        (4, "ILL", "illegal-instruction"),
        (7, "BUS", "bus-error"),
        (31, "SYS", "exit-159"),
    ] {
        let killed = super::first_end(&format!("Rank 1 was ended by signal {signal} (SIG{name})"));
        let others = ["Rank 0 exited with code 1".to_owned(), "Rank 2 exited with code 1".to_owned()];
        let words = [0_u64, 2].map(|rank| format!("[rank{rank}]: {}", super::last_word(&lost(1))));
        // A peer notices at once, and may be seen to end first.
        for lines in [
            [&killed, &words[0], &others[0], &words[1], &others[1]],
            [&words[0], &others[0], &killed, &words[1], &others[1]],
        ] {
            let log: Vec<&str> = lines.into_iter().map(String::as_str).collect();
            let answer = of(&log.join("\n"), None);
            let first = &answer.verdicts[0];
            assert_eq!((first.cause.as_str(), first.culprit.rank), (cause, Some(1)), "{answer:?}");
            let exit = answer.exit.as_ref().expect("an end");
            assert_eq!((exit.origin.rank, exit.code), (Some(1), Some(128 + signal)), "{answer:?}");
            let peer = answer.verdicts.iter().find(|verdict| verdict.cause == "peer-gone").expect("told");
            assert_eq!(peer.part, Part::Consequence);
        }
    }
    // Without a word on its end, it is still the one to look at.
    let log = format!("[rank0]: {}\nRank 0 exited with code 1\n[rank3]: {}", lost(2), lost(0));
    let answer = of(&log, None);
    assert_eq!(
        (answer.verdicts[0].cause.as_str(), answer.verdicts[0].culprit.rank),
        ("peer-gone", Some(2)),
        "{answer:?}"
    );
}

#[test]
fn what_all_say_of_one_ranks_end_is_that_ranks() {
    let word = super::last_word("shardplan-rank: rank 1: there is no such file: data.bin");
    let log = format!("[rank0]: {word}\nRank 0 exited with code 1\nRank 1 exited with code 1\n");
    let answer = of(&log, None);
    assert_eq!(answer.verdicts[0].cause, "worker-error");
    assert_eq!(answer.verdicts[0].culprit.rank, Some(1), "{answer:?}");
}

#[test]
fn a_launcher_that_was_killed_is_no_rank() {
    let line =
        "the launcher (process 7) is gone: it was killed or crashed, and this rank had not begun to train";
    let answer = of(&format!("[rank0]: {line}\n[rank1]: {line}\n"), None);
    let first = &answer.verdicts[0];
    assert_eq!((first.cause.as_str(), first.culprit.rank), ("launcher-gone", None), "{answer:?}");
}

#[test]
fn a_folder_says_how_its_run_stands() {
    use planner::wire::RunState::{Completed, Failed, Running, Stopped};
    let standing = |state, reason: &str, is_watched, log: &str| {
        let mut diagnosis = Diagnosis::new(None);
        diagnosis.stands(super::Standing { state, reason: reason.to_owned(), is_watched });
        diagnosis.file("rank-00000.log");
        diagnosis.size(17_719);
        diagnosis.feed(log.as_bytes());
        diagnosis.finish()
    };
    let remark = "[rank0]: RuntimeError: CUDA error: an illegal memory access was encountered\n";
    for log in ["", remark] {
        let stopped = standing(Stopped, "Stopped on request", false, log);
        assert_eq!(
            (stopped.verdicts[0].cause.as_str(), stopped.verdicts.len()),
            ("stopped", 1),
            "{stopped:?}"
        );
        assert_eq!(stopped.looked_at.bytes, 17_719);
        let done = standing(Completed, "Every step was done", false, log);
        assert!(!done.found && done.notes.iter().any(|note| note.contains("is complete")), "{done:?}");
    }
    // A command may end with 0 though its training failed.
    assert!(standing(Completed, "The command exited with code 0", true, remark).found);
    // The folder's word is on the last process to write; one that ended on its own is told.
    let killed = super::first_end("Rank 1 was ended by signal 9 (SIGKILL)");
    assert_eq!(standing(Stopped, "Stopped on request", false, &killed).verdicts[0].cause, "killed");
    let runs = standing(Running, "", false, "");
    assert!(!runs.found && runs.notes.iter().any(|note| note.contains("still running")), "{runs:?}");
    let failed = standing(Failed, "2 ranks hung after the others had ended", false, "");
    assert!(failed.notes.iter().any(|note| note.contains("2 ranks hung")), "{failed:?}");
}
