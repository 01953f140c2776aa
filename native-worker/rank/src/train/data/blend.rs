//! Several sources together, each with its share.
//!
//! Of every [`BLOCK`] sequences each source has its share, rounded, in an order that follows from a key: so which source a
//! sequence is from, and which of that source's it is, is known without a walk through those before.

use anyhow::ensure;
use planner::wire::DataPart;

use super::permutation::permuted;
use super::{Data, DataFile};
use crate::state::init::mix;

/// Sequences of which each source has its share.
const BLOCK: u64 = 1 << 16;

/// Sources with their shares.
pub struct Blend {
    /// Each with its first place of a block, and how many it has.
    parts: Vec<(Data, u64, u64)>,
    key: u64,
}

impl Blend {
    /// Opens all sources by `open`, which is given the number of each.
    ///
    /// # Errors
    /// When there is none, a weight is no positive number or so small that its source would never be read, or one can't be
    /// opened.
    pub fn open(
        parts: &[DataPart],
        key: u64,
        mut open: impl FnMut(u64, &DataFile) -> anyhow::Result<Data>,
    ) -> anyhow::Result<Blend> {
        ensure!(!parts.is_empty(), "run.data.parts is empty; give at least one source");
        let wrong = parts.iter().position(|part| !(part.weight.is_finite() && part.weight > 0.0));
        if let Some(wrong) = wrong {
            anyhow::bail!("run.data.parts[{wrong}].weight is {}; it must be above 0", parts[wrong].weight);
        }
        let shares = shares(&parts.iter().map(|part| part.weight).collect::<Vec<_>>());
        let mut first = 0;
        let mut opened = Vec::with_capacity(parts.len());
        for (number, (part, share)) in parts.iter().zip(shares).enumerate() {
            ensure!(
                share > 0,
                "run.data.parts[{number}].weight is {}, less than one sequence in {BLOCK}; leave it out or raise it",
                part.weight
            );
            opened.push((open(number as u64, &part.data)?, first, share));
            first += share;
        }
        Ok(Blend { parts: opened, key })
    }

    /// The source of sequence `index`, and its number there.
    pub fn place(&self, index: u64) -> (&Data, u64) {
        let (block, place) = (index / BLOCK, index % BLOCK);
        let place = permuted(mix(self.key ^ mix(block)), BLOCK, place);
        let of_it = |part: &&(Data, u64, u64)| place < part.1 + part.2;
        // The last ends with the block.
        let (data, first, share) = self.parts.iter().find(of_it).unwrap_or(&self.parts[self.parts.len() - 1]);
        (data, block * share + (place - first))
    }
}

/// Places of a block by weight: rounded down, and what is left to those that lost most.
fn shares(weights: &[f64]) -> Vec<u64> {
    let sum: f64 = weights.iter().sum();
    let exact: Vec<f64> = weights.iter().map(|weight| weight / sum * BLOCK as f64).collect();
    let mut shares: Vec<u64> = exact.iter().map(|share| *share as u64).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    let lost = |number: usize| exact[number] - exact[number].floor();
    order.sort_by(|&one, &other| lost(other).total_cmp(&lost(one)));
    let left = BLOCK.saturating_sub(shares.iter().sum()) as usize;
    order.iter().cycle().take(left).for_each(|&number| shares[number] += 1);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fill_a_block() {
        assert_eq!(shares(&[1.0, 1.0]), [BLOCK / 2, BLOCK / 2]);
        let three = shares(&[0.7, 0.2, 0.1]);
        assert_eq!(three.iter().sum::<u64>(), BLOCK);
        assert!((three[0] as f64 / BLOCK as f64 - 0.7).abs() < 1e-4);
        assert_eq!(shares(&[1.0, 1e-9])[1], 0);
    }
}
