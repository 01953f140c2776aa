//! Units as types: what is a byte count can't be added to a time.

use serde::{Deserialize, Serialize};

/// A number of bytes. GiB (base 1024) is made only where a person reads it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// This count in GiB (1024-based), for display.
    pub fn gib(self) -> f64 {
        self.0 as f64 / (1u64 << 30) as f64
    }

    /// This count in GB (1000-based), for display next to vendors' figures.
    pub fn gb(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl std::ops::Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(items: I) -> Bytes {
        items.fold(Bytes(0), |total, item| total + item)
    }
}

/// The element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    Fp16,
    /// IEEE single precision.
    Fp32,
    /// IEEE double precision.
    Fp64,
}

impl Dtype {
    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            Dtype::Bf16 | Dtype::Fp16 => 2,
            Dtype::Fp32 => 4,
            Dtype::Fp64 => 8,
        }
    }

    /// The name used in plan files.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::Fp16 => "fp16",
            Dtype::Fp32 => "fp32",
            Dtype::Fp64 => "fp64",
        }
    }
}
