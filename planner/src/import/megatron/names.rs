//! What Megatron calls the values of a plan: one table for reading a command line and for writing one.

use crate::units::Dtype;
use crate::wire::{AttentionBackend, CpKind, Precision};

/// `--cp-comm-type`.
const CP_KINDS: [(CpKind, &str); 4] = [
    (CpKind::P2p, "p2p"),
    (CpKind::A2a, "a2a"),
    (CpKind::AllGather, "allgather"),
    (CpKind::A2aP2p, "a2a+p2p"),
];

/// `--fp8-recipe` of recipes of 8 bits.
const FP8_RECIPES: [(Precision, &str); 4] = [
    (Precision::Fp8Delayed, "delayed"),
    (Precision::Fp8Current, "tensorwise"),
    (Precision::Fp8Blockwise, "blockwise"),
    (Precision::Mxfp8, "mxfp8"),
];

/// `mixed_precision` of Megatron Bridge (src/megatron/bridge/training/mixed_precision.py).
const BRIDGE_PRECISIONS: [(Precision, &str); 7] = [
    (Precision::Bf16, "bf16_mixed"),
    (Precision::Fp16, "fp16_mixed"),
    (Precision::Fp8Delayed, "bf16_with_fp8_delayed_scaling_mixed"),
    (Precision::Fp8Current, "bf16_with_fp8_current_scaling_mixed"),
    (Precision::Fp8Blockwise, "bf16_with_fp8_subchannel_scaling_mixed"),
    (Precision::Mxfp8, "bf16_with_mxfp8_mixed"),
    (Precision::Nvfp4, "bf16_with_nvfp4_mixed"),
];

/// `--attention-backend`.
const BACKENDS: [(AttentionBackend, &str); 4] = [
    (AttentionBackend::Auto, "auto"),
    (AttentionBackend::Flash, "flash"),
    (AttentionBackend::Fused, "fused"),
    (AttentionBackend::Unfused, "unfused"),
];

/// Types of the optimizer's state and of main gradients.
const DTYPES: [(Dtype, &str); 4] =
    [(Dtype::Fp32, "fp32"), (Dtype::Bf16, "bf16"), (Dtype::Fp16, "fp16"), (Dtype::Fp8, "fp8")];

fn name_of<T: PartialEq>(table: &[(T, &'static str)], wanted: &T) -> Option<&'static str> {
    table.iter().find(|(value, _)| value == wanted).map(|(_, name)| *name)
}

fn value_of<T: Copy>(table: &[(T, &'static str)], wanted: &str) -> Option<T> {
    table.iter().find(|(_, name)| *name == wanted).map(|(value, _)| *value)
}

/// The word of `--cp-comm-type`.
pub fn cp_comm_type(kind: CpKind) -> &'static str {
    name_of(&CP_KINDS, &kind).unwrap_or("p2p")
}

/// What a word of `--cp-comm-type` is.
pub fn cp_kind(word: &str) -> Option<CpKind> {
    value_of(&CP_KINDS, if word == "all_gather" { "allgather" } else { word })
}

/// The word of `--fp8-recipe`; none for a type without such a recipe.
pub fn fp8_recipe(precision: Precision) -> Option<&'static str> {
    name_of(&FP8_RECIPES, &precision)
}

/// What a word of `--fp8-recipe` is.
pub fn fp8_precision(word: &str) -> Option<Precision> {
    value_of(&FP8_RECIPES, word)
}

/// The recipe of mixed precision in Megatron Bridge; none where there is no such.
pub fn bridge_precision(precision: Precision) -> Option<&'static str> {
    name_of(&BRIDGE_PRECISIONS, &precision)
}

/// The precision of a recipe of Megatron Bridge's; none for others.
pub fn bridge_precision_of(word: &str) -> Option<Precision> {
    value_of(&BRIDGE_PRECISIONS, word)
}

/// The word of `--attention-backend`.
pub fn attention_backend(backend: AttentionBackend) -> &'static str {
    name_of(&BACKENDS, &backend).unwrap_or("auto")
}

/// What a word of `--attention-backend` is, as far as it says.
pub fn backend_of(word: &str) -> Option<AttentionBackend> {
    value_of(&BACKENDS, if word == "local" { "unfused" } else { word })
}

/// The word for a type of the optimizer's state.
pub fn state_dtype(dtype: Dtype) -> Option<&'static str> {
    name_of(&DTYPES, &dtype)
}

/// What a word for a type of the optimizer's state is; fp32 for words that are none.
pub fn dtype_of(word: &str) -> Dtype {
    value_of(&DTYPES, word).unwrap_or(Dtype::Fp32)
}
