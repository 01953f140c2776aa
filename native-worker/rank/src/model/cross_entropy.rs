//! Cross entropy over a vocabulary that is cut over tensor-parallel ranks: forward and gradient written out, because
//! maximum and sums must cross ranks.

use anyhow::Context;
use tch::{Kind, Tensor};

use super::functions::exact;
use crate::collectives::{Collectives, GroupId, Reduce};

/// The rows of the vocabulary that a rank holds.
pub struct VocabularySlice {
    /// First word and how many, in the order of the rows.
    ranges: Vec<[i64; 2]>,
    rows: i64,
    /// Rows that are padding: first row and how many.
    padding: Vec<[i64; 2]>,
}

impl VocabularySlice {
    /// The rows of these ranges `[first, end)`, of a vocabulary of `words` words before padding.
    ///
    /// # Errors
    /// When sizes are absurd.
    pub fn new(held: &[[u64; 2]], words: u64) -> anyhow::Result<VocabularySlice> {
        let signed = |number: u64| i64::try_from(number).context("vocabulary size");
        let (mut ranges, mut padding, mut rows) = (Vec::new(), Vec::new(), 0);
        for &[first, end] in held {
            let count = end.saturating_sub(first);
            let here = words.saturating_sub(first).min(count);
            if here < count {
                padding.push([rows + signed(here)?, signed(count - here)?]);
            }
            ranges.push([signed(first)?, signed(count)?]);
            rows += signed(count)?;
        }
        Ok(VocabularySlice { ranges, rows, padding })
    }

    /// Whether each word is in this slice, and its row in it (0 for words elsewhere).
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn localize(&self, words: &Tensor) -> anyhow::Result<(Tensor, Tensor)> {
        let mut found: Option<(Tensor, Tensor)> = None;
        let mut row = 0;
        for &[first, count] in &self.ranges {
            let local = words.f_sub_scalar(first)?;
            let inside = local.f_ge(0)?.f_logical_and(&local.f_lt(count)?)?;
            let local = local.f_add_scalar(row)?.f_mul(&inside.f_to_kind(Kind::Int64)?)?;
            found = Some(match found {
                None => (inside, local),
                Some((before, rows)) => (before.f_logical_or(&inside)?, rows.f_add(&local)?),
            });
            row += count;
        }
        found.context("a rank with no rows of the vocabulary")
    }

    /// The sum of the losses of all tokens (one fp64 number, still on the device), and the gradient of that sum times
    /// `scale` with respect to the logits `[s, b, rows]`; of those alone where `counted` is 1 and not 0. Computed in fp32
    /// (fp64 for fp64 logits).
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn cross_entropy(
        &self,
        world: &dyn Collectives,
        tp: GroupId,
        logits: Tensor,
        targets: &Tensor,
        counted: Option<&Tensor>,
        scale: f64,
    ) -> anyhow::Result<(Tensor, Tensor)> {
        let (kind, exact, size) = (logits.kind(), exact(logits.kind()), logits.size());
        let mut work = logits.f_reshape([-1, self.rows])?.f_to_kind(exact)?;
        // In fp32 and fp64 these are the logits themselves, worked on in place.
        drop(logits);
        for &[first, count] in &self.padding {
            let mut padding = work.f_narrow(1, first, count)?;
            let _ = padding.f_fill_(f64::NEG_INFINITY)?;
        }
        let mut largest = work.f_amax([1_i64].as_slice(), true)?;
        world.all_reduce(tp, Reduce::Max, &mut largest)?;
        let _ = work.f_sub_(&largest)?;
        let (inside, local) = self.localize(&targets.f_reshape([-1, 1])?)?;
        let outside = inside.f_logical_not()?;
        let said = work.f_gather(1, &local, false)?.f_masked_fill(&outside, 0.0)?;
        let _ = work.f_exp_()?;
        let total = work.f_sum_dim_intlist([1_i64].as_slice(), true, exact)?;
        let mut sums = Tensor::f_stack(&[said, total], 0)?;
        world.all_reduce(tp, Reduce::Sum, &mut sums)?;
        let (said, total) = (sums.f_get(0)?, sums.f_get(1)?);
        let counted = counted.map(|counted| counted.f_reshape([-1, 1])?.f_to_kind(exact)).transpose()?;
        let mut losses = total.f_log()?.f_sub(&said)?;
        if let Some(counted) = &counted {
            let _ = losses.f_mul_(counted)?;
        }
        let loss = losses.f_sum(Kind::Double)?;
        drop(losses);
        let _ = work.f_div_(&total)?;
        let ones = inside.f_to_kind(exact)?.f_neg()?;
        let _ = work.f_scatter_add_(1, &local, &ones)?;
        let _ = work.f_mul_scalar_(scale)?;
        if let Some(counted) = &counted {
            let _ = work.f_mul_(counted)?;
        }
        let gradient = work.f_to_kind(kind)?.f_view(size.as_slice())?;
        Ok((loss, gradient))
    }
}
