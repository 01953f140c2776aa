//! What a run has saved, and what it went on from.

use crate::wire::{Resumed, Saved};

/// What is known of a run's checkpoints.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunCheckpoints {
    /// What the last attempt went on from.
    pub resumed: Option<Resumed>,
    /// The last that is complete.
    pub saved: Option<Saved>,
    /// How many are, in this and earlier attempts.
    pub count: u64,
    /// The last that could not be written, if none was since.
    pub failed: Option<Saved>,
}

impl RunCheckpoints {
    /// Takes in what became of one.
    pub fn take(&mut self, saved: Saved) {
        if saved.failed.is_some() {
            self.failed = Some(saved);
        } else {
            (self.saved, self.failed) = (Some(saved), None);
            self.count += 1;
        }
    }
}
