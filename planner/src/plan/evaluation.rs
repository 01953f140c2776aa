//! How the worker evaluates.

use crate::wire::DataFile;

/// How the loss on data that is not trained on is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The data.
    pub data: DataFile,
    /// Steps between evaluations.
    pub every_steps: u64,
    /// Sequences of one, at least.
    pub sequences: u64,
}

impl Evaluation {
    /// Whether there is one after this step of so many.
    pub fn is_due(&self, step: u64, of: u64) -> bool {
        step == of || step.is_multiple_of(self.every_steps)
    }
}
