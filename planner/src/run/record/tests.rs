//! Records in any order, read any number of times.

use super::super::rank::RankStanding;
use super::*;
use crate::wire::{Exited, Joined, MeasuredMemory};

fn step(log: &str, seq: u64, number: u64, loss: f64) -> LogRecord {
    let memory = MeasuredMemory { weights_bytes: 10, ..MeasuredMemory::default() };
    let step = Step { step: number, loss, tokens: 64, seconds: 0.5, memory, ..Step::default() };
    LogRecord { log: log.to_owned(), record: Record { seq, unix_ms: 0, event: Event::Step(step) } }
}

#[test]
fn a_replay_changes_nothing() {
    let records = vec![
        step("rank-00000.log", 0, 1, 5.0),
        step("rank-00001.log", 0, 1, 5.0),
        step("rank-00000.log", 1, 2, 4.0),
    ];
    let mut once = RunRecord::default();
    once.add(records.clone(), true, 0);
    let mut twice = once.clone();
    twice.add(records, true, 0);
    assert_eq!(once, twice);
    assert_eq!(once.latest().map(|(number, point)| (number, point.loss(), point.rank)), Some((2, 4.0, 0)));
    assert_eq!(once.ranks.len(), 2);
}

#[test]
fn a_requeued_job_begins_anew_though_the_logs_come_one_after_the_other() {
    let joined = |log: &str, seq, rank, attempt| {
        let joined = Joined {
            rank,
            world_size: 2,
            attempt,
            host: "node".into(),
            pid: 1,
            device: "cpu".into(),
            torch: "2.11.0".into(),
            plan_sha256: String::new(),
        };
        LogRecord { log: log.to_owned(), record: Record { seq, unix_ms: 0, event: Event::Joined(joined) } }
    };
    let stopped = |log: &str, seq| LogRecord {
        log: log.to_owned(),
        record: Record {
            seq,
            unix_ms: 0,
            event: Event::Ended { outcome: Outcome::Stopped, reason: "the time is over".into() },
        },
    };
    let mut run = RunRecord::default();
    // All of rank 0, then all of rank 1, as a replay has them.
    for (rank, log) in [(0, "rank-00000.log"), (1, "rank-00001.log")] {
        let records = vec![
            joined(log, 0, rank, 1),
            step(log, 1, 1, 5.0),
            step(log, 2, 2, 4.0),
            stopped(log, 3),
            joined(log, 4, rank, 2),
            step(log, 5, 1, 5.0),
        ];
        run.add(records, true, 0);
    }
    assert_eq!(run.attempt, 2);
    assert_eq!(run.steps.keys().copied().collect::<Vec<_>>(), [1], "step 2 is of the first attempt");
    let steps = |attempt| run.attempts[&attempt].keys().copied().collect::<Vec<u64>>();
    assert_eq!((steps(1), steps(2)), (vec![1, 2], vec![1]));
    assert!(run.attempts.values().flat_map(|steps| steps.values()).all(|speed| speed.rank == 0));
    for rank in run.ranks.values() {
        assert_eq!((rank.standing, rank.attempt), (RankStanding::Training, 2));
        assert_eq!(rank.last_step.as_ref().map(|step| step.step), Some(1));
    }
}

#[test]
fn a_killed_rank_has_failed_and_a_stopped_one_has_not() {
    let mut run = RunRecord::default();
    let record =
        |log: &str, seq, event| LogRecord { log: log.to_owned(), record: Record { seq, unix_ms: 0, event } };
    let killed = |rank| {
        let last_lines = vec!["out of memory".into()];
        Event::Exited(Exited { rank, signal: Some(9), last_lines, ..Exited::default() })
    };
    let ended = Event::Ended { outcome: Outcome::Stopped, reason: "asked to stop".into() };
    run.add(vec![record("launcher.log", 0, killed(0))], true, 0);
    run.add(vec![record("rank-00001.log", 0, ended), record("launcher.log", 1, killed(1))], true, 0);
    assert_eq!(run.ranks[&0].standing, RankStanding::Failed);
    let how = |rank: &RankRecord| rank.exit.as_ref().map(|end| end.exit.how());
    assert_eq!(how(&run.ranks[&0]).as_deref(), Some("was ended by signal 9 (SIGKILL)"));
    assert_eq!(run.ranks[&1].standing, RankStanding::Stopped);
}

#[test]
fn what_is_missing_is_summed_by_log_and_new_numbers_are_not_old_records() {
    let mut run = RunRecord::default();
    let record = |seq, unix_ms, event| LogRecord {
        log: "rank-00000.log".into(),
        record: Record { seq, unix_ms, event },
    };
    let gap = |records, step| {
        Event::Gap(Gap {
            records,
            first_step: Some(step),
            last_step: Some(step + records - 1),
            since_unix_ms: 5,
            reason: "the disk is full".into(),
        })
    };
    let records = vec![record(4, 10, gap(1, 2)), record(9, 20, gap(4, 3))];
    run.add(records.clone(), true, 0);
    run.add(records, true, 0);
    assert_eq!(
        run.gaps["rank-00000.log"].sentence(),
        "5 records of steps 2 to 6 are missing: the disk is full"
    );
    // The log of an earlier version, which was opened again.
    let mut again = step("rank-00000.log", 0, 7, 1.0);
    again.record.unix_ms = 30;
    run.add(vec![again], true, 0);
    assert_eq!(run.latest().map(|(number, _)| number), Some(7));
}

#[test]
fn ranks_that_are_lost_are_shown_no_more_until_they_are_back() {
    let mut run = RunRecord::default();
    let record =
        |seq, event| LogRecord { log: "launcher-node.log".into(), record: Record { seq, unix_ms: 0, event } };
    let began = Recovering {
        attempt: 2,
        policy: OnFailure::Drop,
        dead: vec![2],
        reason: "Rank 2 was killed".into(),
        change: "rank 2 is lost".into(),
        world_size: 2,
        dp: 1,
        global_batch: 4,
        instead_of: None,
        from_step: Some(4),
        predicted_step_seconds: None,
        predicted_whole_step_seconds: None,
        failed_unix_ms: 0,
    };
    let done = Recovered { attempt: 2, step: 5, restart_seconds: 0.5, seconds: 2.0 };
    let started = (0..4).map(|rank| record(rank, Event::Started { rank, pid: 1 }));
    run.add(started.collect(), true, 0);
    assert_eq!(run.present().len(), 4);
    run.add(vec![record(4, Event::Recovering(began)), record(5, Event::Recovered(done))], true, 0);
    assert_eq!(run.present().keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert!(run.recoveries[&2].1.is_some());
    // Those that go on may be any.
    let again = [0, 3].map(|rank| record(6 + rank, Event::Started { rank, pid: 2 }));
    run.add(again.to_vec(), true, 0);
    assert_eq!(run.present().keys().copied().collect::<Vec<_>>(), [0, 3]);
    run.started.clear();
    run.attempt = 3;
    assert_eq!(run.present().len(), 4);
}

#[test]
fn who_is_lost_is_known_while_others_end_because_of_them() {
    let mut run = RunRecord::default();
    let record =
        |seq, event| LogRecord { log: "launcher-node.log".into(), record: Record { seq, unix_ms: 0, event } };
    let began = |attempt, dead| Recovering {
        attempt,
        policy: OnFailure::Ntp,
        dead,
        reason: "it was killed".into(),
        change: "a rank is lost".into(),
        world_size: 3,
        dp: 2,
        global_batch: 4,
        instead_of: None,
        from_step: Some(4),
        predicted_step_seconds: None,
        predicted_whole_step_seconds: None,
        failed_unix_ms: 0,
    };
    let started = (0..4).map(|rank| record(rank, Event::Started { rank, pid: 1 }));
    run.add(started.collect(), true, 0);
    assert!(run.being_lost().is_empty());
    run.add(vec![record(4, Event::Recovering(began(2, vec![1])))], true, 0);
    // Those that go on keep their numbers.
    assert_eq!(run.present().keys().copied().collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(run.being_lost(), [1]);
    let again = [0, 2, 3].map(|rank| record(5 + rank, Event::Started { rank, pid: 2 }));
    run.add(again.to_vec(), true, 0);
    run.attempt = 2;
    assert!(run.being_lost().is_empty());
    run.take_for_lost(2);
    assert_eq!(run.being_lost(), [2]);
    run.take_none_for_lost();
    run.add(vec![record(9, Event::Recovering(began(3, vec![3])))], true, 0);
    assert_eq!(run.present().keys().copied().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(run.being_lost(), [3]);
}
