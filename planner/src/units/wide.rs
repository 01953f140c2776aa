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
pub struct Wide(f64);

impl Wide {
    /// Nothing.
    pub const ZERO: Wide = Wide(0.0);

    /// A number that is known when this is compiled.
    pub const fn of(number: u64) -> Wide {
        Wide(number as f64)
    }

    /// What is whole of a number that is not negative.
    pub fn floor(number: f64) -> Wide {
        Wide(number.max(0.0).floor())
    }

    /// As a float.
    pub const fn float(self) -> f64 {
        self.0
    }

    /// What is left of it, at least nothing.
    #[must_use]
    pub fn saturating_sub(self, other: Wide) -> Wide {
        if other.0 < self.0 { Wide(self.0 - other.0) } else { Wide::ZERO }
    }

    /// How often the other number covers it.
    #[must_use]
    pub fn div_ceil(self, other: Wide) -> Wide {
        Wide((self.0 / other.0).ceil())
    }
}

impl From<u64> for Wide {
    fn from(number: u64) -> Wide {
        Wide(number as f64)
    }
}

impl From<bool> for Wide {
    fn from(yes: bool) -> Wide {
        if yes { Wide(1.0) } else { Wide::ZERO }
    }
}

/// The nearest, where it is that small.
impl From<Wide> for u128 {
    fn from(number: Wide) -> u128 {
        number.0 as u128
    }
}

/// The nearest, where it is that small.
impl From<Wide> for u64 {
    fn from(number: Wide) -> u64 {
        number.0 as u64
    }
}

impl Eq for Wide {}

impl PartialOrd for Wide {
    fn partial_cmp(&self, other: &Wide) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Wide {
    fn cmp(&self, other: &Wide) -> Ordering {
        self.0.total_cmp(&other.0)
    }

    // By a comparison: the usual ones are calls.
    fn max(self, other: Wide) -> Wide {
        if other.0 > self.0 { other } else { self }
    }

    fn min(self, other: Wide) -> Wide {
        if other.0 < self.0 { other } else { self }
    }
}

impl Add for Wide {
    type Output = Wide;
    fn add(self, other: Wide) -> Wide {
        Wide(self.0 + other.0)
    }
}

/// For what is known to be no larger.
impl Sub for Wide {
    type Output = Wide;
    fn sub(self, other: Wide) -> Wide {
        Wide(self.0 - other.0)
    }
}

impl Mul for Wide {
    type Output = Wide;
    fn mul(self, other: Wide) -> Wide {
        Wide(self.0 * other.0)
    }
}

/// What is whole of the quotient. Below 2^53 that of the rounded quotient is the same: it is nearer to the true one than a
/// whole number can be.
impl Div for Wide {
    type Output = Wide;
    fn div(self, other: Wide) -> Wide {
        Wide((self.0 / other.0).floor())
    }
}

impl AddAssign for Wide {
    fn add_assign(&mut self, other: Wide) {
        *self = *self + other;
    }
}

impl SubAssign for Wide {
    fn sub_assign(&mut self, other: Wide) {
        *self = *self - other;
    }
}

impl Mul<u64> for Wide {
    type Output = Wide;
    fn mul(self, other: u64) -> Wide {
        self * Wide::from(other)
    }
}

impl Add<u64> for Wide {
    type Output = Wide;
    fn add(self, other: u64) -> Wide {
        self + Wide::from(other)
    }
}

impl Div<u64> for Wide {
    type Output = Wide;
    fn div(self, other: u64) -> Wide {
        self / Wide::from(other)
    }
}

impl Mul<Wide> for u64 {
    type Output = Wide;
    fn mul(self, other: Wide) -> Wide {
        Wide::from(self) * other
    }
}

impl Add<Wide> for u64 {
    type Output = Wide;
    fn add(self, other: Wide) -> Wide {
        Wide::from(self) + other
    }
}

impl Sum for Wide {
    fn sum<I: Iterator<Item = Wide>>(all: I) -> Wide {
        let mut sum = 0.0;
        for one in all {
            sum += one.0;
        }
        Wide(sum)
    }
}

impl<'a> Sum<&'a Wide> for Wide {
    fn sum<I: Iterator<Item = &'a Wide>>(all: I) -> Wide {
        let mut sum = 0.0;
        for one in all {
            sum += one.0;
        }
        Wide(sum)
    }
}
