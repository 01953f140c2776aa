//! What torch's caching allocator gives beyond what is asked for: it takes the smallest free block that is large enough,
//! and does not split one when at most 1 MiB would remain. At most 1 MiB for each live tensor, so it shows in small models
//! only.

use crate::model::{Attention, LayerKind, MixerRef, Mlp};

use super::outside::on_gpu;
use super::setting::Setting;

/// Requests up to this come from blocks that are always split.
const SMALL: u128 = 1 << 20;
/// A rest up to this is not split off.
const REST: u128 = 1 << 20;
/// Half of the rest: what a tensor of changing size takes more, on average.
const UNSPLIT_TENSOR: u128 = REST / 2;

/// What blocks of so many saved tensors of experts take over their size, which changes from step to step.
pub fn of_experts(at: &Setting<'_>, tensors: u128, size: u128) -> u128 {
    let (training, plan) = (&at.plan.training.moe, at.plan);
    let steady = training.pad_to_capacity || plan.software.expandable_segments || !on_gpu(plan);
    let local = u128::from(plan.model.moe.as_ref().map_or(0, |moe| moe.experts)) / u128::from(plan.layout.ep);
    let each = if training.grouped_gemm { 1 } else { local.max(1) };
    if steady {
        return 0;
    }
    // Sizes spread around their mean: of tensors as large as the limit half are above it.
    let above = (size / each).saturating_sub(SMALL / 2).min(SMALL);
    tensors * each * UNSPLIT_TENSOR * above / SMALL
}

/// What the blocks of a dense layer's tensors take over their sizes: a tensor that is freed leaves a hole, which another
/// that is up to 1 MiB smaller takes whole.
pub fn of_layer(at: &Setting<'_>, kind: LayerKind) -> u128 {
    let plan = at.plan;
    let mixer = plan.model.mixer(kind);
    let Some(MixerRef::Attention(&Attention::Gqa { heads, kv_heads, head_dim, .. })) = mixer else {
        return 0;
    };
    if plan.software.expandable_segments || !on_gpu(plan) {
        return 0;
    }
    let wide = |value: u64| u128::from(value);
    let token = at.size * at.full / at.tp;
    let first = if plan.model.gated { 2 } else { 1 };
    let width = if kind.mlp == Mlp::Dense { wide(plan.model.ffn(kind)) } else { 0 };
    let sizes = [
        at.stream(),
        token * (wide(heads) + 2 * wide(kv_heads)) * wide(head_dim),
        token * wide(heads) * wide(head_dim),
        token * first * width,
        token * width,
    ];
    let hole = |size: u128| sizes.into_iter().filter(|&other| other > size && other - size <= REST).min();
    sizes.into_iter().filter(|&size| size > SMALL).filter_map(|size| Some(hole(size)? - size)).sum()
}
