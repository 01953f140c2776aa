//! 8-bit and 4-bit values with their scales: widths, and what weights take in them.

use serde::Serialize;

use crate::cluster::Generation;
use crate::plan::Plan;
use crate::units::{LowPrecision, Quantity};

/// Parts of a byte in which widths are counted, so that all of them are whole numbers.
pub const PARTS: Quantity = Quantity::of(128);

/// 128ths of a byte of one value in one direction, scales included: per tensor none, one fp32 of 128 values, one byte
/// of 32, one byte of 16 (TransformerEngine `tensor/*_tensor.py`).
pub fn width(recipe: LowPrecision) -> Quantity {
    match recipe {
        LowPrecision::Fp8Delayed | LowPrecision::Fp8Current => PARTS,
        LowPrecision::Fp8Blockwise | LowPrecision::Mxfp8 => PARTS + PARTS / 32,
        LowPrecision::Nvfp4 => PARTS / 2 + PARTS / 16,
    }
}

/// 128ths of a byte of one weight: scales of blocks are one fp32 of 128 x 128.
fn weight_width(recipe: LowPrecision) -> Quantity {
    match recipe {
        LowPrecision::Fp8Blockwise => PARTS,
        other => width(other),
    }
}

/// Weights of a buffer that stand in the recipe's type instead of the compute type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LowPrecisionWeights {
    /// Elements.
    pub elements: u64,
    /// What they take, scales and both directions included.
    pub bytes: u64,
}

/// Bytes of so many weights in the recipe's type; nothing without one.
///
/// They are one direction, and the other where the GPU has no matrix multiplication that transposes 8 bits (before
/// Blackwell); block scales always need both. So are copies that stay from micro batch to micro batch beside weights that
/// are kept in the compute type (TransformerEngine's weight workspaces).
pub(crate) fn quantised_bytes(plan: &Plan, elements: u64) -> Quantity {
    let Some(recipe) = plan.training.low_precision else { return Quantity::ZERO };
    let per_tensor = matches!(recipe, LowPrecision::Fp8Delayed | LowPrecision::Fp8Current);
    let one_way = per_tensor && plan.cluster.gpu.generation == Generation::Blackwell;
    let directions = if one_way { 1 } else { 2 };
    directions * Quantity::from(elements) * weight_width(recipe) / PARTS
}

/// Whether weights of matrices are gathered and kept in the recipe's type.
pub(crate) fn keeps_quantised(plan: &Plan) -> bool {
    plan.training.fp8_param_gather && plan.training.low_precision.is_some()
}
