//! One layer of experts alone, without an optimizer, as Megatron-Core's benchmark of it runs.

use super::setting::PlanTerms;
use super::{clamp, moe, workspaces};
use crate::model::Experts;
use crate::plan::Plan;
use crate::shard::low_precision::quantised_bytes;
use crate::units::Quantity;

/// Bytes of an element of the product with the tokens' weights in its backward, three temporaries in fp32.
const PRODUCT: Quantity = Quantity::of(3 * 4);

/// The peak of a layer: weights with their kept copies, workspaces, what is saved, input and output, and the most of two
/// moments. In forward the copies of tokens that its functions still hold; in the backward of the activation's product
/// the gradient of the second matrices, made before, with temporaries in fp32.
pub fn expert_layer_bytes(plan: &Plan) -> u64 {
    let at = PlanTerms::new(plan);
    let Some(experts) = plan.model.experts() else { return 0 };
    let Experts { moe, routed, .. } = experts;
    let (width, shared) = (Quantity::from(routed.width), Quantity::from(moe.shared_ffn_hidden_size));
    let local = Quantity::from(moe.experts) / Quantity::from(plan.layout.ep).max(Quantity::of(1));
    let quantised = at.hidden * routed.matrices() * (local * width + shared / at.tp);
    let weights = at.size * (quantised + at.hidden * Quantity::from(moe.experts));
    let copies = quantised_bytes(plan, clamp(quantised));
    let saved = moe::experts(&at, &experts).saved.total() + 2 * at.stream();
    let product = PRODUCT * moe::routed_tokens(&at) * width;
    let second = at.size * at.hidden * local * width;
    let most = (product + second).max(moe::token_copies(&at));
    clamp(weights + copies + Quantity::from(workspaces::workspaces(plan)) + saved + most)
}
