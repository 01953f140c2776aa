//! Attention of documents that are packed into sequences, each to itself, by a kernel that gives the logarithm of the sum of exponentials
//! of each token's scores, so that no score is made again for backward. On a GPU it is one call for all documents of all sequences,
//! which is given where each begins; the CPU's kernel is called for each. No mask is made in either.

use anyhow::ensure;
use tch::{Device, Kind, Tensor};

use super::documents::Documents;
use super::flash::{self, BOUND, heads_first, piece_backward, piece_forward};
use crate::proven::{Tried, Ways, is_proven, numbers};
use crate::sys;

/// Whether libtorch has such a kernel for values of this type and width on this device: what [`flash::has_kernel`] says of its sister
/// holds for it, too.
pub fn has_kernel(device: Device, kind: Kind, widths: [i64; 2]) -> bool {
    flash::takes(device, kind, widths)
        && (device == Device::Cpu || {
            let kernel =
                format!("attention to packed documents of {kind:?} heads of {}, by flash", widths[0]);
            is_proven(&kernel, BOUND, || tried(device, kind, widths[0]))
        })
}

/// What tokens see of their own document up to themselves, `[s, b, heads, d]`, and the logarithms of their scores' sums, of `query`
/// `[s, b, heads, d]`, and `key` and `value` `[s, b, key heads, d]`.
///
/// # Errors
/// When these are not the documents of such sequences, or libtorch fails.
pub fn forward(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    documents: &Documents,
    scale: Option<f64>,
) -> anyhow::Result<(Tensor, Vec<Tensor>)> {
    let size = check([query, key, value], documents)?;
    if query.device() != Device::Cpu {
        let heads = [&flat(query)?, &flat(key)?, &flat(value)?];
        let bounds = documents.bounds(size[0], query.device())?;
        let (output, sums) = sys::flash_attention_packed(heads, (&bounds.places, bounds.longest), scale)?;
        return Ok((unflat(&output, &size)?.f_contiguous()?, vec![sums]));
    }
    let output = Tensor::f_empty(size, (query.kind(), query.device()))?;
    let mut sums = Vec::new();
    for document in each(documents, query) {
        let own = |heads: &Tensor| document.of(heads);
        let (made, sum) = piece_forward([&own(query)?, &own(key)?, &own(value)?], true, scale)?;
        document.of(&output)?.f_copy_(&made)?;
        sums.push(sum);
    }
    Ok((output, sums))
}

/// What [`forward`] was given and made.
pub struct Made<'t> {
    /// Queries, keys and values.
    pub heads: [&'t Tensor; 3],
    /// What tokens saw.
    pub output: &'t Tensor,
    /// The logarithms.
    pub sums: &'t [Tensor],
}

/// Gradients of queries, keys and values, put into tensors like them, of the gradient of the output, `[s, b, heads, d]`.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    gradient: &Tensor,
    made: &Made<'_>,
    documents: &Documents,
    scale: Option<f64>,
    into: [&Tensor; 3],
) -> anyhow::Result<()> {
    let Made { heads: [query, key, value], output, sums } = *made;
    let size = check([query, key, value], documents)?;
    ensure!(
        gradient.size() == size && output.size() == size,
        "a gradient {:?} of {:?} that queries {size:?} see",
        gradient.size(),
        output.size()
    );
    if query.device() != Device::Cpu {
        let [sum] = sums else { anyhow::bail!("{} tensors of logarithms, not one", sums.len()) };
        let bounds = documents.bounds(size[0], query.device())?;
        let found = sys::flash_attention_packed_backward(
            &flat(gradient)?,
            [&flat(query)?, &flat(key)?, &flat(value)?],
            [&flat(output)?, sum],
            (&bounds.places, bounds.longest),
            scale,
        )?;
        for (into, found) in into.iter().zip(found) {
            into.shallow_clone().f_copy_(&unflat(&found, &into.size())?)?;
        }
        return Ok(());
    }
    let all: Vec<Document> = each(documents, query).collect();
    ensure!(all.len() == sums.len(), "logarithms of {} documents, not of {}", sums.len(), all.len());
    for (document, sum) in all.iter().zip(sums) {
        let own = |heads: &Tensor| document.of(heads);
        let found = piece_backward(
            &own(gradient)?,
            [&own(query)?, &own(key)?, &own(value)?],
            (&own(output)?, sum),
            true,
            scale,
        )?;
        for (into, found) in into.iter().zip(found) {
            own(into)?.f_copy_(&found)?;
        }
    }
    Ok(())
}

/// The size of queries.
fn check([query, key, value]: [&Tensor; 3], documents: &Documents) -> anyhow::Result<Vec<i64>> {
    let (size, seen) = (query.size(), key.size());
    let [tokens, sequences, heads, width] = size[..] else {
        anyhow::bail!("queries {size:?} are no tokens, sequences and heads");
    };
    let of_keys = seen.get(2).copied().unwrap_or(0);
    ensure!(
        seen == [tokens, sequences, of_keys, width]
            && value.size() == seen
            && of_keys > 0
            && heads % of_keys == 0,
        "queries {size:?} of keys {seen:?} and values {:?}",
        value.size()
    );
    ensure!(
        documents.sequences() as i64 == sequences,
        "documents of {} sequences in a micro batch of {sequences}",
        documents.sequences()
    );
    Ok(size)
}

/// A document: its sequence, and its tokens there.
struct Document {
    sequence: i64,
    start: i64,
    length: i64,
}

impl Document {
    /// Its part of what is `[s, b, heads, d]`, as the kernel takes it.
    fn of(&self, heads: &Tensor) -> anyhow::Result<Tensor> {
        heads_first(&heads.f_narrow(1, self.sequence, 1)?, self.start, self.length)
    }
}

/// The documents of sequences of such tokens.
fn each(documents: &Documents, query: &Tensor) -> impl Iterator<Item = Document> {
    let tokens = query.size()[0];
    (0..documents.sequences()).flat_map(move |sequence| {
        let spans = documents.spans(sequence, 0, tokens).into_iter();
        spans.map(move |[start, end]| Document { sequence: sequence as i64, start, length: end - start })
    })
}

/// One sequence behind the other: `[b x s, heads, d]` of `[s, b, heads, d]`. A copy where there are several.
fn flat(heads: &Tensor) -> anyhow::Result<Tensor> {
    let size = heads.size();
    Ok(heads.f_transpose(0, 1)?.f_reshape([size[0] * size[1], size[2], size[3]])?)
}

/// The reverse, in this size.
fn unflat(heads: &Tensor, size: &[i64]) -> anyhow::Result<Tensor> {
    Ok(heads.f_view([size[1], size[0], size[2], size[3]])?.f_transpose(0, 1)?)
}

/// What [`forward`] and [`backward`] are of, and are held against: `[s, b, heads, d]` all.
struct Given {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    gradient: Tensor,
    documents: Documents,
    scale: Option<f64>,
}

/// Names of what [`Given`] makes.
const MADE: [&str; 4] =
    ["what is seen", "the gradient of queries", "the gradient of keys", "the gradient of values"];

impl Given {
    /// Two sequences of so many tokens, whose documents begin elsewhere, with two heads of queries to each of keys.
    fn new(tokens: i64, width: i64, kind: Kind, device: Device) -> anyhow::Result<Given> {
        let of = |heads: i64, number: i64| numbers(&[tokens, 2, heads, width], number, kind, device);
        let turn = (tokens / 5).max(2);
        let ends: [&dyn Fn(i64) -> bool; 2] =
            [&|place| [1, turn / 2].contains(&(place % turn)), &|place| place % turn == 0];
        let words = ends.map(|ends| (0..tokens).map(|place| i64::from(ends(place))).collect::<Vec<i64>>());
        Ok(Given {
            query: of(4, 1)?,
            key: of(2, 2)?,
            value: of(2, 3)?,
            gradient: of(4, 4)?,
            documents: Documents::of(words.iter().map(Vec::as_slice), 1, Default::default()),
            scale: Some(0.3),
        })
    }

    fn by_kernel(&self) -> anyhow::Result<[Tensor; 4]> {
        let Given { query, key, value, gradient, documents, scale } = self;
        let (output, sums) = forward(query, key, value, documents, *scale)?;
        let found = [query.f_empty_like()?, key.f_empty_like()?, value.f_empty_like()?];
        let made = Made { heads: [query, key, value], output: &output, sums: &sums };
        backward(gradient, &made, documents, *scale, found.each_ref())?;
        let [of_query, of_key, of_value] = found;
        Ok([output, of_query, of_key, of_value])
    }

    /// The same by a mask over whole sequences, of values of this type.
    fn by_mask(&self, kind: Kind) -> anyhow::Result<[Tensor; 4]> {
        let size = self.query.size();
        let seen = Tensor::f_zeros([size[1], 1, size[0], size[0]], (Kind::Bool, Device::Cpu))?;
        for Document { sequence, start, length } in each(&self.documents, &self.query) {
            let own = Tensor::f_ones([length, length], (Kind::Bool, Device::Cpu))?.f_tril(0)?;
            let of_sequence = seen.f_narrow(0, sequence, 1)?;
            of_sequence.f_narrow(2, start, length)?.f_narrow(3, start, length)?.f_copy_(&own)?;
        }
        let seen = seen.f_to_device(self.query.device())?;
        flash::by_mask([&self.query, &self.key, &self.value], &seen, &self.gradient, self.scale, kind)
    }
}

/// What the kernel of a device makes of small sequences of heads of this width, and what it should make.
///
/// # Errors
/// When libtorch has no such kernel.
pub fn tried(device: Device, kind: Kind, width: i64) -> anyhow::Result<Vec<Tried>> {
    let given = Given::new(150, width, kind, device)?;
    let made = given.by_kernel()?.into_iter().zip(given.by_mask(Kind::Double)?);
    Ok(MADE.into_iter().zip(made).map(|(what, (found, exact))| Tried { what, found, exact }).collect())
}

/// Attention, forward and backward, of two sequences of 4,096 tokens.
///
/// # Errors
/// When libtorch fails.
pub fn ways(device: Device, kind: Kind, width: i64) -> anyhow::Result<Ways> {
    let given = || Given::new(4096, width, kind, device);
    let (one, other) = (given()?, given()?);
    Ok([Box::new(move || one.by_kernel().map(drop)), Box::new(move || other.by_mask(kind).map(drop))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_see_what_a_mask_lets_them_see() {
        for (kind, rounding) in [(Kind::Double, 1e-13), (Kind::Float, 1e-5), (Kind::BFloat16, 0.03)] {
            for tokens in [1, 7, 40] {
                let given = Given::new(tokens, 8, kind, Device::Cpu).unwrap();
                assert!(tokens < 40 || each(&given.documents, &given.query).count() > 4);
                let (found, expected) = (given.by_kernel().unwrap(), given.by_mask(Kind::Double).unwrap());
                // A token that sees itself alone has no gradient of its query.
                let largest =
                    expected.iter().map(|one| one.abs().max().double_value(&[])).fold(0.0, f64::max);
                for (what, (found, expected)) in MADE.iter().zip(found.iter().zip(expected)) {
                    let off =
                        (found.to_kind(Kind::Double) - &expected).abs().max().double_value(&[]) / largest;
                    assert!(off < rounding, "{off} of {what}, {kind:?}, {tokens} tokens");
                }
            }
        }
        for kind in [Kind::Half, Kind::BFloat16] {
            for tried in tried(Device::Cpu, kind, 64).unwrap() {
                let off = tried.off().unwrap();
                assert!(off < BOUND, "{off} of {}, {kind:?}", tried.what);
            }
        }
    }

    #[test]
    fn other_shapes_are_refused() {
        let given = Given::new(8, 8, Kind::Float, Device::Cpu).unwrap();
        let Given { query, key, value, documents, .. } = &given;
        let refused = |query: &Tensor, key: &Tensor, value: &Tensor| {
            forward(query, key, value, documents, None).unwrap_err().to_string()
        };
        assert!(
            refused(&query.narrow(0, 0, 4), key, value).contains("queries [4, 2, 4, 8] of keys [8, 2, 2, 8]")
        );
        assert!(refused(query, key, &value.narrow(3, 0, 4)).contains("values [8, 2, 2, 4]"));
        let one = |heads: &Tensor| heads.narrow(1, 0, 1);
        let found = refused(&one(query), &one(key), &one(value));
        assert_eq!(found, "documents of 2 sequences in a micro batch of 1");
    }
}
