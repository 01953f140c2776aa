//! One file, in blocks: whatever pieces it comes in, the same blocks are looked at, so the answer is the same.
//!
//! A block is some hundred kilobytes behind a little of what came before, which is kept for the times and frames that
//! stand above a line. Nothing else of the file is held.

use super::scan::SCANNER;

/// New bytes of a block.
const BLOCK: usize = 256 * 1024;
/// Bytes kept of what came before.
pub(super) const HISTORY: usize = 8 * 1024;
/// Longest unfinished line that waits for its end; a longer one is cut.
const LONGEST_WAIT: usize = 64 * 1024;
/// Bytes of a line that are read around what was found in it.
const READ_BEFORE: usize = 2 * 1024;
/// Longest piece of a line that is read.
const READ: usize = 8 * 1024;
/// Bytes at the end of a block in which steps of training are looked for; of the first and last block, all.
const STEPS: usize = 16 * 1024;

/// A line that is worth reading.
pub(super) struct Found<'a> {
    /// Its number.
    pub(super) number: u64,
    /// Its start, with the marks of who wrote it: the whole line, but for one of many kilobytes.
    pub(super) head: &'a [u8],
    /// The piece of it that has what was found.
    pub(super) piece: &'a [u8],
    /// Whether that piece starts where the line does.
    pub(super) is_start: bool,
    /// What came before the line.
    pub(super) before: &'a [u8],
}

/// Who is told of lines.
pub(super) trait Listener {
    /// A line that is worth reading.
    fn found(&mut self, line: &Found);
    /// A line where steps and marks are looked for. Numbers rise, and no line comes twice.
    fn sampled(&mut self, number: u64, line: &[u8]);
}

/// A file that is being read.
pub(super) struct Reader {
    buffer: Vec<u8>,
    /// Where in the buffer the bytes start that were not looked at.
    fresh: usize,
    /// Lines that ended before them.
    lines: u64,
    bytes: u64,
    is_first: bool,
    /// The last line that was sampled.
    sampled: u64,
    last_byte: u8,
}

impl Reader {
    pub(super) fn new() -> Reader {
        Reader {
            buffer: Vec::new(),
            fresh: 0,
            lines: 0,
            bytes: 0,
            is_first: true,
            sampled: 0,
            last_byte: b'\n',
        }
    }

    /// Takes bytes.
    pub(super) fn feed(&mut self, mut bytes: &[u8], listener: &mut dyn Listener) {
        while !bytes.is_empty() {
            let room = HISTORY + BLOCK - self.buffer.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            self.bytes += now.len() as u64;
            bytes = later;
            if self.buffer.len() == HISTORY + BLOCK {
                self.look(false, listener);
            }
        }
    }

    /// Looks at what is left; bytes and lines of the file.
    pub(super) fn finish(mut self, listener: &mut dyn Listener) -> (u64, u64) {
        self.look(true, listener);
        let unfinished = u64::from(self.bytes > 0 && self.last_byte != b'\n');
        (self.bytes, self.lines + unfinished)
    }

    /// Looks at the whole lines of the buffer.
    fn look(&mut self, is_last: bool, listener: &mut dyn Listener) {
        let end = match self.buffer[self.fresh..].iter().rposition(|&byte| byte == b'\n' || byte == b'\r') {
            _ if is_last => self.buffer.len(),
            Some(place) if self.buffer.len() - (self.fresh + place) <= LONGEST_WAIT => self.fresh + place + 1,
            _ => self.buffer.len(),
        };
        let text = &self.buffer[..end];
        let first_line = self.lines + 1;
        let mut at = self.fresh;
        let mut counted = self.fresh;
        let mut number = first_line;
        while let Some(hit) = SCANNER.next(text, at) {
            let start = text[at..hit.start]
                .iter()
                .rposition(|&byte| is_break(byte))
                .map_or(at, |place| at + place + 1);
            let stop = memchr::memchr2(b'\n', b'\r', &text[hit.end..]).map_or(end, |place| hit.end + place);
            number += newlines(&text[counted..start]);
            counted = start;
            let mut piece = start..stop;
            if piece.len() > READ {
                piece.start = hit.start.saturating_sub(READ_BEFORE).max(start);
                piece.end = (piece.start + READ).max(hit.end).min(stop);
            }
            // The piece may be one of many of a line: who wrote it stands at the line's start.
            let line_start =
                text[..start].iter().rposition(|&byte| is_break(byte)).map_or(0, |place| place + 1);
            listener.found(&Found {
                number,
                head: &text[line_start..(line_start + 512).min(stop)],
                piece: &text[piece.clone()],
                is_start: piece.start == line_start,
                before: &text[line_start.saturating_sub(HISTORY)..line_start],
            });
            at = piece.end;
        }
        let lines_here = newlines(&text[counted..]);
        let next_line = number + lines_here;
        let sample_from =
            if self.is_first || is_last { self.fresh } else { end.saturating_sub(STEPS).max(self.fresh) };
        let first_sample = next_line - newlines(&text[sample_from..]);
        let samples = text[sample_from..].split_inclusive(|&byte| byte == b'\n');
        for (sample_number, line) in (first_sample..).zip(samples) {
            if sample_number > self.sampled {
                for part in line.split(|&byte| is_break(byte)).filter(|part| !part.is_empty()) {
                    listener.sampled(sample_number, &part[..part.len().min(1024)]);
                }
                self.sampled = sample_number;
            }
        }
        self.lines = next_line - 1;
        self.is_first = false;
        self.last_byte = text.last().copied().unwrap_or(self.last_byte);
        let kept = end.saturating_sub(HISTORY);
        self.buffer.drain(..kept);
        self.fresh = end - kept;
    }
}

fn is_break(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

fn newlines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}
