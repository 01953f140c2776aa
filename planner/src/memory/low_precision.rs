//! 8-bit and 4-bit training: what saved inputs of matrices, weights and kept copies of weights take.

use super::wide::Wide;
use crate::cluster::Generation;
use crate::plan::Plan;
use crate::units::LowPrecision;

/// Parts of a byte in which widths are counted, so that all of them are whole numbers.
const PARTS: Wide = Wide::of(128);

/// 128ths of a byte of one value in one direction, scales included: per tensor none, one fp32 of 128 values, one byte
/// of 32, one byte of 16 (TransformerEngine `tensor/*_tensor.py`).
fn width(recipe: LowPrecision) -> Wide {
    match recipe {
        LowPrecision::Fp8Delayed | LowPrecision::Fp8Current => PARTS,
        LowPrecision::Fp8Blockwise | LowPrecision::Mxfp8 => PARTS + PARTS / 32,
        LowPrecision::Nvfp4 => PARTS / 2 + PARTS / 16,
    }
}

/// 128ths of a byte of one weight: scales of blocks are one fp32 of 128 x 128.
fn weight_width(recipe: LowPrecision) -> Wide {
    match recipe {
        LowPrecision::Fp8Blockwise => PARTS,
        other => width(other),
    }
}

/// Bytes of an element of what a matrix saves as its input, in 128ths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Widths {
    /// Of a matrix's saved input.
    input: Wide,
    /// Whether inputs are quantised: then a tensor that others keep too is kept twice.
    pub quantised: bool,
}

impl Widths {
    /// Of a plan.
    pub fn of(plan: &Plan) -> Widths {
        match plan.training.low_precision {
            None => Widths::plain(plan),
            Some(recipe) => Widths { input: width(recipe), quantised: true },
        }
    }

    /// Of layers that are not quantised.
    pub fn plain(plan: &Plan) -> Widths {
        Widths { input: PARTS * Wide::from(plan.training.dtype.size()), quantised: false }
    }

    /// Bytes that a matrix keeps of an input of so many elements.
    pub fn input(&self, elements: Wide) -> Wide {
        elements * self.input / PARTS
    }

    /// Bytes that a matrix keeps of an input that something else keeps in full.
    pub fn shared_input(&self, elements: Wide) -> Wide {
        if self.quantised { self.input(elements) } else { Wide::ZERO }
    }
}

/// Weights of matrices in low precision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuantisedWeights {
    /// Bytes that are saved on the weights themselves, where they are kept in the recipe's type.
    pub saved: Wide,
    /// Bytes of copies that are kept beside.
    pub copies: Wide,
}

/// What so many elements of weights are in low precision.
///
/// Kept in the recipe's type they are one direction, and the other where the GPU has no matrix multiplication that
/// transposes 8 bits (before Blackwell); block scales always need both. Kept in the compute type, the same copies stay
/// from micro batch to micro batch beside (TransformerEngine's weight workspaces).
pub fn quantised_weights(plan: &Plan, elements: u64) -> QuantisedWeights {
    let Some(recipe) = plan.training.low_precision else { return QuantisedWeights::default() };
    let per_tensor = matches!(recipe, LowPrecision::Fp8Delayed | LowPrecision::Fp8Current);
    let one_way = per_tensor && plan.cluster.gpu.generation() == Generation::Blackwell;
    let directions = if one_way { 1 } else { 2 };
    let quantised = directions * Wide::from(elements) * weight_width(recipe) / PARTS;
    if plan.training.fp8_param_gather {
        let plain = Wide::from(elements) * Wide::from(plan.training.dtype.size());
        QuantisedWeights { saved: plain, copies: quantised }
    } else {
        QuantisedWeights { saved: Wide::ZERO, copies: quantised }
    }
}
