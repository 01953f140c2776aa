//! Norms over the last dim: RMSNorm and LayerNorm, each with a weight (and a bias) or without.

use planner::model::{self, Architecture};

use tch::Tensor;

use super::functions::{exact, flat, rms, rms_norm};
use super::names::Names;
use super::settings::Settings;
use crate::tape::{Flow, Gradients, OfWeights, Tape};

/// Numbers of a norm's parameters.
#[derive(Debug, Clone)]
pub struct Norm {
    /// Its weight, where it has one.
    pub weight: Option<usize>,
    /// LayerNorm's bias, where it has one.
    pub bias: Option<usize>,
    /// Whether the mean is taken away: LayerNorm.
    pub centers: bool,
    /// What keeps it from dividing by zero.
    pub epsilon: f64,
}

impl Norm {
    /// A norm of the residual stream, of the architecture's kind.
    ///
    /// # Errors
    /// When the planner has no such parameter.
    pub fn of_stream(architecture: &Architecture, names: &Names<'_>, name: &str) -> anyhow::Result<Norm> {
        Norm::of_kind(architecture.norm, architecture, names, name)
    }

    /// An RMSNorm.
    ///
    /// # Errors
    /// When the planner has no such parameter.
    pub fn rms(architecture: &Architecture, names: &Names<'_>, name: &str) -> anyhow::Result<Norm> {
        Norm::of_kind(model::Norm::Rms, architecture, names, name)
    }

    /// An RMSNorm whose weight is the parameter of this number.
    pub fn rms_of(weight: usize, epsilon: f64) -> Norm {
        Norm { weight: Some(weight), bias: None, centers: false, epsilon }
    }

    fn of_kind(
        kind: model::Norm,
        architecture: &Architecture,
        names: &Names<'_>,
        name: &str,
    ) -> anyhow::Result<Norm> {
        let (weight, bias) = kind.parameters();
        Ok(Norm {
            weight: names.optional(weight, &format!("{name}.weight"))?,
            bias: names.optional(bias, &format!("{name}.bias"))?,
            centers: kind.centers(),
            epsilon: architecture.norm_eps,
        })
    }

    /// The normed values, which are made again for whoever keeps them where norms are recomputed.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn forward_again(
        &self,
        tape: &mut Tape<'_>,
        settings: &Settings,
        input: &Flow,
    ) -> anyhow::Result<Flow> {
        let normed = self.forward(tape, input)?;
        if settings.recompute.module("layernorm") {
            let kept = tape.keep(input);
            let [weight, bias] = self.parameters(tape)?;
            let (centers, epsilon) = (self.centers, self.epsilon);
            tape.forget(&normed, move || match (&weight, centers) {
                (Some(weight), false) => Ok(rms(&kept.get()?, weight, epsilon)?.0),
                _ => Ok(norm(&kept.get()?, weight.as_ref(), bias.as_ref(), centers, epsilon)?.0),
            });
        }
        Ok(normed)
    }

    /// The normed values.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn forward(&self, tape: &mut Tape<'_>, input: &Flow) -> anyhow::Result<Flow> {
        match (self.weight, self.centers) {
            (Some(weight), false) => rms_norm(tape, input, weight, self.epsilon),
            _ => self.by_operations(tape, input),
        }
    }

    fn parameters(&self, tape: &Tape<'_>) -> anyhow::Result<[Option<Tensor>; 2]> {
        let found =
            |parameter: Option<usize>| parameter.map(|number| tape.weight(number).f_detach()).transpose();
        Ok([found(self.weight)?, found(self.bias)?])
    }

    /// Whatever RMSNorm with a weight is not, computed in fp32 (fp64 for fp64).
    fn by_operations(&self, tape: &mut Tape<'_>, input: &Flow) -> anyhow::Result<Flow> {
        let (kind, exact) = (input.data().kind(), exact(input.data().kind()));
        let [weight, bias] = self.parameters(tape)?;
        let numbers: Vec<usize> = [self.weight, self.bias].into_iter().flatten().collect();
        let kept = tape.keep(input);
        let (data, (mean, rest)) =
            norm(input.data(), weight.as_ref(), bias.as_ref(), self.centers, self.epsilon)?;
        let has_bias = bias.is_some();
        let backward = move |gradient: Tensor| {
            let wide = kept.get()?.f_to_kind(exact)?;
            let normed = match &mean {
                Some(mean) => wide.f_sub(mean)?.f_mul(&rest)?,
                None => wide.f_mul(&rest)?,
            };
            let gradient = gradient.f_to_kind(exact)?;
            let summed = |values: &Tensor| -> anyhow::Result<Tensor> {
                Ok(flat(values)?.f_sum_dim_intlist([0_i64].as_slice(), false, exact)?)
            };
            let mut made = Vec::new();
            if weight.is_some() {
                made.push(summed(&gradient.f_mul(&normed)?)?);
            }
            if has_bias {
                made.push(summed(&gradient)?);
            }
            let mut scaled = match &weight {
                Some(weight) => gradient.f_mul(weight)?,
                None => gradient,
            };
            let along = scaled.f_mul(&normed)?.f_mean_dim([-1_i64].as_slice(), true, exact)?;
            if mean.is_some() {
                let level = scaled.f_mean_dim([-1_i64].as_slice(), true, exact)?;
                scaled = scaled.f_sub(&level)?;
            }
            let of_input = scaled.f_sub(&normed.f_mul(&along)?)?.f_mul(&rest)?.f_to_kind(kind)?;
            Ok(Gradients { inputs: vec![of_input], weights: OfWeights::Made(made) })
        };
        Ok(tape.function(&[input], &numbers, data, Box::new(backward)))
    }
}

/// The norm of `input`, with the mean, where it is taken away, and what is divided by, inverted.
fn norm(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    centers: bool,
    epsilon: f64,
) -> anyhow::Result<(Tensor, (Option<Tensor>, Tensor))> {
    let exact = exact(input.kind());
    let mut wide = input.f_to_kind(exact)?;
    let mut mean = None;
    if centers {
        let level = wide.f_mean_dim([-1_i64].as_slice(), true, exact)?;
        wide = wide.f_sub(&level)?;
        mean = Some(level);
    }
    let rest =
        wide.f_square()?.f_mean_dim([-1_i64].as_slice(), true, exact)?.f_add_scalar(epsilon)?.f_rsqrt()?;
    let mut data = wide.f_mul(&rest)?;
    if let Some(weight) = weight {
        data = data.f_mul(weight)?;
    }
    if let Some(bias) = bias {
        data = data.f_add(bias)?;
    }
    Ok((data.f_to_kind(input.kind())?, (mean, rest)))
}
