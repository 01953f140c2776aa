//! Whole numbers of bytes, elements and tokens that no product overflows.
//!
//! They are floats: exact below 2^53, which is 9 PB, and rounded above, where a plan fits nowhere anyway. 128 bits would be
//! exact everywhere, but WebAssembly multiplies them by a call and divides them by a loop, and the page's search does
//! little else.

use std::cmp::Ordering;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// A whole number, never negative.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Quantity(f64);

impl Quantity {
    /// Nothing.
    pub const ZERO: Quantity = Quantity(0.0);

    /// A number that is known when this is compiled.
    pub const fn of(number: u64) -> Quantity {
        Quantity(number as f64)
    }

    /// What is whole of a number that is not negative.
    pub fn floor(number: f64) -> Quantity {
        Quantity(number.max(0.0).floor())
    }

    /// As a float.
    pub const fn float(self) -> f64 {
        self.0
    }

    /// What is left of it, at least nothing.
    #[must_use]
    pub fn saturating_sub(self, other: Quantity) -> Quantity {
        if other.0 < self.0 { Quantity(self.0 - other.0) } else { Quantity::ZERO }
    }

    /// How often the other number covers it.
    #[must_use]
    pub fn div_ceil(self, other: Quantity) -> Quantity {
        Quantity((self.0 / other.0).ceil())
    }
}

impl From<u64> for Quantity {
    fn from(number: u64) -> Quantity {
        Quantity(number as f64)
    }
}

impl From<bool> for Quantity {
    fn from(yes: bool) -> Quantity {
        if yes { Quantity(1.0) } else { Quantity::ZERO }
    }
}

/// The nearest, where it is that small.
impl From<Quantity> for u128 {
    fn from(number: Quantity) -> u128 {
        number.0 as u128
    }
}

/// The nearest, where it is that small.
impl From<Quantity> for u64 {
    fn from(number: Quantity) -> u64 {
        number.0 as u64
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.0.total_cmp(&other.0)
    }

    // By a comparison: the usual ones are calls.
    fn max(self, other: Quantity) -> Quantity {
        if other.0 > self.0 { other } else { self }
    }

    fn min(self, other: Quantity) -> Quantity {
        if other.0 < self.0 { other } else { self }
    }
}

impl Add for Quantity {
    type Output = Quantity;
    fn add(self, other: Quantity) -> Quantity {
        Quantity(self.0 + other.0)
    }
}

/// For what is known to be no larger.
impl Sub for Quantity {
    type Output = Quantity;
    fn sub(self, other: Quantity) -> Quantity {
        Quantity(self.0 - other.0)
    }
}

impl Mul for Quantity {
    type Output = Quantity;
    fn mul(self, other: Quantity) -> Quantity {
        Quantity(self.0 * other.0)
    }
}

/// What is whole of the quotient. Below 2^53 that of the rounded quotient is the same: it is nearer to the true one than a
/// whole number can be.
impl Div for Quantity {
    type Output = Quantity;
    fn div(self, other: Quantity) -> Quantity {
        Quantity((self.0 / other.0).floor())
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Quantity) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Quantity) {
        *self = *self - other;
    }
}

impl Mul<u64> for Quantity {
    type Output = Quantity;
    fn mul(self, other: u64) -> Quantity {
        self * Quantity::from(other)
    }
}

impl Add<u64> for Quantity {
    type Output = Quantity;
    fn add(self, other: u64) -> Quantity {
        self + Quantity::from(other)
    }
}

impl Div<u64> for Quantity {
    type Output = Quantity;
    fn div(self, other: u64) -> Quantity {
        self / Quantity::from(other)
    }
}

impl Mul<Quantity> for u64 {
    type Output = Quantity;
    fn mul(self, other: Quantity) -> Quantity {
        Quantity::from(self) * other
    }
}

impl Add<Quantity> for u64 {
    type Output = Quantity;
    fn add(self, other: Quantity) -> Quantity {
        Quantity::from(self) + other
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Quantity>>(all: I) -> Quantity {
        let mut sum = 0.0;
        for one in all {
            sum += one.0;
        }
        Quantity(sum)
    }
}

impl<'a> Sum<&'a Quantity> for Quantity {
    fn sum<I: Iterator<Item = &'a Quantity>>(all: I) -> Quantity {
        let mut sum = 0.0;
        for one in all {
            sum += one.0;
        }
        Quantity(sum)
    }
}
