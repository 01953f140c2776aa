//! Records in any order, read any number of times.

use super::*;
use planner::wire::{Joined, Record};

fn step(log: &str, seq: u64, number: u64, loss: f64) -> LogRecord {
    let step = Step {
        step: number,
        loss,
        grad_norm: 1.0,
        loss_scale: None,
        skipped: false,
        lr: 1e-3,
        tokens: 64,
        seconds: 0.5,
        phases: BTreeMap::new(),
        phase_peaks: BTreeMap::new(),
        model_tflops: 0.5,
        mfu: None,
        memory: MeasuredMemory { weights_bytes: 10, ..MeasuredMemory::default() },
    };
    LogRecord { log: log.to_owned(), record: Record { seq, unix_ms: 0, event: Event::Step(step) } }
}

#[test]
fn a_replay_changes_nothing() {
    let records = vec![
        step("rank-00000.log", 0, 1, 5.0),
        step("rank-00001.log", 0, 1, 5.0),
        step("rank-00000.log", 1, 2, 4.0),
    ];
    let mut once = RunBook::default();
    once.add(records.clone(), true, 0);
    let mut twice = once.clone();
    twice.add(records, true, 0);
    assert_eq!(once, twice);
    assert_eq!(once.latest().map(|(number, point)| (number, point.loss, point.rank)), Some((2, 4.0, 0)));
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
    let mut book = RunBook::default();
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
        book.add(records, true, 0);
    }
    assert_eq!(book.attempt, 2);
    assert_eq!(book.steps.keys().copied().collect::<Vec<_>>(), [1], "step 2 is of the first attempt");
    let steps = |attempt| book.attempts[&attempt].keys().copied().collect::<Vec<u64>>();
    assert_eq!((steps(1), steps(2)), (vec![1, 2], vec![1]));
    assert!(book.attempts.values().flat_map(|steps| steps.values()).all(|speed| speed.rank == 0));
    for rank in book.ranks.values() {
        assert_eq!((rank.standing, rank.attempt), (RankStanding::Training, 2));
        assert_eq!(rank.last_step.as_ref().map(|(number, _)| *number), Some(1));
    }
}

#[test]
fn a_killed_rank_has_failed_and_a_stopped_one_has_not() {
    let mut book = RunBook::default();
    let record =
        |log: &str, seq, event| LogRecord { log: log.to_owned(), record: Record { seq, unix_ms: 0, event } };
    let killed =
        |rank| Event::Exited { rank, code: None, signal: Some(9), last_lines: vec!["out of memory".into()] };
    let ended = Event::Ended { outcome: Outcome::Stopped, reason: "asked to stop".into() };
    book.add(vec![record("launcher.log", 0, killed(0))], true, 0);
    book.add(vec![record("rank-00001.log", 0, ended), record("launcher.log", 1, killed(1))], true, 0);
    assert_eq!(book.ranks[&0].standing, RankStanding::Failed);
    assert_eq!(book.ranks[&0].last_words.as_ref().map(|words| words.how.as_str()), Some("ended by signal 9"));
    assert_eq!(book.ranks[&1].standing, RankStanding::Stopped);
}

#[test]
fn what_is_missing_is_summed_by_log_and_new_numbers_are_not_old_records() {
    let mut book = RunBook::default();
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
    book.add(records.clone(), true, 0);
    book.add(records, true, 0);
    assert_eq!(
        book.gaps["rank-00000.log"].sentence(),
        "5 records of steps 2 to 6 are missing: the disk is full"
    );
    // The log of an earlier version, which was opened again.
    let mut again = step("rank-00000.log", 0, 7, 1.0);
    again.record.unix_ms = 30;
    book.add(vec![again], true, 0);
    assert_eq!(book.latest().map(|(number, _)| number), Some(7));
}

#[test]
fn ranks_that_are_lost_are_shown_no_more_until_they_are_back() {
    let mut book = RunBook::default();
    let record =
        |seq, event| LogRecord { log: "launcher-node.log".into(), record: Record { seq, unix_ms: 0, event } };
    let began = Recovering {
        attempt: 2,
        policy: planner::wire::OnFailure::Drop,
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
    book.add(started.collect(), true, 0);
    assert_eq!(book.present().len(), 4);
    book.add(vec![record(4, Event::Recovering(began)), record(5, Event::Recovered(done))], true, 0);
    assert_eq!(book.present().keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert!(book.recoveries[&2].1.is_some());
    // Those that go on may be any.
    let again = [0, 3].map(|rank| record(6 + rank, Event::Started { rank, pid: 2 }));
    book.add(again.to_vec(), true, 0);
    assert_eq!(book.present().keys().copied().collect::<Vec<_>>(), [0, 3]);
    book.started.clear();
    book.attempt = 3;
    assert_eq!(book.present().len(), 4);
}

#[test]
fn who_is_lost_is_known_while_others_end_because_of_them() {
    let mut book = RunBook::default();
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
    book.add(started.collect(), true, 0);
    assert!(book.being_lost().is_empty());
    book.add(vec![record(4, Event::Recovering(began(2, vec![1])))], true, 0);
    // Those that go on keep their numbers.
    assert_eq!(book.present().keys().copied().collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(book.being_lost(), [1]);
    let again = [0, 2, 3].map(|rank| record(5 + rank, Event::Started { rank, pid: 2 }));
    book.add(again.to_vec(), true, 0);
    book.attempt = 2;
    assert!(book.being_lost().is_empty());
    book.take_for_lost(2);
    assert_eq!(book.being_lost(), [2]);
    book.take_none_for_lost();
    book.add(vec![record(9, Event::Recovering(began(3, vec![3])))], true, 0);
    assert_eq!(book.present().keys().copied().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(book.being_lost(), [3]);
}
