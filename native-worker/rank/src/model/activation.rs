//! The non-linear part of an MLP, with a gate or without, and its backward.

use planner::model::{Activation, Architecture};
use tch::Tensor;

/// What stands between an MLP's two matrices.
#[derive(Debug, Clone, Copy)]
pub struct Unit {
    kind: Activation,
    gated: bool,
}

/// Torch's name of the tanh form of GELU, which is GPT-2's and Gemma's.
const TANH: &str = "tanh";

impl Unit {
    /// The architecture's.
    pub fn new(architecture: &Architecture) -> Unit {
        Unit { kind: architecture.activation, gated: architecture.gated }
    }

    fn apply(self, input: &Tensor) -> anyhow::Result<Tensor> {
        Ok(match self.kind {
            Activation::Silu => input.f_silu()?,
            Activation::Gelu => input.f_gelu(TANH)?,
            Activation::SquaredRelu => input.f_relu()?.f_square()?,
            other => anyhow::bail!("the executor has no activation {other:?} yet"),
        })
    }

    fn apply_backward(self, input: &Tensor, gradient: &Tensor) -> anyhow::Result<Tensor> {
        Ok(match self.kind {
            Activation::Silu => input.f_silu_backward(gradient)?,
            Activation::Gelu => input.f_gelu_backward(gradient, TANH)?,
            Activation::SquaredRelu => input.f_relu()?.f_mul_scalar(2.0)?.f_mul(gradient)?,
            other => anyhow::bail!("the executor has no activation {other:?} yet"),
        })
    }

    fn halves(input: &Tensor) -> anyhow::Result<(Tensor, Tensor)> {
        let half = input.size().last().copied().unwrap_or(0) / 2;
        Ok((input.f_narrow(-1, 0, half)?, input.f_narrow(-1, half, half)?))
    }

    /// `act(gate) * up` of an input that holds gates, then ups; `act(input)` without a gate.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn forward(self, input: &Tensor) -> anyhow::Result<Tensor> {
        if !self.gated {
            return self.apply(input);
        }
        let (gate, up) = Unit::halves(input)?;
        Ok(self.apply(&gate)?.f_mul(&up)?)
    }

    /// The gradient of the input from that of the output.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn backward(self, input: &Tensor, gradient: &Tensor) -> anyhow::Result<Tensor> {
        if !self.gated {
            return self.apply_backward(input, gradient);
        }
        let (gate, up) = Unit::halves(input)?;
        let of_gate = self.apply_backward(&gate, &gradient.f_mul(&up)?)?;
        let of_up = gradient.f_mul(&self.apply(&gate)?)?;
        Ok(Tensor::f_cat(&[of_gate, of_up], -1)?)
    }
}
