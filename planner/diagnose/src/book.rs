//! What was seen so far: for each thing that can end a run its first line, how often, by whom. Bounded, whatever the
//! log says.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::answer::Evidence;
use super::attempt::{Attempts, Seen, is_of_slurm};
use super::causes::{Role, Weight};
use super::exception::{self, Exception};
use super::exits::{self, Block, ProcessEnd};
use super::ignored::Ignored;
use super::missing;
use super::oom;
use super::origin::{self, Format, Origin};
use super::places;
use super::progress;
use super::reader::{Found, Listener};
use super::redact;
use super::scan::SCANNER;
use super::stamp::{Stamp, stamp_in};
use super::taken;
use super::xid;

/// What comes before the number of the collective that a rank enqueued last, in the words of releases of torch.
const ENQUEUED: [&str; 3] = ["last enqueued work:", "last enqueued NCCL work:", "Last enqueued NCCL work:"];
/// Ranks that are told apart.
pub(super) const MOST_RANKS: usize = 1 << 16;
/// Things of one kind (exceptions, Xids) that are told apart.
pub(super) const MOST_KINDS: usize = 24;
/// Lines kept as evidence of one thing.
pub(super) const MOST_EVIDENCE: usize = 5;
/// Ends of processes that are kept.
pub(super) const MOST_ENDS: usize = 64;
/// Files that are told apart.
const MOST_FILES: usize = 4096;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A cause of the tables.
    Cause(u16),
    /// A driver's report by number.
    Xid(u32),
    /// An exception by class.
    Exception(String),
    /// The last word of the worker of a run, which says why it ended.
    LastWord,
}

/// Before the last word of a process, where who watched it knows that it was the last: [`crate::last_word`].
pub(super) const LAST_WORD: &str = "ended with the word: ";

/// A line that says what the last word of a process was, for logs of which that is known.
pub fn last_word(text: &str) -> String {
    format!("{LAST_WORD}{text}")
}

/// The word of such a line, without marks before it.
pub(super) fn last_word_in(line: &str) -> &str {
    line.split_once(LAST_WORD).map_or(line, |(_, word)| word)
}

/// When and where a line was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) stamp: Option<Stamp>,
    pub(super) file: usize,
    pub(super) line: u64,
}

impl Moment {
    /// By time where both have one, else by file and line.
    pub(super) fn order(self, other: Moment) -> Ordering {
        let by_time = match (self.stamp, other.stamp) {
            (Some(one), Some(two)) => one.order(two),
            _ => Ordering::Equal,
        };
        by_time.then((self.file, self.line).cmp(&(other.file, other.line)))
    }
}

/// A file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileSeen {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Bytes that it has on disk, where other text was made of them.
    on_disk: Option<u64>,
    pub(super) lines: u64,
    pub(super) traceback: Option<u64>,
    /// Its first bytes, which say what it is where it is no text.
    start: [u8; 2],
    is_binary: bool,
    origin: Origin,
}

/// All that was seen.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) files: Vec<FileSeen>,
    pub(super) more_files: u64,
    pub(super) attempts: Attempts,
    /// Ranks that write, of all attempts.
    pub(super) ranks: BTreeSet<u32>,
    pub(super) formats: BTreeSet<Format>,
    pub(super) times: Option<[Stamp; 2]>,
    pub(super) lines_read: u64,
    block: Block,
    ignored: Ignored,
    bytes_seen: u64,
}

impl Book {
    /// Begins a file.
    pub(super) fn open(&mut self, name: &str) {
        self.block = Block::default();
        self.ignored = Ignored::default();
        self.bytes_seen = 0;
        self.attempts.open(name);
        if self.files.len() < MOST_FILES {
            self.files.push(FileSeen {
                name: redact::shown(name),
                origin: origin::of_file(name),
                ..FileSeen::default()
            });
        } else {
            self.more_files += 1;
        }
    }

    /// Looks at the very first bytes of a file.
    pub(super) fn begin(&mut self, bytes: &[u8]) {
        let already = self.bytes_seen;
        self.bytes_seen = already.saturating_add(bytes.len() as u64);
        if already >= 512 {
            return;
        }
        let bytes = &bytes[..bytes.len().min(512 - already as usize)];
        let Some(file) = self.files.last_mut() else { return };
        for (place, byte) in file.start.iter_mut().skip(already as usize).zip(bytes) {
            *place = *byte;
        }
        file.is_binary |= bytes.contains(&0);
    }

    /// Notes the size of a file of which lines are made.
    pub(super) fn size(&mut self, bytes: u64) {
        if let Some(file) = self.files.last_mut() {
            file.on_disk = Some(bytes);
        }
    }

    /// Ends a file.
    pub(super) fn close(&mut self, (bytes, lines): (u64, u64)) {
        if let Some(file) = self.files.last_mut() {
            file.bytes = file.on_disk.unwrap_or_else(|| file.bytes.saturating_add(bytes));
            file.lines = file.lines.saturating_add(lines);
        }
    }

    fn file(&self) -> usize {
        self.files.len().saturating_sub(1)
    }

    /// Marks of a line: who wrote it and when, for what was looked at.
    fn note_marks(&mut self, number: u64, line: &str) -> (Origin, usize) {
        let formats = &mut self.formats;
        let (origin, at) = origin::read(line, &mut |format| {
            formats.insert(format);
        });
        if let Some(rank) = origin.rank {
            self.note_rank(number, rank, false);
        }
        (origin, at)
    }

    /// Notes that a rank writes in a line, and whether that is a step of training.
    fn note_rank(&mut self, number: u64, rank: u32, is_step: bool) {
        if self.ranks.len() < MOST_RANKS {
            self.ranks.insert(rank);
        }
        self.attempts.note_rank(number, rank, is_step);
    }

    fn note_time(&mut self, stamp: Option<Stamp>) {
        let Some(stamp) = stamp else { return };
        let [first, last] = self.times.get_or_insert([stamp; 2]);
        if stamp.order(*first) == Ordering::Less {
            *first = stamp;
        }
        if stamp.order(*last) == Ordering::Greater {
            *last = stamp;
        }
    }

    fn end(&mut self, end: ProcessEnd, moment: Moment) {
        let ends = &mut self.attempts.now().ends;
        if end.code != Some(0) && ends.len() < MOST_ENDS {
            ends.push((end, moment));
        }
    }

    /// Notes that something was seen.
    fn record(&mut self, key: Key, weight: Weight, line: &Line, text: &str) {
        let now = self.attempts.now();
        if !now.seen.contains_key(&key) && !now.has_room(&key) {
            return;
        }
        // Looking above a line for its time is for the first few of a kind: a flood has its time elsewhere.
        let look_above = now.seen.get(&key).is_none_or(|seen| seen.count < 64);
        let stamp = line.stamp.or_else(|| if look_above { stamp_above(line.before) } else { None });
        let moment = Moment { stamp, file: line.file, line: line.number };
        let mut origin = line.origin.clone();
        if let Some(rank) = origin.rank {
            self.note_rank(line.number, rank, false);
        }
        self.note_time(stamp);
        let out_of_memory = oom::read(text);
        if out_of_memory.is_some() {
            origin.gpu = oom::gpu(text).or(origin.gpu);
        }
        let now = self.attempts.now();
        if let (Some(rank), Some(gpu)) = (origin.rank, &origin.gpu)
            && out_of_memory.as_ref().is_some_and(|found| found.held_by_others().is_some())
        {
            now.note_squeezed((origin.node.clone(), gpu.clone(), rank));
        }
        let known = now.seen.get(&key);
        let is_earlier = known.is_none_or(|seen| moment.order(seen.first) == Ordering::Less);
        let wanted = known.is_none_or(|seen| {
            let is_new_rank = origin.rank.is_some_and(|rank| !seen.ranks.contains(&rank));
            is_earlier || seen.evidence.len() < 2 || (is_new_rank && seen.evidence.len() < MOST_EVIDENCE)
        });
        let evidence = wanted.then(|| Evidence {
            file: self.files.get(line.file).map(|file| file.name.clone()).unwrap_or_default(),
            line: line.number,
            text: redact::shown(text),
            rank: origin.rank,
        });
        let said = if is_earlier { redact::shown(text) } else { String::new() };
        let seen = now.seen.entry(key).or_insert_with(|| Seen {
            weight,
            count: 0,
            first: moment,
            origin: origin.clone(),
            last: (line.file, line.number),
            ranks: BTreeSet::new(),
            evidence: Vec::new(),
            out_of_memory: None,
            text: said.clone(),
        });
        seen.weight = seen.weight.max(weight);
        seen.count += 1;
        seen.last = (line.file, line.number);
        if is_earlier && seen.count > 1 {
            (seen.first, seen.origin, seen.text) = (moment, origin.clone(), said);
            seen.out_of_memory = out_of_memory.clone().or(seen.out_of_memory.take());
        }
        seen.out_of_memory = seen.out_of_memory.take().or(out_of_memory);
        if seen.origin.rank == origin.rank && origin.rank.is_some() {
            seen.origin = std::mem::take(&mut seen.origin).or(&origin);
        }
        if let Some(rank) = origin.rank
            && seen.ranks.len() < MOST_RANKS
        {
            seen.ranks.insert(rank);
        }
        if let Some(evidence) = evidence {
            if is_earlier {
                seen.evidence.insert(0, evidence);
            } else {
                seen.evidence.push(evidence);
            }
            seen.evidence.truncate(MOST_EVIDENCE);
        }
    }

    /// What launchers tell of ended processes on this line.
    fn note_ends(&mut self, line: &Line, text: &str, message: &str) {
        let moment = Moment { stamp: line.stamp, file: line.file, line: line.number };
        if text.contains("srun: error: ")
            && let Some(end) = exits::of_srun(text)
        {
            self.formats.insert(Format::Slurm);
            let stamp = stamp_above(line.before);
            self.end(end, Moment { stamp: moment.stamp.or(stamp), ..moment });
        } else if let Some(end) = exits::of_mpirun(text) {
            self.end(end, moment);
        } else if let Some(end) = exits::of_elastic(text) {
            self.formats.insert(Format::Torch);
            self.end(end, moment);
        } else if let Some(end) = exits::of_others(text) {
            self.end(end, moment);
        }
        if let Some(how) = message.strip_prefix(exits::FIRST_END)
            && let Some(end) = exits::of_others(how)
        {
            self.attempts.now().root.get_or_insert((end, moment));
        }
        if message.starts_with("host") {
            self.block.at(stamp_above(line.before));
        }
        if let Some(told) = self.block.read(message) {
            self.formats.insert(Format::Torch);
            let moment = Moment { stamp: told.stamp, ..moment };
            self.note_time(told.stamp);
            if told.is_root {
                self.attempts.now().root.get_or_insert((told.end.clone(), moment));
            }
            self.end(told.end, moment);
        }
    }

    /// Things that one line shows; of several the one that says most of why.
    fn note_signs(&mut self, line: &Line, text: &str, at: usize, is_ignored: bool) {
        let message = &text[at..];
        let gone = missing::gone(message);
        if let Some(rank) = gone {
            self.attempts.now().note_gone(rank);
        }
        // What a rank says of another that is gone follows from that one's end, and is no error of its own.
        if let Some(word) = message.strip_prefix(LAST_WORD)
            && gone.is_none()
        {
            let told_of = missing::told_of(word).map(|rank| Origin { rank: Some(rank), ..Origin::default() });
            let origin = told_of.unwrap_or_else(|| line.origin.clone());
            self.record(Key::LastWord, Weight::Fatal, &Line { origin, ..*line }, text);
            return;
        }
        if exception::is_code(message) || text.contains("NCCL INFO") {
            return;
        }
        let raised = exception::read(message);
        // An exception that Python ignores ended nothing: what it says is a remark.
        let is_remark = is_ignored || exception::is_remark(text) && raised.is_none();
        let in_error = raised.is_some()
            || message.starts_with("assert ")
            || ["Error:", "error:", "ERROR", "Exception:"].iter().any(|word| text.contains(word));
        let mut best: Option<(Role, u16, Weight)> = None;
        for ready in SCANNER.signs_in(text) {
            if ready.sign.raised && !in_error || !ready.pattern.matches(text, at) {
                continue;
            }
            let weight = match ready.sign.weight {
                _ if is_remark => Weight::Weak,
                Weight::Strong if raised.is_some() => Weight::Fatal,
                weight => weight,
            };
            let role = match SCANNER.causes[usize::from(ready.cause)].role {
                // What may be nothing does not hide what is something.
                _ if weight == Weight::Weak => Role::Cascade,
                role => role,
            };
            let is_better = match best {
                None => true,
                Some((known, cause, known_weight)) => {
                    role < known || (cause == ready.cause && weight > known_weight)
                }
            };
            if is_better {
                best = Some((role, ready.cause, weight));
            }
        }
        if let Some((role, cause, weight)) = best {
            let cause = taken::cause_of(cause, text);
            if role == Role::Root && weight > Weight::Weak {
                self.attempts.cause(line.stamp, text);
            }
            let id = SCANNER.causes[usize::from(cause)].id;
            if id == "nccl-timeout" {
                self.note_waiting(line, text);
                let accused = &mut self.attempts.now().accused;
                accused.extend(missing::accused(text));
                while accused.len() > MOST_RANKS {
                    accused.pop_last();
                }
            }
            self.record(Key::Cause(cause), weight, line, text);
            if weight > Weight::Weak {
                return;
            }
        }
        if let Some(exception) = raised.filter(|exception| !exception.is_wrapper() && !is_ignored) {
            self.note_exception(line, text, &exception);
        }
    }

    fn note_waiting(&mut self, line: &Line, text: &str) {
        let Some(rank) = line.origin.rank else { return };
        let now = self.attempts.now();
        if now.waiting.len() >= MOST_RANKS {
            return;
        }
        now.waiting.insert(rank);
        let number = |words: &str| {
            text.split_once(words)
                .and_then(|(_, rest)| origin::long_digits(rest.trim_start()))
                .map(|(number, _)| number)
        };
        if let Some(work) = ENQUEUED.into_iter().find_map(number) {
            now.enqueued.entry(rank).and_modify(|known| *known = work.max(*known)).or_insert(work);
        }
    }

    fn note_exception(&mut self, line: &Line, text: &str, exception: &Exception) {
        let has_traceback = self.files.get(line.file).is_some_and(|file| file.traceback.is_some());
        let key = Key::Exception(exception.name.chars().take(80).collect());
        let is_new = !self.attempts.now().seen.contains_key(&key);
        let frame = if is_new || !has_traceback { frame_above(line.before, line.origin.rank) } else { None };
        // A traceback whose head is not in the log shows by its frames.
        let weight = if has_traceback || frame.is_some() { Weight::Fatal } else { Weight::Weak };
        self.record(key.clone(), weight, line, text);
        if is_new
            && let Some((text, above)) = frame
            && let Some(seen) = self.attempts.now().seen.get_mut(&key)
        {
            seen.evidence.insert(
                0,
                Evidence {
                    file: self.files.get(line.file).map(|file| file.name.clone()).unwrap_or_default(),
                    line: line.number.saturating_sub(above),
                    text: redact::shown(&text),
                    rank: line.origin.rank,
                },
            );
        }
    }
}

/// A line with what its marks say.
struct Line<'a> {
    file: usize,
    number: u64,
    origin: Origin,
    stamp: Option<Stamp>,
    before: &'a [u8],
}

impl Listener for Book {
    fn found(&mut self, found: &Found) {
        self.lines_read += 1;
        let head = clean(found.head);
        let (mut origin, at) = self.note_marks(found.number, &head);
        let text = clean(found.piece);
        // Of a piece from the middle of a long line, all is message.
        let at = if found.is_start && text.is_char_boundary(at) { at } else { 0 };
        let file = self.file();
        let message = text[at..].trim_end();
        if message.starts_with("Traceback (most recent call last)") {
            self.formats.insert(Format::Traceback);
            let is_ignored = self.ignored.traceback(found.number, &origin);
            if let Some(file) = self.files.get_mut(file).filter(|_| !is_ignored) {
                file.traceback = Some(found.number);
            }
            return;
        }
        self.ignored.line(found.number, &origin, message);
        let is_ignored = exception::read(message).is_some() && self.ignored.exception(found.number, &origin);
        if origin.rank.is_none() {
            origin.rank = origin::rank_in_text(&text);
        }
        let (node, gpu) = places::in_text(&text);
        origin.node = origin.node.or(node);
        origin.gpu = origin.gpu.or(gpu);
        if is_of_slurm(&text) {
            self.formats.insert(Format::Slurm);
        }
        if let Some(file) = self.files.get(file) {
            origin = origin.or(&file.origin);
        }
        let stamp = stamp_in(&head).or_else(|| stamp_in(&text));
        self.attempts.line(found.number, stamp, found.before, (&text, at));
        self.attempts.end(found.number, stamp, found.before, &text);
        let line = Line { file, number: found.number, origin, stamp, before: found.before };
        if ENQUEUED.iter().any(|words| text.contains(words)) && line.origin.rank.is_some() {
            self.note_waiting(&line, &text);
        }
        if let Some(step) = progress::saved(&text) {
            let now = self.attempts.now();
            now.saved = now.saved.max(Some(step));
        }
        self.note_ends(&line, &text, message);
        if let Some((number, address)) = xid::read(&text) {
            self.formats.insert(Format::Kernel);
            let origin =
                Origin { gpu: address.or(line.origin.gpu.clone()), rank: None, ..line.origin.clone() };
            // NVLink's reports say so when they harm nothing.
            let weight = if text.contains(" Nonfatal ") { Weight::Weak } else { Weight::Fatal };
            self.record(Key::Xid(number), weight, &Line { origin, ..line }, &text);
            return;
        }
        self.note_signs(&line, &text, at, is_ignored);
    }

    fn sampled(&mut self, number: u64, line: &[u8]) {
        let text = clean(line);
        let (origin, _) = self.note_marks(number, &text);
        let stamp = stamp_in(&text);
        self.note_time(stamp);
        let file = self.file();
        let is_step = progress::is_step(&text);
        if is_step {
            self.formats.insert(Format::Steps);
            if let Some(rank) = origin.rank {
                self.note_rank(number, rank, true);
            }
        }
        let is_done = progress::is_done(&text);
        if !is_step && !is_done {
            return;
        }
        let progress = self.attempts.of_line(number).progress.entry(file).or_default();
        if is_step {
            if progress.steps[2] != number {
                progress.steps = [progress.steps[1], progress.steps[2], number];
            }
            progress.last_step = stamp.or(progress.last_step);
        }
        if is_done {
            progress.done = Some(number);
        }
    }
}

impl FileSeen {
    /// What kind of file it is, when it is none of text.
    pub(super) fn is_no_text(&self) -> Option<&'static str> {
        match self {
            FileSeen { start: [0x1f, 0x8b], .. } => {
                Some("is compressed (gzip); give its text: zcat FILE | shardplan diagnose -")
            }
            // As PowerShell writes what it redirects.
            FileSeen { start: [0xff, 0xfe] | [0xfe, 0xff], is_binary: true, .. } => Some(
                "is text in UTF-16; give it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE | shardplan diagnose -",
            ),
            FileSeen { is_binary: true, .. } => Some("is not text"),
            _ => None,
        }
    }
}

/// Text without colours, whatever the bytes are.
pub(super) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.contains('\u{1b}') {
        return text.into_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(place) = rest.find('\u{1b}') {
        out.push_str(&rest[..place]);
        rest = &rest[place + 1..];
        if let Some(inside) = rest.strip_prefix('[') {
            let end =
                inside.find(|letter: char| ('@'..='~').contains(&letter)).map_or(inside.len(), |end| end + 1);
            rest = inside.get(end..).unwrap_or("");
        }
    }
    out.push_str(rest);
    out
}

/// The time of the nearest line above that has one.
pub(super) fn stamp_above(before: &[u8]) -> Option<Stamp> {
    before
        .rsplit(|&byte| byte == b'\n')
        .take(80)
        .find_map(|line| stamp_in(&clean(&line[..line.len().min(512)])))
}

/// The nearest frame of a traceback above, of the same rank, and how many lines above it is.
fn frame_above(before: &[u8], rank: Option<u32>) -> Option<(String, u64)> {
    before.rsplit(|&byte| byte == b'\n').enumerate().take(60).find_map(|(above, line)| {
        let text = clean(&line[..line.len().min(1024)]);
        let (origin, at) = origin::read(&text, &mut |_| {});
        (text[at..].starts_with("File \"") && (origin.rank.is_none() || origin.rank == rank))
            .then_some((text, above as u64))
    })
}
