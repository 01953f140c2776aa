//! Rotary position embedding, halves rotated against each other as Hugging Face does.

use anyhow::Context;
use tch::{Device, Kind, Tensor};

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
        let mut angles = Vec::with_capacity(positions.len() * usize::try_from(half).unwrap_or(0));
        for &position in positions {
            for pair in 0..half {
                let frequency = self.theta.powf(-2.0 * pair as f64 / self.dim as f64);
                angles.push(position as f64 * frequency);
            }
        }
        let angles = Tensor::f_from_slice(&angles)?.f_view([positions.len() as i64, 1, 1, half])?;
        let table = |values: Tensor| values.f_to_device(device)?.f_to_kind(kind);
        Ok((table(angles.f_cos()?)?, table(angles.f_sin()?)?))
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
