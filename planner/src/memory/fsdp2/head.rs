//! Output layer and loss under torch: log-softmax and its gradients, in the type that the trainer asks for.

use crate::memory::parts::{SavedBytes, Saver};
use crate::memory::setting::PlanTerms;
use crate::shard::padded_vocabulary;
use crate::units::Quantity;

/// Bytes at the loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Loss {
    /// Kept between the loss and its backward: norm's input and output, log-probabilities, logits that the loop holds.
    pub saved: SavedBytes,
    /// Gradients of log-probabilities and of logits.
    pub transient: Quantity,
    /// Gradient of the logits in the compute type, while the output layer's backward runs.
    pub gradient: Quantity,
    /// Logits that the training loop holds through backward.
    pub held: Quantity,
    /// Logits of micro batches that wait for the end of the step.
    pub waiting: Quantity,
}

/// The loss of a model with so many prediction modules on this stage, where every tensor-parallel rank ends up with all logits or not.
pub(super) fn loss(at: &PlanTerms<'_>, modules: u64, gathers_logits: bool) -> Loss {
    let (plan, settings) = (at.plan, &at.plan.layout.fsdp);
    let logits_of = |parts| at.full * Quantity::from(padded_vocabulary(plan)).div_ceil(parts);
    // What the output layer has, and what the loss is computed of.
    let parts = if gathers_logits { Quantity::of(1) } else { at.tp };
    let own = logits_of(parts);
    let parts = if plan.gathers_logits_for_the_loss() { Quantity::of(1) } else { parts };
    let logits = logits_of(parts);
    let heads = 1 + Quantity::from(modules);
    let wide = Quantity::from(settings.loss_dtype.size());
    let gathered = if at.tp > Quantity::of(1) { at.size * at.full * at.hidden } else { Quantity::ZERO };
    let output = Quantity::from(settings.output_dtype.size());
    let held = if settings.keeps_logits { output * own } else { Quantity::ZERO };
    // torch.distributed.pipelining keeps the output of every micro batch, this one's too.
    let waiting = if plan.layout.pp > 1 { plan.microbatches() } else { 0 };
    // torch's loss over cut columns keeps the one-hot part, the exponentials and their sum beside the result.
    let gradients = if parts > Quantity::of(1) { 3 } else { 2 };
    Loss {
        saved: SavedBytes::of(Saver::Head, heads * (2 * at.stream() + gathered + wide * logits)),
        transient: gradients * wide * logits,
        gradient: at.size * own,
        held,
        waiting: Quantity::from(waiting) * output * own,
    }
}
