//! The rank's log in the run folder: append-only, one write per record, so that a kill loses at most the record being
//! written.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use planner::wire::{Event, MAX_RECORD_BYTES, Outcome, Record, decode_record, encode_record};

/// An open log.
#[derive(Debug)]
pub struct Log {
    file: File,
    path: PathBuf,
    seq: u64,
    ended: bool,
}

impl Log {
    /// Opens the log of `rank`, continuing one that is there.
    ///
    /// # Errors
    /// When the folder can't be written.
    pub fn open(folder: &Path, rank: usize) -> anyhow::Result<Log> {
        let path = folder.join(format!("rank-{rank:05}.log"));
        let failed = || {
            format!("opening the log {}; is the run folder there, and writable on this node?", path.display())
        };
        let mut file =
            OpenOptions::new().create(true).read(true).append(true).open(&path).with_context(failed)?;
        let tail = tail(&mut file).with_context(failed)?;
        // A record that a kill cut short becomes a spoiled line of its own, which readers skip.
        if !tail.is_empty() && !tail.ends_with('\n') {
            file.write_all(b"\n").with_context(failed)?;
        }
        let last = tail.lines().rev().find_map(|line| decode_record(line).ok());
        let seq = last.map_or(0, |record| record.seq + 1);
        Ok(Log { file, path, seq, ended: false })
    }

    /// Appends a record; nothing after the end.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn append(&mut self, event: Event) -> anyhow::Result<()> {
        if self.ended {
            return Ok(());
        }
        self.ended = matches!(event, Event::Ended { .. });
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let line = encode_record(&Record { seq: self.seq, unix_ms, event });
        self.file.write_all(line.as_bytes()).with_context(|| format!("writing {}", self.path.display()))?;
        self.seq += 1;
        Ok(())
    }

    /// Appends the last record.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn end(&mut self, outcome: Outcome, reason: &str) -> anyhow::Result<()> {
        let mut cut = reason.len().min(MAX_RECORD_BYTES / 8);
        while !reason.is_char_boundary(cut) {
            cut -= 1;
        }
        self.append(Event::Ended { outcome, reason: reason[..cut].to_owned() })
    }
}

/// The end of the file, large enough to hold the last whole record.
fn tail(file: &mut File) -> std::io::Result<String> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(2 * MAX_RECORD_BYTES as u64)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(folder: &Path) -> Vec<Record> {
        let text = std::fs::read_to_string(folder.join("rank-00003.log")).unwrap();
        text.lines().filter_map(|line| decode_record(line).ok()).collect()
    }

    fn started(pid: u32) -> Event {
        Event::Started { rank: 3, pid }
    }

    #[test]
    fn a_torn_record_spoils_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for pid in 0..2 {
            Log::open(folder.path(), 3).unwrap().append(started(pid)).unwrap();
        }
        let path = folder.path().join("rank-00003.log");
        let whole = std::fs::read(&path).unwrap();
        // A kill in the middle of the second record, at every byte.
        let second = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for cut in second..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut log = Log::open(folder.path(), 3).unwrap();
            log.append(started(7)).unwrap();
            log.end(Outcome::Stopped, "done").unwrap();
            log.append(started(8)).unwrap();
            let found = records(folder.path());
            // Only the newline was lost when the cut is at the very end: then the record is whole.
            let kept = u64::from(cut == whole.len() - 1);
            assert_eq!(found.len() as u64, 3 + kept, "cut at {cut}");
            assert_eq!(
                found.iter().map(|record| record.seq).collect::<Vec<_>>(),
                (0..3 + kept).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = Log::open(Path::new("/nowhere/run"), 3).unwrap_err().to_string();
        assert!(error.contains("/nowhere/run/rank-00003.log"), "{error}");
    }
}
