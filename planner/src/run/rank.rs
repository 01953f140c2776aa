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
    /// What it has done, over all attempts but where it says otherwise.
    pub done: Done,
    /// How its own log ends.
    pub outcome: Option<Outcome>,
    /// How its process ended, if not with code 0.
    pub exit: Option<RankEnd>,
}

/// What a rank has done over all attempts that it was in. What it took at most is of the latest: others may have had another plan.
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
    /// The most bytes that any step of the latest attempt took for activations.
    pub most_activations_bytes: u64,
    /// The most that any of those took altogether.
    pub most_allocated_bytes: u64,
    /// The first step of the latest attempt, and when it was recorded, in milliseconds since 1970.
    pub first: Option<(u64, u64)>,
}

impl Done {
    /// The same, with nothing of an attempt that begins now.
    fn before_another(self) -> Done {
        Done { most_activations_bytes: 0, most_allocated_bytes: 0, first: None, ..self }
    }

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
            let done = std::mem::take(&mut self.done).before_another();
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
        let standing = match outcome {
            Outcome::Completed => RankStanding::Completed,
            Outcome::Stopped => RankStanding::Stopped,
            Outcome::Failed => RankStanding::Failed,
        };
        // What a rank says of its end itself stands before its process's code 0, whichever of the two logs is read first.
        match (self.outcome, &self.exit) {
            (None, None) => self.standing = standing,
            _ => self.reach(standing),
        }
        self.outcome = Some(outcome);
    }

    pub(super) fn exited(&mut self, end: RankEnd) {
        self.pid = None;
        if !end.exit.failed() {
            // A command of another framework has no log of its own that says so.
            self.reach(match end.exit.told_to_end {
                true => RankStanding::Stopped,
                false => RankStanding::Completed,
            });
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

    /// Memory of the last step, with the most that activations and everything together took in any of its attempt.
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
    use crate::wire::Exited;

    #[test]
    fn steps_and_tokens_count_once_and_what_was_trained_again_apart() {
        let mut done = Done::default();
        for step in [61, 62, 63, 62, 63, 64] {
            done.add(step, &Step { step, tokens: 10, seconds: 1.0, ..Step::default() });
        }
        assert_eq!((done.steps, done.tokens_once, done.again, done.tokens), (4, 40, 2, 60));
    }

    #[test]
    fn what_a_rank_took_at_most_is_of_the_latest_attempt() {
        let mut rank = RankRecord::default();
        for (attempt, peaks) in [(1, [10, 16]), (2, [12, 11])] {
            rank.join(Joined { attempt, ..joined() });
            for (step, peak_allocated_bytes) in (1..).zip(peaks) {
                let memory = MeasuredMemory {
                    activations_bytes: peak_allocated_bytes / 2,
                    peak_allocated_bytes,
                    ..MeasuredMemory::default()
                };
                rank.step(0, Step { step, memory, ..Step::default() });
            }
        }
        let memory = rank.memory().unwrap();
        assert_eq!((memory.peak_allocated_bytes, memory.activations_bytes), (12, 6));
        assert_eq!((rank.done.steps, rank.done.again), (2, 2));
        // Who joins the same attempt once more (its log is read again) has what it had.
        rank.join(Joined { attempt: 2, ..joined() });
        assert_eq!(rank.memory(), Some(memory));
    }

    #[test]
    fn a_process_that_ended_with_code_0_has_completed_or_what_its_own_log_says() {
        let ended = |told_to_end| RankEnd {
            unix_ms: 0,
            exit: Exited { code: Some(0), told_to_end, ..Exited::default() },
        };
        let mut wrapped = RankRecord { pid: Some(7), ..RankRecord::default() };
        wrapped.exited(ended(false));
        assert_eq!((wrapped.standing, wrapped.pid), (RankStanding::Completed, None));
        assert_eq!(wrapped.exit, None);
        let mut told = RankRecord::default();
        told.exited(ended(true));
        assert_eq!(told.standing, RankStanding::Stopped);
        let outcomes = [
            (Outcome::Completed, RankStanding::Completed),
            (Outcome::Stopped, RankStanding::Stopped),
            (Outcome::Failed, RankStanding::Failed),
        ];
        for (outcome, standing) in outcomes {
            let (mut first, mut last) = (RankRecord::default(), RankRecord::default());
            first.exited(ended(false));
            first.end(outcome);
            last.end(outcome);
            last.exited(ended(false));
            assert_eq!((first.standing, last.standing), (standing, standing));
        }
        // A failure that the launcher saw is no completion.
        let mut killed = RankRecord::default();
        killed.exited(RankEnd { unix_ms: 0, exit: Exited { signal: Some(9), ..Exited::default() } });
        killed.end(Outcome::Completed);
        assert_eq!(killed.standing, RankStanding::Failed);
    }

    fn joined() -> Joined {
        Joined {
            rank: 0,
            world_size: 1,
            attempt: 1,
            host: "node".into(),
            pid: 1,
            device: "cpu".into(),
            torch: "2.11.0".into(),
            plan_sha256: String::new(),
        }
    }
}
