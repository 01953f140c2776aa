//! Reading a log while it grows.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use planner::wire::{Event, Gap, MAX_RECORD_BYTES, Record, decode_record};

/// Reads a log from a remembered offset, so that nothing is read twice. A line without its newline is left for
/// later; a line that is no record is skipped and counted; a line that is too long is never held in memory.
#[derive(Debug, Clone)]
pub struct LogReader {
    path: PathBuf,
    offset: u64,
    in_overlong_line: bool,
    /// Nothing was read yet, and the line that comes first may have begun before.
    amid: bool,
}

/// What one look at a log gave.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The records, in order.
    pub records: Vec<Record>,
    /// Bytes of the lines that gave them.
    pub bytes: usize,
    /// Lines that are no records: cut short by a kill or a full disk, spoiled, or of another version.
    pub unreadable: u64,
    /// Whether more is there already.
    pub more: bool,
}

/// Bytes read at once: room for one longest line.
const CHUNK_BYTES: usize = MAX_RECORD_BYTES + 64;

impl LogReader {
    /// A reader at the start of the log at `path`.
    pub fn new(path: PathBuf) -> Self {
        LogReader { path, offset: 0, in_overlong_line: false, amid: false }
    }

    /// A reader near the end: at the first whole line of the last `bytes`.
    pub fn near_end(path: PathBuf, bytes: u64) -> Self {
        let size = std::fs::symlink_metadata(&path).map_or(0, |meta| meta.len());
        let offset = size.saturating_sub(bytes);
        // The line in which the offset falls is dropped like an overlong one.
        LogReader { path, offset, in_overlong_line: offset > 0, amid: offset > 0 }
    }

    /// Reads what was added, up to some 256 KiB.
    ///
    /// # Errors
    /// When the file is there but can't be read.
    pub fn read(&mut self) -> std::io::Result<Chunk> {
        self.read_where(|_| true)
    }

    /// Reads what was added, decoding only lines of which `wanted` is true; the others are not looked at.
    fn read_where(&mut self, wanted: impl Fn(&str) -> bool) -> std::io::Result<Chunk> {
        let mut file = match crate::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Chunk::default()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(CHUNK_BYTES as u64).read_to_end(&mut bytes)?;
        let full = bytes.len() == CHUNK_BYTES;
        let mut chunk = Chunk { more: full, ..Chunk::default() };
        let mut start = 0;
        while let Some(length) = bytes[start..].iter().position(|&byte| byte == b'\n') {
            let line = &bytes[start..start + length];
            start += length + 1;
            if std::mem::take(&mut self.in_overlong_line) {
                chunk.unreadable += u64::from(!std::mem::take(&mut self.amid));
                continue;
            }
            // A line that was cut short is ended by a newline, and sometimes by two.
            if line.is_empty() {
                continue;
            }
            let text = std::str::from_utf8(line);
            if text.is_ok_and(|line| !wanted(line)) {
                continue;
            }
            match text.ok().and_then(|line| decode_record(line).ok()) {
                Some(record) => {
                    chunk.bytes += line.len();
                    chunk.records.push(record);
                }
                None => chunk.unreadable += 1,
            }
        }
        if start == 0 && full {
            self.in_overlong_line = true;
            start = bytes.len();
        }
        self.offset += start as u64;
        Ok(chunk)
    }
}

/// Everything that the log at `path` has now; nothing where there is none.
///
/// # Errors
/// When the file is there but can't be read.
pub fn read_all(path: &Path) -> std::io::Result<Chunk> {
    let mut all = Chunk::default();
    let mut reader = LogReader::new(path.to_owned());
    loop {
        let chunk = reader.read()?;
        all.records.extend(chunk.records);
        all.bytes += chunk.bytes;
        all.unreadable += chunk.unreadable;
        if !chunk.more {
            return Ok(all);
        }
    }
}

/// Hands over each record that the log at `path` has now, without keeping them all. What can't be read ends it.
pub fn each(path: &Path, mut take: impl FnMut(Record)) {
    let mut reader = LogReader::new(path.to_owned());
    while let Ok(chunk) = reader.read() {
        chunk.records.into_iter().for_each(&mut take);
        if !chunk.more {
            break;
        }
    }
}

/// The gaps that the log at `path` tells of, all together; none when it tells of none or can't be read.
pub fn gaps(path: &Path) -> Option<Gap> {
    let mut reader = LogReader::new(path.to_owned());
    let mut sum = None;
    // Decoding every record of a long log would take its time.
    while let Ok(chunk) = reader.read_where(|line| line.contains("\"event\":\"gap\"")) {
        for record in chunk.records {
            if let Event::Gap(gap) = &record.event {
                crate::appender::add(&mut sum, gap);
            }
        }
        if !chunk.more {
            break;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use planner::wire::encode_record;

    use super::*;
    use crate::Appender;

    fn started(rank: u64) -> Event {
        Event::Started { rank, pid: 1 }
    }

    fn ranks(chunk: &Chunk) -> Vec<u64> {
        chunk
            .records
            .iter()
            .map(|record| match record.event {
                Event::Started { rank, .. } => rank,
                _ => u64::MAX,
            })
            .collect()
    }

    #[test]
    fn what_was_appended_is_read_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rank-00000.log");
        let mut reader = LogReader::new(path.clone());
        assert!(reader.read().expect("no file yet").records.is_empty());
        let mut writer = Appender::at(&path).expect("a log");
        writer.append(0, started(0));
        writer.append(0, started(1));
        assert_eq!(ranks(&reader.read().expect("read")), [0, 1]);
        assert!(reader.read().expect("read").records.is_empty());
        writer.append(0, started(2));
        assert_eq!(ranks(&reader.read().expect("read")), [2]);
    }

    #[test]
    fn torn_spoiled_and_overlong_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rank-00000.log");
        let line = |rank| encode_record(&Record { seq: rank, unix_ms: 0, event: started(rank) });
        let mut file = File::create(&path).expect("a file");
        let mut reader = LogReader::new(path);
        let torn = line(1);
        write!(file, "{}{}", line(0), &torn[..10]).expect("written");
        assert_eq!(ranks(&reader.read().expect("read")), [0]);
        write!(file, "{}", &torn[10..]).expect("written");
        assert_eq!(ranks(&reader.read().expect("read")), [1], "a torn line is read when it is whole");
        write!(file, "{}", line(2).replace("pid", "pie")).expect("written");
        writeln!(file, "{}", "x".repeat(3 * MAX_RECORD_BYTES)).expect("written");
        write!(file, "{}", line(3)).expect("written");
        let (mut found, mut unreadable) = (Vec::new(), 0);
        for _ in 0..8 {
            let chunk = reader.read().expect("read");
            found.extend(ranks(&chunk));
            unreadable += chunk.unreadable;
        }
        assert_eq!(found, [3], "a spoiled and an overlong line are skipped, the next is read");
        assert_eq!(unreadable, 2);
    }

    #[test]
    fn the_end_of_a_long_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rank-00000.log");
        let mut writer = Appender::at(&path).expect("a log");
        for rank in 0..1000 {
            writer.append(0, started(rank));
        }
        let last = ranks(&LogReader::near_end(path, 1000).read().expect("read"));
        assert_eq!(last.last(), Some(&999));
        assert!(last.len() > 3 && last.len() < 30, "{}", last.len());
    }
}
