//! The file that a log is written to.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use planner::wire::{MAX_RECORD_BYTES, decode_record};

use crate::LogReader;

/// How a log ends before something is appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// The number of the next record.
    pub next: u64,
    /// Its last line has no end: a kill or a full disk cut it short.
    pub torn: bool,
}

/// Where a log is written. Behind a trait so that tests can have one that fails.
pub trait Disk: Send {
    /// Opens the log for appending, or opens it anew, and says how it ends.
    ///
    /// # Errors
    /// When it can't be opened or read. So for all below.
    fn open(&mut self) -> Result<Tail>;

    /// Appends some of these bytes, and says how many.
    ///
    /// # Errors
    /// When none can be written.
    fn append(&mut self, bytes: &[u8]) -> Result<usize>;

    /// Sees to it that so many bytes more can be appended though the disk is full by then; where a file system can't
    /// promise that, does nothing.
    ///
    /// # Errors
    /// When there is no room for them.
    fn reserve(&mut self, bytes: u64) -> Result<()>;
}

/// Bytes that are reserved at once, beside those that were asked for.
const RESERVE_STEP: u64 = 24 * 1024;

/// A file of a run folder.
#[derive(Debug)]
pub struct FileDisk {
    path: PathBuf,
    file: Option<File>,
    /// Length of the file, as far as this process has written it.
    length: u64,
    /// Up to here it has room on the disk.
    reserved: u64,
    can_reserve: bool,
}

impl FileDisk {
    /// The log at `path`, not opened yet.
    pub fn new(path: PathBuf) -> FileDisk {
        FileDisk { path, file: None, length: 0, reserved: 0, can_reserve: true }
    }

    fn file(&mut self) -> Result<&mut File> {
        self.file.as_mut().ok_or_else(|| Error::new(ErrorKind::NotConnected, "the log is not open"))
    }
}

impl Disk for FileDisk {
    fn open(&mut self) -> Result<Tail> {
        self.file = None;
        let mut file = crate::append(&self.path)?;
        let tail = tail(&mut file, &self.path)?;
        self.length = file.metadata()?.len();
        self.reserved = self.length;
        self.file = Some(file);
        Ok(tail)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<usize> {
        let written = self.file()?.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn reserve(&mut self, bytes: u64) -> Result<()> {
        if !self.can_reserve || self.reserved >= self.length + bytes {
            return Ok(());
        }
        let (from, wanted) = (self.length, bytes + RESERVE_STEP);
        let offset = |bytes: u64| i64::try_from(bytes).map_err(|_| Error::from(ErrorKind::FileTooLarge));
        // Behind its end, so that readers see nothing of it. What is left when the log is closed stays with the file.
        let flags = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        loop {
            match fallocate(self.file()?, flags, offset(from)?, offset(wanted)?) {
                Ok(()) => {
                    self.reserved = from + wanted;
                    return Ok(());
                }
                Err(Errno::EINTR) => {}
                Err(errno @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG | Errno::EROFS | Errno::EIO)) => {
                    return Err(errno.into());
                }
                Err(_) => {
                    self.can_reserve = false;
                    return Ok(());
                }
            }
        }
    }
}

/// How the log ends. The last whole record may be a long way before its end, behind what a disk has spoiled.
fn tail(file: &mut File, path: &Path) -> Result<Tail> {
    let length = file.metadata()?.len();
    let window = length.min(2 * MAX_RECORD_BYTES as u64);
    file.seek(SeekFrom::Start(length - window))?;
    let mut bytes = Vec::new();
    file.take(window).read_to_end(&mut bytes)?;
    let torn = bytes.last().is_some_and(|&byte| byte != b'\n');
    // Of a torn record only the newline may be missing; then it is one.
    let numbers = bytes.split(|&byte| byte == b'\n').filter_map(number);
    let next = match numbers.max() {
        Some(number) => number.saturating_add(1),
        None if window < length => next_of_all(path)?,
        None => 0,
    };
    Ok(Tail { next, torn })
}

fn number(line: &[u8]) -> Option<u64> {
    Some(decode_record(std::str::from_utf8(line).ok()?).ok()?.seq)
}

fn next_of_all(path: &Path) -> Result<u64> {
    let mut reader = LogReader::new(path.to_owned());
    let mut next = 0;
    loop {
        let chunk = reader.read()?;
        next = chunk.records.iter().map(|record| record.seq.saturating_add(1)).fold(next, u64::max);
        if !chunk.more {
            return Ok(next);
        }
    }
}
