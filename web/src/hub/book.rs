//! What a run has recorded, as the page keeps it: the curve, the ranks, what they printed. Records are read in any
//! order and any number of times; the book comes out the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use planner::order::map;
use planner::run::{LogWriter, tokens_per_second};
use planner::wire::{
    Event, Gap, Iteration, LogRecord, MeasuredMemory, OnFailure, Outcome, Recovered, Recovering, Step, Trace,
};

use super::saved::Checkpoints;
use super::watched::Watched;

/// Lines of output that are kept.
const OUTPUT_LINES: usize = 500;

/// Traces that are kept.
const TRACES: usize = 512;

/// A run's records, sorted out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunBook {
    /// Steps as rank 0 (or the lowest rank that is known) recorded them, by number.
    pub steps: BTreeMap<u64, StepPoint>,
    /// Ranks by number.
    pub ranks: BTreeMap<u64, RankBook>,
    /// What ranks printed: rank, stream, line; the latest.
    pub output: VecDeque<(u64, String, String)>,
    /// Schedules as executed, by step and stage: of the lowest rank of the stage that is known.
    pub traces: BTreeMap<(u64, u64), (u64, Trace)>,
    /// The latest attempt that a rank has joined; steps and traces are of that one. 0 before any has.
    pub attempt: u64,
    /// Ranks that the launcher has started since it last went on after a failure; none where none has.
    started: BTreeSet<u64>,
    /// Those of them that are left, where ranks keep their numbers after a failure.
    left: BTreeSet<u64>,
    /// Ranks that were taken for lost here, until the run goes on without them.
    taken: BTreeSet<u64>,
    /// An attempt has joined of which no step is known yet.
    begins: bool,
    /// The loss on data that is held out, by step.
    pub evaluations: BTreeMap<u64, f64>,
    /// What the first rank says of checkpoints.
    pub checkpoints: Checkpoints,
    /// How the run went on after ranks had died, by the attempt that began so, with its first step.
    pub recoveries: BTreeMap<u64, (Recovering, Option<Recovered>)>,
    /// How fast each attempt went: seconds and tokens by step, as its lowest rank that is known recorded them.
    pub attempts: BTreeMap<u64, BTreeMap<u64, Speed>>,
    /// Everything that was on disk when the watch began is here.
    pub caught_up: bool,
    /// Step records that the hub left out because this page read slowly.
    pub merged: u64,
    /// Lines of the logs that are no records.
    pub unreadable: u64,
    /// What is missing, by log, because it could not be written.
    pub gaps: BTreeMap<String, Gap>,
    /// What was seen of a framework's own run.
    pub watched: Watched,
    /// Number and moment of the latest record of each log, so that nothing is taken twice.
    seen: BTreeMap<String, (u64, u64)>,
}

/// What the curves are drawn from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepPoint {
    /// The rank that recorded it.
    pub rank: u64,
    /// Mean loss per token.
    pub loss: f64,
    /// Seconds.
    pub seconds: f64,
    /// Tokens a second; not a number where a framework does not say it.
    pub tokens_per_second: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Model FLOPs, 10^12 a second and rank.
    pub model_tflops: f64,
    /// Those over the device's peak, where it has one.
    pub mfu: Option<f64>,
}

/// How fast a step went.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// The rank that recorded it.
    rank: u64,
    /// Seconds.
    pub seconds: f64,
    /// Tokens of the global batch.
    pub tokens: u64,
}

/// Where the time of a step went, and how far memory rose meanwhile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Phases {
    /// The step.
    pub step: u64,
    /// Seconds of the whole step.
    pub whole: f64,
    /// Seconds by phase.
    pub seconds: BTreeMap<String, f64>,
    /// Peak of live tensor bytes by phase.
    pub peaks: BTreeMap<String, u64>,
}

/// One rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankBook {
    /// How it stands.
    pub standing: RankStanding,
    /// The attempt that it has joined; 0 before.
    pub attempt: u64,
    /// Host and device, once it has joined.
    pub place: Option<(String, String)>,
    /// Static bytes after allocation.
    pub allocated: Option<MeasuredMemory>,
    /// The last step and its memory.
    pub last_step: Option<(u64, MeasuredMemory)>,
    /// The phases of the last step.
    pub phases: Phases,
    /// What it left behind when it failed.
    pub last_words: Option<LastWords>,
}

/// What a rank left behind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LastWords {
    /// Exit code or signal in words.
    pub how: String,
    /// Its last lines.
    pub lines: Vec<String>,
}

/// How a rank stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RankStanding {
    /// Its process is there.
    #[default]
    Started,
    /// It is in the world.
    Joined,
    /// It has its memory.
    Allocated,
    /// It trains.
    Training,
    /// It is done.
    Completed,
    /// It was stopped.
    Stopped,
    /// It failed.
    Failed,
}

impl RankStanding {
    /// As a word.
    pub fn word(self) -> &'static str {
        match self {
            RankStanding::Started => "started",
            RankStanding::Joined => "joined",
            RankStanding::Allocated => "allocated",
            RankStanding::Training => "training",
            RankStanding::Completed => "completed",
            RankStanding::Stopped => "stopped",
            RankStanding::Failed => "failed",
        }
    }

    /// Whether its process has ended.
    pub fn is_final(self) -> bool {
        matches!(self, RankStanding::Completed | RankStanding::Stopped | RankStanding::Failed)
    }
}

impl RankBook {
    fn reach(&mut self, standing: RankStanding) {
        if !self.standing.is_final() {
            self.standing = standing;
        }
    }
}

impl RunBook {
    fn take_trace(&mut self, rank: u64, trace: Trace) {
        let key = (trace.step, trace.stage);
        if self.traces.get(&key).is_none_or(|(known, _)| rank < *known) {
            self.traces.insert(key, (rank, trace));
        }
        // The latest steps are what is looked at.
        while self.traces.len() > TRACES {
            self.traces.pop_first();
        }
    }

    /// Takes records in.
    pub fn add(&mut self, records: Vec<LogRecord>, caught_up: bool, merged: u64) {
        for LogRecord { log, record } in records {
            // A log whose numbers began anew, as some of earlier versions did, goes on in time.
            let known =
                self.seen.get(&log).is_some_and(|(seq, at)| record.seq <= *seq && record.unix_ms <= *at);
            if known {
                continue;
            }
            self.seen.insert(log.clone(), (record.seq, record.unix_ms));
            if let Event::Gap(gap) = &record.event {
                self.gaps.entry(log.clone()).and_modify(|sum| sum.add(gap)).or_insert_with(|| gap.clone());
            }
            self.take(LogWriter::of(&log).and_then(LogWriter::rank), record.event);
        }
        self.caught_up |= caught_up;
        self.merged = self.merged.saturating_add(merged);
    }

    fn take(&mut self, writer: Option<u64>, event: Event) {
        match event {
            Event::Started { rank, .. } => {
                self.started.insert(rank);
                self.ranks.entry(rank).or_default();
            }
            Event::Joined(joined) => {
                // What was told of its ranks is of before; which steps are trained again, the first of them shows.
                if joined.attempt > self.attempt.max(1) {
                    self.begins = true;
                    self.traces.clear();
                    self.taken.clear();
                }
                self.attempt = self.attempt.max(joined.attempt);
                let book = self.ranks.entry(joined.rank).or_default();
                if joined.attempt > book.attempt.max(1) {
                    *book = RankBook::default();
                }
                book.attempt = joined.attempt;
                book.reach(RankStanding::Joined);
                book.place = Some((joined.host, joined.device));
            }
            Event::Allocated(memory) => {
                if let Some(rank) = writer {
                    let book = self.ranks.entry(rank).or_default();
                    book.reach(RankStanding::Allocated);
                    book.allocated = Some(memory);
                }
            }
            Event::Step(step) => {
                if let Some(rank) = writer {
                    self.take_step(rank, step);
                }
            }
            Event::Trace(trace) => {
                let attempt = |rank| self.ranks.get(&rank).map_or(0, |book| book.attempt);
                if let Some(rank) = writer
                    && attempt(rank).max(1) >= self.attempt
                {
                    self.take_trace(rank, trace);
                }
            }
            Event::Resumed(resumed) if self.is_first(writer) => self.checkpoints.resumed = Some(resumed),
            Event::Saved(saved) if self.is_first(writer) => self.checkpoints.take(saved),
            Event::Resumed(_) | Event::Saved(_) => {}
            Event::Evaluated(evaluated) => {
                self.evaluations.insert(evaluated.step, evaluated.loss);
            }
            Event::Output { rank, stream, text } => {
                self.output.push_back((rank, stream, text));
                if self.output.len() > OUTPUT_LINES {
                    self.output.pop_front();
                }
            }
            Event::Exited { rank, code, signal, last_lines } => {
                let book = self.ranks.entry(rank).or_default();
                let how = match (code, signal) {
                    (_, Some(signal)) => format!("ended by signal {signal}"),
                    (Some(0), None) => return,
                    (Some(code), None) => format!("exited with code {code}"),
                    (None, None) => "ended without a word".to_owned(),
                };
                // A stop ends ranks by a signal too; that is no failure of theirs.
                if book.standing != RankStanding::Stopped && book.standing != RankStanding::Completed {
                    book.standing = RankStanding::Failed;
                }
                book.last_words = Some(LastWords { how, lines: last_lines });
            }
            Event::Recovering(began) => {
                self.left = std::mem::take(&mut self.started);
                self.left.retain(|rank| began.policy == OnFailure::Ntp && !began.dead.contains(rank));
                self.recoveries.insert(began.attempt, (began, None));
            }
            Event::Recovered(done) => {
                if let Some((_, first)) = self.recoveries.get_mut(&done.attempt) {
                    *first = Some(done);
                }
            }
            Event::Iteration(iteration) => self.take_iteration(iteration),
            Event::Gpu(sample) => self.watched.take_gpu(sample),
            Event::Host(sample) => {
                self.watched.hosts.insert(sample.host.clone(), sample);
            }
            Event::Unread { bytes } => {
                self.watched.unread_bytes = self.watched.unread_bytes.saturating_add(bytes)
            }
            Event::Gap(_) => {}
            Event::Ended { outcome, .. } => {
                if let Some(rank) = writer {
                    let book = self.ranks.entry(rank).or_default();
                    book.reach(match outcome {
                        Outcome::Completed => RankStanding::Completed,
                        Outcome::Stopped => RankStanding::Stopped,
                        Outcome::Failed => RankStanding::Failed,
                    });
                }
            }
        }
    }

    /// Takes what a framework printed. The curves show it once it says loss and time.
    fn take_iteration(&mut self, iteration: Iteration) {
        let step = iteration.step;
        self.watched.take_iteration(iteration);
        let Some(known) = self.watched.iterations.get(&step) else { return };
        let seconds = known.seconds.or(known.clock_seconds);
        if let (Some(loss), Some(seconds)) = (known.loss, seconds) {
            let point = StepPoint {
                rank: known.rank.unwrap_or(0),
                loss,
                seconds,
                tokens_per_second: known.tokens_per_second.unwrap_or(f64::NAN),
                grad_norm: known.grad_norm.unwrap_or(f64::NAN),
                model_tflops: known.tflops_per_gpu.unwrap_or(f64::NAN),
                mfu: known.mfu,
            };
            self.steps.insert(step, point);
        }
    }

    /// Whether no lower rank is known of the latest attempt: rank 0, unless a plan with failed GPUs leaves that out.
    fn is_first(&self, writer: Option<u64>) -> bool {
        let first = self.ranks.iter().find(|(_, book)| book.attempt >= self.attempt);
        writer.is_some_and(|rank| first.is_none_or(|(&first, _)| rank <= first))
    }

    fn take_step(&mut self, rank: u64, step: Step) {
        let book = self.ranks.entry(rank).or_default();
        book.reach(RankStanding::Training);
        if book.last_step.as_ref().is_none_or(|(last, _)| *last <= step.step) {
            book.last_step = Some((step.step, step.memory));
            book.phases = Phases {
                step: step.step,
                whole: step.seconds,
                seconds: step.phases,
                peaks: step.phase_peaks,
            };
        }
        let attempt = book.attempt.max(1);
        let speed = Speed { rank, seconds: step.seconds, tokens: step.tokens };
        let kept = self.attempts.entry(attempt).or_default().entry(step.step).or_insert(speed);
        if rank <= kept.rank {
            *kept = speed;
        }
        if attempt < self.attempt {
            return;
        }
        if std::mem::take(&mut self.begins) {
            let _ = self.steps.split_off(&step.step);
        }
        let point = StepPoint {
            rank,
            loss: step.loss,
            seconds: step.seconds,
            tokens_per_second: tokens_per_second(step.tokens as f64, step.seconds).unwrap_or(f64::NAN),
            grad_norm: if step.skipped { f64::NAN } else { step.grad_norm },
            model_tflops: step.model_tflops,
            mfu: step.mfu,
        };
        let kept = self.steps.entry(step.step).or_insert(point);
        if rank <= kept.rank {
            *kept = point;
        }
    }

    /// The ranks of the latest attempt: after a failure there may be fewer than before, and any of them.
    pub fn present(&self) -> BTreeMap<u64, RankBook> {
        let going_on = if self.started.is_empty() { &self.left } else { &self.started };
        if !going_on.is_empty() {
            let known = |rank: &u64| self.ranks.get(rank).map(|book| (*rank, book.clone()));
            return map(going_on.iter().filter_map(known));
        }
        let latest = self.recoveries.last_key_value().filter(|(attempt, _)| **attempt >= self.attempt);
        let count = latest.map_or(u64::MAX, |(_, (began, _))| began.world_size);
        map(self.ranks.range(..count).map(|(rank, book)| (*rank, book.clone())))
    }

    /// Notes that a rank is taken for lost.
    pub fn take_for_lost(&mut self, rank: u64) {
        self.taken.insert(rank);
    }

    /// Forgets who was taken for lost: the hub refused it.
    pub fn take_none_for_lost(&mut self) {
        self.taken.clear();
    }

    /// Ranks that are lost, taken for it here or by themselves, while nobody has gone on without them yet: others end because of them.
    pub fn being_lost(&self) -> Vec<u64> {
        let latest = self.recoveries.last_key_value().filter(|(attempt, _)| **attempt > self.attempt.max(1));
        let dead = latest.map_or(&[][..], |(_, (began, _))| &began.dead);
        self.taken.iter().chain(dead).copied().collect()
    }

    /// The latest step.
    pub fn latest(&self) -> Option<(u64, StepPoint)> {
        self.steps.last_key_value().map(|(step, point)| (*step, *point))
    }
}

#[cfg(test)]
mod tests;
