//! Cross entropy over a vocabulary that is cut over tensor-parallel ranks: forward and gradient written out, because
//! maximum and sums must cross ranks.

use anyhow::Context;
use tch::{Kind, Tensor};

use super::functions::exact;
use crate::collectives::{Collectives, GroupId, Reduce};

/// The rows of the vocabulary that a rank holds.
pub struct VocabularySlice {
    start: i64,
    rows: i64,
    /// Of these, rows that are words; the rest is padding.
    words: i64,
}

impl VocabularySlice {
    /// `rows` rows from `start`, of a vocabulary of `words` words before padding.
    ///
    /// # Errors
    /// When sizes are absurd.
    pub fn new(start: u64, rows: u64, words: u64) -> anyhow::Result<VocabularySlice> {
        let signed = |number: u64| i64::try_from(number).context("vocabulary size");
        let here = words.saturating_sub(start).min(rows);
        Ok(VocabularySlice { start: signed(start)?, rows: signed(rows)?, words: signed(here)? })
    }

    /// Whether each word is in this slice, and its row in it (0 for words elsewhere).
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn localize(&self, words: &Tensor) -> anyhow::Result<(Tensor, Tensor)> {
        let local = words.f_sub_scalar(self.start)?;
        let inside = local.f_ge(0)?.f_logical_and(&local.f_lt(self.rows)?)?;
        let local = local.f_mul(&inside.f_to_kind(Kind::Int64)?)?;
        Ok((inside, local))
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
        if self.words < self.rows {
            let mut padding = work.f_narrow(1, self.words, self.rows - self.words)?;
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
