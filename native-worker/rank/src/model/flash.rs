//! Attention of a rank's chunks of a sequence by a kernel that gives, beside what it makes, the logarithm of the sum of exponentials
//! of each token's scores. What a token sees can then be attended to piece by piece: the chunks before its own whole, its own
//! causally, none by a mask. Outputs of pieces are joined by those logarithms, and backward of each piece takes the joined ones
//! (FlashAttention's, as torch's own context parallelism has it), so no score is made again for them.

use anyhow::{Context, ensure};
use tch::{Device, Kind, Tensor, with_grad};

use super::functions::exact;
use crate::proven::{Tried, Ways, is_proven, numbers};
use crate::sys;

/// Whether libtorch has such a kernel for values of this type and width on this device. 2.11 has one for the CPU and one for GPUs; both
/// take keys and values of equal width and fewer heads of them than of queries. That of GPUs takes two bytes a value and widths that are
/// multiples of 8 up to 256 (`flash_attn/flash_api.cpp`), and is tried before it is used.
pub fn has_kernel(device: Device, kind: Kind, widths: [i64; 2]) -> bool {
    takes(device, kind, widths)
        && (device == Device::Cpu || {
            let width = widths[0];
            let kernel = format!("attention to chunks of {kind:?} heads of {width} without masks, by flash");
            is_proven(&kernel, BOUND, || tried(device, kind, width))
        })
}

/// Whether a kernel of this device is for values of this type and width.
pub(super) fn takes(device: Device, kind: Kind, [key_dim, value_dim]: [i64; 2]) -> bool {
    let types = [Kind::Float, Kind::Double, Kind::BFloat16, Kind::Half];
    let two_bytes = matches!(kind, Kind::BFloat16 | Kind::Half);
    key_dim == value_dim
        && match device {
            Device::Cpu => types.contains(&kind),
            Device::Cuda(_) => two_bytes && key_dim % 8 == 0 && key_dim <= 256,
            _ => false,
        }
}

/// How far what it makes may be off: shares and outputs are rounded to two bytes, of which bf16 has 8 bits.
pub const BOUND: f64 = 0.02;

/// One piece: what queries see of keys and values, all `[b, heads, s, d]`, and the logarithms of sums, `[b, heads, s]`.
pub(super) fn piece_forward(
    [query, key, value]: [&Tensor; 3],
    causal: bool,
    scale: Option<f64>,
) -> anyhow::Result<(Tensor, Tensor)> {
    match query.device() {
        Device::Cpu => Ok(Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu(
            query,
            key,
            value,
            0.0,
            causal,
            None::<&Tensor>,
            scale,
        )?),
        _ => sys::flash_attention([query, key, value], causal, scale),
    }
}

/// Its backward: gradients of queries, keys and values, from that of what was seen and the logarithms of all pieces together.
pub(super) fn piece_backward(
    gradient: &Tensor,
    [query, key, value]: [&Tensor; 3],
    (output, sum): (&Tensor, &Tensor),
    causal: bool,
    scale: Option<f64>,
) -> anyhow::Result<[Tensor; 3]> {
    match query.device() {
        Device::Cpu => Ok(Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu_backward(
            gradient,
            query,
            key,
            value,
            output,
            sum,
            0.0,
            causal,
            None::<&Tensor>,
            scale,
        )?
        .into()),
        _ => sys::flash_attention_backward(gradient, [query, key, value], [output, sum], causal, scale),
    }
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
pub(super) fn heads_first(heads: &Tensor, start: i64, length: i64) -> anyhow::Result<Tensor> {
    Ok(heads.f_narrow(0, start, length)?.f_permute([1, 2, 0, 3])?)
}

/// The reverse.
pub(super) fn tokens_first(heads: &Tensor) -> anyhow::Result<Tensor> {
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
            let made = piece_forward([&asking, &seen(key)?, &seen(value)?], piece.causal, scale)?;
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
            let [of_asking, of_key, of_value] = piece_backward(
                &gradient,
                [&asking, &seen(key)?, &seen(value)?],
                (&output, sum),
                piece.causal,
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

/// What [`forward`] and [`backward`] are of, and are held against: `[s, b, heads, d]` all.
struct Given {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    gradient: Tensor,
    starts: Starts,
    scale: Option<f64>,
}

/// Names of what [`Given`] makes.
const MADE: [&str; 4] =
    ["what is seen", "the gradient of queries", "the gradient of keys", "the gradient of values"];

impl Given {
    /// Two chunks of `half` tokens of member `index` of so many, with two heads of queries to each of keys.
    fn new(
        [members, index, half]: [i64; 3],
        width: i64,
        kind: Kind,
        device: Device,
    ) -> anyhow::Result<Given> {
        let of =
            |tokens: i64, heads: i64, number: i64| numbers(&[tokens, 2, heads, width], number, kind, device);
        let (own, all) = (2 * half, 2 * members * half);
        Ok(Given {
            query: of(own, 4, 1)?,
            key: of(all, 2, 2)?,
            value: of(all, 2, 3)?,
            gradient: of(own, 4, 4)?,
            starts: Starts([index, 2 * members - 1 - index].map(|chunk| chunk * half)),
            scale: Some(0.3),
        })
    }

    fn by_kernel(&self) -> anyhow::Result<[Tensor; 4]> {
        let Given { query, key, value, gradient, starts, scale } = self;
        let (output, sums) = forward(query, key, value, *starts, *scale)?;
        let (of_key, of_value) = (key.f_zeros_like()?, value.f_zeros_like()?);
        let made = Made { query, seen: [key, value], output: &output, sums: &sums };
        let of_query = backward(gradient, &made, *starts, *scale, [&of_key, &of_value])?;
        Ok([output, of_query, of_key, of_value])
    }

    /// The same by a mask over the whole sequence, as it is without such a kernel, of values of this type.
    fn by_mask(&self, kind: Kind) -> anyhow::Result<[Tensor; 4]> {
        let (half, device) = (self.query.size()[0] / 2, self.query.device());
        let places: Vec<i64> = self.starts.0.iter().flat_map(|start| *start..start + half).collect();
        let places = Tensor::f_from_slice(&places)?.f_to_device(device)?.f_unsqueeze(1)?;
        let all = Tensor::f_arange(self.key.size()[0], (Kind::Int64, device))?.f_unsqueeze(0)?;
        let seen = all.f_le_tensor(&places)?;
        by_mask([&self.query, &self.key, &self.value], &seen, &self.gradient, self.scale, kind)
    }
}

/// What queries see of keys and values by a mask, and the gradients of all three, of values of this type. All are `[s, b, heads, d]`.
pub(super) fn by_mask(
    heads: [&Tensor; 3],
    seen: &Tensor,
    gradient: &Tensor,
    scale: Option<f64>,
    kind: Kind,
) -> anyhow::Result<[Tensor; 4]> {
    let own = |tensor: &Tensor| tensor.f_to_kind(kind)?.f_detach()?.f_set_requires_grad(true);
    let (query, key, value) = (own(heads[0])?, own(heads[1])?, own(heads[2])?);
    let output = with_grad(|| -> anyhow::Result<Tensor> {
        let first = |heads: &Tensor| heads.f_permute([1, 2, 0, 3]);
        let [query, key, value] = [first(&query)?, first(&key)?, first(&value)?];
        let heads = Tensor::f_scaled_dot_product_attention(
            &query,
            &key,
            &value,
            Some(seen),
            0.0,
            false,
            scale,
            true,
        )?;
        tokens_first(&heads)
    })?;
    let gradient = gradient.f_to_kind(kind)?;
    let mut found = sys::gradients(&[&output], &[&gradient], &[&query, &key, &value])?.into_iter().flatten();
    let mut next = || found.next().context("a gradient that libtorch does not make");
    Ok([output.f_detach()?, next()?, next()?, next()?])
}

/// What the kernel of a device makes of a small sequence of heads of this width, and what it should make.
///
/// # Errors
/// When libtorch has no such kernel.
pub fn tried(device: Device, kind: Kind, width: i64) -> anyhow::Result<Vec<Tried>> {
    let given = Given::new([2, 1, 64], width, kind, device)?;
    let made = given.by_kernel()?.into_iter().zip(given.by_mask(Kind::Double)?);
    Ok(MADE.into_iter().zip(made).map(|(what, (found, exact))| Tried { what, found, exact }).collect())
}

/// Attention, forward and backward, of two chunks of 2,048 tokens of a sequence of 8,192.
///
/// # Errors
/// When libtorch fails.
pub fn ways(device: Device, kind: Kind, width: i64) -> anyhow::Result<Ways> {
    let given = || Given::new([2, 1, 2048], width, kind, device);
    let (one, other) = (given()?, given()?);
    Ok([Box::new(move || one.by_kernel().map(drop)), Box::new(move || other.by_mask(kind).map(drop))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_together_are_what_a_mask_lets_see() {
        for (kind, rounding) in [(Kind::Double, 1e-13), (Kind::Float, 1e-5), (Kind::BFloat16, 0.03)] {
            for (members, index) in [(2, 0), (2, 1), (3, 1), (3, 2)] {
                let given = Given::new([members, index, 5], 8, kind, Device::Cpu).unwrap();
                let (found, expected) = (given.by_kernel().unwrap(), given.by_mask(Kind::Double).unwrap());
                for (what, (found, expected)) in MADE.iter().zip(found.iter().zip(expected)) {
                    let off = (found.to_kind(Kind::Double) - &expected).abs().max().double_value(&[])
                        / expected.abs().max().double_value(&[]);
                    assert!(off < rounding, "{off} of {what}, {kind:?}, member {index} of {members}");
                }
            }
        }
        for kind in [Kind::Half, Kind::BFloat16] {
            for width in [8, 64, 128, 256] {
                for tried in tried(Device::Cpu, kind, width).unwrap() {
                    let off = tried.off().unwrap();
                    assert!(off < BOUND, "{off} of {}, {kind:?}, heads of {width}", tried.what);
                }
            }
        }
    }

    #[test]
    fn what_the_kernel_takes() {
        assert!(has_kernel(Device::Cpu, Kind::BFloat16, [64, 64]));
        assert!(!has_kernel(Device::Cpu, Kind::Double, [96, 64]));
        // Of what no kernel is made for none is tried.
        assert!(!has_kernel(Device::Cuda(0), Kind::Float, [64, 64]));
        assert!(!has_kernel(Device::Cuda(0), Kind::BFloat16, [60, 60]));
        assert!(!has_kernel(Device::Cuda(0), Kind::BFloat16, [264, 264]));
    }
}
