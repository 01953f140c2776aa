//! One viewer's look at one run: everything from disk first, then what is added.
//!
//! Each viewer reads for itself, at its own pace, so a slow one delays nobody, and the disk is the queue. Once a
//! viewer that was caught up falls behind, steps of ranks other than the first are left out of what it gets, and counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use planner::wire::{Event, LogRecord, ToPage};
use run_folder::{LogReader, RunFolder};
use tokio::sync::mpsc;

/// Bytes of log lines in one frame, more or less.
const FRAME_BYTES: usize = 256 * 1024;
/// Bytes of records that wait for a slow viewer before reading stops.
const PENDING_BYTES: usize = 2 * 1024 * 1024;
/// How often a log that does not grow is looked at, per log beyond the first thousand more slowly.
const POLL: Duration = Duration::from_millis(200);

/// Sends a run's records to `queue` until that closes.
pub async fn follow(folder: RunFolder, run: String, queue: mpsc::Sender<ToPage>) {
    let asked = folder.clone();
    let first = tokio::task::spawn_blocking(move || asked.first_log()).await.unwrap_or_default();
    let mut follower = Follower { folder, readers: BTreeMap::new(), next: String::new() };
    let mut pending = Pending::default();
    let mut caught_up = false;
    loop {
        let looked = tokio::task::spawn_blocking(move || {
            let looked = follower.look();
            (follower, looked)
        });
        let Ok((returned, mut looked)) = looked.await else { return };
        follower = returned;
        pending.add(&mut looked);
        let first_catch = !looked.more && !caught_up;
        caught_up |= !looked.more;
        if !pending.records.is_empty() || pending.unreadable > 0 || first_catch {
            let permit = match queue.try_reserve() {
                Ok(permit) => permit,
                Err(mpsc::error::TrySendError::Closed(())) => return,
                Err(mpsc::error::TrySendError::Full(())) => {
                    if caught_up && !first_catch {
                        pending.thin(&first);
                        if pending.bytes < PENDING_BYTES {
                            tokio::time::sleep(POLL).await;
                            continue;
                        }
                    }
                    match queue.reserve().await {
                        Ok(permit) => permit,
                        Err(_) => return,
                    }
                }
            };
            permit.send(pending.frame(&run, caught_up));
        }
        if !looked.more && pending.records.is_empty() {
            let slower = u32::try_from(follower.readers.len() / 1000).unwrap_or(u32::MAX);
            tokio::time::sleep(POLL * slower.saturating_add(1)).await;
        }
    }
}

/// Reads the logs of a run in turn.
struct Follower {
    folder: RunFolder,
    readers: BTreeMap<Arc<str>, LogReader>,
    /// The log to begin with, so that one that grows fast does not hide the others.
    next: String,
}

struct Looked {
    records: Vec<LogRecord>,
    bytes: usize,
    unreadable: u64,
    more: bool,
}

impl Follower {
    fn look(&mut self) -> Looked {
        for log in self.folder.logs() {
            if !self.readers.contains_key(log.as_str()) {
                let reader = LogReader::new(self.folder.path().join(&log));
                self.readers.insert(Arc::from(log), reader);
            }
        }
        let mut looked = Looked { records: Vec::new(), bytes: 0, unreadable: 0, more: false };
        let names: Vec<Arc<str>> = self.readers.keys().cloned().collect();
        let start = names.iter().position(|name| **name >= *self.next).unwrap_or(0);
        for name in names[start..].iter().chain(&names[..start]) {
            if looked.bytes >= FRAME_BYTES {
                self.next = name.to_string();
                looked.more = true;
                break;
            }
            let Some(Ok(chunk)) = self.readers.get_mut(name).map(LogReader::read) else { continue };
            looked.more |= chunk.more;
            looked.bytes += chunk.bytes;
            looked.unreadable += chunk.unreadable;
            looked
                .records
                .extend(chunk.records.into_iter().map(|record| LogRecord { log: name.to_string(), record }));
        }
        looked
    }
}

/// Records on their way to a viewer.
#[derive(Default)]
struct Pending {
    records: Vec<LogRecord>,
    bytes: usize,
    merged: u64,
    unreadable: u64,
}

impl Pending {
    fn add(&mut self, looked: &mut Looked) {
        self.records.append(&mut looked.records);
        self.bytes += looked.bytes;
        self.unreadable += looked.unreadable;
    }

    /// Leaves out steps and traces of all logs but one.
    fn thin(&mut self, first: &str) {
        let before = self.records.len();
        self.records.retain(|record| {
            !matches!(record.record.event, Event::Step(_) | Event::Trace(_)) || record.log == first
        });
        let left_out = before - self.records.len();
        if let Some(share) = (self.bytes * self.records.len()).checked_div(before) {
            self.bytes = share;
        }
        self.merged += left_out as u64;
    }

    fn frame(&mut self, run: &str, caught_up: bool) -> ToPage {
        let Pending { records, merged, unreadable, .. } = std::mem::take(self);
        ToPage::Records { run: run.to_owned(), records, caught_up, merged, unreadable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::wire::Step;
    use run_folder::{Appender, FileDisk, LogWriter};

    fn step(step: u64) -> Event {
        Event::Step(Step { step, ..Step::default() })
    }

    async fn next(queue: &mut mpsc::Receiver<ToPage>) -> (Vec<LogRecord>, bool, u64) {
        let frame = tokio::time::timeout(Duration::from_secs(20), queue.recv()).await;
        match frame.expect("in time").expect("a frame") {
            ToPage::Records { records, caught_up, merged, .. } => (records, caught_up, merged),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_replay_is_whole_and_a_slow_viewer_gets_merged_frames() {
        let runs = tempfile::tempdir().expect("a folder");
        let folder = RunFolder::create(runs.path(), "one").expect("a run folder");
        let log = |rank: u64| folder.path().join(LogWriter::Rank(rank).log());
        let mut writers: Vec<Appender> =
            (0..2).map(|rank| Appender::new(FileDisk::new(log(rank))).0).collect();
        for writer in &mut writers {
            (1..=5000).for_each(|number| writer.append(0, step(number)));
        }
        let (sender, mut queue) = mpsc::channel(1);
        let task = tokio::spawn(follow(folder, "one".to_owned(), sender));
        let (mut seen, mut merged, mut frames) = (0, 0, 0);
        loop {
            let (records, caught_up, left_out) = next(&mut queue).await;
            (seen, merged, frames) = (seen + records.len(), merged + left_out, frames + 1);
            if caught_up {
                break;
            }
        }
        assert_eq!((seen, merged), (10_000, 0), "the replay has every record");
        assert!(frames > 2, "in frames of bounded size: {frames}");
        // Now nobody reads while both ranks go on.
        for number in 5001..=6000 {
            writers.iter_mut().for_each(|writer| writer.append(0, step(number)));
            if number % 250 == 0 {
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
        }
        let (mut of_zero, mut seen, mut merged) = (0, 0, 0);
        while seen + merged < 2000 {
            let (records, _, left_out) = next(&mut queue).await;
            of_zero += records.iter().filter(|record| record.log == "rank-00000.log").count();
            seen += records.len() as u64;
            merged += left_out;
        }
        assert_eq!(of_zero, 1000, "rank 0 is never thinned");
        assert!(merged > 0, "the viewer fell behind");
        task.abort();
    }
}
