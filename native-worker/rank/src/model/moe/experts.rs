//! Routed experts of a rank: each an MLP on the rows that were sent to it, weighed by its router inside the MLP, so
//! that nothing of the output has to be kept; or, as Llama 4 has it, before the MLP.

use tch::Tensor;

use super::dispatch::{Dispatch, ExpertGrid};
use super::products::{self, Matrices, Rows};
use super::router::Routed;
use crate::model::activation::Unit;
use crate::model::functions::exact;
use crate::tape::{Flow, Gradient, Gradients, OfWeights, Tape};

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

/// An expert's parameters, in the order in which gradients are made: those of a kind of all experts together.
const KINDS: [fn(&Expert) -> Option<usize>; 4] = [
    |expert| Some(expert.fc1),
    |expert| expert.fc1_bias,
    |expert| Some(expert.fc2),
    |expert| expert.fc2_bias,
];

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

/// The weights of all experts.
struct Weights {
    fc1: Matrices,
    fc1_bias: Vec<Tensor>,
    fc2: Matrices,
    fc2_bias: Vec<Tensor>,
}

impl Weights {
    /// Of these experts, on rows of this width; `has_kernel` where there is one for the products of all.
    fn of(tape: &Tape<'_>, experts: &[Expert], width: i64, has_kernel: bool) -> anyhow::Result<Weights> {
        let all = |shape: &[i64], numbers: &dyn Fn(&Expert) -> Option<usize>| {
            let numbers = experts.iter().filter_map(numbers);
            numbers
                .map(|number| Ok(tape.weight(number).f_detach()?.f_reshape(shape)?))
                .collect::<anyhow::Result<Vec<_>>>()
        };
        Ok(Weights {
            fc1: Matrices::of(all(&[-1, width], &|expert| Some(expert.fc1))?, has_kernel)?,
            fc1_bias: all(&[-1], &|expert| expert.fc1_bias)?,
            fc2: Matrices::of(all(&[width, -1], &|expert| Some(expert.fc2))?, has_kernel)?,
            fc2_bias: all(&[-1], &|expert| expert.fc2_bias)?,
        })
    }

    /// Whether all is done by products of all experts, so that nobody asks how many rows each has.
    fn are_together(&self) -> bool {
        let biased = !self.fc1_bias.is_empty() || !self.fc2_bias.is_empty();
        self.fc1.are_together() && self.fc2.are_together() && !biased
    }
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
    weights: &Weights,
    rows: &Rows,
    doing: Doing,
    input: Tensor,
    share: Tensor,
) -> anyhow::Result<(Tensor, Forward)> {
    let (width, kind) = (input.size()[1], input.kind());
    let given = doing.given(&input, &share)?;
    let first = weights.fc1.outputs(&given, rows, &weights.fc1_bias)?;
    drop(given);
    let weighted = doing.taken(&doing.unit.forward(&first)?, &share)?;
    let output = weights.fc2.outputs(&weighted, rows, &[])?;
    if !weights.fc2_bias.is_empty() {
        for (expert, start, length) in rows.parts()? {
            let bias = weights.fc2_bias[expert].f_expand([length, width], false)?;
            let bias = doing.taken(&bias, &share.f_narrow(0, start, length)?)?;
            let _ = output.f_narrow(0, start, length)?.f_add_(&bias.f_to_kind(kind)?)?;
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
    weights: &Weights,
    rows: &Rows,
    doing: Doing,
    gradient: Tensor,
) -> anyhow::Result<Backward> {
    let Forward { input, first, weighted, share } = kept;
    let (kind, exact) = (input.kind(), exact(input.kind()));
    let of_weighted = weights.fc2.of_rows(&gradient, rows)?;
    let mut of_share = Tensor::f_zeros_like(&share)?;
    if !weights.fc2_bias.is_empty() && !doing.weighs_inputs {
        for (expert, start, length) in rows.parts()? {
            let here = gradient.f_narrow(0, start, length)?;
            let through = here.f_to_kind(exact)?.f_mul(&weights.fc2_bias[expert])?;
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
    let mut of_input = weights.fc1.of_rows(&of_first, rows)?;
    if doing.weighs_inputs {
        let through = of_input.f_to_kind(exact)?.f_mul(&input)?;
        let _ = of_share.f_add_(&through.f_sum_dim_intlist([-1_i64].as_slice(), true, exact)?)?;
        of_input = doing.given(&of_input, &share)?;
    }
    Ok(Backward { of_input, of_share, weights: OfParameters { input, weighted, share, of_first, gradient } })
}

impl OfParameters {
    /// Gradients of all experts' parameters, in the order of [`KINDS`], whose shapes these are.
    fn make(
        self,
        weights: &Weights,
        rows: &Rows,
        doing: Doing,
        [fc1, fc1_bias, fc2, fc2_bias]: &[Vec<i64>; 4],
    ) -> anyhow::Result<Vec<Gradient>> {
        let OfParameters { input, weighted, share, of_first, gradient } = self;
        let exact = exact(input.kind());
        let sum = |part: Tensor, shape: &Vec<i64>| -> anyhow::Result<Gradient> {
            Ok(part.f_sum_dim_intlist([0_i64].as_slice(), false, exact)?.f_view(shape.as_slice())?.into())
        };
        let mut made = weights.fc1.of_matrices(&of_first, &doing.given(&input, &share)?, rows, fc1)?;
        if !weights.fc1_bias.is_empty() {
            for (_, start, length) in rows.parts()? {
                made.push(sum(of_first.f_narrow(0, start, length)?, fc1_bias)?);
            }
        }
        made.extend(weights.fc2.of_matrices(&gradient, &weighted, rows, fc2)?);
        if !weights.fc2_bias.is_empty() {
            for (_, start, length) in rows.parts()? {
                let wide = gradient.f_narrow(0, start, length)?.f_to_kind(exact)?;
                made.push(sum(doing.taken(&wide, &share.f_narrow(0, start, length)?)?, fc2_bias)?);
            }
        }
        Ok(made)
    }
}

/// Sends tokens `[.., width]` to their experts and brings back the sums of what those make of them, weighed by the shares of
/// `routed`, `[tokens, top_k]`.
///
/// # Errors
/// When libtorch or a collective fails.
pub fn routed<'a>(
    tape: &mut Tape<'a>,
    experts: &[Expert],
    doing: Doing,
    input: &Flow,
    routed: Routed,
    grid: ExpertGrid,
) -> anyhow::Result<Flow> {
    let size = input.data().size();
    let width = size.last().copied().unwrap_or(1);
    let has_kernel = products::has_kernel(input.data().device(), input.data().kind())?;
    let weights = Weights::of(tape, experts, width, has_kernel)?;
    let parameters: Vec<usize> = KINDS.into_iter().flat_map(|kind| experts.iter().filter_map(kind)).collect();
    let shapes = KINDS.map(|kind| {
        let one = experts.first().and_then(kind);
        one.map(|number| tape.weight(number).size()).unwrap_or_default()
    });
    let world = tape.group().world;
    let Routed { shares, chosen } = routed;
    let dispatch = Dispatch::new(world, grid, &chosen, experts.len(), weights.are_together())?;
    drop(chosen);
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
        let of_weights = move || later.make(&weights, dispatch.rows(), doing, &shapes);
        let weights = OfWeights::Later(Box::new(of_weights));
        Ok(Gradients { inputs: vec![of_input, of_shares], weights })
    };
    Ok(tape.function(&[input, &shares], &parameters, output, Box::new(backward)))
}
