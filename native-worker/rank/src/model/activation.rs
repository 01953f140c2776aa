//! The non-linear part of an MLP, with a gate or without, and its backward.

use planner::model::{Activation, Architecture};
use tch::Tensor;

/// What stands between an MLP's two matrices.
#[derive(Debug, Clone, Copy)]
pub struct Unit {
    kind: Activation,
    gated: bool,
    /// Bound of the gate from above, of the up projection on both sides.
    limit: Option<f64>,
}

/// Torch's names of the two forms of GELU: GPT-2's and Gemma's, and that by the error function.
const TANH: &str = "tanh";
const ERF: &str = "none";

/// What gpt-oss and the quick form of GELU multiply the argument of their logistic function by.
const QUICK: f64 = 1.702;

/// `input * sigmoid(1.702 input)`.
fn quick(input: &Tensor) -> anyhow::Result<Tensor> {
    Ok(input.f_mul(&input.f_mul_scalar(QUICK)?.f_sigmoid()?)?)
}

/// The gradient of its input.
fn quick_backward(input: &Tensor, gradient: &Tensor) -> anyhow::Result<Tensor> {
    // It is SiLU of the scaled input over the scale, whose slope is SiLU's there.
    Ok(input.f_mul_scalar(QUICK)?.f_silu_backward(gradient)?)
}

impl Unit {
    /// The architecture's.
    pub fn new(architecture: &Architecture) -> Unit {
        Unit {
            kind: architecture.activation,
            gated: architecture.gated,
            limit: architecture.activation_limit,
        }
    }

    fn apply(self, input: &Tensor) -> anyhow::Result<Tensor> {
        Ok(match self.kind {
            Activation::Silu => input.f_silu()?,
            Activation::Gelu => input.f_gelu(TANH)?,
            Activation::GeluErf => input.f_gelu(ERF)?,
            Activation::SquaredRelu => input.f_relu()?.f_square()?,
            Activation::Relu => input.f_relu()?,
            Activation::QuickGelu | Activation::GptOss => quick(input)?,
            other => anyhow::bail!("the executor has no activation {other:?} yet"),
        })
    }

    fn apply_backward(self, input: &Tensor, gradient: &Tensor) -> anyhow::Result<Tensor> {
        Ok(match self.kind {
            Activation::Silu => input.f_silu_backward(gradient)?,
            Activation::Gelu => input.f_gelu_backward(gradient, TANH)?,
            Activation::GeluErf => input.f_gelu_backward(gradient, ERF)?,
            Activation::SquaredRelu => input.f_relu()?.f_mul_scalar(2.0)?.f_mul(gradient)?,
            Activation::Relu => gradient.f_mul(&input.f_gt(0.0)?)?,
            Activation::QuickGelu | Activation::GptOss => quick_backward(input, gradient)?,
            other => anyhow::bail!("the executor has no activation {other:?} yet"),
        })
    }

    /// Gate and up projection within their bounds, the up projection with what is added to it.
    fn bounded(self, gate: Tensor, up: Tensor) -> anyhow::Result<(Tensor, Tensor)> {
        let (gate, up) = match self.limit {
            Some(limit) => (gate.f_clamp_max(limit)?, up.f_clamp(-limit, limit)?),
            None => (gate, up),
        };
        Ok((gate, if self.kind == Activation::GptOss { up.f_add_scalar(1.0)? } else { up }))
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
        let (gate, up) = self.bounded(gate, up)?;
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
        let (raw_gate, raw_up) = Unit::halves(input)?;
        let (gate, up) = self.bounded(raw_gate.shallow_clone(), raw_up.shallow_clone())?;
        let mut of_gate = self.apply_backward(&gate, &gradient.f_mul(&up)?)?;
        let mut of_up = gradient.f_mul(&self.apply(&gate)?)?;
        drop((gate, up));
        if let Some(limit) = self.limit {
            // What a bound cut off has no slope.
            let _ = of_gate.f_masked_fill_(&raw_gate.f_gt(limit)?, 0.0)?;
            let _ = of_up.f_masked_fill_(&raw_up.f_abs()?.f_gt(limit)?, 0.0)?;
        }
        Ok(Tensor::f_cat(&[of_gate, of_up], -1)?)
    }
}
