//! When the worker saves.

use crate::wire::Setting;

/// When the worker saves what it trains, and what of that it keeps. It saves at the end and when it is stopped, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Checkpoints {
    /// Steps between checkpoints.
    pub every_steps: Option<u64>,
    /// Seconds between checkpoints, where plan or cluster say them.
    pub every_seconds: Option<f64>,
    /// The newest that are kept, 0 for all.
    pub keep: u64,
    /// Hours of which one is kept besides.
    pub keep_every_hours: Option<f64>,
}

impl Checkpoints {
    /// Seconds between checkpoints where nobody says, and nothing tells how often a run should save.
    pub fn usual_seconds() -> f64 {
        Setting::usual_of("run.checkpoint.every_s")
    }

    /// Seconds between checkpoints of a worker that nobody tells how often to save; none where steps alone are said.
    pub fn seconds(&self) -> Option<f64> {
        self.every_seconds.or_else(|| self.every_steps.is_none().then(Checkpoints::usual_seconds))
    }
}
