//! RMSNorm of queries and keys over all heads, which tensor parallelism cuts (MiniMax-M2).

use tch::Tensor;

use super::context::Heads;
use super::functions::exact;
use crate::tape::{Flow, Gradients, OfWeights, Tape, TensorParallel};

/// What is normed: first element and elements in a token, and a weight for each.
struct Part {
    start: i64,
    width: i64,
    weight: Tensor,
}

/// Sum over a token's elements on all ranks, `[s, b, 1]`.
fn over_ranks(group: TensorParallel<'_>, values: &Tensor) -> anyhow::Result<Tensor> {
    let sum = values.f_sum_dim_intlist([-1_i64].as_slice(), true, values.kind())?;
    if group.size() == 1 { Ok(sum) } else { group.sum(&sum) }
}

impl Part {
    fn of(&self, packed: &Tensor) -> anyhow::Result<Tensor> {
        Ok(packed.f_narrow(-1, self.start, self.width)?)
    }

    /// One over the root of the mean square, `[s, b, 1]`.
    fn rest(&self, group: TensorParallel<'_>, values: &Tensor, epsilon: f64) -> anyhow::Result<Tensor> {
        let all = (self.width * group.size() as i64) as f64;
        let mean = over_ranks(group, &values.f_square()?)?.f_div_scalar(all)?;
        Ok(mean.f_add_scalar(epsilon)?.f_rsqrt()?)
    }
}

/// Norms queries and keys of packed heads, each over the heads of all tensor-parallel ranks; `weights` are the numbers
/// of theirs.
///
/// # Errors
/// When libtorch or a collective fails.
pub fn full_norm(
    tape: &mut Tape<'_>,
    packed: &Flow,
    weights: &[usize],
    heads: Heads,
    epsilon: f64,
) -> anyhow::Result<Flow> {
    let group = tape.group();
    let (kind, exact) = (packed.data().kind(), exact(packed.data().kind()));
    let widths = [heads.queries * heads.key_dim, heads.keys * heads.key_dim];
    let mut parts = Vec::new();
    for ((start, width), &weight) in [(0, widths[0]), (widths[0], widths[1])].into_iter().zip(weights) {
        parts.push(Part { start, width, weight: tape.weight(weight).f_detach()?.f_reshape([-1])? });
    }
    let shapes: Vec<Vec<i64>> = weights.iter().map(|&weight| tape.weight(weight).size()).collect();
    let mut data = packed.data().f_empty_like()?;
    data.f_copy_(packed.data())?;
    let mut rests = Vec::new();
    for part in &parts {
        let values = part.of(packed.data())?.f_to_kind(exact)?;
        let rest = part.rest(group, &values, epsilon)?;
        part.of(&data)?.f_copy_(&values.f_mul(&rest)?.f_mul(&part.weight)?)?;
        rests.push(rest);
    }
    let kept = tape.keep(packed);
    let backward = move |gradient: Tensor| {
        let packed = kept.get()?;
        let mut of_packed = gradient.f_empty_like()?;
        of_packed.f_copy_(&gradient)?;
        let mut of_weights = Vec::new();
        for ((part, rest), shape) in parts.iter().zip(&rests).zip(&shapes) {
            let normed = part.of(&packed)?.f_to_kind(exact)?.f_mul(rest)?;
            let gradient = part.of(&gradient)?.f_to_kind(exact)?;
            let of_weight =
                gradient.f_mul(&normed)?.f_sum_dim_intlist([0_i64, 1].as_slice(), false, exact)?;
            of_weights.push(of_weight.f_view(shape.as_slice())?);
            let scaled = gradient.f_mul(&part.weight)?;
            let all = (part.width * group.size() as i64) as f64;
            let along = over_ranks(group, &scaled.f_mul(&normed)?)?.f_div_scalar(all)?;
            let of_part = scaled.f_sub(&normed.f_mul(&along)?)?.f_mul(rest)?.f_to_kind(kind)?;
            part.of(&of_packed)?.f_copy_(&of_part)?;
        }
        Ok(Gradients { inputs: vec![of_packed], weights: OfWeights::Made(of_weights) })
    };
    Ok(tape.function(&[packed], weights, data, Box::new(backward)))
}
