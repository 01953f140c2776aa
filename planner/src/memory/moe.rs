//! Mixture of experts: router, permutation, experts, shared experts.

use super::mlp;
use super::parts::{LayerBytes, Part};
use super::setting::Setting;

/// The load factor is at most a few; thousandths keep it exact and the same on every platform.
const LOAD_PARTS: u128 = 1000;

/// Te: tokens that reach the experts of the busiest rank.
pub fn routed_tokens(at: &Setting<'_>) -> u128 {
    let Some(moe) = &at.plan.model.moe else { return 0 };
    let load = (at.plan.training.moe.load_imbalance.clamp(0.0, 1e6) * LOAD_PARTS as f64) as u128;
    at.local * u128::from(moe.top_k) * u128::from(at.plan.layout.etp) * load / LOAD_PARTS
}

/// A mixture of experts, without its norm.
pub fn experts(at: &Setting<'_>) -> LayerBytes {
    let Some(moe) = &at.plan.model.moe else { return LayerBytes::default() };
    let size = at.size;
    let experts = u128::from(moe.experts);
    let routed = routed_tokens(at);
    let width = u128::from(moe.ffn_hidden_size) / u128::from(at.plan.layout.etp);
    let first = if at.plan.model.gated { 2 } else { 1 };
    // Experts in a latent stream see its width; the stream before and after the experts is kept beside.
    let stream = moe.latent_size.map_or(at.hidden, u128::from);
    let latent = moe.latent_size.map_or(0, |latent| 2 * size * at.local * u128::from(latent));
    let router = 3 * 4 * at.local * experts + at.local * experts;
    let permutation = 4 * at.local * (2 * experts + 1) + 8 * routed;
    let inputs = at.widths.input(routed * stream) + size * routed * first * width + latent;
    let again = at.recomputes("moe");
    let mut bytes =
        LayerBytes { backward: size * routed * (2 * width + 4 * stream), ..LayerBytes::default() };
    bytes.keep(Part::Router, router + permutation, again);
    bytes.keep(Part::Experts, inputs, again);
    bytes.keep(Part::Experts, at.widths.input(routed * width), again || at.recomputes("moe_act"));
    let shared = mlp::kept(at, at.full, u128::from(moe.shared_ffn_hidden_size) / at.tp);
    bytes.keep(Part::SharedExperts, shared, again || at.recomputes("shared_experts"));
    bytes
}
