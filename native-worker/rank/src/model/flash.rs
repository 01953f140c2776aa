//! Attention of a rank's chunks of a sequence by a kernel that gives, beside what it makes, the logarithm of the sum of exponentials
//! of each token's scores. What a token sees can then be attended to piece by piece: the chunks before its own whole, its own
//! causally, none by a mask. Outputs of pieces are joined by those logarithms, and backward of each piece takes the joined ones
//! (FlashAttention's, as torch's own context parallelism has it), so no score is made again for them.

use anyhow::ensure;
use tch::{Device, Kind, Tensor};

use super::functions::exact;

/// Whether libtorch has such a kernel for values of this type and width on this device: 2.11 has one for the CPU, which takes keys
/// and values of equal width and fewer heads of them than of queries.
pub fn has_kernel(device: Device, kind: Kind, [key_dim, value_dim]: [i64; 2]) -> bool {
    let types = [Kind::Float, Kind::Double, Kind::BFloat16, Kind::Half];
    device == Device::Cpu && types.contains(&kind) && key_dim == value_dim
}

/// Chunks of queries of one length, one after the other: the position of the first of each.
#[derive(Debug, Clone, Copy)]
pub struct Starts(pub [i64; 2]);

impl Starts {
    /// Of so many queries each chunk's place among them, its length, and the pieces of the sequence that it sees.
    fn chunks(self, queries: i64) -> impl Iterator<Item = (i64, i64, Vec<Piece>)> {
        let length = queries / self.0.len() as i64;
        self.0.into_iter().enumerate().map(move |(number, start)| {
            let own = Piece { start, length, causal: true };
            let before = (start > 0).then_some(Piece { start: 0, length: start, causal: false });
            (number as i64 * length, length, std::iter::once(own).chain(before).collect())
        })
    }
}

/// Positions of the sequence that a chunk sees: all of them, or each token those up to itself.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: i64,
    length: i64,
    causal: bool,
}

/// Queries, keys or values `[s, b, heads, d]` as the kernel takes them, `[b, heads, s, d]`, from a position on.
fn heads_first(heads: &Tensor, start: i64, length: i64) -> anyhow::Result<Tensor> {
    Ok(heads.f_narrow(0, start, length)?.f_permute([1, 2, 0, 3])?)
}

/// The reverse.
fn tokens_first(heads: &Tensor) -> anyhow::Result<Tensor> {
    Ok(heads.f_permute([2, 0, 1, 3])?)
}

/// What tokens see, `[s, b, heads, d]`, and of each chunk the logarithms of their scores' sums, `[b, heads, s]`, of `query`
/// `[s, b, heads, d]` and the whole sequence's `key` and `value`, `[all, b, key heads, d]`.
///
/// # Errors
/// When libtorch fails.
pub fn forward(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    starts: Starts,
    scale: Option<f64>,
) -> anyhow::Result<(Tensor, Vec<Tensor>)> {
    let output = Tensor::f_empty(query.size(), (query.kind(), query.device()))?;
    let mut sums = Vec::new();
    for (place, length, pieces) in starts.chunks(query.size()[0]) {
        let asking = heads_first(query, place, length)?;
        let mut joined: Option<(Tensor, Tensor)> = None;
        for piece in pieces {
            let seen = |heads: &Tensor| heads_first(heads, piece.start, piece.length);
            let made = Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu(
                &asking,
                &seen(key)?,
                &seen(value)?,
                0.0,
                piece.causal,
                None::<&Tensor>,
                scale,
            )?;
            joined = Some(match joined {
                None => made,
                Some(other) => join(other, made)?,
            });
        }
        let Some((made, sum)) = joined else { anyhow::bail!("a chunk of queries that sees nothing") };
        output.f_narrow(0, place, length)?.f_copy_(&tokens_first(&made)?)?;
        sums.push(sum);
    }
    Ok((output, sums))
}

/// What is seen in two pieces, each with its logarithms of sums: in both together. Computed in fp32 (fp64 for fp64).
fn join(one: (Tensor, Tensor), other: (Tensor, Tensor)) -> anyhow::Result<(Tensor, Tensor)> {
    let kind = one.0.kind();
    let sum = one.1.f_logaddexp(&other.1)?;
    let weighed = |(made, own): (Tensor, Tensor)| {
        let share = own.f_sub(&sum)?.f_exp()?.f_unsqueeze(-1)?;
        made.f_to_kind(exact(kind))?.f_mul(&share)
    };
    let mut joined = weighed(one)?;
    let _ = joined.f_add_(&weighed(other)?)?;
    Ok((joined.f_to_kind(kind)?, sum))
}

/// What [`forward`] was given and made.
pub struct Made<'t> {
    /// Queries.
    pub query: &'t Tensor,
    /// Keys and values of the whole sequence.
    pub seen: [&'t Tensor; 2],
    /// What tokens saw.
    pub output: &'t Tensor,
    /// The logarithms.
    pub sums: &'t [Tensor],
}

/// Gradients of queries, in a new tensor like them, and of keys and values, added to `into`, of the gradient of the output,
/// `[s, b, heads, d]`.
///
/// # Errors
/// When libtorch fails.
pub fn backward(
    gradient: &Tensor,
    made: &Made<'_>,
    starts: Starts,
    scale: Option<f64>,
    into: [&Tensor; 2],
) -> anyhow::Result<Tensor> {
    let Made { query, seen: [key, value], output, sums } = *made;
    let of_query = Tensor::f_empty(query.size(), (query.kind(), query.device()))?;
    ensure!(sums.len() == starts.0.len(), "{} chunks of queries, not {}", sums.len(), starts.0.len());
    for ((place, length, pieces), sum) in starts.chunks(query.size()[0]).zip(sums) {
        let own = |heads: &Tensor| heads_first(heads, place, length);
        let (asking, output, gradient) = (own(query)?, own(output)?, own(gradient)?);
        let mut here = of_query.f_narrow(0, place, length)?;
        for (number, piece) in pieces.iter().enumerate() {
            let seen = |heads: &Tensor| heads_first(heads, piece.start, piece.length);
            let (of_asking, of_key, of_value) =
                Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu_backward(
                    &gradient,
                    &asking,
                    &seen(key)?,
                    &seen(value)?,
                    &output,
                    sum,
                    0.0,
                    piece.causal,
                    None::<&Tensor>,
                    scale,
                )?;
            let of_asking = tokens_first(&of_asking)?;
            match number {
                0 => here.f_copy_(&of_asking)?,
                _ => drop(here.f_add_(&of_asking)?),
            }
            for (into, made) in into.iter().zip([of_key, of_value]) {
                let _ = into.f_narrow(0, piece.start, piece.length)?.f_add_(&tokens_first(&made)?)?;
            }
        }
    }
    Ok(of_query)
}

#[cfg(test)]
mod tests {
    use tch::with_grad;

    use super::*;
    use crate::sys;

    const DIM: i64 = 8;

    /// Queries of 4 heads of two chunks of 2 x `members`, and 2 heads of keys and values of all.
    fn given(members: i64, half: i64, kind: Kind) -> [Tensor; 4] {
        let random = |tokens: i64, heads: i64| {
            Tensor::randn([tokens, 2, heads, DIM], (Kind::Double, Device::Cpu)).to_kind(kind)
        };
        let (own, all) = (2 * half, 2 * members * half);
        [random(own, 4), random(all, 2), random(all, 2), random(own, 4)]
    }

    /// The same by a mask over the whole sequence, and gradients of queries, keys and values by libtorch's own backward.
    fn by_mask([query, key, value, gradient]: &[Tensor; 4], starts: Starts) -> [Tensor; 4] {
        let [query, key, value, gradient] =
            [query, key, value, gradient].map(|tensor| tensor.to_kind(Kind::Double).detach());
        let [query, key, value] = [query, key, value].map(|tensor| tensor.set_requires_grad(true));
        let half = query.size()[0] / 2;
        let own: Vec<i64> = starts.0.iter().flat_map(|start| *start..start + half).collect();
        let seen = Tensor::arange(key.size()[0], (Kind::Int64, Device::Cpu))
            .unsqueeze(0)
            .le_tensor(&Tensor::from_slice(&own).unsqueeze(1));
        let output = with_grad(|| {
            let first = |heads: &Tensor| heads.permute([1, 2, 0, 3]);
            let shared = |heads: &Tensor| first(heads).repeat_interleave_self_int(2, 1, None);
            let scores = first(&query).matmul(&shared(&key).transpose(-1, -2)) * 0.3;
            let shares = scores.masked_fill(&seen.logical_not(), f64::NEG_INFINITY).softmax(-1, None);
            shares.matmul(&shared(&value)).permute([2, 0, 1, 3])
        });
        let found = sys::gradients(&[&output], &[&gradient], &[&query, &key, &value]).unwrap();
        let [of_query, of_key, of_value] =
            <[Option<Tensor>; 3]>::try_from(found).unwrap().map(|gradient| gradient.unwrap());
        [output.detach(), of_query, of_key, of_value]
    }

    #[test]
    fn pieces_together_are_what_a_mask_lets_see() {
        for (kind, rounding) in [(Kind::Double, 1e-13), (Kind::Float, 1e-5), (Kind::BFloat16, 0.03)] {
            for (members, index) in [(2, 0), (2, 1), (3, 1), (3, 2)] {
                let half = 5;
                let starts = Starts([index, 2 * members - 1 - index].map(|chunk| chunk * half));
                let given = given(members, half, kind);
                let [query, key, value, gradient] = &given;
                let (output, sums) = forward(query, key, value, starts, Some(0.3)).unwrap();
                let (of_key, of_value) = (key.zeros_like(), value.zeros_like());
                let made = Made { query, seen: [key, value], output: &output, sums: &sums };
                let of_query = backward(gradient, &made, starts, Some(0.3), [&of_key, &of_value]).unwrap();
                let found = [output, of_query, of_key, of_value];
                for (number, (found, expected)) in found.iter().zip(by_mask(&given, starts)).enumerate() {
                    let off = (found.to_kind(Kind::Double) - &expected).abs().max().double_value(&[])
                        / expected.abs().max().double_value(&[]);
                    assert!(off < rounding, "{off} of {number}, {kind:?}, member {index} of {members}");
                }
            }
        }
    }

    #[test]
    fn what_the_kernel_takes() {
        assert!(has_kernel(Device::Cpu, Kind::BFloat16, [64, 64]));
        assert!(!has_kernel(Device::Cpu, Kind::Double, [96, 64]));
        assert!(!has_kernel(Device::Cuda(0), Kind::BFloat16, [64, 64]));
    }
}
