//! Norms over the last dim: RMSNorm, and LayerNorm where there is a bias.

use planner::model::{self, Architecture};

use tch::Tensor;

use super::functions::{exact, flat, rms, rms_norm};
use super::names::Names;
use super::settings::Settings;
use crate::tape::{Flow, Gradients, OfWeights, Tape};

/// Numbers of a norm's parameters.
#[derive(Debug, Clone)]
pub struct Norm {
    /// Its weight.
    pub weight: usize,
    /// LayerNorm's bias; none for RMSNorm.
    pub bias: Option<usize>,
    /// What keeps it from dividing by zero.
    pub epsilon: f64,
}

impl Norm {
    /// A norm of the residual stream, of the architecture's kind.
    ///
    /// # Errors
    /// When the planner has no such parameter.
    pub fn of_stream(architecture: &Architecture, names: &Names<'_>, name: &str) -> anyhow::Result<Norm> {
        Ok(Norm {
            bias: names.optional(architecture.norm == model::Norm::Layer, &format!("{name}.bias"))?,
            ..Norm::rms(architecture, names, name)?
        })
    }

    /// An RMSNorm.
    ///
    /// # Errors
    /// When the planner has no such parameter.
    pub fn rms(architecture: &Architecture, names: &Names<'_>, name: &str) -> anyhow::Result<Norm> {
        let weight = names.take(&format!("{name}.weight"))?;
        Ok(Norm { weight, bias: None, epsilon: architecture.norm_eps })
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
            let weight = tape.weight(self.weight).f_detach()?;
            let bias = self.bias.map(|bias| tape.weight(bias).f_detach()).transpose()?;
            let epsilon = self.epsilon;
            tape.forget(&normed, move || match &bias {
                None => Ok(rms(&kept.get()?, &weight, epsilon)?.0),
                Some(bias) => Ok(layer(&kept.get()?, &weight, bias, epsilon)?.0),
            });
        }
        Ok(normed)
    }

    /// The normed values.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn forward(&self, tape: &mut Tape<'_>, input: &Flow) -> anyhow::Result<Flow> {
        match self.bias {
            None => rms_norm(tape, input, self.weight, self.epsilon),
            Some(bias) => layer_norm(tape, input, [self.weight, bias], self.epsilon),
        }
    }
}

/// LayerNorm over the last dim, computed in fp32 (fp64 for fp64).
fn layer_norm(
    tape: &mut Tape<'_>,
    input: &Flow,
    parameters: [usize; 2],
    epsilon: f64,
) -> anyhow::Result<Flow> {
    let (kind, exact) = (input.data().kind(), exact(input.data().kind()));
    let weight = tape.weight(parameters[0]).f_detach()?;
    let bias = tape.weight(parameters[1]).f_detach()?;
    let kept = tape.keep(input);
    let (data, [mean, rest]) = layer(input.data(), &weight, &bias, epsilon)?;
    let backward = move |gradient: Tensor| {
        let normed = kept.get()?.f_to_kind(exact)?.f_sub(&mean)?.f_mul(&rest)?;
        let gradient = gradient.f_to_kind(exact)?;
        let of_weight =
            flat(&gradient.f_mul(&normed)?)?.f_sum_dim_intlist([0_i64].as_slice(), false, exact)?;
        let of_bias = flat(&gradient)?.f_sum_dim_intlist([0_i64].as_slice(), false, exact)?;
        let scaled = gradient.f_mul(&weight)?;
        let along = scaled.f_mul(&normed)?.f_mean_dim([-1_i64].as_slice(), true, exact)?;
        let level = scaled.f_mean_dim([-1_i64].as_slice(), true, exact)?;
        let of_input = scaled.f_sub(&level)?.f_sub(&normed.f_mul(&along)?)?.f_mul(&rest)?.f_to_kind(kind)?;
        Ok(Gradients { inputs: vec![of_input], weights: OfWeights::Made(vec![of_weight, of_bias]) })
    };
    Ok(tape.function(&[input], &parameters, data, Box::new(backward)))
}

/// LayerNorm of `input`, with the mean and what it is divided by, inverted.
fn layer(
    input: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    epsilon: f64,
) -> anyhow::Result<(Tensor, [Tensor; 2])> {
    let exact = exact(input.kind());
    let wide = input.f_to_kind(exact)?;
    let mean = wide.f_mean_dim([-1_i64].as_slice(), true, exact)?;
    let centred = wide.f_sub(&mean)?;
    let rest =
        centred.f_square()?.f_mean_dim([-1_i64].as_slice(), true, exact)?.f_add_scalar(epsilon)?.f_rsqrt()?;
    let data = centred.f_mul(&rest)?.f_mul(weight)?.f_add(bias)?.f_to_kind(input.kind())?;
    Ok((data, [mean, rest]))
}
