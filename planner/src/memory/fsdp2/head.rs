//! Output layer and loss under torch: log-softmax and its gradients, in the type that the trainer asks for.

use crate::memory::parts::{SavedBytes, Saver};
use crate::memory::setting::PlanTerms;
use crate::shard::padded_vocabulary;
use crate::shard::tp_plan::logits_are_gathered;
use crate::units::Wide;

/// Bytes at the loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Loss {
    /// Kept between the loss and its backward: norm's input and output, log-probabilities, logits that the loop holds.
    pub saved: SavedBytes,
    /// Gradients of log-probabilities and of logits.
    pub transient: Wide,
    /// Gradient of the logits in the compute type, while the output layer's backward runs.
    pub gradient: Wide,
    /// Logits that the training loop holds through backward.
    pub held: Wide,
    /// Logits of micro batches that wait for the end of the step.
    pub waiting: Wide,
}

/// The loss of a model with so many prediction modules on this stage.
pub(super) fn loss(at: &PlanTerms<'_>, modules: u64) -> Loss {
    let (plan, settings) = (at.plan, &at.plan.layout.fsdp);
    let parts = if logits_are_gathered(plan) { Wide::of(1) } else { at.tp };
    let logits = at.full * Wide::from(padded_vocabulary(plan)).div_ceil(parts);
    let heads = 1 + Wide::from(modules);
    let wide = Wide::from(settings.loss_dtype.size());
    let gathered = if at.tp > Wide::of(1) { at.size * at.full * at.hidden } else { Wide::ZERO };
    let output = Wide::from(settings.output_dtype.size());
    let held = if settings.keeps_logits { output * logits } else { Wide::ZERO };
    // torch.distributed.pipelining keeps the output of every micro batch, this one's too.
    let waiting = if plan.layout.pp > 1 { plan.microbatches() } else { 0 };
    // torch's loss over cut columns keeps the one-hot part, the exponentials and their sum beside the result.
    let gradients = if parts > Wide::of(1) { 3 } else { 2 };
    Loss {
        saved: SavedBytes::of(Saver::Head, heads * (2 * at.stream() + gathered + wide * logits)),
        transient: gradients * wide * logits,
        gradient: at.size * logits,
        held,
        waiting: Wide::from(waiting) * output * logits,
    }
}
