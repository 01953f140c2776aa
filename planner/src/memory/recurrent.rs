//! What stands in attention's place: state-space models and delta rules.

use crate::model::{DeltaNet, KimiDelta, Listed, ListedCut, Mamba2};

use super::parts::{LayerBytes, Saver};
use super::setting::PlanTerms;
use crate::units::Wide;

/// Tokens of a chunk of the delta kernels, each with a state in fp32.
const DELTA_CHUNK: u64 = 64;

/// Mamba-2: output of the input projection (made contiguous), scanned output before its gate, the same transposed, and
/// the gated norm's output, which the output projection reads. Convolution and chunk states are recomputed by the
/// kernel (mamba_ssm's memory-efficient path, as Megatron-Core calls it).
pub(super) fn mamba(at: &PlanTerms<'_>, mamba: &Mamba2) -> LayerBytes {
    let (heads, groups) = (Wide::from(mamba.heads), Wide::from(mamba.groups));
    let inner = heads * Wide::from(mamba.head_dim);
    let projected = 2 * inner + 2 * groups * Wide::from(mamba.state) + heads;
    let tokens = at.full;
    let saved = at.size * tokens * (projected + 2 * inner) / at.tp + at.widths.input(tokens * inner / at.tp);
    LayerBytes::saved(Saver::Recurrence, saved)
}

/// Gated delta rule, as Megatron-Core and transformers call its kernels (`core/ssm/gated_delta_net`): output of the
/// projection, which the convolution reads, normed queries and keys, these spread over the value heads, values, each
/// chunk's triangle, output before the gated norm, behind the norm and behind the gate, and the gate. Convolution and
/// chunk states are made again.
pub(super) fn delta_net(at: &PlanTerms<'_>, delta: &DeltaNet) -> LayerBytes {
    let (heads, key) = (Wide::from(delta.value_heads), Wide::from(delta.key_dim));
    let keys = Wide::from(delta.key_heads) * key;
    let values = heads * Wide::from(delta.value_dim);
    let mixed = 2 * keys + values;
    let projected = mixed + values + 2 * heads;
    let behind_norm = at.size * at.full * values / at.tp;
    let gated = behind_norm + at.widths.input(at.full * values / at.tp);
    let normed = if at.recomputes("gdn_norm_out") { Wide::ZERO } else { gated };
    let around = projected + 2 * keys + 2 * values;
    let rule = if at.megatron() && at.plan.training.deterministic {
        // Plain operators: the convolution's input transposed and its output before the activation besides.
        2 * at.size * mixed + heads * 4 * plain_delta_rule(key, Wide::from(delta.value_dim))
    } else {
        let spread = if delta.value_heads > delta.key_heads { 2 * heads * key } else { Wide::ZERO };
        at.size * (spread + values + heads * DELTA_CHUNK) + 2 * 4 * heads
    };
    let mut bytes =
        LayerBytes::saved(Saver::Recurrence, (at.size * around + rule) * at.full / at.tp + normed);
    bytes.recomputed += gated - normed;
    bytes
}

/// Values in fp32 for each token and head that torch's own operators keep of the delta rule
/// (`torch_chunk_gated_delta_rule`): seven of a key's width, three of a value's, six of a chunk's, the rows and squares of
/// the triangle that is solved row by row, and a state for each chunk.
fn plain_delta_rule(key: Wide, value: Wide) -> Wide {
    let solved: u64 = (1..DELTA_CHUNK).map(|row| row + row * row).sum();
    7 * key + 3 * value + 6 * DELTA_CHUNK + (solved + key * value) / DELTA_CHUNK
}

/// Kimi delta attention, by the same approximation.
pub(super) fn kimi_delta(at: &PlanTerms<'_>, delta: &KimiDelta) -> LayerBytes {
    let width = Wide::from(delta.heads) * Wide::from(delta.head_dim);
    let state = 4 * at.full * width * Wide::from(delta.head_dim) / DELTA_CHUNK;
    LayerBytes::saved(Saver::Recurrence, (at.size * at.full * 10 * width + state) / at.tp)
}

/// A mixer by its parameters: what its matrices give, and input and output of what runs between them.
pub(super) fn listed(at: &PlanTerms<'_>, listed: &Listed) -> LayerBytes {
    let outputs = |cut: ListedCut| -> Wide {
        let matrices = listed.parameters.iter().filter(|one| one.cut == cut && one.shape.len() > 1);
        matrices
            .filter(|one| !one.name.ends_with("conv.weight"))
            .map(|one| one.shape.iter().rev().skip(1).fold(Wide::of(1), |all, &dim| all * Wide::from(dim)))
            .fold(Wide::ZERO, |all, one| all + one)
    };
    let split = (outputs(ListedCut::Outputs) + 2 * Wide::from(listed.inner)) / at.tp;
    LayerBytes::saved(Saver::Recurrence, at.size * at.full * (split + outputs(ListedCut::Whole)))
}
