//! Documents that are packed into the sequences of a micro batch: where each begins, for positions that start again there and
//! attention that does not cross it.

use std::cell::OnceCell;

use planner::plan::Documents as Asked;
use tch::{Device, Tensor};

use crate::device::bring;

/// Where documents begin in each sequence of a micro batch, and what of the model begins again there.
#[derive(Debug)]
pub struct Documents {
    /// Of each sequence, in order, the first of which is 0.
    starts: Vec<Vec<i64>>,
    asked: Asked,
    /// The same for a kernel that takes all at once, made by the first who asks.
    bounds: OnceCell<Bounds>,
}

/// Documents of sequences that lie one behind the other.
#[derive(Debug)]
pub struct Bounds {
    /// Where each begins, and behind them where the last one ends: int32, on a device.
    pub places: Tensor,
    /// Tokens of the longest.
    pub longest: i64,
}

impl Documents {
    /// The documents of sequences whose tokens these are; `end` is the token that ends one, and belongs to it.
    pub fn of<'t>(sequences: impl Iterator<Item = &'t [i64]>, end: i64, asked: Asked) -> Documents {
        let starts_of = |tokens: &[i64]| {
            let ends = tokens.iter().zip(1..).filter(|(token, _)| **token == end).map(|(_, behind)| behind);
            // What ends with the sequence is not followed by another in it.
            std::iter::once(0).chain(ends.filter(|&start| start < tokens.len() as i64)).collect()
        };
        Documents { starts: sequences.map(starts_of).collect(), asked, bounds: OnceCell::new() }
    }

    /// How many sequences they are of.
    pub fn sequences(&self) -> usize {
        self.starts.len()
    }

    /// Where they are in sequences of so many tokens that lie one behind the other, on the device that asks first.
    ///
    /// # Errors
    /// When there are 2^31 tokens, or libtorch fails.
    pub fn bounds(&self, tokens: i64, device: Device) -> anyhow::Result<&Bounds> {
        if let Some(known) = self.bounds.get() {
            return Ok(known);
        }
        let mut places = vec![0_i32];
        let mut longest = 0;
        for sequence in 0..self.sequences() {
            for [start, end] in self.spans(sequence, 0, tokens) {
                longest = longest.max(end - start);
                places.push(i32::try_from(sequence as i64 * tokens + end)?);
            }
        }
        let places = bring(&Tensor::f_from_slice(&places)?, device)?;
        Ok(self.bounds.get_or_init(|| Bounds { places, longest }))
    }

    /// Whether tokens see those of their own document alone.
    pub fn keep_attention_apart(&self) -> bool {
        self.asked.reset_attention
    }

    /// The positions of these places of the sequences, `[places, sequences]`; none where they go on over documents.
    pub fn positions(&self, places: &[i64]) -> Option<Vec<i64>> {
        let of_place = |&place: &i64| self.starts.iter().map(move |starts| place - begun(starts, place));
        self.asked.reset_positions.then(|| places.iter().flat_map(of_place).collect())
    }

    /// The documents of sequence `sequence` that have some of the places `first` to `end`: where each begins, and where it ends,
    /// or `end` where it goes on.
    pub fn spans(&self, sequence: usize, first: i64, end: i64) -> Vec<[i64; 2]> {
        let starts = self.starts.get(sequence).map_or(&[] as &[i64], Vec::as_slice);
        let ends = starts.iter().skip(1).copied().chain(std::iter::once(i64::MAX));
        let spans = starts.iter().zip(ends).map(|(&start, behind)| [start, behind.min(end)]);
        spans.filter(|&[start, behind]| start < end && behind > first).collect()
    }
}

/// Where the document of a place began.
fn begun(starts: &[i64], place: i64) -> i64 {
    let next = starts.partition_point(|&start| start <= place);
    next.checked_sub(1).and_then(|own| starts.get(own)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sequences: &[&[i64]]) -> Documents {
        let asked = Asked { reset_positions: true, ..Asked::default() };
        Documents::of(sequences.iter().copied(), 0, asked)
    }

    #[test]
    fn a_document_begins_behind_the_end_of_another() {
        let documents = of(&[&[5, 0, 6, 7, 0], &[0, 0, 4, 4, 4], &[1, 2, 3, 4, 5]]);
        assert_eq!(documents.starts, [vec![0, 2], vec![0, 1, 2], vec![0]]);
        let all = documents.positions(&[0, 1, 2, 3, 4]).unwrap();
        assert_eq!(all, [0, 0, 0, 1, 0, 1, 0, 0, 2, 1, 1, 3, 2, 2, 4]);
        assert_eq!(documents.positions(&[4, 1]).unwrap(), [2, 2, 4, 1, 0, 1]);
        assert_eq!(documents.spans(0, 0, 5), [[0, 2], [2, 5]]);
        assert_eq!(documents.spans(0, 2, 4), [[2, 4]]);
        assert_eq!(documents.spans(0, 3, 4), [[2, 4]]);
        assert_eq!(documents.spans(1, 1, 2), [[1, 2]]);
        assert_eq!(documents.spans(2, 1, 2), [[0, 2]]);
        let bounds = documents.bounds(5, Device::Cpu).unwrap();
        assert_eq!(Vec::<i32>::try_from(&bounds.places).unwrap(), [0, 2, 5, 6, 7, 10, 15]);
        assert_eq!(bounds.longest, 5);
    }
}
