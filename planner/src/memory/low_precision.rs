//! 8-bit and 4-bit training: what saved inputs of matrices take.

use crate::plan::Plan;
use crate::shard::low_precision::{PARTS, width};
use crate::units::Quantity;

/// Bytes of an element of what a matrix saves as its input, in 128ths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Widths {
    /// Of a matrix's saved input.
    input: Quantity,
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
        Widths { input: PARTS * Quantity::from(plan.training.dtype.size()), quantised: false }
    }

    /// Bytes that a matrix keeps of an input of so many elements.
    pub fn input(&self, elements: Quantity) -> Quantity {
        elements * self.input / PARTS
    }

    /// Bytes that a matrix keeps of an input that something else keeps in full.
    pub(crate) fn shared_input(&self, elements: Quantity) -> Quantity {
        if self.quantised { self.input(elements) } else { Quantity::ZERO }
    }
}
