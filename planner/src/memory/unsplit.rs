//! What torch's caching allocator gives beyond what is asked for: it takes the smallest free block that is large enough,
//! and does not split one when at most 1 MiB would remain. At most 1 MiB for each live tensor, so it shows in small models
//! only.

use crate::model::{FeedForward, LayerKind, MixerRef};

use super::outside::on_gpu;
use super::setting::PlanTerms;
use crate::units::Quantity;

/// Requests up to this come from blocks that are always split.
const SMALL: Quantity = Quantity::of(1 << 20);
/// A rest up to this is not split off.
const REST: Quantity = Quantity::of(1 << 20);
/// Half of the rest: what a tensor of changing size takes more, on average.
const UNSPLIT_TENSOR: Quantity = Quantity::of(1 << 19);

/// What blocks of so many saved tensors of experts take over their size, which changes from step to step.
pub(super) fn of_experts(at: &PlanTerms<'_>, tensors: Quantity, size: Quantity) -> Quantity {
    let (training, plan) = (&at.plan.training.moe, at.plan);
    let steady = training.pad_to_capacity || plan.software.expandable_segments || !on_gpu(plan);
    let local =
        Quantity::from(plan.model.moe.as_ref().map_or(0, |moe| moe.experts)) / Quantity::from(plan.layout.ep);
    let each = if training.grouped_gemm { Quantity::of(1) } else { local.max(Quantity::of(1)) };
    if steady {
        return Quantity::ZERO;
    }
    // Sizes spread around their mean: of tensors as large as the limit half are above it.
    let above = (size / each).saturating_sub(SMALL / 2).min(SMALL);
    tensors * each * UNSPLIT_TENSOR * above / SMALL
}

/// What the smallest hole that takes a tensor whole has beyond it.
fn rest_of_hole(size: Quantity, holes: &[Quantity]) -> Quantity {
    let mut least = None;
    for hole in holes {
        let rest = hole.saturating_sub(size).float();
        if rest > 0.0 && rest <= least.unwrap_or(REST.float()) {
            least = Some(rest);
        }
    }
    Quantity::floor(least.unwrap_or(0.0))
}

/// What the blocks of a dense layer's tensors take over their sizes: a tensor that is freed leaves a hole, which another
/// that is up to 1 MiB smaller takes whole.
pub(super) fn of_layer(at: &PlanTerms<'_>, kind: LayerKind) -> Quantity {
    let plan = at.plan;
    let Some(MixerRef::Attention(attention)) = plan.model.mixer(kind) else { return Quantity::ZERO };
    let core = attention.core();
    if !core.is_projected_at_once() || plan.software.expandable_segments || !on_gpu(plan) {
        return Quantity::ZERO;
    }
    let wide = |value: u64| Quantity::from(value);
    let token = at.size * at.full / at.tp;
    let (given, width) = match plan.model.feed_forward(kind) {
        FeedForward::Dense(mlp) => (mlp.first * wide(mlp.width), wide(mlp.width)),
        _ => (Quantity::ZERO, Quantity::ZERO),
    };
    let sizes = [
        at.stream(),
        token * wide(core.projected()),
        token * wide(core.heads) * wide(core.value_dim),
        token * given,
        token * width,
    ];
    let mut sum = Quantity::ZERO;
    for size in sizes {
        if size > SMALL {
            sum += rest_of_hole(size, &sizes);
        }
    }
    sum
}
