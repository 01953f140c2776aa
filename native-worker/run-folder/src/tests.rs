//! Logs on disks that fail: whatever happens, what is readable is whole, in order, and together with what is counted as
//! missing it is all that was told.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use planner::wire::{Event, Exited, Gap, MAX_RECORD_BYTES, Outcome, Record, Step};
use proptest::prelude::*;

use crate::{Appender, Disk, FileDisk, Log, LogReader, Tail, gaps};

fn step(step: u64) -> Event {
    Event::Step(Step { step, loss: 1.0, grad_norm: 1.0, lr: 0.1, tokens: 8, seconds: 0.1, ..Step::default() })
}

fn end(reason: &str) -> Event {
    Event::Ended { outcome: Outcome::Completed, reason: reason.to_owned() }
}

/// What a reader finds: the records, and how many lines are none.
fn read(path: &Path) -> (Vec<Record>, u64) {
    let mut reader = LogReader::new(path.to_owned());
    let (mut records, mut unreadable) = (Vec::new(), 0);
    loop {
        let chunk = reader.read().expect("read");
        records.extend(chunk.records);
        unreadable += chunk.unreadable;
        if !chunk.more {
            return (records, unreadable);
        }
    }
}

/// What the disk does at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Fine,
    /// Takes so many bytes at most, and then is full.
    Full(usize),
    /// Is full, but for the room that was kept.
    Kept,
    /// Fails, and the log must be opened anew.
    Broken(Errno),
    /// A signal comes.
    Interrupted,
}

/// A file, and what is to go wrong.
struct Faulty {
    file: FileDisk,
    faults: Arc<Mutex<Fault>>,
    /// A broken disk fails until it was opened.
    broken: bool,
}

impl Disk for Faulty {
    fn open(&mut self) -> std::io::Result<Tail> {
        match *self.faults.lock().expect("a fault") {
            Fault::Broken(errno) => Err(errno.into()),
            _ => {
                self.broken = false;
                self.file.open()
            }
        }
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut fault = self.faults.lock().expect("a fault");
        match &mut *fault {
            _ if self.broken => Err(Errno::EBADF.into()),
            Fault::Fine | Fault::Kept => self.file.append(bytes),
            Fault::Full(0) => Err(Errno::ENOSPC.into()),
            Fault::Full(room) => {
                let count = bytes.len().min(*room);
                *room -= count;
                self.file.append(&bytes[..count])
            }
            Fault::Broken(errno) => {
                self.broken = true;
                Err((*errno).into())
            }
            Fault::Interrupted => {
                *fault = Fault::Fine;
                Err(Errno::EINTR.into())
            }
        }
    }

    fn reserve(&mut self, _: u64) -> std::io::Result<()> {
        match *self.faults.lock().expect("a fault") {
            Fault::Kept => Err(Errno::ENOSPC.into()),
            // As on a file system that can't promise room.
            _ => Ok(()),
        }
    }
}

fn faulty(path: &Path) -> (Appender<Faulty>, Arc<Mutex<Fault>>) {
    let faults = Arc::new(Mutex::new(Fault::Fine));
    let disk = Faulty { file: FileDisk::new(path.to_owned()), faults: faults.clone(), broken: false };
    (Appender::with_retry(disk, Duration::ZERO), faults)
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => Just(Fault::Fine),
        3 => (0usize..700).prop_map(Fault::Full),
        1 => Just(Fault::Kept),
        1 => prop_oneof![Just(Errno::EIO), Just(Errno::EROFS), Just(Errno::ESTALE)]
            .prop_map(Fault::Broken),
        1 => Just(Fault::Interrupted),
    ]
}

/// Numbers rise, steps rise, and gaps and records together are `told`.
fn whole(records: &[Record], told: u64) -> Result<(), TestCaseError> {
    prop_assert!(records.windows(2).all(|pair| pair[0].seq < pair[1].seq), "{records:?}");
    let steps: Vec<u64> = records.iter().filter_map(|record| record.event.step()).collect();
    prop_assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
    let mut missing = 0;
    let mut here = 0;
    for record in records {
        match &record.event {
            Event::Gap(gap) => {
                missing += gap.records;
                let (first, last) = (gap.first_step.unwrap_or(0), gap.last_step.unwrap_or(0));
                prop_assert!(first <= last && last - first + 1 >= gap.records, "{gap:?}");
                prop_assert!(!gap.reason.is_empty());
                prop_assert!(
                    steps.iter().all(|step| *step != first && *step != last),
                    "{gap:?} in {steps:?}"
                );
            }
            _ => here += 1,
        }
    }
    prop_assert_eq!(here + missing, told);
    // Every number that is lacking is counted in a gap.
    let lacking = records.last().map_or(0, |last| last.seq + 1) - records.len() as u64;
    prop_assert_eq!(lacking, missing);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_the_disk_does_the_log_is_readable_and_counts_what_is_missing(
        faults in prop::collection::vec((fault(), 1u64..6), 1..20),
        reopened in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rank-00000.log");
        let mut told = 0;
        let (mut appender, now) = faulty(&path);
        for (fault, records) in &faults {
            *now.lock().expect("a fault") = *fault;
            for _ in 0..*records {
                told += 1;
                appender.append(1000, step(told));
            }
        }
        *now.lock().expect("a fault") = Fault::Fine;
        appender.settle();
        prop_assert!(appender.is_settled());
        let missing = appender.lost().map_or(0, |gap| gap.records);
        prop_assert_eq!(gaps(&path).map_or(0, |gap| gap.records), missing);
        if reopened {
            drop(appender);
            appender = faulty(&path).0;
        }
        appender.append(2000, end("all done"));
        let (records, _) = read(&path);
        whole(&records, told + 1)?;
        prop_assert_eq!(&records.last().expect("an end").event, &end("all done"));
    }
}

#[test]
fn a_log_cut_at_any_byte_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rank-00000.log");
    let log = Log::open(&path).expect("a log");
    (1..=2).for_each(|bytes| log.append(Event::Unread { bytes }));
    log.append(end("it is over"));
    drop(log);
    let bytes = std::fs::read(&path).expect("read");
    for cut in 0..=bytes.len() {
        std::fs::write(&path, &bytes[..cut]).expect("written");
        let (mut appender, opened) = Appender::new(FileDisk::new(path.clone()));
        opened.expect("opened");
        appender.append(0, Event::Unread { bytes: 8 });
        appender.append(0, end("the second is over"));
        let (records, unreadable) = read(&path);
        // A line that lacks nothing but its newline is a record once it has one.
        let newlines = bytes[..cut].iter().filter(|&&byte| byte == b'\n').count();
        let all_but_newline = usize::from(bytes.get(cut) == Some(&b'\n'));
        let whole = newlines + all_but_newline;
        let torn = cut > 0 && bytes[cut - 1] != b'\n' && all_but_newline == 0;
        assert_eq!(records.len(), whole + 2, "cut at {cut}");
        assert_eq!(unreadable, u64::from(torn), "cut at {cut}");
        let numbers: Vec<u64> = records.iter().map(|record| record.seq).collect();
        assert_eq!(numbers, (0..whole as u64 + 2).collect::<Vec<_>>(), "cut at {cut}");
        assert_eq!(records.last().map(|record| &record.event), Some(&end("the second is over")));
    }
}

#[test]
fn numbers_go_on_behind_what_a_disk_has_spoiled() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rank-00000.log");
    let append = |number| Appender::new(FileDisk::new(path.clone())).0.append(0, step(number));
    append(1);
    for spoiled in [vec![0; 100], vec![b'x'; 3 * MAX_RECORD_BYTES], b"\n\n\n".to_vec()] {
        let mut bytes = std::fs::read(&path).expect("read");
        let before = read(&path).0.len() as u64;
        bytes.extend(spoiled);
        std::fs::write(&path, bytes).expect("written");
        append(2);
        let (records, _) = read(&path);
        assert_eq!(records.last().map(|record| record.seq), Some(before));
    }
}

/// The records as a person reads them.
fn said(path: &Path) -> Vec<String> {
    let sentence = |record: &Record| match &record.event {
        Event::Gap(gap) => gap.sentence(),
        Event::Ended { reason, .. } => reason.clone(),
        event => format!("step {}", event.step().expect("a step")),
    };
    read(path).0.iter().map(sentence).collect()
}

const FULL: &str = "No space left on device (os error 28)";

#[test]
fn an_outage_is_told_of_when_it_begins_and_counted_when_it_is_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rank-00000.log");
    let (mut appender, fault) = faulty(&path);
    let set = |now| *fault.lock().expect("a fault") = now;
    appender.append(0, step(1));
    set(Fault::Kept);
    (2..=5).for_each(|number| appender.append(0, step(number)));
    let mut expected = vec!["step 1".to_owned(), format!("1 record of step 2 is missing: {FULL}")];
    assert_eq!(said(&path), expected, "while it lasts");
    set(Fault::Fine);
    appender.append(0, step(6));
    // A line that is cut short leaves no room for telling.
    set(Fault::Full(200));
    (7..=9).for_each(|number| appender.append(0, step(number)));
    expected.extend([format!("3 records of steps 3 to 5 are missing: {FULL}"), "step 6".to_owned()]);
    assert_eq!(said(&path), expected);
    // The end does not wait for better times.
    set(Fault::Kept);
    appender.append(0, end("done"));
    expected.extend([format!("3 records of steps 7 to 9 are missing: {FULL}"), "done".to_owned()]);
    assert_eq!(said(&path), expected);
    assert_eq!(read(&path).1, 1, "the torn line is counted");
}

/// A file system of 256 KiB that only this thread and those that it starts see.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> SmallDisk {
        let folder = tempfile::tempdir().expect("a folder");
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)
            .expect("a mount namespace, which root may make: run the tests as root");
        SmallDisk::run(Command::new("mount").args(["--make-rprivate", "/"]));
        SmallDisk::run(
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(folder.path()),
        );
        SmallDisk(folder)
    }

    fn run(command: &mut Command) {
        assert!(command.status().expect("mount runs").success(), "{command:?}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.path("ballast")).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        SmallDisk::run(Command::new("umount").arg("--lazy").arg(self.0.path()));
    }
}

#[test]
fn the_end_is_readable_on_a_disk_that_stays_full() {
    let disk = SmallDisk::new();
    let path = disk.path("rank-00000.log");
    let log = Log::open(&path).expect("a log");
    log.append(step(1));
    disk.fill();
    (2..=500).for_each(|number| log.append(step(number)));
    log.append(end("all 500 steps are done"));
    let missing = log.lost().expect("a gap");
    assert_eq!((missing.last_step, missing.reason.as_str()), (Some(500), FULL));
    let (records, unreadable) = read(&path);
    assert_eq!(records.last().map(|record| &record.event), Some(&end("all 500 steps are done")));
    assert_eq!(gaps(&path), Some(missing.clone()), "the log tells of all that is missing");
    let told = records.iter().filter(|record| matches!(record.event, Event::Gap(_))).count() as u64;
    assert_eq!((records.len() as u64 - told + missing.records, unreadable), (501, 0));
}

#[test]
fn a_log_goes_on_when_a_full_disk_has_room_again() {
    let disk = SmallDisk::new();
    let path = disk.path("rank-00000.log");
    let log = Log::open(&path).expect("a log");
    disk.fill();
    (1..=300).for_each(|number| log.append(step(number)));
    let missing = log.lost().expect("a gap").records;
    std::fs::remove_file(disk.path("ballast")).expect("removed");
    // Without another record: what is owed is tried again by itself.
    wait_for("the gap to be told", || gaps(&path).is_some_and(|gap| gap.records == missing));
    log.append(step(301));
    log.append(end("done"));
    let said = said(&path);
    assert_eq!(&said[said.len() - 2..], ["step 301", "done"], "{said:?}");
    assert_eq!(log.lost().map(|gap| gap.records), Some(missing));
}

/// How long something may take before it hangs, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(300);

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn texts_that_no_reader_would_take_are_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("launcher-x.log");
    let log = Log::open(&path).expect("a log");
    let long = "\u{1}".repeat(MAX_RECORD_BYTES);
    let lines: Vec<String> = (0..20).map(|_| "\u{1}".repeat(4096)).collect();
    log.append(Event::Exited(Exited { code: Some(1), last_lines: lines, ..Exited::default() }));
    log.append(Event::Unread { bytes: 1 });
    log.append(end(&long));
    drop(log);
    let (records, unreadable) = read(&path);
    assert_eq!((records.len(), unreadable), (3, 0));
    match &records[0].event {
        Event::Exited(exit) => assert_eq!(exit.last_lines.len(), 8),
        other => panic!("{other:?}"),
    }
    assert!(matches!(&records[2].event, Event::Ended { reason, .. } if reason.len() == MAX_RECORD_BYTES / 8));
}

/// A disk that hangs until it is let go.
struct Hanging {
    file: FileDisk,
    hangs: Arc<AtomicBool>,
}

impl Disk for Hanging {
    fn open(&mut self) -> std::io::Result<Tail> {
        self.file.open()
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        while self.hangs.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.file.append(bytes)
    }

    fn reserve(&mut self, bytes: u64) -> std::io::Result<()> {
        self.file.reserve(bytes)
    }
}

#[test]
fn a_disk_that_hangs_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rank-00000.log");
    let hangs = Arc::new(AtomicBool::new(true));
    let disk = Hanging { file: FileDisk::new(path.clone()), hangs: hangs.clone() };
    let (appender, opened) = Appender::new(disk);
    opened.expect("opened");
    let log = Log::of(appender).expect("a log");
    let started = Instant::now();
    (1..=20_000).for_each(|number| log.append(step(number)));
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "20,000 records took {took:?}: each was waited for");
    let missing = log.lost().expect("a gap");
    assert!(missing.records > 10_000 && missing.reason.contains("more slowly"), "{missing:?}");
    hangs.store(false, Ordering::Relaxed);
    log.append(end("done"));
    wait_for("the end", || read(&path).0.last().is_some_and(|last| last.event == end("done")));
    let (records, _) = read(&path);
    let told = gaps(&path).expect("a gap");
    assert_eq!(told, missing);
    assert_eq!(records.len() as u64, 20_000 - told.records + 2, "with the gap and the end");
    let last = records.iter().filter_map(|record| record.event.step()).max().expect("a step");
    assert_eq!((told.first_step, told.last_step), (Some(last + 1), Some(20_000)));
}

/// A disk whose thread is kept from getting on without sleeping: as one that waits for a processor, it could run.
struct Slow {
    file: FileDisk,
    computes: Duration,
}

impl Disk for Slow {
    fn open(&mut self) -> std::io::Result<Tail> {
        self.file.open()
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let since = Instant::now();
        while since.elapsed() < self.computes {
            std::hint::spin_loop();
        }
        self.file.append(bytes)
    }

    fn reserve(&mut self, bytes: u64) -> std::io::Result<()> {
        self.file.reserve(bytes)
    }
}

#[test]
fn a_busy_machine_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rank-00000.log");
    // Three times as long as a disk that hangs is waited for.
    let disk = Slow { file: FileDisk::new(path.clone()), computes: Duration::from_millis(300) };
    let log = Log::of(Appender::new(disk).0).expect("a log");
    for number in 1..=2 {
        log.append(step(number));
        assert_eq!(read(&path).0.last().and_then(|last| last.event.step()), Some(number));
    }
}

#[test]
fn an_end_does_not_wait_for_a_disk_that_hangs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rank-00000.log");
    let hangs = Arc::new(AtomicBool::new(true));
    let disk = Hanging { file: FileDisk::new(path.clone()), hangs: hangs.clone() };
    let log = Log::of(Appender::new(disk).0).expect("a log");
    let ending = std::thread::spawn(move || {
        log.append(end("done"));
        drop(log);
    });
    wait_for("the end of waiting", || ending.is_finished());
    assert!(read(&path).0.is_empty());
    hangs.store(false, Ordering::Relaxed);
    wait_for("the end", || read(&path).0.last().is_some_and(|last| last.event == end("done")));
}

#[test]
fn a_record_is_on_disk_when_the_append_returns() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rank-00000.log");
    let log = Log::open(&path).expect("a log");
    let mut there = 0;
    for number in 1..=200 {
        log.append(step(number));
        let (records, _) = read(&path);
        there += usize::from(records.last().and_then(|last| last.event.step()) == Some(number));
    }
    // A busy disk may take longer than an append waits.
    assert!(there > 100, "{there} of 200 were on disk at once");
    assert_eq!(log.lost(), None);
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let error = Log::open(Path::new("/nowhere/run/rank-00000.log")).expect_err("no folder");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let file = tempfile::NamedTempFile::new().expect("a file");
    Log::open(&file.path().join("rank-00000.log")).expect_err("a file");
}

#[test]
fn nothing_follows_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rank-00000.log");
    let log = Log::open(&path).expect("a log");
    log.append(end("done"));
    log.append(step(1));
    drop(log);
    assert_eq!(read(&path).0.len(), 1);
}

#[test]
fn gaps_add_up() {
    let gap = |records, first, last, reason: &str| Gap {
        records,
        first_step: first,
        last_step: last,
        since_unix_ms: 5,
        reason: reason.to_owned(),
    };
    let mut sum = gap(1, None, None, "full");
    sum.add(&gap(2, Some(4), Some(5), "broken"));
    sum.add(&gap(3, Some(1), Some(3), ""));
    assert_eq!(sum, gap(6, Some(1), Some(5), "full"));
    assert_eq!(gap(3, None, None, "full").sentence(), "3 records are missing: full");
}
