//! What a person sees of a run while it goes on: its first rank's steps, read from its log like any viewer does.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use planner::run::RankRecord;
use planner::units::Bytes;
use planner::wire::{Event, Outcome, Resumed, Saved, Step};
use run_folder::{LogReader, RunFolder};

use crate::report::notice;

/// Lines are printed at most this often.
const EVERY: Duration = Duration::from_millis(500);

/// Follows the log of the first rank.
#[derive(Debug)]
pub struct Progress {
    log: PathBuf,
    reader: LogReader,
    steps: u64,
    shown: Option<(u64, Instant)>,
    last: Option<Step>,
    rank: RankRecord,
}

impl Progress {
    /// Follows the run in `folder`, which has `steps` steps, from here on: what an earlier start has left is not of this one.
    pub fn new(folder: &RunFolder, steps: u64) -> Self {
        let log = folder.path().join(folder.first_log());
        let mut progress = Progress {
            reader: LogReader::new(log.clone()),
            log,
            steps,
            shown: None,
            last: None,
            rank: RankRecord::default(),
        };
        while progress.reader.read().is_ok_and(|chunk| chunk.more) {}
        progress
    }

    /// Reads what is new, and prints the last step if it is time to.
    pub fn look(&mut self) {
        while let Ok(chunk) = self.reader.read() {
            for record in chunk.records {
                match &record.event {
                    Event::Step(step) => self.last = Some(step.clone()),
                    Event::Resumed(resumed) => notice(&gone_on(resumed)),
                    Event::Saved(saved) => notice(&kept(saved)),
                    Event::Evaluated(evaluated) => notice(&format!(
                        "after step {} the loss on held-out data is {:.4} ({} tokens, {:.3} s)",
                        evaluated.step, evaluated.loss, evaluated.tokens, evaluated.seconds
                    )),
                    Event::Gap(gap) => notice(&format!("of the first rank's log, {}", gap.sentence())),
                    _ => {}
                }
                self.rank.take(record.unix_ms, record.event);
            }
            if !chunk.more {
                break;
            }
        }
        let Some(step) = &self.last else { return };
        let last_step = step.step >= self.steps || self.rank.outcome.is_some();
        let due = match self.shown {
            None => true,
            Some((shown, _)) if shown == step.step => false,
            Some((_, at)) => last_step || at.elapsed() >= EVERY,
        };
        if due {
            notice(&line(step, self.steps));
            self.shown = Some((step.step, Instant::now()));
        }
    }

    /// The ranks are started again: what follows is of that start, whose first rank may be another.
    pub fn begin_again(&mut self, folder: &RunFolder) {
        self.look();
        self.rank.begin_again();
        let log = folder.path().join(folder.first_log());
        if log != self.log {
            self.reader = LogReader::new(log.clone());
            self.log = log;
            while self.reader.read().is_ok_and(|chunk| chunk.more) {}
        }
    }

    /// The last step that any start has done; 0 for none.
    pub fn highest(&self) -> u64 {
        self.rank.done.highest
    }

    /// The first step of this start, and when it was recorded, in milliseconds since 1970.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.rank.done.first
    }

    /// How the first rank's log ended; none when it did not.
    pub fn first_rank_outcome(&self) -> Option<Outcome> {
        self.rank.outcome
    }

    /// Figures of this start for its summary. Steps and their tokens count once, however often a failure had them trained again; that
    /// stands beside them, and seconds and speed are of all that was done.
    pub fn summary(&self) -> serde_json::Value {
        let done = &self.rank.done;
        serde_json::json!({
            "last_step": self.last.as_ref().map_or(0, |step| step.step),
            "steps": done.steps,
            "loss": self.last.as_ref().map(|step| step.loss),
            "seconds": done.seconds,
            "tokens": done.tokens_once,
            "trained_again": {"steps": done.again, "tokens": done.tokens.saturating_sub(done.tokens_once)},
            "tokens_per_second": done.tokens_per_second(),
        })
    }
}

fn gone_on(resumed: &Resumed) -> String {
    let over = match resumed.passed_over.len() {
        0 => String::new(),
        count => format!("; {count} newer passed over: {}", resumed.passed_over.join("; ")),
    };
    format!("goes on after step {} from {} ({:.1} s){over}", resumed.step, resumed.path, resumed.seconds)
}

fn kept(saved: &Saved) -> String {
    match &saved.failed {
        Some(reason) => format!("step {} could not be saved: {reason}", saved.step),
        None => format!(
            "step {} is saved: {} in {:.2} s; training waited {:.3} s",
            saved.step,
            Bytes(saved.all_bytes).in_words_by_1000(),
            saved.seconds,
            saved.stall_seconds
        ),
    }
}

fn line(step: &Step, steps: u64) -> String {
    let rate = step.tokens_per_second().unwrap_or(0.0);
    let width = steps.to_string().len();
    let norm = match step.loss_scale {
        Some(scale) if step.skipped => format!("skipped: gradients overflow at loss scale {scale}"),
        _ => format!("grad norm {:.3}", step.grad_norm),
    };
    format!(
        "step {:>width$}/{steps}  loss {:.4}  {norm}  {:.3} s  {rate:.0} tok/s",
        step.step, step.loss, step.seconds
    )
}
