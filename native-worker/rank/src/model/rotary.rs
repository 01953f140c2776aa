//! Rotary position embedding, halves rotated against each other as Hugging Face does, with its scalings of the angles
//! (transformers `modeling_rope_utils.py`). Neighbours that are rotated against each other (DeepSeek, Llama 4, Cohere) are
//! the same up to the order of a matrix's rows.

use std::f64::consts::TAU;

use anyhow::{Context, ensure};
use planner::model::{RopeKind, RopeScaling, Rotation};
use tch::{Device, Kind, Tensor};

use crate::device::bring;

/// How heads are rotated.
pub struct Rotary {
    /// Channels that cosines and sines are made for.
    dim: i64,
    /// Angle of a position, for each pair of channels.
    frequencies: Vec<f64>,
    /// What cosines and sines are multiplied by.
    factor: f64,
}

impl Rotary {
    /// A rotation for sequences of `seq_len` tokens.
    ///
    /// # Errors
    /// When widths are absurd, or the scaling lacks what its rule needs.
    pub fn new(rotation: &Rotation, seq_len: u64) -> anyhow::Result<Rotary> {
        let dim = i64::try_from(rotation.width).context("rotary width")?;
        let theta = rotation.rope.theta;
        let pairs = u32::try_from(rotation.width / 2).context("rotary width")?;
        let plain = |theta: f64| -> Vec<f64> {
            (0..pairs).map(|pair| theta.powf(-2.0 * f64::from(pair) / dim as f64)).collect()
        };
        let Some(scaling) = &rotation.rope.scaling else {
            return Ok(Rotary { dim, frequencies: plain(theta), factor: 1.0 });
        };
        let original = || {
            scaling
                .original_positions
                .context("scaled rotary angles without the original length")
                .map(|length| length as f64)
        };
        let RopeScaling { kind, factor, .. } = scaling;
        let (mut frequencies, mut amplitude) = (plain(theta), 1.0);
        match kind {
            RopeKind::Linear => frequencies.iter_mut().for_each(|angle| *angle /= factor),
            RopeKind::Dynamic => {
                let (length, dim) = (original()?, dim as f64);
                let stretched = factor * (seq_len as f64).max(length) / length - (factor - 1.0);
                frequencies = plain(theta * stretched.powf(dim / (dim - 2.0)));
            }
            RopeKind::Yarn => {
                yarn(&mut frequencies, scaling, theta, original()?);
                amplitude = scaling.amplitude();
            }
            RopeKind::Llama3 => llama3(&mut frequencies, scaling, original()?)?,
            RopeKind::Longrope => {
                let length = original()?;
                let longer = seq_len as f64 > length;
                let factors = if longer { &scaling.long_factors } else { &scaling.short_factors };
                ensure!(
                    factors.len() == frequencies.len(),
                    "{} factors of rotary angles for {} pairs of channels; give one for each pair",
                    factors.len(),
                    frequencies.len()
                );
                frequencies.iter_mut().zip(factors).for_each(|(angle, factor)| *angle /= factor);
                let usual = if *factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / length.ln()).sqrt() };
                amplitude = scaling.attention_factor.unwrap_or(usual);
            }
            RopeKind::Proportional => {
                let turned = usize::try_from(rotation.turned / 2).context("rotary width")?;
                frequencies.iter_mut().for_each(|angle| *angle /= factor);
                frequencies.iter_mut().skip(turned).for_each(|angle| *angle = 0.0);
            }
        }
        Ok(Rotary { dim, frequencies, factor: amplitude })
    }

    /// Angles of the `positions` of `tokens` tokens, of which all sequences have the same or each its own, `[s, 1 or b, 1, dim / 2]`,
    /// in fp64.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn angles(&self, positions: &[i64], tokens: usize, device: Device) -> anyhow::Result<Tensor> {
        let half = self.dim / 2;
        let frequencies = bring(&Tensor::f_from_slice(&self.frequencies)?, device)?;
        let places = bring(&Tensor::f_from_slice(positions)?, device)?.f_to_kind(Kind::Double)?;
        Ok(places.f_outer(&frequencies)?.f_view([tokens as i64, -1, 1, half])?)
    }

    /// Cosines of angles, as heads are multiplied by them: rounded once.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn cosines(&self, angles: &Tensor, kind: Kind) -> anyhow::Result<Tensor> {
        self.scaled(angles.f_cos()?, kind)
    }

    /// Sines likewise.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn sines(&self, angles: &Tensor, kind: Kind) -> anyhow::Result<Tensor> {
        self.scaled(angles.f_sin()?, kind)
    }

    fn scaled(&self, values: Tensor, kind: Kind) -> anyhow::Result<Tensor> {
        Ok(match self.factor {
            1.0 => values.f_to_kind(kind)?,
            factor => values.f_mul_scalar(factor)?.f_to_kind(kind)?,
        })
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

/// Angles of slow channels over the factor, of fast ones as they are, and a ramp between.
fn yarn(frequencies: &mut [f64], scaling: &RopeScaling, theta: f64, length: f64) {
    let dim = 2.0 * frequencies.len() as f64;
    let [fast, slow] = scaling.bounds();
    // The channel that turns so many times over the original length.
    let channel = |turns: f64| dim * (length / (turns * TAU)).ln() / (2.0 * theta.ln());
    let (low, high) = (channel(fast), channel(slow));
    let (low, high) = if scaling.untruncated { (low, high) } else { (low.floor(), high.ceil()) };
    let (low, high) = (low.max(0.0), high.min(dim - 1.0));
    let width = if low == high { 0.001 } else { high - low };
    for (pair, angle) in frequencies.iter_mut().enumerate() {
        let ramp = ((pair as f64 - low) / width).clamp(0.0, 1.0);
        *angle *= ramp / scaling.factor + 1.0 - ramp;
    }
}

/// Angles of channels slower than the original length over the factor, with a ramp to those that are as they are.
fn llama3(frequencies: &mut [f64], scaling: &RopeScaling, length: f64) -> anyhow::Result<()> {
    let [high, low] = scaling.fast_slow.context("Llama 3's rotary angles without their bounds")?;
    for angle in frequencies {
        let wave = TAU / *angle;
        let smooth = (length / wave - low) / (high - low);
        *angle = match () {
            () if wave < length / high => *angle,
            () if wave > length / low => *angle / scaling.factor,
            () => (1.0 - smooth) * *angle / scaling.factor + smooth * *angle,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use planner::model::Rope;

    use super::*;

    fn rotary(scaling: RopeScaling, seq_len: u64) -> Rotary {
        let rope = Rope { theta: 10_000.0, scaling: Some(scaling) };
        Rotary::new(&Rotation { width: 8, turned: 8, rope }, seq_len).unwrap()
    }

    #[test]
    fn a_factor_of_one_scales_nothing() {
        let plain =
            Rotary::new(&Rotation { width: 8, turned: 8, rope: Rope { theta: 10_000.0, scaling: None } }, 64);
        let plain = plain.unwrap().frequencies;
        for kind in
            [RopeKind::Linear, RopeKind::Dynamic, RopeKind::Yarn, RopeKind::Llama3, RopeKind::Proportional]
        {
            let scaling = RopeScaling {
                kind,
                factor: 1.0,
                original_positions: Some(64),
                fast_slow: Some([4.0, 1.0]),
                ..RopeScaling::default()
            };
            let scaled = rotary(scaling, 64);
            assert_eq!(scaled.factor, 1.0);
            for (one, other) in plain.iter().zip(&scaled.frequencies) {
                assert!((one - other).abs() < 1e-15, "{kind:?}");
            }
        }
    }

    #[test]
    fn longer_sequences_take_the_long_factors() {
        let scaling = RopeScaling {
            kind: RopeKind::Longrope,
            factor: 4.0,
            original_positions: Some(64),
            short_factors: vec![1.0; 4],
            long_factors: vec![2.0; 4],
            ..RopeScaling::default()
        };
        assert_eq!(rotary(scaling.clone(), 64).frequencies[0], 1.0);
        assert_eq!(rotary(scaling.clone(), 65).frequencies[0], 0.5);
        assert!(
            Rotary::new(
                &Rotation { width: 6, turned: 6, rope: Rope { theta: 1e4, scaling: Some(scaling) } },
                64
            )
            .is_err()
        );
    }
}
