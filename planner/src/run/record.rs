//! What a run has recorded, all logs together: the curve, the ranks, what they printed, what is missing. Records are taken in
//! any order of the logs and any number of times; what is known comes out the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::LogWriter;
use super::checkpoints::RunCheckpoints;
use super::figures::StepPoint;
use super::rank::RankRecord;
use super::verdict::{RankEnd, culprit};
use super::watched::Watched;
use crate::order::map;
use crate::wire::{
    Event, Gap, Iteration, LogRecord, OnFailure, Outcome, Record, Recovered, Recovering, Step, Trace,
};

/// Lines of output that are kept.
const OUTPUT_LINES: usize = 500;

/// Traces that are kept.
const TRACES: usize = 512;

/// What is known of a run by its records.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunRecord {
    /// Steps as rank 0 (or the lowest rank that is known) recorded them, by number.
    pub steps: BTreeMap<u64, StepPoint>,
    /// Ranks by number.
    pub ranks: BTreeMap<u64, RankRecord>,
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
    pub checkpoints: RunCheckpoints,
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
    /// How each log ends that has its end.
    pub ends: BTreeMap<String, (Outcome, String)>,
    /// When the ranks of the latest attempt were yet to be started, by the launcher's clock.
    since_unix_ms: u64,
    /// What was seen of a framework's own run.
    pub watched: Watched,
    /// Number and moment of the latest record of each log, so that nothing is taken twice.
    seen: BTreeMap<String, (u64, u64)>,
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

impl RunRecord {
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
            match &record.event {
                Event::Ended { outcome, reason } => {
                    self.ends.insert(log.clone(), (*outcome, reason.clone()));
                }
                // A log that goes on has not ended.
                _ => {
                    self.ends.remove(&log);
                }
            }
            self.take(LogWriter::of(&log).and_then(LogWriter::rank), record);
        }
        self.caught_up |= caught_up;
        self.merged = self.merged.saturating_add(merged);
    }

    fn take(&mut self, writer: Option<u64>, Record { unix_ms, event, .. }: Record) {
        match event {
            Event::Started { rank, pid } => {
                self.started.insert(rank);
                self.ranks.entry(rank).or_default().pid = Some(pid);
            }
            Event::Joined(joined) => {
                // What was told of its ranks is of before; which steps are trained again, the first of them shows.
                if joined.attempt > self.attempt.max(1) {
                    self.begins = true;
                    self.traces.clear();
                    self.taken.clear();
                }
                self.attempt = self.attempt.max(joined.attempt);
                self.ranks.entry(joined.rank).or_default().join(joined);
            }
            Event::Allocated(memory) => {
                if let Some(rank) = writer {
                    self.ranks.entry(rank).or_default().allocate(memory);
                }
            }
            Event::Step(step) => {
                if let Some(rank) = writer {
                    self.take_step(rank, unix_ms, step);
                }
            }
            Event::Trace(trace) => {
                let attempt = |rank| self.ranks.get(&rank).map_or(0, |known| known.attempt);
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
            Event::Exited(exit) => {
                self.ranks.entry(exit.rank).or_default().exited(RankEnd { unix_ms, exit });
            }
            Event::Recovering(began) => {
                self.left = std::mem::take(&mut self.started);
                self.left.retain(|rank| began.policy == OnFailure::Ntp && !began.dead.contains(rank));
                self.since_unix_ms = unix_ms;
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
                    self.ranks.entry(rank).or_default().end(outcome);
                }
            }
        }
    }

    /// Takes what a framework printed. The curves show it once it says loss and time.
    fn take_iteration(&mut self, iteration: Iteration) {
        let step = iteration.step;
        self.watched.take_iteration(iteration);
        let known = self.watched.iterations.get(&step);
        if let Some(point) = known.and_then(StepPoint::of_iteration) {
            self.steps.insert(step, point);
        }
    }

    /// Whether no lower rank is known of the latest attempt: rank 0, unless a plan with failed GPUs leaves that out.
    fn is_first(&self, writer: Option<u64>) -> bool {
        let first = self.ranks.iter().find(|(_, known)| known.attempt >= self.attempt);
        writer.is_some_and(|rank| first.is_none_or(|(&first, _)| rank <= first))
    }

    fn take_step(&mut self, rank: u64, unix_ms: u64, step: Step) {
        let (number, point) = (step.step, StepPoint::of_step(rank, &step));
        let speed = Speed { rank, seconds: step.seconds, tokens: step.tokens };
        let recorded = self.ranks.entry(rank).or_default();
        recorded.step(unix_ms, step);
        let attempt = recorded.attempt.max(1);
        let kept = self.attempts.entry(attempt).or_default().entry(number).or_insert(speed);
        if rank <= kept.rank {
            *kept = speed;
        }
        if attempt < self.attempt {
            return;
        }
        if std::mem::take(&mut self.begins) {
            let _ = self.steps.split_off(&number);
        }
        let kept = self.steps.entry(number).or_insert(point);
        if rank <= kept.rank {
            *kept = point;
        }
    }

    /// The ranks of the latest attempt: after a failure there may be fewer than before, and any of them.
    pub fn present(&self) -> BTreeMap<u64, RankRecord> {
        let going_on = if self.started.is_empty() { &self.left } else { &self.started };
        if !going_on.is_empty() {
            let known = |rank: &u64| self.ranks.get(rank).map(|known| (*rank, known.clone()));
            return map(going_on.iter().filter_map(known));
        }
        let latest = self.recoveries.last_key_value().filter(|(attempt, _)| **attempt >= self.attempt);
        let count = latest.map_or(u64::MAX, |(_, (began, _))| began.world_size);
        map(self.ranks.range(..count).map(|(rank, known)| (*rank, known.clone())))
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

    /// The rank of the latest attempt that failed first, and not because it was told to; none where none has.
    pub fn culprit(&self) -> Option<&RankEnd> {
        let ends = self.ranks.values().filter_map(|rank| rank.exit.as_ref());
        culprit(ends.filter(|end| end.unix_ms >= self.since_unix_ms))
    }

    /// The latest step.
    pub fn latest(&self) -> Option<(u64, StepPoint)> {
        self.steps.last_key_value().map(|(step, point)| (*step, *point))
    }
}

#[cfg(test)]
mod tests;
