//! Output layer and loss, on the stage that has them.

use crate::settings::CrossEntropy;
use crate::shard::padded_vocabulary;

use super::native;
use super::parts::{SavedBytes, Saver};
use super::setting::PlanTerms;
use crate::units::Quantity;

/// Tensors of T_c h that backward of the output layer makes: the gradient of the gathered hidden state and the one that
/// goes on to the last norm.
const HEAD_GRADIENTS: Quantity = Quantity::of(2);

/// Bytes at the output layer and loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeadBytes {
    /// Final norm and logits.
    pub saved: SavedBytes,
    /// Largest temporary besides.
    pub transient: Quantity,
}

/// Output layer and loss of a model with so many multi-token-prediction modules on the same stage.
///
/// The unfused loss copies the logits to fp32 and works in place on the copy, whose softmax stays until backward; the
/// fused one of Megatron-Core is compiled and makes every step a tensor of its own; TransformerEngine's writes the
/// gradient over the logits. Every module of multi-token prediction leaves a softmax of its own.
pub(super) fn head(at: &PlanTerms<'_>, modules: u64) -> HeadBytes {
    let plan = at.plan;
    let vocabulary = Quantity::from(padded_vocabulary(plan)) / at.tp;
    let logits = at.full * vocabulary;
    let modules = Quantity::from(modules);
    if !at.megatron() {
        let saved = SavedBytes::of(Saver::Head, (1 + modules) * (2 * at.stream() + at.size * logits));
        let transient = match plan.is_computed_by_the_worker() {
            true => executor(at, vocabulary),
            // fp32 softmax of the loss, gathered input of the output layer and its gradient.
            false => 4 * logits + 2 * at.size * at.full * at.hidden,
        };
        return HeadBytes { saved, transient };
    }
    let softmax = if plan.training.cross_entropy == CrossEntropy::Te { at.size } else { Quantity::of(4) };
    let saved = SavedBytes::of(
        Saver::Head,
        (1 + modules) * (2 * at.stream() + at.statistic * at.local) + modules * softmax * logits,
    );
    let loss = match plan.training.cross_entropy {
        CrossEntropy::Te => at.size * logits,
        CrossEntropy::Unfused if at.size == Quantity::of(4) => 4 * logits,
        CrossEntropy::Unfused => {
            let own = plan.program().and_then(|program| program.loss);
            own.map_or(at.size + 4, Quantity::of) * logits
        }
        CrossEntropy::Native => (at.size + 8) * logits,
    };
    // Backward: the logits' gradient, that of the whole sequence's hidden state, then its part; the weight's too where
    // the multiplication does not add to the main gradient.
    let weight = if plan.training.fused_gradient_accumulation {
        Quantity::ZERO
    } else {
        at.size * vocabulary * at.hidden
    };
    let backward = at.size * logits + weight + HEAD_GRADIENTS * at.size * at.full * at.hidden;
    let mask = if plan.training.attention_mask { at.batch * at.seq * at.seq / at.cp } else { Quantity::ZERO };
    HeadBytes { saved, transient: mask + waiting(at, logits) + loss.max(backward) }
}

/// What micro batches leave whose weight gradient of the output layer waits for the end of the step: its input and the
/// gradient of the logits (Megatron-Core `defer_embedding_wgrad_compute`).
fn waiting(at: &PlanTerms<'_>, logits: Quantity) -> Quantity {
    let Some(limit) = at.plan.training.deferred_head_gradients else { return Quantity::ZERO };
    let before = at.plan.microbatches().saturating_sub(1);
    let count = if limit == 0 { before } else { before.min(limit) };
    Quantity::from(count) * (at.size * logits + at.stream())
}

/// The executor's loss works in place on the logits, which are counted as saved: in two-byte types on an fp32 copy
/// beside the gradient. Then the output layer's weight gradient is made, beside those of the logits and of its input.
fn executor(at: &PlanTerms<'_>, vocabulary: Quantity) -> Quantity {
    let loss = if at.size == Quantity::of(2) { 4 * at.full * vocabulary } else { Quantity::ZERO };
    // Capped logits stand beside their tangents until their gradient is there.
    let capped = at.plan.model.logit_cap.is_some();
    let loss = if capped { loss + at.size * at.full * vocabulary } else { loss };
    let weight = vocabulary * at.hidden;
    let backward = at.size * (weight + at.full * at.hidden);
    // The gradient of the logits is given back before that of the weight is added.
    let adding =
        (at.size * weight + native::added(at, weight)).saturating_sub(at.size * at.full * vocabulary);
    loss.max(backward).max(adding)
}
