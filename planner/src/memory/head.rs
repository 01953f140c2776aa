//! Output layer and loss, on the stage that has them.

use crate::shard::padded_vocabulary;
use crate::wire::Runtime;

use super::parts::{Part, Saved};
use super::setting::Setting;

/// Bytes at the output layer and loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeadBytes {
    /// Final norm and logits.
    pub saved: Saved,
    /// Largest temporary besides.
    pub transient: u128,
}

/// Output layer and loss of a model with so many multi-token-prediction modules on the same stage.
pub fn head(at: &Setting<'_>, modules: u64) -> HeadBytes {
    let vocabulary = u128::from(padded_vocabulary(at.plan)) / at.tp;
    let logits = at.full * vocabulary;
    let heads = 1 + u128::from(modules);
    let saved = Saved::of(Part::Head, heads * (2 * at.stream() + at.size * logits));
    let transient = match at.plan.runtime {
        Runtime::Native => executor(at, vocabulary),
        // fp32 softmax of the loss, gathered input of the output layer and its gradient.
        _ => 4 * logits + 2 * at.size * at.full * at.hidden,
    };
    HeadBytes { saved, transient }
}

/// The executor's loss works in place on the logits, which are counted as saved: in two-byte types on an fp32 copy
/// beside the gradient. Then the output layer's weight gradient is made, beside those of the logits and of its input.
fn executor(at: &Setting<'_>, vocabulary: u128) -> u128 {
    let loss = if at.size == 2 { 4 * at.full * vocabulary } else { 0 };
    let backward = at.size * (vocabulary * at.hidden + at.full * at.hidden);
    loss.max(backward)
}
