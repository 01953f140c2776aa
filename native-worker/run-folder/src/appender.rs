//! Appending records to a log, whatever the disk does.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use planner::wire::{Event, Exited, Gap, MAX_RECORD_BYTES, Record, encode_record};

use crate::{Disk, FileDisk};

/// Room that is kept on the disk for telling of a gap and of the end.
const LAST_WORDS_BYTES: u64 = 40 * 1024;

/// How long a disk that fails is left alone.
const RETRY: Duration = Duration::from_millis(500);

/// Appends records, each a line in one write.
///
/// Nothing that the disk does is an error here. A record that can't be written is counted, and takes its number all the
/// same, so that readers see that it is missing. A [`Gap`] tells of those as soon as writing works again, and once as soon
/// as it stops working, where the disk still takes so much. A line that was cut short is ended before the next.
#[derive(Debug)]
pub struct Appender<D = FileDisk> {
    disk: D,
    open: bool,
    torn: bool,
    /// Number of the next record.
    next: u64,
    /// What is missing and not told of.
    gap: Option<Gap>,
    /// This outage was told of when it began.
    told: bool,
    /// The last record, while it can't be written.
    end: Option<(u64, Event)>,
    /// All that is missing since this was made.
    lost: Option<Gap>,
    /// When the disk last failed otherwise than by being full, and why.
    refused: Option<(Instant, String)>,
    retry: Duration,
}

impl Appender {
    /// An appender to the log at `path`, continuing one that is there.
    ///
    /// # Errors
    /// When there is no such folder or it is not this user's to write. A disk that is full, say, is no error: it is tried
    /// again.
    pub fn at(path: &Path) -> Result<Appender> {
        let (appender, opened) = Appender::new(FileDisk::new(path.to_owned()));
        match opened {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied
                ) =>
            {
                Err(error)
            }
            _ => Ok(appender),
        }
    }
}

impl<D: Disk> Appender<D> {
    /// An appender to `disk`, and what opening it said. Where that is an error, it is tried again later.
    pub fn new(disk: D) -> (Appender<D>, Result<()>) {
        let mut appender = Appender {
            disk,
            open: false,
            torn: false,
            next: 0,
            gap: None,
            told: false,
            end: None,
            lost: None,
            refused: None,
            retry: RETRY,
        };
        let opened = appender.open();
        (appender, opened)
    }

    /// One that leaves its disk alone for so long.
    #[cfg(test)]
    pub(crate) fn with_retry(disk: D, retry: Duration) -> Appender<D> {
        Appender { retry, ..Appender::new(disk).0 }
    }

    /// Appends an event of that moment, in milliseconds since 1970.
    pub fn append(&mut self, unix_ms: u64, event: Event) {
        let last = matches!(event, Event::Ended { .. });
        // The end is worth a try at any time.
        let waiting = self.refused.as_ref().filter(|(since, _)| !last && since.elapsed() < self.retry);
        if let Some((_, reason)) = waiting {
            let missing = missing(unix_ms, &event, reason.clone());
            return self.missed(&missing);
        }
        match self.write(unix_ms, &event, last) {
            Ok(()) => self.recovered(),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                self.missed(&missing(unix_ms, &event, error.to_string()));
            }
            Err(error) if last => {
                self.failed(&error);
                self.end = Some((unix_ms, event));
            }
            Err(error) => {
                self.failed(&error);
                self.missed(&missing(unix_ms, &event, error.to_string()));
                self.tell();
            }
        }
    }

    /// Counts records that never came here.
    pub fn missed(&mut self, missed: &Gap) {
        self.next = self.next.saturating_add(missed.records);
        add(&mut self.gap, missed);
        add(&mut self.lost, missed);
    }

    /// Tries to write what is owed: of a gap, the end, the end of a line. To be called now and then while nothing comes.
    pub fn settle(&mut self) {
        let waiting = self.refused.as_ref().is_some_and(|(since, _)| since.elapsed() < self.retry);
        if self.is_settled() || waiting {
            return;
        }
        if let Some((unix_ms, end)) = self.end.take() {
            return self.append(unix_ms, end);
        }
        match self.write_owed() {
            Ok(()) => self.recovered(),
            Err(error) => self.failed(&error),
        }
    }

    /// Tries for so long, as the last thing that is done.
    pub fn settle_within(&mut self, limit: Duration) {
        let since = Instant::now();
        self.settle();
        while !self.is_settled() && since.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(50));
            self.settle();
        }
    }

    /// Whether nothing is owed.
    pub(crate) fn is_settled(&self) -> bool {
        self.gap.is_none() && self.end.is_none() && !self.torn
    }

    /// All records that are missing since this was made, whether the log tells of them or not.
    pub fn lost(&self) -> Option<&Gap> {
        self.lost.as_ref()
    }

    fn recovered(&mut self) {
        self.refused = None;
        self.told = false;
    }

    fn failed(&mut self, error: &Error) {
        // Asking a full disk again costs nothing, and the first record that finds room shall be there.
        let full = [Errno::ENOSPC, Errno::EDQUOT, Errno::EFBIG].map(|errno| Some(errno as i32));
        if full.contains(&error.raw_os_error()) {
            return;
        }
        self.refused = Some((Instant::now(), error.to_string()));
        // What a file says when it is opened again is true also after a remount.
        self.open = false;
    }

    /// Tells of a gap when it begins, from the room that is kept for that.
    fn tell(&mut self) {
        if !std::mem::replace(&mut self.told, true)
            && let Err(error) = self.ready().and_then(|()| self.write_gap())
        {
            self.failed(&error);
        }
    }

    fn open(&mut self) -> Result<()> {
        let tail = self.disk.open()?;
        self.torn = tail.torn;
        self.next = self.next.max(tail.next);
        self.open = true;
        Ok(())
    }

    fn ready(&mut self) -> Result<()> {
        if self.open { Ok(()) } else { self.open() }
    }

    fn write(&mut self, unix_ms: u64, event: &Event, last: bool) -> Result<()> {
        self.ready()?;
        if !last {
            self.disk.reserve(LAST_WORDS_BYTES)?;
        }
        self.write_gap()?;
        self.write_event(unix_ms, event, !last)
    }

    fn write_owed(&mut self) -> Result<()> {
        self.ready()?;
        self.disk.reserve(LAST_WORDS_BYTES)?;
        self.write_gap()?;
        if self.torn { self.put("") } else { Ok(()) }
    }

    fn write_gap(&mut self) -> Result<()> {
        if let Some(gap) = self.gap.clone() {
            self.write_event(crate::unix_ms(), &Event::Gap(gap), false)?;
            self.gap = None;
        }
        Ok(())
    }

    /// Writes a record; with `keep`, only where room for the last words is left behind it.
    fn write_event(&mut self, unix_ms: u64, event: &Event, keep: bool) -> Result<()> {
        let line = line(self.next, unix_ms, event)?;
        if keep {
            self.disk.reserve(line.len() as u64 + LAST_WORDS_BYTES)?;
        }
        self.put(&line)?;
        self.next = self.next.saturating_add(1);
        Ok(())
    }

    /// Writes a line, after the end of one that was cut short. A line of which only the newline is lacking was written.
    fn put(&mut self, line: &str) -> Result<()> {
        let bytes = if self.torn { format!("\n{line}") } else { line.to_owned() }.into_bytes();
        let mut written = 0;
        while written < bytes.len() {
            match self.disk.append(&bytes[written..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(count) if count > 0 => written += count,
                refused => {
                    self.torn |= written > 0;
                    if written > 0 && written + 1 == bytes.len() {
                        return Ok(());
                    }
                    return Err(refused.err().unwrap_or_else(|| ErrorKind::WriteZero.into()));
                }
            }
        }
        self.torn = false;
        Ok(())
    }
}

/// An event that is missing.
pub(crate) fn missing(unix_ms: u64, event: &Event, reason: String) -> Gap {
    let step = event.step();
    Gap { records: 1, first_step: step, last_step: step, since_unix_ms: unix_ms, reason }
}

/// Adds a gap to what is missing so far.
pub(crate) fn add(sum: &mut Option<Gap>, gap: &Gap) {
    match sum {
        Some(sum) => sum.add(gap),
        None => *sum = Some(gap.clone()),
    }
}

/// A record as a line that readers accept: texts that are too long are cut.
fn line(seq: u64, unix_ms: u64, event: &Event) -> Result<String> {
    let mut record = Record { seq, unix_ms, event: event.clone() };
    let line = encode_record(&record);
    if line.len() <= MAX_RECORD_BYTES {
        return Ok(line);
    }
    let length = line.len();
    // One byte of a text may become six of JSON.
    let cut = |text: &mut String| text.truncate(text.floor_char_boundary(MAX_RECORD_BYTES / 8));
    match &mut record.event {
        Event::Ended { reason, .. } => cut(reason),
        Event::Output { text, .. } => cut(text),
        Event::Exited(Exited { last_lines, .. }) => {
            let mut room = MAX_RECORD_BYTES / 8;
            let fits = |line: &&String| {
                let left = room.checked_sub(line.len());
                room = left.unwrap_or(0);
                left.is_some()
            };
            let kept = last_lines.iter().rev().take_while(fits).count();
            last_lines.drain(..last_lines.len() - kept);
        }
        _ => {}
    }
    let line = encode_record(&record);
    if line.len() <= MAX_RECORD_BYTES {
        return Ok(line);
    }
    Err(Error::new(
        ErrorKind::InvalidData,
        format!("a record of {length} bytes, where readers take {MAX_RECORD_BYTES}"),
    ))
}
