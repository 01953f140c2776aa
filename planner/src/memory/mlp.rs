//! Dense MLP.

use super::parts::{LayerBytes, Part};
use super::setting::Setting;

/// Output of the first matrix (kept for the activation's backward) and of the activation (kept as the second matrix's
/// input), for `width` columns of this rank and `tokens`.
pub fn kept(at: &Setting<'_>, tokens: u128, width: u128) -> u128 {
    let first = if at.plan.model.gated { 2 } else { 1 };
    at.size * tokens * first * width + at.widths.input(tokens * width)
}

/// A dense MLP, without its norm.
pub fn dense(at: &Setting<'_>) -> LayerBytes {
    let width = u128::from(at.plan.model.ffn_hidden_size) / at.tp;
    let mut bytes =
        LayerBytes { backward: at.size * at.full * (2 * width + at.hidden), ..LayerBytes::default() };
    bytes.keep(Part::Mlp, kept(at, at.full, width), at.recomputes("mlp"));
    bytes
}
