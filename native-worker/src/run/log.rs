//! Appending records to a log, and reading one while it grows.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use planner::wire::{Event, MAX_RECORD_BYTES, Record, decode_record, encode_record};

use super::folder::unix_ms;

/// Writes a log: one record a line, each in one write.
#[derive(Debug)]
pub struct LogWriter {
    file: File,
    seq: u64,
    /// The last line may have no end: the disk was full, say.
    torn: bool,
}

impl LogWriter {
    /// Opens a new log for appending.
    ///
    /// # Errors
    /// When the file can't be opened.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(LogWriter { file, seq: 0, torn: false })
    }

    /// Appends an event.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn append(&mut self, event: Event) -> std::io::Result<()> {
        let record = Record { seq: self.seq, unix_ms: unix_ms(), event };
        self.seq += 1;
        let torn = if self.torn { "\n" } else { "" };
        let written = self.file.write_all(format!("{torn}{}", encode_record(&record)).as_bytes());
        self.torn = written.is_err();
        written
    }
}

/// Reads a log from a remembered offset, so that nothing is read twice. A line without its newline is left for
/// later; a line with a wrong checksum is skipped; a line that is too long is never held in memory.
#[derive(Debug, Clone)]
pub struct LogReader {
    path: PathBuf,
    offset: u64,
    in_overlong_line: bool,
}

/// What one look at a log gave.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The records, in order.
    pub records: Vec<Record>,
    /// Bytes of the lines that gave them.
    pub bytes: usize,
    /// Whether more is there already.
    pub more: bool,
}

/// Bytes read at once: room for one longest line.
const CHUNK_BYTES: usize = MAX_RECORD_BYTES + 64;

impl LogReader {
    /// A reader at the start of the log at `path`.
    pub fn new(path: PathBuf) -> Self {
        LogReader { path, offset: 0, in_overlong_line: false }
    }

    /// A reader near the end: at the first whole line of the last `bytes`.
    pub fn near_end(path: PathBuf, bytes: u64) -> Self {
        let size = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        let offset = size.saturating_sub(bytes);
        // The line in which the offset falls is dropped like an overlong one.
        LogReader { path, offset, in_overlong_line: offset > 0 }
    }

    /// Reads what was added, up to some 256 KiB.
    ///
    /// # Errors
    /// When the file is there but can't be read.
    pub fn read(&mut self) -> std::io::Result<Chunk> {
        let mut file = match File::open(&self.path) {
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
                continue;
            }
            if let Some(record) = std::str::from_utf8(line).ok().and_then(|line| decode_record(line).ok()) {
                chunk.bytes += line.len();
                chunk.records.push(record);
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut writer = LogWriter::create(&path).expect("a log");
        writer.append(started(0)).expect("written");
        writer.append(started(1)).expect("written");
        assert_eq!(ranks(&reader.read().expect("read")), [0, 1]);
        assert!(reader.read().expect("read").records.is_empty());
        writer.append(started(2)).expect("written");
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
        let mut found = Vec::new();
        for _ in 0..8 {
            found.extend(ranks(&reader.read().expect("read")));
        }
        assert_eq!(found, [3], "a spoiled and an overlong line are skipped, the next is read");
    }

    #[test]
    fn the_end_of_a_long_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rank-00000.log");
        let mut writer = LogWriter::create(&path).expect("a log");
        for rank in 0..1000 {
            writer.append(started(rank)).expect("written");
        }
        let last = ranks(&LogReader::near_end(path, 1000).read().expect("read"));
        assert_eq!(last.last(), Some(&999));
        assert!(last.len() > 3 && last.len() < 30, "{}", last.len());
    }
}
