//! Functions with a backward of their own, which keep for it only what they need: a norm its input, a column-parallel
//! matrix its rank's slice of the input, a gated unit its input.

use tch::{Device, Kind, Tensor};

use super::activation::Unit;
use crate::sys;
use crate::tape::{Flow, Gradient, Gradients, OfWeights, Tape};

/// What sums are made in: fp64 for fp64, else fp32.
pub fn exact(kind: Kind) -> Kind {
    if kind == Kind::Double { Kind::Double } else { Kind::Float }
}

/// `[tokens, width]`.
///
/// # Errors
/// When libtorch fails.
pub fn flat(tensor: &Tensor) -> anyhow::Result<Tensor> {
    let width = tensor.size().last().copied().unwrap_or(1);
    Ok(tensor.f_reshape([-1, width])?)
}

/// A parameter as `[outputs, inputs]`.
fn matrix(weight: &Tensor, inputs: i64) -> anyhow::Result<Tensor> {
    Ok(weight.f_detach()?.f_reshape([-1, inputs])?)
}

/// RMSNorm of `input`, and what it is divided by, inverted.
///
/// # Errors
/// When libtorch fails.
pub fn rms(input: &Tensor, weight: &Tensor, epsilon: f64) -> anyhow::Result<(Tensor, Tensor)> {
    let exact = exact(input.kind());
    let wide = input.f_to_kind(exact)?;
    let rest =
        wide.f_square()?.f_mean_dim([-1_i64].as_slice(), true, exact)?.f_add_scalar(epsilon)?.f_rsqrt()?;
    Ok((wide.f_mul(&rest)?.f_mul(weight)?.f_to_kind(input.kind())?, rest))
}

/// RMSNorm over the last dim, computed in fp32 (fp64 for fp64): by one kernel where the device has it.
///
/// # Errors
/// When libtorch fails.
pub fn rms_norm(tape: &mut Tape<'_>, stream: &Flow, parameter: usize, epsilon: f64) -> anyhow::Result<Flow> {
    let weight = tape.weight(parameter).f_detach()?;
    let kept = tape.keep(stream);
    let fused = matches!(stream.data().device(), Device::Cuda(_));
    let (data, rest) = match fused {
        true => sys::fused_rms_norm(stream.data(), &weight, epsilon)?.into(),
        false => rms(stream.data(), &weight, epsilon)?,
    };
    let backward = move |gradient: Tensor| {
        let input = kept.get()?;
        let [of_input, of_weight] = match fused {
            true => sys::fused_rms_norm_backward(&gradient.f_contiguous()?, &input, &rest, &weight)?,
            false => rms_backward(&gradient, &input, &rest, &weight)?,
        };
        Ok(Gradients { inputs: vec![of_input], weights: OfWeights::Made(vec![of_weight]) })
    };
    Ok(tape.function(&[stream], &[parameter], data, Box::new(backward)))
}

/// Gradients of RMSNorm's input and weight, operation by operation; `rest` is what the input was divided by, inverted.
///
/// # Errors
/// When libtorch fails.
pub fn rms_backward(
    gradient: &Tensor,
    input: &Tensor,
    rest: &Tensor,
    weight: &Tensor,
) -> anyhow::Result<[Tensor; 2]> {
    let (kind, exact) = (input.kind(), exact(input.kind()));
    let normed = input.f_to_kind(exact)?.f_mul(rest)?;
    let gradient = gradient.f_to_kind(exact)?;
    let of_weight = flat(&gradient.f_mul(&normed)?)?.f_sum_dim_intlist([0_i64].as_slice(), false, exact)?;
    let scaled = gradient.f_mul(weight)?;
    let along = scaled.f_mul(&normed)?.f_mean_dim([-1_i64].as_slice(), true, exact)?;
    let of_input = scaled.f_sub(&normed.f_mul(&along)?)?.f_mul(rest)?.f_to_kind(kind)?;
    Ok([of_input, of_weight])
}

/// A column-parallel matrix (and bias): every rank reads all tokens and makes its own outputs. With sequence parallelism
/// the slices are joined for it, and again in backward, instead of being kept.
///
/// # Errors
/// When libtorch or a collective fails.
pub fn column_linear(
    tape: &mut Tape<'_>,
    input: &Flow,
    parameters: &[usize],
    sequence_parallel: bool,
) -> anyhow::Result<Flow> {
    let group = tape.group();
    let kept = tape.keep(input);
    let whole = move |slice: Tensor| if sequence_parallel { group.gather(&slice) } else { anyhow::Ok(slice) };
    let width = input.data().size().last().copied().unwrap_or(1);
    let shapes: Vec<Vec<i64>> = parameters.iter().map(|&parameter| tape.weight(parameter).size()).collect();
    let weight = tape.weight(parameters[0]);
    let bias = parameters.get(1).map(|&bias| tape.weight(bias).f_detach()?.f_reshape([-1])).transpose()?;
    let data = whole(input.data().shallow_clone())?.f_linear(&matrix(&weight, width)?, bias.as_ref())?;
    let backward = move |gradient: Tensor| {
        // Made again: of rows that don't lie together it is a copy, which nobody should keep.
        let of_input = gradient.f_matmul(&matrix(&weight, width)?)?;
        let of_input = match group.size() {
            1 => of_input,
            _ if sequence_parallel => group.sum_scatter(&of_input)?,
            _ => group.sum(&of_input)?,
        };
        let of_weights = move || {
            let rows = flat(&gradient)?;
            drop(gradient);
            let inputs = flat(&whole(kept.get()?)?)?;
            drop(kept);
            let mut of_bias = None;
            if let Some(shape) = shapes.get(1) {
                let sum = rows.f_sum_dim_intlist([0_i64].as_slice(), false, rows.kind())?;
                of_bias = Some(Gradient::Made(sum.f_view(shape.as_slice())?));
            }
            let of_matrix = Gradient::Product { of_outputs: rows, inputs, shape: shapes[0].clone() };
            Ok(std::iter::once(of_matrix).chain(of_bias).collect())
        };
        Ok(Gradients { inputs: vec![of_input], weights: OfWeights::Later(Box::new(of_weights)) })
    };
    Ok(tape.function(&[input], parameters, data, Box::new(backward)))
}

/// A row-parallel matrix: every rank has its own inputs and makes a part of the sum.
///
/// # Errors
/// When libtorch fails.
pub fn row_linear(tape: &mut Tape<'_>, input: &Flow, parameter: usize) -> anyhow::Result<Flow> {
    let kept = tape.keep(input);
    let shape = tape.weight(parameter).size();
    let weight = matrix(&tape.weight(parameter), input.data().size().last().copied().unwrap_or(1))?;
    let data = input.data().f_linear(&weight, None::<&Tensor>)?;
    let backward = move |gradient: Tensor| {
        let of_input = gradient.f_matmul(&weight)?;
        let of_weight = move || {
            let inputs = flat(&kept.get()?)?;
            drop(kept);
            let of_outputs = flat(&gradient)?;
            drop(gradient);
            Ok(vec![Gradient::Product { of_outputs, inputs, shape }])
        };
        Ok(Gradients { inputs: vec![of_input], weights: OfWeights::Later(Box::new(of_weight)) })
    };
    Ok(tape.function(&[input], &[parameter], data, Box::new(backward)))
}

/// The non-linear part of an MLP.
///
/// # Errors
/// When libtorch fails.
pub fn unit(tape: &mut Tape<'_>, input: &Flow, unit: Unit) -> anyhow::Result<Flow> {
    let kept = tape.keep(input);
    let data = unit.forward(input.data())?;
    let backward = move |gradient: Tensor| {
        let of_input = unit.backward(&kept.get()?, &gradient)?;
        Ok(Gradients { inputs: vec![of_input], weights: OfWeights::Made(Vec::new()) })
    };
    Ok(tape.function(&[input], &[], data, Box::new(backward)))
}

/// Adds a vector to every token.
///
/// # Errors
/// When libtorch fails.
pub fn add_bias(tape: &mut Tape<'_>, input: &Flow, parameter: usize) -> anyhow::Result<Flow> {
    let exact = exact(input.data().kind());
    let bias = tape.weight(parameter).f_detach()?.f_reshape([-1])?;
    let data = input.data().f_add(&bias)?;
    let backward = move |gradient: Tensor| {
        let of_bias = flat(&gradient)?.f_sum_dim_intlist([0_i64].as_slice(), false, exact)?;
        Ok(Gradients { inputs: vec![gradient], weights: OfWeights::Made(vec![of_bias]) })
    };
    Ok(tape.function(&[input], &[parameter], data, Box::new(backward)))
}

/// A value times a number; nothing is kept for it.
///
/// # Errors
/// When libtorch fails.
pub fn multiplied(tape: &mut Tape<'_>, input: Flow, factor: f64) -> anyhow::Result<Flow> {
    if factor == 1.0 {
        return Ok(input);
    }
    let data = input.data().f_mul_scalar(factor)?;
    let backward = move |gradient: Tensor| {
        Ok(Gradients { inputs: vec![gradient.f_mul_scalar(factor)?], weights: OfWeights::Made(Vec::new()) })
    };
    Ok(tape.function(&[&input], &[], data, Box::new(backward)))
}
