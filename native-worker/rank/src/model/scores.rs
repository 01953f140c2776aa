//! What becomes of attention's scores: which tokens are seen, what scores are multiplied by, how they are capped.

use anyhow::Context;
use planner::Plan;
use planner::model::{Positions, Scores, Temperature};
use tch::{Device, Kind, Tensor};

/// Scores of one attention, over sequences of the plan's length.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    window: Option<i64>,
    chunk: Option<i64>,
    /// What products of queries and keys are multiplied by; 1 over the root of their width where absent.
    pub scale: Option<f64>,
    /// Cap c of scores: c tanh(score / c).
    pub cap: Option<f64>,
    temperature: Option<Temperature>,
}

impl Rule {
    /// The rule of an attention: windows and chunks as long as the sequence leave nothing out.
    ///
    /// # Errors
    /// When it has a part that the executor does not know.
    pub fn new(plan: &Plan, scores: &Scores) -> anyhow::Result<Rule> {
        let Scores {
            window,
            chunk,
            positions,
            // The architecture's matter, and the attention's.
            rope: _,
            scale,
            soft_cap,
            temperature,
            norm_after_rotation: _,
        } = scores;
        anyhow::ensure!(*positions != Positions::Alibi, "the executor has no biases by distance (ALiBi) yet");
        let seq_len = plan.training.seq_len;
        let shorter = |tokens: &Option<u64>| {
            let tokens = tokens.filter(|&tokens| tokens < seq_len);
            tokens.map(i64::try_from).transpose().context("tokens of a window")
        };
        Ok(Rule {
            window: shorter(window)?,
            chunk: shorter(chunk)?,
            scale: *scale,
            cap: *soft_cap,
            temperature: temperature.clone(),
        })
    }

    /// Whether a token sees all before it, as they are scored.
    pub fn is_plain(&self) -> bool {
        self.window.is_none() && self.chunk.is_none() && self.cap.is_none()
    }

    /// The first of the positions that some token from `first` on sees.
    pub fn first_seen(&self, first: i64) -> i64 {
        let of_window = self.window.map_or(0, |window| first + 1 - window);
        let of_chunk = self.chunk.map_or(0, |chunk| first / chunk.max(1) * chunk);
        of_window.max(of_chunk).max(0)
    }

    /// Which of the positions from `from` up to the last of `tokens` tokens from `first` on each of these sees, `[tokens,
    /// seen]`; none where that is all of them up to the token itself, and there is no more to it.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn mask(&self, first: i64, tokens: i64, from: i64, device: Device) -> anyhow::Result<Tensor> {
        let span =
            |start: i64, length: i64| Tensor::f_arange_start(start, start + length, (Kind::Int64, device));
        let queries = span(first, tokens)?.f_unsqueeze(1)?;
        let keys = span(from, first + tokens - from)?.f_unsqueeze(0)?;
        let mut seen = keys.f_le_tensor(&queries)?;
        if let Some(window) = self.window {
            seen = seen.f_logical_and(&keys.f_gt_tensor(&queries.f_sub_scalar(window)?)?)?;
        }
        if let Some(chunk) = self.chunk {
            let own = queries.f_sub(&queries.f_remainder(chunk)?)?;
            seen = seen.f_logical_and(&keys.f_ge_tensor(&own)?)?;
        }
        Ok(seen)
    }

    /// Queries, `[s, b, heads, d]`, by the temperature of their positions, `[s]` or `[s, b]`.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn tempered(&self, query: Tensor, positions: &[i64]) -> anyhow::Result<Tensor> {
        let Some(Temperature { tokens, factor, shift }) = &self.temperature else { return Ok(query) };
        let shift = i64::try_from(*shift).context("where a temperature of queries starts")?;
        let of =
            |position: &i64| 1.0 + factor * (((position + shift) as f64 / *tokens as f64).floor()).ln_1p();
        let factors: Vec<f64> = positions.iter().map(of).collect();
        let factors = crate::device::bring(&Tensor::f_from_slice(&factors)?, query.device())?;
        Ok(query.f_mul(&factors.f_to_kind(query.kind())?.f_view([query.size()[0], -1, 1, 1])?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_stands_in_what_is_read() {
        for rule in [
            Rule::default(),
            Rule { window: Some(3), ..Rule::default() },
            Rule { chunk: Some(4), ..Rule::default() },
            Rule { chunk: Some(4), window: Some(2), ..Rule::default() },
        ] {
            for (first, tokens) in [(0, 12), (4, 4), (6, 3)] {
                let from = rule.first_seen(first);
                let mask = rule.mask(first, tokens, from, Device::Cpu).unwrap();
                for query in first..first + tokens {
                    for key in 0..first + tokens {
                        let seen = key <= query
                            && rule.window.is_none_or(|window| key > query - window)
                            && rule.chunk.is_none_or(|chunk| key / chunk == query / chunk);
                        let there = key >= from && mask.int64_value(&[query - first, key - from]) == 1;
                        assert_eq!(seen, there, "{rule:?} {query} {key}");
                    }
                }
            }
        }
    }
}
