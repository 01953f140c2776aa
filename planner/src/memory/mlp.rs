//! Dense MLP.

use super::native;
use super::parts::{LayerBytes, Saver};
use super::setting::PlanTerms;
use crate::model::LayerKind;
use crate::units::Quantity;

/// Output of the first matrix (kept for the activation's backward) and of the activation (kept as the second matrix's
/// input), for `width` columns of this rank and `tokens`.
pub(super) fn kept(at: &PlanTerms<'_>, tokens: Quantity, width: Quantity) -> Quantity {
    let first = at.plan.model.first_matrices();
    // Without the fused kernel the activated gate is kept too, for the product's backward.
    let loose = at.megatron() && at.plan.model.gated && !at.plan.training.moe.fused_activation;
    let gate = if loose { at.size * tokens * width } else { Quantity::ZERO };
    at.size * tokens * first * width + gate + at.widths.input(tokens * width)
}

/// The dense MLP of layers of `kind`, without its norm.
pub(super) fn dense(at: &PlanTerms<'_>, kind: LayerKind) -> LayerBytes {
    let width = Quantity::from(at.plan.model.ffn(kind)) / at.tp;
    let backward = match at.plan.is_computed_by_the_worker() {
        true => native::mlp_backward(at, width, native::gradients_stay(at.plan)),
        false => at.size * at.full * (2 * width + at.hidden),
    };
    let mut bytes = LayerBytes { backward, ..LayerBytes::default() };
    bytes.keep(Saver::Mlp, kept(at, at.full, width), at.recomputes("mlp"));
    bytes
}
