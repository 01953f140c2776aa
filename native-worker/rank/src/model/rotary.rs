//! Rotary position embedding, halves rotated against each other as Hugging Face does.

use anyhow::Context;
use tch::{Device, Kind, Tensor};

use crate::device::bring;

/// How heads are rotated.
pub struct Rotary {
    dim: i64,
    theta: f64,
}

impl Rotary {
    /// Rotation of the first `dim` elements of a head.
    ///
    /// # Errors
    /// When `dim` is absurd.
    pub fn new(dim: u64, theta: f64) -> anyhow::Result<Rotary> {
        Ok(Rotary { dim: i64::try_from(dim).context("rotary width")?, theta })
    }

    /// Cosines and sines for `positions`, `[s, 1, 1, dim / 2]` each. Made in fp64 and rounded once.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn tables(&self, positions: &[i64], kind: Kind, device: Device) -> anyhow::Result<(Tensor, Tensor)> {
        let half = self.dim / 2;
        let frequencies: Vec<f64> =
            (0..half).map(|pair| self.theta.powf(-2.0 * pair as f64 / self.dim as f64)).collect();
        let frequencies = bring(&Tensor::f_from_slice(&frequencies)?, device)?;
        let places = bring(&Tensor::f_from_slice(positions)?, device)?.f_to_kind(Kind::Double)?;
        let angles = places.f_outer(&frequencies)?.f_view([positions.len() as i64, 1, 1, half])?;
        Ok((angles.f_cos()?.f_to_kind(kind)?, angles.f_sin()?.f_to_kind(kind)?))
    }

    /// Rotates `heads`, `[s, b, heads, d]`.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn rotate(&self, heads: &Tensor, cos: &Tensor, sin: &Tensor) -> anyhow::Result<Tensor> {
        let half = self.dim / 2;
        let width = heads.size().last().copied().unwrap_or(0);
        let first = heads.f_narrow(-1, 0, half)?;
        let second = heads.f_narrow(-1, half, half)?;
        let mut parts = vec![
            first.f_mul(cos)?.f_sub(&second.f_mul(sin)?)?,
            second.f_mul(cos)?.f_add(&first.f_mul(sin)?)?,
        ];
        if width > self.dim {
            parts.push(heads.f_narrow(-1, self.dim, width - self.dim)?);
        }
        Ok(Tensor::f_cat(&parts, -1)?)
    }
}
