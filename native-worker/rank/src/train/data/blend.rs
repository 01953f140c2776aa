//! Several sources together, each with its share.
//!
//! Of every [`BLOCK`] sequences each source has its share, rounded, in an order that follows from a key: so which source a
//! sequence is from, and which of that source's it is, is known without a walk through those before.

use planner::plan::{BLOCK, shares};
use planner::wire::DataPart;

use super::permutation::permuted;
use super::{Data, DataFile};
use crate::state::init::mix;

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
        let shares = shares(parts).map_err(|(field, why)| anyhow::anyhow!("run.data.{field} {why}"))?;
        let mut first = 0;
        let mut opened = Vec::with_capacity(parts.len());
        for (number, (part, share)) in parts.iter().zip(shares).enumerate() {
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
