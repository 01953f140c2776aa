//! 8-bit and 4-bit training: what saved inputs of matrices and kept copies of weights take.

use crate::plan::Plan;

/// Parts of a byte in which widths are counted, so that all of them are whole numbers.
const PARTS_OF_A_BYTE: u128 = 128;

/// Bytes of an element of what a matrix saves as its input, in 128ths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Widths {
    /// Of a matrix's saved input.
    input: u128,
    /// Whether inputs are quantised: then a tensor that others keep too is kept twice.
    pub quantised: bool,
}

impl Widths {
    /// Of a plan.
    pub fn of(plan: &Plan) -> Widths {
        Widths::plain(plan)
    }

    /// Of layers that are not quantised.
    pub fn plain(plan: &Plan) -> Widths {
        Widths { input: PARTS_OF_A_BYTE * u128::from(plan.training.dtype.size()), quantised: false }
    }

    /// Bytes that a matrix keeps of an input of so many elements.
    pub fn input(&self, elements: u128) -> u128 {
        elements * self.input / PARTS_OF_A_BYTE
    }

    /// Bytes that a matrix keeps of an input that something else keeps in full.
    pub fn shared_input(&self, elements: u128) -> u128 {
        if self.quantised { self.input(elements) } else { 0 }
    }
}
