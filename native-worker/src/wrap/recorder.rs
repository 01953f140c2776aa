//! The record of a watched command: everything that touches disk or reads text, on a thread that nobody waits for.
//!
//! What comes waits in a queue of bounded size. When it is full, what comes is missed and counted.

use std::collections::{BTreeMap, VecDeque};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use frameworks::logs::{Lines, Reader, split_rank, without_escapes};
use planner::run::compare;
use planner::wire::{Event, Exited, Gap, GpuSample, HostSample, Iteration, Outcome, PlanFile};
use run_folder::{Appender, COMPARISON, DIAGNOSIS, RunFolder, survive_size_limits, unix_ms};

use super::after;
use super::introduction::Introduction;

/// Pieces that may wait.
pub const QUEUE: usize = 256;
/// Lines of output that are recorded. A command that prints without end would fill the disk.
const MAX_LINES: u64 = 100_000;
/// Bytes of a line that are recorded.
const MAX_LINE_BYTES: usize = 4096;
/// Iterations that are recorded.
const MAX_ITERATIONS: u64 = 200_000;
/// Iterations that the comparison at the end looks at.
const COMPARED: usize = 4096;
/// Last lines that are kept for the end.
const LAST_LINES: usize = 400;
/// Of these, the ones in the record of the end.
const LAST_WORDS: usize = 20;
/// Nothing coming for so long ends an iteration whose values stand on several lines.
const SETTLED: Duration = Duration::from_millis(300);
/// How long what still waits is read in full when the command has ended; then only the last pieces are.
const CATCH_UP: Duration = Duration::from_secs(1);
/// Those pieces.
const LAST_PIECES: usize = 2;

/// How long the end may take to be written.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// A stream of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or both where they are one.
    Out,
    /// Standard error.
    Error,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Out => "stdout",
            Stream::Error => "stderr",
        }
    }
}

/// Some bytes that were passed on.
#[derive(Debug)]
pub struct Piece {
    /// Where they came.
    pub stream: Stream,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// When.
    pub at: Instant,
}

/// What the recorder is told.
#[derive(Debug)]
pub enum Message {
    /// Output.
    Piece(Piece),
    /// Samples of this moment.
    Samples(Vec<GpuSample>, HostSample),
    /// The command was started.
    Started(u32),
    /// The command has ended. Nothing comes after this.
    Ended(ExitStatus),
}

/// Shows pieces to the recorder, and never waits for it.
#[derive(Clone)]
pub struct Tap {
    queue: SyncSender<Message>,
    missed: Arc<AtomicU64>,
}

impl Tap {
    /// A tap into `queue`; `missed` counts the bytes that did not fit.
    pub fn new(queue: SyncSender<Message>, missed: Arc<AtomicU64>) -> Tap {
        Tap { queue, missed }
    }

    /// Shows a piece, unless the queue is full or the recorder is gone.
    pub fn show(&self, piece: Piece) {
        let bytes = piece.bytes.len() as u64;
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Piece(piece)) {
            self.missed.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// What there is to say of a record.
pub struct Recorded {
    /// How it stands to its plan.
    pub comparison: planner::run::Comparison,
    /// What is missing in its log, because it could not be written.
    pub missing: Option<Gap>,
}

/// Where a record is written.
pub struct Recorder {
    folder: Option<RunFolder>,
    log: Option<Appender>,
    introduction: Option<Introduction>,
    missed: Arc<AtomicU64>,
    missed_before: u64,
    over: Arc<AtomicBool>,
    over_since: Option<Instant>,
    late: VecDeque<Piece>,
    writer: u64,
    plan: Option<PlanFile>,
    reader: Reader,
    out: Lines,
    error: Lines,
    lines: u64,
    iterations: u64,
    recent: VecDeque<Iteration>,
    last_step: BTreeMap<Option<u64>, (u64, Instant)>,
    tail: VecDeque<String>,
    device_bytes: Option<u64>,
    settled: bool,
}

impl Recorder {
    /// A recorder into `folder` and its `log`; without those it only compares.
    pub fn new(
        folder: Option<RunFolder>,
        log: Option<Appender>,
        introduction: Option<Introduction>,
        writer: u64,
        plan: Option<PlanFile>,
        missed: Arc<AtomicU64>,
        over: Arc<AtomicBool>,
    ) -> Recorder {
        Recorder {
            folder,
            log,
            introduction,
            missed,
            missed_before: 0,
            over,
            over_since: None,
            late: VecDeque::new(),
            writer,
            plan,
            reader: Reader::default(),
            out: Lines::default(),
            error: Lines::default(),
            lines: 0,
            iterations: 0,
            recent: VecDeque::new(),
            last_step: BTreeMap::new(),
            tail: VecDeque::new(),
            device_bytes: None,
            settled: true,
        }
    }

    /// Records until the command has ended, and gives what there is to say of it.
    pub fn run(mut self, queue: &Receiver<Message>) -> Recorded {
        survive_size_limits();
        loop {
            if let Some(introduction) = &mut self.introduction {
                introduction.write();
            }
            match queue.recv_timeout(SETTLED) {
                Ok(Message::Piece(piece)) => self.take(piece),
                Ok(Message::Samples(gpus, host)) => self.samples(gpus, host),
                Ok(Message::Started(pid)) => self.record(Event::Started { rank: self.writer, pid }),
                Ok(Message::Ended(status)) => return self.end(status),
                Err(RecvTimeoutError::Timeout) => self.settle(),
                Err(RecvTimeoutError::Disconnected) => {
                    let comparison = self.comparison();
                    return self.recorded(comparison);
                }
            }
        }
    }

    fn take(&mut self, piece: Piece) {
        if self.over_since.is_none() && self.over.load(Ordering::Relaxed) {
            self.over_since = Some(Instant::now());
        }
        if self.over_since.is_none_or(|since| since.elapsed() < CATCH_UP) {
            self.piece(&piece);
            return;
        }
        self.late.push_back(piece);
        if self.late.len() > LAST_PIECES
            && let Some(left_out) = self.late.pop_front()
        {
            self.missed.fetch_add(left_out.bytes.len() as u64, Ordering::Relaxed);
        }
    }

    fn piece(&mut self, piece: &Piece) {
        let missed = self.missed.load(Ordering::Relaxed);
        if missed > self.missed_before {
            let bytes = missed - self.missed_before;
            self.missed_before = missed;
            self.out.lost();
            self.error.lost();
            self.record(Event::Unread { bytes });
        }
        let mut lines = std::mem::take(self.lines_of(piece.stream));
        let mut found = Vec::new();
        lines.push(&piece.bytes, |line| found.push(line.to_vec()));
        *self.lines_of(piece.stream) = lines;
        for line in found {
            self.line(piece.stream, &line, piece.at);
        }
        self.settled = false;
    }

    fn lines_of(&mut self, stream: Stream) -> &mut Lines {
        match stream {
            Stream::Out => &mut self.out,
            Stream::Error => &mut self.error,
        }
    }

    fn line(&mut self, stream: Stream, line: &[u8], at: Instant) {
        let mut reader = std::mem::take(&mut self.reader);
        reader.line(line, |iteration| self.iteration(iteration, at));
        self.reader = reader;
        self.keep(stream, line);
    }

    fn keep(&mut self, stream: Stream, line: &[u8]) {
        let cut = &line[..line.len().min(MAX_LINE_BYTES)];
        let text = without_escapes(&String::from_utf8_lossy(cut)).into_owned();
        if self.tail.len() == LAST_LINES {
            self.tail.pop_front();
        }
        self.lines += 1;
        let rank = split_rank(&text).0.unwrap_or(self.writer);
        let stream = stream.name().to_owned();
        match self.lines.cmp(&MAX_LINES) {
            std::cmp::Ordering::Less => self.record(Event::Output { rank, stream, text: text.clone() }),
            std::cmp::Ordering::Equal => self.record(Event::Output {
                rank,
                stream,
                text: format!("{MAX_LINES} lines printed; of what follows only iterations are recorded"),
            }),
            std::cmp::Ordering::Greater => {}
        }
        self.tail.push_back(text);
    }

    fn iteration(&mut self, mut iteration: Iteration, at: Instant) {
        // A rank's own lines are apart by its own steps; the clock runs over all that came since.
        let last = self.last_step.insert(iteration.rank, (iteration.step, at));
        if let Some((step, then)) = last {
            if iteration.step > step {
                iteration.clock_seconds =
                    Some(at.saturating_duration_since(then).as_secs_f64() / (iteration.step - step) as f64);
            } else if iteration.step == step {
                self.last_step.insert(iteration.rank, (step, then));
            }
        }
        if self.recent.len() == COMPARED {
            self.recent.pop_front();
        }
        self.recent.push_back(iteration.clone());
        self.iterations += 1;
        if self.iterations <= MAX_ITERATIONS {
            self.record(Event::Iteration(iteration));
        }
    }

    fn samples(&mut self, gpus: Vec<GpuSample>, host: HostSample) {
        for gpu in gpus {
            self.device_bytes = self.device_bytes.max(gpu.memory_used_bytes);
            self.record(Event::Gpu(gpu));
        }
        self.record(Event::Host(host));
    }

    fn settle(&mut self) {
        if let Some(log) = &mut self.log {
            log.settle();
        }
        if !std::mem::replace(&mut self.settled, true) {
            let mut reader = std::mem::take(&mut self.reader);
            reader.settle(|iteration| self.iteration(iteration, Instant::now()));
            self.reader = reader;
        }
    }

    fn end(mut self, status: ExitStatus) -> Recorded {
        use std::os::unix::process::ExitStatusExt;
        let now = Instant::now();
        if let Some(introduction) = &mut self.introduction {
            introduction.write_at_last();
        }
        for piece in std::mem::take(&mut self.late) {
            self.piece(&piece);
        }
        for stream in [Stream::Out, Stream::Error] {
            let mut last = Vec::new();
            self.lines_of(stream).finish(|line| last.extend_from_slice(line));
            if !last.is_empty() {
                self.line(stream, &last, now);
            }
        }
        self.settled = false;
        self.settle();
        let tail: Vec<String> = self.tail.iter().cloned().collect();
        let last_lines = tail[tail.len().saturating_sub(LAST_WORDS)..].to_vec();
        let (code, signal) = (status.code(), status.signal());
        let exit = Exited { rank: self.writer, code, signal, last_lines, told_to_end: false };
        self.record(Event::Exited(exit));
        let comparison = self.comparison();
        if let Some(folder) = &self.folder
            && let Ok(text) = serde_json::to_string_pretty(&comparison)
        {
            let _ = folder.write_of(COMPARISON, self.writer, &(text + "\n"));
        }
        let stopped = self.folder.as_ref().is_some_and(RunFolder::stop_asked);
        let outcome = match (status.success(), stopped) {
            (true, _) => Outcome::Completed,
            (false, true) => Outcome::Stopped,
            (false, false) => Outcome::Failed,
        };
        let answer = (outcome == Outcome::Failed).then(|| after::diagnose(&tail, self.plan.as_ref()));
        if let (Some(folder), Some(answer)) = (&self.folder, &answer)
            && let Ok(text) = serde_json::to_string_pretty(answer)
        {
            let _ = folder.write_of(DIAGNOSIS, self.writer, &(text + "\n"));
        }
        let reason = if outcome == Outcome::Stopped {
            "Stopped on request".to_owned()
        } else {
            after::reason(status, &tail, answer.as_ref())
        };
        self.record(Event::Ended { outcome, reason });
        if let Some(log) = &mut self.log {
            log.settle_within(END_PATIENCE);
        }
        self.recorded(comparison)
    }

    fn recorded(&self, comparison: planner::run::Comparison) -> Recorded {
        Recorded { comparison, missing: self.log.as_ref().and_then(|log| log.lost().cloned()) }
    }

    fn comparison(&mut self) -> planner::run::Comparison {
        compare(self.plan.as_ref(), self.recent.make_contiguous(), self.device_bytes)
    }

    /// Appends to the log, which counts what a full disk does not take.
    fn record(&mut self, event: Event) {
        if let Some(log) = &mut self.log {
            log.append(unix_ms(), event);
        }
    }
}
