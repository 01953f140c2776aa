//! What is known of one rank of a run.

use super::verdict::RankEnd;
use crate::units::tokens_per_second;
use crate::wire::{Event, Joined, MeasuredMemory, Outcome, Step};

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

/// What one rank has recorded, and its launcher of it. Of its own log alone it is what that says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankRecord {
    /// How it stands.
    pub standing: RankStanding,
    /// The attempt that it has joined; 0 before.
    pub attempt: u64,
    /// Its process, by its launcher, until that has ended.
    pub pid: Option<u32>,
    /// Host and device, once it has joined.
    pub place: Option<(String, String)>,
    /// Static bytes after allocation.
    pub allocated: Option<MeasuredMemory>,
    /// The last step.
    pub last_step: Option<Step>,
    /// What it has done, over all attempts.
    pub done: Done,
    /// How its own log ends.
    pub outcome: Option<Outcome>,
    /// How its process ended, if not with code 0.
    pub exit: Option<RankEnd>,
}

/// What a rank has done over all attempts that it was in.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Done {
    /// The highest step.
    pub highest: u64,
    /// Tokens of all steps; of steps that were trained again they count again.
    pub tokens: u64,
    /// Steps, each once.
    pub steps: u64,
    /// Their tokens.
    pub tokens_once: u64,
    /// Steps that were trained again after a failure, as often as they were.
    pub again: u64,
    /// Their seconds.
    pub seconds: f64,
    /// Seconds of the last of them; none before there is one.
    pub last_seconds: Option<f64>,
    /// The most bytes that any of them took for activations.
    pub most_activations_bytes: u64,
    /// The most that any of them took altogether.
    pub most_allocated_bytes: u64,
    /// The first step of the latest attempt, and when it was recorded, in milliseconds since 1970.
    pub first: Option<(u64, u64)>,
}

impl Done {
    fn add(&mut self, unix_ms: u64, step: &Step) {
        self.first.get_or_insert((step.step, unix_ms));
        if step.step > self.highest {
            self.steps += 1;
            self.tokens_once = self.tokens_once.saturating_add(step.tokens);
        } else {
            self.again += 1;
        }
        self.highest = self.highest.max(step.step);
        self.tokens = self.tokens.saturating_add(step.tokens);
        self.seconds += step.seconds;
        self.last_seconds = Some(step.seconds);
        self.most_activations_bytes = self.most_activations_bytes.max(step.memory.activations_bytes);
        self.most_allocated_bytes = self.most_allocated_bytes.max(step.memory.peak_allocated_bytes);
    }

    /// How fast that was.
    pub fn tokens_per_second(&self) -> Option<f64> {
        tokens_per_second(self.tokens as f64, self.seconds)
    }
}

impl RankRecord {
    /// Takes in a record of the rank's own log.
    pub fn take(&mut self, unix_ms: u64, event: Event) {
        match event {
            Event::Joined(joined) => self.join(joined),
            Event::Allocated(memory) => self.allocate(memory),
            Event::Step(step) => self.step(unix_ms, step),
            Event::Ended { outcome, .. } => self.end(outcome),
            _ => {}
        }
    }

    /// Forgets how the last attempt began and ended: another is being started.
    pub fn begin_again(&mut self) {
        (self.outcome, self.done.first) = (None, None);
    }

    pub(super) fn join(&mut self, joined: Joined) {
        if joined.attempt > self.attempt.max(1) {
            let done = Done { first: None, ..std::mem::take(&mut self.done) };
            *self = RankRecord { pid: self.pid, done, ..RankRecord::default() };
        }
        self.attempt = joined.attempt;
        self.reach(RankStanding::Joined);
        self.place = Some((joined.host, joined.device));
    }

    pub(super) fn allocate(&mut self, memory: MeasuredMemory) {
        self.reach(RankStanding::Allocated);
        self.allocated = Some(memory);
    }

    pub(super) fn step(&mut self, unix_ms: u64, step: Step) {
        self.reach(RankStanding::Training);
        self.done.add(unix_ms, &step);
        if self.last_step.as_ref().is_none_or(|last| last.step <= step.step) {
            self.last_step = Some(step);
        }
    }

    pub(super) fn end(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
        self.reach(match outcome {
            Outcome::Completed => RankStanding::Completed,
            Outcome::Stopped => RankStanding::Stopped,
            Outcome::Failed => RankStanding::Failed,
        });
    }

    pub(super) fn exited(&mut self, end: RankEnd) {
        self.pid = None;
        if !end.exit.failed() {
            return;
        }
        // A stop ends ranks by a signal too; that is no failure of theirs.
        if self.standing != RankStanding::Stopped && self.standing != RankStanding::Completed {
            self.standing = RankStanding::Failed;
        }
        self.exit = Some(end);
    }

    fn reach(&mut self, standing: RankStanding) {
        if !self.standing.is_final() {
            self.standing = standing;
        }
    }

    /// Memory of the last step, with the most that activations and everything together took in any.
    pub fn memory(&self) -> Option<MeasuredMemory> {
        let memory = self.last_step.as_ref()?.memory.clone();
        let Done { most_activations_bytes, most_allocated_bytes, .. } = self.done;
        Some(MeasuredMemory {
            activations_bytes: most_activations_bytes,
            peak_allocated_bytes: most_allocated_bytes,
            ..memory
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_tokens_count_once_and_what_was_trained_again_apart() {
        let mut done = Done::default();
        for step in [61, 62, 63, 62, 63, 64] {
            done.add(step, &Step { step, tokens: 10, seconds: 1.0, ..Step::default() });
        }
        assert_eq!((done.steps, done.tokens_once, done.again, done.tokens), (4, 40, 2, 60));
    }
}
