//! Attention itself, over the whole sequence or, under context parallelism, over a rank's two chunks of it.
//!
//! A rank of c holds chunks i and 2c-1-i of 2c, so that all have the same work under the causal mask. Keys and values of
//! the others are gathered for forward and again for backward; their gradients are summed and scattered back. Where there is a
//! kernel for it (`flash`; `packed` for documents) no mask is made, and backward knows the sums of scores; elsewhere it makes all anew.
//! Documents that don't see each other are attended one by one there, so that no mask of a whole sequence is made and no score that
//! nobody sees.

use std::rc::Rc;

use anyhow::Context;
use tch::{Tensor, no_grad, with_grad};

use super::documents::Documents;
use super::flash::{self, Made, Starts};
use super::packed;
use super::scores::Rule;
use super::settings::{Pass, Settings};
use crate::collectives::{Collectives, GroupId};
use crate::sys;
use crate::tape::{Flow, Gradients, OfWeights, Tape};

/// Heads of a rank. Packed, they lie one after the other in a token: queries, keys, values.
#[derive(Debug, Clone, Copy)]
pub struct Heads {
    /// Query heads.
    pub queries: i64,
    /// Key and value heads.
    pub keys: i64,
    /// Width of a query or key.
    pub key_dim: i64,
    /// Width of a value.
    pub value_dim: i64,
}

impl Heads {
    fn query_width(&self) -> i64 {
        self.queries * self.key_dim
    }

    fn key_width(&self) -> i64 {
        self.keys * self.key_dim
    }

    fn value_width(&self) -> i64 {
        self.keys * self.value_dim
    }

    /// Queries, keys, values, `[s, b, heads, d]` each.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn parts(&self, packed: &Tensor) -> anyhow::Result<[Tensor; 3]> {
        let (key, value) = self.apart(&self.keys_and_values(packed)?)?;
        Ok([self.query(packed)?, key, value])
    }

    /// Queries, `[s, b, heads, d]`.
    fn query(&self, packed: &Tensor) -> anyhow::Result<Tensor> {
        let size = packed.size();
        let query = packed.f_narrow(-1, 0, self.query_width())?;
        Ok(query.f_reshape([size[0], size[1], self.queries, self.key_dim])?)
    }

    /// Keys and values as they lie in a token, `[s, b, width]`.
    fn keys_and_values(&self, packed: &Tensor) -> anyhow::Result<Tensor> {
        Ok(packed.f_narrow(-1, self.query_width(), self.key_width() + self.value_width())?)
    }

    /// Keys, then values, `[s, b, heads, d]` each.
    fn apart(&self, both: &Tensor) -> anyhow::Result<(Tensor, Tensor)> {
        let size = both.size();
        let key = both.f_narrow(-1, 0, self.key_width())?;
        let value = both.f_narrow(-1, self.key_width(), self.value_width())?;
        // Views, into which gradients are added.
        Ok((
            key.f_view([size[0], size[1], self.keys, self.key_dim])?,
            value.f_view([size[0], size[1], self.keys, self.value_dim])?,
        ))
    }
}

/// What tokens see: `query` are the last of the positions of `key` and `value`, which are from 0 on. All `[s, b, heads,
/// d]`; gives `[s, b, width]`. `sinks` are extra scores of each head that take from the others and bring no value.
fn attend(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    sinks: Option<&Tensor>,
    rule: &Rule,
) -> anyhow::Result<Tensor> {
    let tokens = query.size()[0];
    let first = key.size()[0] - tokens;
    let from = rule.first_seen(first);
    let seen = first + tokens - from;
    let heads_first = |heads: &Tensor| heads.f_permute([1, 2, 0, 3]);
    let query = heads_first(query)?;
    let (key, value) =
        (heads_first(&key.f_narrow(0, from, seen)?)?, heads_first(&value.f_narrow(0, from, seen)?)?);
    let shared = query.size()[1] / key.size()[1].max(1);
    let mask = || rule.mask(first, tokens, from, query.device());
    let heads = if sinks.is_none() && rule.cap.is_none() {
        let causal = tokens == seen && rule.is_plain();
        let mask = (!causal).then(mask).transpose()?;
        Tensor::f_scaled_dot_product_attention(
            &query,
            &key,
            &value,
            mask,
            0.0,
            causal,
            rule.scale,
            shared > 1,
        )?
    } else {
        let repeated = |heads: &Tensor| heads.f_repeat_interleave_self_int(shared, 1, None);
        let (key, value) = (repeated(&key)?, repeated(&value)?);
        let scale = rule.scale.unwrap_or_else(|| (query.size()[3] as f64).powf(-0.5));
        let mut scores = query.f_matmul(&key.f_transpose(-1, -2)?)?.f_mul_scalar(scale)?;
        if let Some(cap) = rule.cap {
            scores = scores.f_div_scalar(cap)?.f_tanh()?.f_mul_scalar(cap)?;
        }
        let mut scores = scores.f_masked_fill(&mask()?.f_logical_not()?, f64::NEG_INFINITY)?;
        if let Some(sinks) = sinks {
            let size = scores.size();
            let sinks = sinks
                .f_to_kind(scores.kind())?
                .f_view([1, -1, 1, 1])?
                .f_expand([size[0], size[1], size[2], 1], false)?;
            scores = Tensor::f_cat(&[scores, sinks], -1)?;
        }
        scores.f_softmax(-1, None)?.f_narrow(-1, 0, seen)?.f_matmul(&value)?
    };
    let size = heads.size();
    Ok(heads.f_permute([2, 0, 1, 3])?.f_reshape([size[2], size[0], size[1] * size[3]])?)
}

/// The same where documents that are packed into the sequences don't see each other: of each the queries that are there, to its
/// own keys and values, as if it were a sequence.
fn attend_apart(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    sinks: Option<&Tensor>,
    rule: &Rule,
    apart: Option<&Documents>,
) -> anyhow::Result<Tensor> {
    let Some(documents) = apart else { return attend(query, key, value, sinks, rule) };
    let end = key.size()[0];
    let first = end - query.size()[0];
    let sequences = |heads: &Tensor| heads.f_split(1, 1);
    let (queries, keys, values) = (sequences(query)?, sequences(key)?, sequences(value)?);
    let mut rows = Vec::with_capacity(queries.len());
    for (sequence, ((query, key), value)) in queries.iter().zip(&keys).zip(&values).enumerate() {
        let spans = documents.spans(sequence, first, end);
        let asking: Vec<i64> = spans.iter().map(|[start, behind]| behind - start.max(&first)).collect();
        // What is before the first of them is seen by none.
        let unseen = spans.first().map_or(0, |[start, _]| *start);
        let seen: Vec<i64> =
            std::iter::once(unseen).chain(spans.iter().map(|[start, behind]| behind - start)).collect();
        let queries = query.f_split_with_sizes(&asking, 0)?;
        let (keys, values) = (key.f_split_with_sizes(&seen, 0)?, value.f_split_with_sizes(&seen, 0)?);
        let mut parts = Vec::with_capacity(spans.len());
        for (query, (key, value)) in queries.iter().zip(keys.iter().zip(&values).skip(1)) {
            parts.push(attend(query, key, value, sinks, rule)?);
        }
        rows.push(Tensor::f_cat(&parts, 0)?);
    }
    Ok(Tensor::f_cat(&rows, 1)?)
}

/// The context-parallel group, as attention needs it.
#[derive(Clone, Copy)]
struct Chunks<'a> {
    world: &'a dyn Collectives,
    group: GroupId,
    members: usize,
    index: usize,
}

impl<'a> Chunks<'a> {
    fn of(world: &'a dyn Collectives, group: GroupId) -> anyhow::Result<Chunks<'a>> {
        Ok(Chunks { world, group, members: world.size(group), index: world.index(group)? })
    }

    /// Where chunk `chunk` of the sequence lies among the members' chunks in their order.
    fn place(&self, chunk: usize) -> usize {
        let last = 2 * self.members - 1;
        if chunk < self.members { 2 * chunk } else { 2 * (last - chunk) + 1 }
    }

    /// The whole sequence from every member's two chunks.
    fn gather(&self, mine: &Tensor) -> anyhow::Result<Tensor> {
        if self.members == 1 {
            return Ok(mine.shallow_clone());
        }
        let mut size = mine.size();
        size[0] *= self.members as i64;
        let mut all = Tensor::f_empty(&size, (mine.kind(), mine.device()))?;
        self.world.all_gather(self.group, &mine.f_contiguous()?, &mut all)?;
        let pieces = all.f_chunk(2 * self.members as i64, 0)?;
        let ordered: Vec<&Tensor> = (0..pieces.len()).map(|chunk| &pieces[self.place(chunk)]).collect();
        Ok(Tensor::f_cat(&ordered, 0)?)
    }

    /// Sums the members' gradients of the whole sequence and keeps one's own two chunks.
    fn scatter(&self, whole: Tensor) -> anyhow::Result<Tensor> {
        if self.members == 1 {
            return Ok(whole);
        }
        let pieces = whole.f_chunk(2 * self.members as i64, 0)?;
        let mut by_member: Vec<Option<&Tensor>> = vec![None; pieces.len()];
        for (chunk, piece) in pieces.iter().enumerate() {
            by_member[self.place(chunk)] = Some(piece);
        }
        let by_member: Vec<&Tensor> = by_member.into_iter().flatten().collect();
        let ordered = Tensor::f_cat(&by_member, 0)?;
        let mut size = whole.size();
        size[0] /= self.members as i64;
        let mut mine = Tensor::f_empty(&size, (whole.kind(), whole.device()))?;
        self.world.reduce_scatter(self.group, &ordered, &mut mine)?;
        Ok(mine)
    }

    /// Attention of this rank's queries to the whole sequence.
    fn attend(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        sinks: Option<&Tensor>,
        rule: &Rule,
        apart: Option<&Documents>,
    ) -> anyhow::Result<Tensor> {
        if self.members == 1 {
            return attend_apart(query, key, value, sinks, rule, apart);
        }
        let half = query.size()[0] / 2;
        let part = |number: i64, chunk: usize| {
            let seen = (chunk as i64 + 1) * half;
            attend_apart(
                &query.f_narrow(0, number * half, half)?,
                &key.f_narrow(0, 0, seen)?,
                &value.f_narrow(0, 0, seen)?,
                sinks,
                rule,
                apart,
            )
        };
        let [first, second] = self.chunks();
        let parts = [part(0, first)?, part(1, second)?];
        Ok(Tensor::f_cat(&parts, 0)?)
    }

    /// The two chunks of the sequence that this rank has.
    fn chunks(&self) -> [usize; 2] {
        [self.index, 2 * self.members - 1 - self.index]
    }

    /// The same by the kernel that says the sums of scores, for tokens that see all before them.
    fn attend_by_kernel(
        self,
        tape: &mut Tape<'a>,
        packed: &Flow,
        heads: Heads,
        scale: Option<f64>,
    ) -> anyhow::Result<Flow> {
        let kept = tape.keep(packed);
        let size = packed.data().size();
        let (tokens, sequences) = (size[0], size[1]);
        let starts = Starts(self.chunks().map(|chunk| chunk as i64 * (tokens / 2)));
        let query = heads.query(packed.data())?;
        let (key, value) = heads.apart(&self.gather(&heads.keys_and_values(packed.data())?)?)?;
        let (output, sums) = no_grad(|| flash::forward(&query, &key, &value, starts, scale))?;
        drop((query, key, value));
        let data = output.f_view([tokens, sequences, -1])?;
        let backward = move |gradient: Tensor| {
            let packed = kept.get()?;
            let query = heads.query(&packed)?;
            let (key, value) = heads.apart(&self.gather(&heads.keys_and_values(&packed)?)?)?;
            let whole = [tokens * self.members as i64, sequences, heads.key_width() + heads.value_width()];
            let of_both = Tensor::f_zeros(whole, (packed.kind(), packed.device()))?;
            let (of_key, of_value) = heads.apart(&of_both)?;
            let made = Made { query: &query, seen: [&key, &value], output: &output, sums: &sums };
            let gradient = gradient.f_reshape(output.size())?;
            let of_query = flash::backward(&gradient, &made, starts, scale, [&of_key, &of_value])?;
            drop((of_key, of_value, gradient, key, value));
            let of_query = of_query.f_view([tokens, sequences, -1])?;
            let of_packed = Tensor::f_cat(&[of_query, self.scatter(of_both)?], -1)?;
            Ok(Gradients { inputs: vec![of_packed], weights: OfWeights::Made(Vec::new()) })
        };
        Ok(tape.function(&[packed], &[], data, Box::new(backward)))
    }
}

/// Attention of documents that a rank has whole, each to itself, by the kernel that says the sums of scores.
fn apart_by_kernel(
    tape: &mut Tape<'_>,
    packed: &Flow,
    heads: Heads,
    scale: Option<f64>,
    documents: &Rc<Documents>,
) -> anyhow::Result<Flow> {
    let kept = tape.keep(packed);
    let size = packed.data().size();
    let [query, key, value] = heads.parts(packed.data())?;
    let (output, sums) = no_grad(|| packed::forward(&query, &key, &value, documents, scale))?;
    drop((query, key, value));
    let data = output.f_view([size[0], size[1], -1])?;
    let documents = documents.clone();
    let backward = move |gradient: Tensor| {
        let packed = kept.get()?;
        let [query, key, value] = heads.parts(&packed)?;
        let of_packed = Tensor::f_empty(packed.size(), (packed.kind(), packed.device()))?;
        let of_query = of_packed.f_narrow(-1, 0, heads.query_width())?.f_view(query.size().as_slice())?;
        let (of_key, of_value) = heads.apart(&heads.keys_and_values(&of_packed)?)?;
        let made = packed::Made { heads: [&query, &key, &value], output: &output, sums: &sums };
        let gradient = gradient.f_reshape(output.size())?;
        packed::backward(&gradient, &made, &documents, scale, [&of_query, &of_key, &of_value])?;
        Ok(Gradients { inputs: vec![of_packed], weights: OfWeights::Made(Vec::new()) })
    };
    Ok(tape.function(&[packed], &[], data, Box::new(backward)))
}

/// Positions of the tokens that member `index` of `members` holds, of a sequence of `length`.
pub fn positions(length: i64, members: usize, index: usize) -> Vec<i64> {
    if members == 1 {
        return (0..length).collect();
    }
    let half = length / (2 * members as i64);
    [index as i64, (2 * members - 1 - index) as i64]
        .into_iter()
        .flat_map(|chunk| chunk * half..(chunk + 1) * half)
        .collect()
}

/// Attention of packed heads `[s, b, queries | keys | values]`: `[s, b, heads x value width]`.
///
/// # Errors
/// When libtorch or a collective fails.
pub fn attention(
    tape: &mut Tape<'_>,
    settings: &Settings,
    pass: &Pass,
    packed: &Flow,
    heads: Heads,
    sinks: Option<usize>,
    rule: &Rule,
) -> anyhow::Result<Flow> {
    let chunks = Chunks::of(tape.group().world, settings.cp)?;
    // libtorch's kernels for the CPU take values that are as wide as keys; without one it would keep all scores.
    let fused = heads.key_dim == heads.value_dim || packed.data().device().is_cuda();
    // So it would keep masks: where there are any, scores are made again in backward, as under context parallelism.
    if chunks.members == 1 && sinks.is_none() && fused && rule.is_plain() && pass.apart.is_none() {
        return tape.segment(&[packed], &[], |inputs, _| {
            let [query, key, value] = heads.parts(&inputs[0])?;
            attend(&query, &key, &value, None, rule)
        });
    }
    let widths = [heads.key_dim, heads.value_dim];
    let (device, kind) = (packed.data().device(), packed.data().kind());
    if sinks.is_none() && rule.is_plain() {
        match &pass.apart {
            Some(documents) if chunks.members == 1 && packed::has_kernel(device, kind, widths) => {
                return apart_by_kernel(tape, packed, heads, rule.scale, documents);
            }
            None if chunks.members > 1 && flash::has_kernel(device, kind, widths) => {
                return chunks.attend_by_kernel(tape, packed, heads, rule.scale);
            }
            _ => {}
        }
    }
    let (rule, apart) = (rule.clone(), pass.apart.clone());
    let parameters: Vec<usize> = sinks.into_iter().collect();
    let sinks = sinks.map(|sinks| tape.weight(sinks).f_detach()).transpose()?;
    let kept = tape.keep(packed);
    let data = no_grad(|| {
        let (key, value) = heads.apart(&chunks.gather(&heads.keys_and_values(packed.data())?)?)?;
        chunks.attend(&heads.query(packed.data())?, &key, &value, sinks.as_ref(), &rule, apart.as_deref())
    })?;
    let backward = move |gradient: Tensor| {
        let packed = kept.get()?;
        let leaf = |tensor: Tensor| tensor.f_detach()?.f_set_requires_grad(true);
        let query = leaf(heads.query(&packed)?)?;
        let both = leaf(chunks.gather(&heads.keys_and_values(&packed)?)?)?;
        let sinks = sinks.map(leaf).transpose()?;
        let output = with_grad(|| {
            let (key, value) = heads.apart(&both)?;
            chunks.attend(&query, &key, &value, sinks.as_ref(), &rule, apart.as_deref())
        })?;
        let leaves: Vec<&Tensor> =
            [Some(&query), Some(&both), sinks.as_ref()].into_iter().flatten().collect();
        let mut found = sys::gradients(&[&output], &[&gradient], &leaves)?.into_iter().flatten();
        let (of_query, of_both) = (found.next(), found.next());
        let of_query = of_query.context("the gradient of queries")?;
        let of_both = chunks.scatter(of_both.context("the gradient of keys and values")?)?;
        let size = packed.size();
        let of_query = of_query.f_reshape([size[0], size[1], heads.query_width()])?;
        let of_packed = Tensor::f_cat(&[of_query, of_both], -1)?;
        Ok(Gradients { inputs: vec![of_packed], weights: OfWeights::Made(found.collect()) })
    };
    Ok(tape.function(&[packed], &parameters, data, Box::new(backward)))
}

#[cfg(test)]
mod tests {
    use super::positions;

    #[test]
    fn chunks_are_balanced_and_cover_the_sequence() {
        assert_eq!(positions(8, 1, 0), (0..8).collect::<Vec<_>>());
        assert_eq!(positions(8, 2, 0), [0, 1, 6, 7]);
        assert_eq!(positions(8, 2, 1), [2, 3, 4, 5]);
        let mut all: Vec<i64> = (0..3).flat_map(|index| positions(12, 3, index)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..12).collect::<Vec<_>>());
    }
}
