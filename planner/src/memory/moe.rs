//! Mixture of experts: router, permutation, experts, shared experts.

use super::mlp::{Kept, activates_by_operators};
use super::native;
use super::parts::{LayerBytes, Saver};
use super::setting::PlanTerms;
use super::unsplit;
use crate::model::{Experts, MlpOperations};
use crate::settings::Dispatcher;
use crate::units::Quantity;

/// Temporaries in fp32 of the backward of the product with the tokens' weights, without the fused kernel.
const PRODUCT_TEMPORARIES: Quantity = Quantity::of(3);

/// The load factor is at most a few; thousandths keep it exact and the same on every platform.
const LOAD_PARTS: Quantity = Quantity::of(1000);

/// Te: tokens that reach the experts of the busiest rank.
pub(super) fn routed_tokens(at: &PlanTerms<'_>) -> Quantity {
    let Some(moe) = &at.plan.model.moe else { return Quantity::ZERO };
    let load = at.plan.training.moe.load();
    let load = Quantity::floor(load.clamp(0.0, 1e6) * LOAD_PARTS.float());
    let chosen =
        at.local * Quantity::from(moe.top_k) * Quantity::from(at.plan.layout.etp) * load / LOAD_PARTS;
    match moe.identity_experts {
        0 => chosen,
        // Choices that hand a token on send it nowhere.
        identity => {
            let choices = Quantity::from(moe.experts.saturating_add(identity));
            chosen.div_ceil(choices) * Quantity::from(moe.experts)
        }
    }
}

/// What the executor keeps of a router and of the way of tokens to experts: logits in fp32 (fp64 for fp64), and as whole
/// numbers of eight bytes the chosen experts and the order of sending; of each row its weight like the logits, and where rows come
/// from other ranks its place among those.
fn executor_routing(
    at: &PlanTerms<'_>,
    experts: Quantity,
    top_k: Quantity,
    routed: Quantity,
) -> (Quantity, Quantity) {
    const INDEX: Quantity = Quantity::of(8);
    let exact = at.size.max(Quantity::of(4));
    let place = if at.plan.layout.ep * at.plan.layout.etp > 1 { INDEX } else { Quantity::ZERO };
    (at.local * (exact * experts + 2 * INDEX * top_k), routed * (place + exact))
}

/// Copies of tokens beside what is saved that a layer's forward holds when the experts are done
/// (`core/transformer/moe`: `moe_layer.py`, `token_dispatcher.py`, `experts.py`).
///
/// All-to-all's are tokens by choice, received, sorted (which the first matrix saves, unless it saves 8 bits) and computed.
/// The fused dispatchers hold what was received and what goes back once for each rank, and what was computed. In 8 bits
/// every expert's tokens are padded to whole blocks before the first matrix, and cut again.
pub(super) fn token_copies(at: &PlanTerms<'_>) -> Quantity {
    let Some(Experts { moe, routed: expert, .. }) = at.plan.model.experts() else { return Quantity::ZERO };
    let stream = at.size * Quantity::from(expert.stream);
    let (routed, sent) = (routed_tokens(at), at.local * Quantity::from(moe.top_k));
    let quantised = Quantity::from(at.widths.quantised);
    match at.plan.dispatcher() {
        Dispatcher::Flex => stream * (routed * (1 + quantised) + distinct_tokens(at)),
        _ => stream * (routed * (2 + 3 * quantised) + sent),
    }
}

/// Tokens that some expert of a rank wants, each once, when all choices are as likely: of the other ranks' tokens as
/// many come as go.
fn distinct_tokens(at: &PlanTerms<'_>) -> Quantity {
    let Some(moe) = &at.plan.model.moe else { return Quantity::ZERO };
    let ranks = at.plan.layout.ep.max(1) as f64;
    // Tokens of all ranks times the chance that one of a token's choices is here.
    let missed = libm::pow(1.0 - 1.0 / ranks, moe.top_k as f64);
    let share = Quantity::floor(ranks * (1.0 - missed) * LOAD_PARTS.float());
    at.local * share.min(Quantity::from(moe.top_k) * LOAD_PARTS) / LOAD_PARTS
}

/// The most of the executor's backward of a mixture over what is saved, where gradients of weights stay until all of their unit are
/// there, or are added to others at once.
pub(super) fn executor_backward(at: &PlanTerms<'_>, experts: &Experts<'_>, stay: bool) -> Quantity {
    let routed = native::experts_backward(at, experts, routed_tokens(at), stay);
    experts.shared.map_or(routed, |shared| routed.max(native::mlp_backward(at, &shared, stay)))
}

/// Rows of tokens that the busiest rank's experts are sent.
pub(super) fn sent_rows(at: &PlanTerms<'_>) -> Quantity {
    let stream = at.plan.model.experts().map_or(0, |experts| experts.routed.stream);
    at.size * routed_tokens(at) * Quantity::from(stream)
}

/// A mixture of experts, without its norm.
pub(super) fn experts(at: &PlanTerms<'_>, of: &Experts<'_>) -> LayerBytes {
    let &Experts { moe, routed: MlpOperations { stream, width, .. }, .. } = of;
    let (size, etp) = (at.size, Quantity::from(at.plan.layout.etp));
    let experts = Quantity::from(moe.experts);
    let routed = routed_tokens(at);
    // Experts in a latent stream see its width; the stream before and after the experts is kept beside.
    let (stream, width) = (Quantity::from(stream), Quantity::from(width) / etp);
    let native = at.plan.is_computed_by_the_worker();
    let latent = match moe.latent_size {
        None => Quantity::ZERO,
        // The executor keeps the sum that is projected back, and its norm's input, but not what it sent.
        Some(latent) if native => {
            (1 + Quantity::from(moe.latent_norm)) * size * at.local * Quantity::from(latent)
        }
        Some(latent) => 2 * size * at.local * Quantity::from(latent),
    };
    let (router, permutation) = if native {
        executor_routing(at, experts, Quantity::from(moe.top_k), routed)
    } else {
        (3 * 4 * at.local * experts + at.local * experts, 4 * at.local * (2 * experts + 1) + 8 * routed)
    };
    let input = at.widths.input(routed * stream);
    let kept = Kept::of(at, &of.routed, routed, etp);
    // Without the fused kernel the product with the tokens' weights keeps the activation's output too.
    let loose = activates_by_operators(at);
    let product = if loose { size * routed * width } else { Quantity::ZERO };
    let again = at.recomputes("moe");
    let activation_again = again || at.recomputes("moe_act");
    let mut bytes = LayerBytes::default();
    bytes.keep(Saver::Router, router + permutation, again);
    bytes.keep(Saver::Experts, input + kept.given + latent, again);
    bytes.keep(Saver::Experts, kept.activated + kept.between + product, activation_again);
    let mut shared = of.shared.map_or(Quantity::ZERO, |shared| Kept::of(at, &shared, at.full, at.tp).total());
    if moe.shared_gate {
        // The gate, and the output before it.
        shared += size * at.local * (at.hidden + 1);
    }
    bytes.keep(Saver::SharedExperts, shared, again || at.recomputes("shared_experts"));
    if moe.scaled_branches {
        // What the router is given, and the norms behind either branch; experts keep the rows that they are sent.
        bytes.keep(Saver::Norms, 3 * at.stream() + 4 * at.statistic * at.local, again);
    }
    if at.megatron() {
        let tensors = if again { 0 } else { 2 }
            + if activation_again { Quantity::ZERO } else { 1 + Quantity::from(loose) };
        bytes.saved.put(Saver::Experts, unsplit::of_experts(at, tensors, input.min(kept.given)));
    }
    if at.offloads("expert_fc1") {
        bytes.offload(Saver::Experts, input);
    }
    if at.offloads("moe_act") {
        bytes.offload(Saver::Experts, kept.given);
    }
    let backward = size * routed * (2 * width + 4 * stream);
    // The product's backward works in fp32 (published peaks of one layer).
    let product = if loose { PRODUCT_TEMPORARIES * 4 * routed * width } else { Quantity::ZERO };
    bytes.backward = backward.max(product);
    if native {
        bytes.backward = executor_backward(at, of, native::gradients_stay(at.plan));
    }
    bytes.forward = if at.megatron() && at.widths.quantised {
        token_copies(at)
    } else {
        size * (routed * stream + at.local * Quantity::from(moe.top_k) * stream)
    };
    bytes
}
