//! xIELU (Apertus): an activation whose two sides have a learned scalar each (transformers `XIELUActivation`).

use anyhow::Context;
use tch::{Tensor, with_grad};

use crate::sys;
use crate::tape::{Flow, Gradients, OfWeights, Tape};

/// Slope at zero, on both sides.
const BETA: f64 = 0.5;
/// The exponential's argument is at most this, so that its slope is not lost in rounding.
const MOST: f64 = -1e-6;

/// xIELU of any shape, with a scalar for the positive and one for the negative side, `[1]` each, before their softplus.
fn apply(input: &Tensor, positive: &Tensor, negative: &Tensor) -> anyhow::Result<Tensor> {
    let (above, below) = (positive.f_softplus()?, negative.f_softplus()?.f_add_scalar(BETA)?);
    let line = input.f_mul_scalar(BETA)?;
    let right = input.f_square()?.f_mul(&above)?;
    let left = input.f_clamp_max(MOST)?.f_expm1()?.f_sub(input)?.f_mul(&below)?;
    Ok(right.f_where_self(&input.f_gt(0.0)?, &left)?.f_add(&line)?)
}

/// xIELU, which keeps its input and is made again in backward; `scalars` are the numbers of the two.
///
/// # Errors
/// When libtorch fails.
pub fn xielu(tape: &mut Tape<'_>, input: &Flow, scalars: [usize; 2]) -> anyhow::Result<Flow> {
    let kept = tape.keep(input);
    let [positive, negative] = scalars.map(|scalar| tape.weight(scalar).f_detach());
    let (positive, negative) = (positive?, negative?);
    let data = apply(input.data(), &positive, &negative)?;
    let backward = move |gradient: Tensor| {
        let leaf = |tensor: &Tensor| tensor.f_detach()?.f_set_requires_grad(true);
        let leaves = [leaf(&kept.get()?)?, leaf(&positive)?, leaf(&negative)?];
        let output = with_grad(|| apply(&leaves[0], &leaves[1], &leaves[2]))?;
        let found = sys::gradients(&[&output], &[&gradient], &leaves.iter().collect::<Vec<_>>())?;
        let mut found = found.into_iter().flatten();
        let of_input = found.next().context("the gradient of an activation's input")?;
        Ok(Gradients { inputs: vec![of_input], weights: OfWeights::Made(found.collect()) })
    };
    Ok(tape.function(&[input], &scalars, data, Box::new(backward)))
}
