//! What stands in attention's place: state-space models and delta rules.

use crate::model::{DeltaNet, KimiDelta, Mamba2};

use super::parts::{LayerBytes, Part};
use super::setting::Setting;

/// Tokens of a chunk of the delta kernels, each with a state in fp32.
const DELTA_CHUNK: u128 = 64;

/// Mamba-2: output of the input projection (made contiguous), scanned output before its gate, the same transposed, and
/// the gated norm's output, which the output projection reads. Convolution and chunk states are recomputed by the
/// kernel (mamba_ssm's memory-efficient path, as Megatron-Core calls it).
pub fn mamba(at: &Setting<'_>, mamba: &Mamba2) -> LayerBytes {
    let (heads, groups) = (u128::from(mamba.heads), u128::from(mamba.groups));
    let inner = heads * u128::from(mamba.head_dim);
    let projected = 2 * inner + 2 * groups * u128::from(mamba.state) + heads;
    let tokens = at.full;
    let saved = at.size * tokens * (projected + 2 * inner) / at.tp + at.widths.input(tokens * inner / at.tp);
    LayerBytes::saved(Part::Recurrence, saved)
}

/// Gated delta rule. An approximation, from the sizes of what is projected and not from readings: outputs of the
/// projections and of the convolution, mixed tokens before and after their norm, one fp32 state for each chunk.
pub fn delta_net(at: &Setting<'_>, delta: &DeltaNet) -> LayerBytes {
    let keys = 2 * u128::from(delta.key_heads) * u128::from(delta.key_dim);
    let values = u128::from(delta.value_heads) * u128::from(delta.value_dim);
    let state = 4 * at.full * values * u128::from(delta.key_dim) / DELTA_CHUNK;
    LayerBytes::saved(Part::Recurrence, (at.size * at.full * (2 * keys + 5 * values) + state) / at.tp)
}

/// Kimi delta attention, by the same approximation.
pub fn kimi_delta(at: &Setting<'_>, delta: &KimiDelta) -> LayerBytes {
    let width = u128::from(delta.heads) * u128::from(delta.head_dim);
    let state = 4 * at.full * width * u128::from(delta.head_dim) / DELTA_CHUNK;
    LayerBytes::saved(Part::Recurrence, (at.size * at.full * 10 * width + state) / at.tp)
}
