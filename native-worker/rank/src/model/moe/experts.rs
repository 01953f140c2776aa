//! Routed experts of a rank: each an MLP on the rows that were sent to it, weighed by its router inside the MLP, so
//! that nothing of the output has to be kept; or, as Llama 4 has it, before the MLP.

use tch::Tensor;

use super::dispatch::Dispatch;
use crate::model::activation::Unit;
use crate::model::functions::exact;
use crate::tape::{Flow, Gradients, OfWeights, Tape};

/// Numbers of one expert's parameters.
#[derive(Debug, Clone)]
pub struct Expert {
    /// First matrix.
    pub fc1: usize,
    /// Its bias.
    pub fc1_bias: Option<usize>,
    /// Second matrix.
    pub fc2: usize,
    /// Its bias.
    pub fc2_bias: Option<usize>,
}

/// What all experts of a layer do alike.
#[derive(Debug, Clone, Copy)]
pub struct Doing {
    /// Between the two matrices.
    pub unit: Unit,
    /// Whether rows are weighed before the first matrix, instead of what the unit makes of them.
    pub weighs_inputs: bool,
    /// Whether the input of the second matrix is made again in backward.
    pub again: bool,
}

impl Doing {
    /// Rows by their shares, where that is done.
    fn weighed(rows: &Tensor, share: &Tensor, wanted: bool) -> anyhow::Result<Tensor> {
        match wanted {
            true => Ok(rows.f_mul(share)?.f_to_kind(rows.kind())?),
            false => Ok(rows.shallow_clone()),
        }
    }

    /// What the first matrix is given.
    fn given(self, input: &Tensor, share: &Tensor) -> anyhow::Result<Tensor> {
        Doing::weighed(input, share, self.weighs_inputs)
    }

    /// What the second matrix is given, of what the unit made.
    fn taken(self, activated: &Tensor, share: &Tensor) -> anyhow::Result<Tensor> {
        Doing::weighed(activated, share, !self.weighs_inputs)
    }
}

/// An expert's weights as matrices `[outputs, inputs]` and vectors.
struct Matrices {
    fc1: Tensor,
    fc1_bias: Option<Tensor>,
    fc2: Tensor,
    fc2_bias: Option<Tensor>,
}

fn matrices(tape: &Tape<'_>, expert: &Expert, width: i64) -> anyhow::Result<Matrices> {
    let flat = |parameter: usize| tape.weight(parameter).f_detach();
    let vector = |parameter: Option<usize>| parameter.map(|bias| flat(bias)?.f_reshape([-1])).transpose();
    Ok(Matrices {
        fc1: flat(expert.fc1)?.f_reshape([-1, width])?,
        fc1_bias: vector(expert.fc1_bias)?,
        fc2: flat(expert.fc2)?.f_reshape([width, -1])?,
        fc2_bias: vector(expert.fc2_bias)?,
    })
}

fn empty(like: &Tensor, rows: i64, width: i64) -> anyhow::Result<Tensor> {
    Ok(Tensor::f_empty([rows, width], (like.kind(), like.device()))?)
}

/// Rows of a token-major tensor that belong to each expert.
fn parts<'r>(rows: &'r [i64]) -> impl Iterator<Item = (usize, i64, i64)> + 'r {
    let mut start = 0;
    rows.iter().enumerate().map(move |(expert, &length)| {
        let first = start;
        start += length;
        (expert, first, length)
    })
}

/// What experts make of their rows, and what backward needs of it.
struct Forward {
    input: Tensor,
    /// Output of the first matrix.
    first: Tensor,
    /// Input of the second; none when it is made again.
    weighted: Option<Tensor>,
    /// Weight of each row, `[rows, 1]`, exact.
    share: Tensor,
}

fn forward(
    experts: &[Matrices],
    rows: &[i64],
    doing: Doing,
    input: Tensor,
    share: Tensor,
) -> anyhow::Result<(Tensor, Forward)> {
    let (total, width) = (input.size()[0], input.size()[1]);
    let (outer, inner) = (experts[0].fc1.size()[0], experts[0].fc2.size()[1]);
    let first = empty(&input, total, outer)?;
    let given = doing.given(&input, &share)?;
    for (expert, start, length) in parts(rows) {
        let matrices = &experts[expert];
        let mut out = first.f_narrow(0, start, length)?;
        out.f_copy_(&given.f_narrow(0, start, length)?.f_linear(&matrices.fc1, matrices.fc1_bias.as_ref())?)?;
    }
    drop(given);
    let kind = input.kind();
    let weighted = doing.taken(&doing.unit.forward(&first)?, &share)?;
    debug_assert_eq!(weighted.size()[1], inner);
    let output = empty(&input, total, width)?;
    for (expert, start, length) in parts(rows) {
        let matrices = &experts[expert];
        let mut out = output.f_narrow(0, start, length)?;
        out.f_copy_(&weighted.f_narrow(0, start, length)?.f_linear(&matrices.fc2, None::<&Tensor>)?)?;
        if let Some(bias) = &matrices.fc2_bias {
            let bias = bias.f_expand([length, width], false)?;
            let bias = doing.taken(&bias, &share.f_narrow(0, start, length)?)?;
            let _ = out.f_add_(&bias.f_to_kind(kind)?)?;
        }
    }
    let weighted = (!doing.again).then_some(weighted);
    Ok((output, Forward { input, first, weighted, share }))
}

/// Gradients of rows and of their shares, and what makes those of the parameters.
struct Backward {
    of_input: Tensor,
    of_share: Tensor,
    weights: OfParameters,
}

/// What gradients of experts' parameters are made of.
struct OfParameters {
    input: Tensor,
    weighted: Tensor,
    share: Tensor,
    of_first: Tensor,
    gradient: Tensor,
}

fn backward(
    kept: Forward,
    experts: &[Matrices],
    rows: &[i64],
    doing: Doing,
    gradient: Tensor,
) -> anyhow::Result<Backward> {
    let Forward { input, first, weighted, share } = kept;
    let (kind, exact) = (input.kind(), exact(input.kind()));
    let of_weighted =
        first.f_new_empty([first.size()[0], experts[0].fc2.size()[1]], (kind, input.device()))?;
    let mut of_share = Tensor::f_zeros_like(&share)?;
    for (expert, start, length) in parts(rows) {
        let matrices = &experts[expert];
        let here = gradient.f_narrow(0, start, length)?;
        of_weighted.f_narrow(0, start, length)?.f_copy_(&here.f_matmul(&matrices.fc2)?)?;
        if let (Some(bias), false) = (&matrices.fc2_bias, doing.weighs_inputs) {
            let through = here.f_to_kind(exact)?.f_mul(bias)?;
            let mut part = of_share.f_narrow(0, start, length)?;
            let _ = part.f_add_(&through.f_sum_dim_intlist([-1_i64].as_slice(), true, exact)?)?;
        }
    }
    let activated = doing.unit.forward(&first)?;
    let of_activated = match doing.weighs_inputs {
        true => of_weighted,
        false => {
            let wide = of_weighted.f_to_kind(exact)?;
            drop(of_weighted);
            let _ = of_share.f_add_(&wide.f_mul(&activated)?.f_sum_dim_intlist(
                [-1_i64].as_slice(),
                true,
                exact,
            )?)?;
            wide.f_mul(&share)?.f_to_kind(kind)?
        }
    };
    let weighted = match weighted {
        Some(weighted) => weighted,
        None => doing.taken(&activated, &share)?,
    };
    drop(activated);
    let of_first = doing.unit.backward(&first, &of_activated)?;
    drop((first, of_activated));
    let mut of_input = Tensor::f_empty_like(&input)?;
    for (expert, start, length) in parts(rows) {
        let here = of_first.f_narrow(0, start, length)?.f_matmul(&experts[expert].fc1)?;
        of_input.f_narrow(0, start, length)?.f_copy_(&here)?;
    }
    if doing.weighs_inputs {
        let through = of_input.f_to_kind(exact)?.f_mul(&input)?;
        let _ = of_share.f_add_(&through.f_sum_dim_intlist([-1_i64].as_slice(), true, exact)?)?;
        of_input = doing.given(&of_input, &share)?;
    }
    Ok(Backward { of_input, of_share, weights: OfParameters { input, weighted, share, of_first, gradient } })
}

impl OfParameters {
    /// Gradients of each expert's parameters, in the order in which `parameters` names them.
    fn make(self, experts: &[Matrices], rows: &[i64], doing: Doing) -> anyhow::Result<Vec<Tensor>> {
        let exact = exact(self.input.kind());
        let given = doing.given(&self.input, &self.share)?;
        let mut made = Vec::new();
        for (expert, start, length) in parts(rows) {
            let matrices = &experts[expert];
            let here = |whole: &Tensor| whole.f_narrow(0, start, length);
            let (first, second) = (here(&self.of_first)?, here(&self.gradient)?);
            made.push(first.f_tr()?.f_matmul(&here(&given)?)?);
            if matrices.fc1_bias.is_some() {
                made.push(first.f_sum_dim_intlist([0_i64].as_slice(), false, exact)?);
            }
            made.push(second.f_tr()?.f_matmul(&here(&self.weighted)?)?);
            if matrices.fc2_bias.is_some() {
                let shared = doing.taken(&second.f_to_kind(exact)?, &here(&self.share)?)?;
                made.push(shared.f_sum_dim_intlist([0_i64].as_slice(), false, exact)?);
            }
        }
        Ok(made)
    }
}

/// Sends tokens `[.., width]` to their experts and brings back the sums of what those make of them, weighed by
/// `shares`, `[tokens, top_k]`.
///
/// # Errors
/// When libtorch or a collective fails.
pub fn routed<'a>(
    tape: &mut Tape<'a>,
    experts: &[Expert],
    doing: Doing,
    input: &Flow,
    shares: &Flow,
    dispatch: Dispatch<'a>,
) -> anyhow::Result<Flow> {
    let size = input.data().size();
    let width = size.last().copied().unwrap_or(1);
    let weights: Vec<Matrices> =
        experts.iter().map(|expert| matrices(tape, expert, width)).collect::<Result<_, _>>()?;
    let parameters: Vec<usize> = experts
        .iter()
        .flat_map(|expert| {
            [Some(expert.fc1), expert.fc1_bias, Some(expert.fc2), expert.fc2_bias].into_iter().flatten()
        })
        .collect();
    let shapes: Vec<Vec<i64>> = parameters.iter().map(|&parameter| tape.weight(parameter).size()).collect();
    let rows = dispatch.there(dispatch.of_tokens(&input.data().f_reshape([-1, width])?)?)?;
    let share = dispatch.there(dispatch.of_choices(shares.data())?)?;
    let (output, kept) = forward(&weights, dispatch.rows(), doing, rows, share)?;
    let output = dispatch.sum_choices(&dispatch.back(output)?)?.f_view(size.as_slice())?;
    let backward = move |gradient: Tensor| {
        let gradient = dispatch.there(dispatch.of_tokens(&gradient.f_reshape([-1, width])?)?)?;
        let Backward { of_input, of_share, weights: later } =
            backward(kept, &weights, dispatch.rows(), doing, gradient)?;
        let of_input = dispatch.sum_choices(&dispatch.back(of_input)?)?.f_view(size.as_slice())?;
        let of_shares = dispatch.choices(&dispatch.back(of_share)?)?;
        let of_weights = move || {
            let made = later.make(&weights, dispatch.rows(), doing)?.into_iter().zip(shapes);
            Ok(made
                .map(|(gradient, shape)| gradient.f_view(shape.as_slice()))
                .collect::<Result<Vec<_>, _>>()?)
        };
        let weights = OfWeights::Later(Box::new(of_weights));
        Ok(Gradients { inputs: vec![of_input, of_shares], weights })
    };
    Ok(tape.function(&[input, shares], &parameters, output, Box::new(backward)))
}
