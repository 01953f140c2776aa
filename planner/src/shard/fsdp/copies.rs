//! Where the elements of a gathered unit go: copies with strides, as few as it takes.

use super::boxes::Piece;
use crate::shard::ParamShard;

/// Elements that lie in a parameter as this rank computes with it, and in the buffer that gathers a unit: the same extents, each
/// with its own first element and strides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOut {
    /// Number of the parameter among those of runtime native.
    pub parameter: usize,
    /// Extent of each dim.
    pub extent: Vec<u64>,
    /// First element and strides in the parameter's slice.
    pub local: (u64, Vec<u64>),
    /// First element and strides in the gathered buffer: the members' slices one after the other.
    pub gathered: (u64, Vec<u64>),
}

/// Elements from one index of each dim to the next, of a box of these extents.
fn strides(extent: &[u64]) -> Vec<u64> {
    let mut found = vec![1; extent.len()];
    for dim in (1..extent.len()).rev() {
        found[dim - 1] = found[dim] * extent[dim];
    }
    found
}

impl CopyOut {
    /// Of what a piece of a slice has in common with what this rank computes with; the slice's part of the parameter begins at
    /// `base` of the gathered buffer.
    pub(in crate::shard) fn of(
        parameter: usize,
        shard: &ParamShard,
        piece: &Piece,
        base: u64,
    ) -> Option<CopyOut> {
        let (own, theirs) = (strides(&shard.local_shape), strides(&piece.extent));
        let (mut local, mut gathered, mut extent) = (0, base + piece.start, Vec::new());
        for dim in 0..piece.extent.len() {
            let first = piece.offset[dim].max(shard.offset[dim]);
            let end = (piece.offset[dim] + piece.extent[dim]).min(shard.offset[dim] + shard.local_shape[dim]);
            if first >= end {
                return None;
            }
            local += (first - shard.offset[dim]) * own[dim];
            gathered += (first - piece.offset[dim]) * theirs[dim];
            extent.push(end - first);
        }
        Some(CopyOut { parameter, extent, local: (local, own), gathered: (gathered, theirs) }.joined())
    }

    /// Elements.
    pub fn elements(&self) -> u64 {
        self.extent.iter().product()
    }

    /// The same with as few dims as it takes.
    fn joined(mut self) -> CopyOut {
        let single = |copy: &CopyOut| copy.extent.iter().position(|&extent| extent == 1);
        while let Some(dim) = single(&self).filter(|_| self.extent.len() > 1) {
            self.extent.remove(dim);
            self.local.1.remove(dim);
            self.gathered.1.remove(dim);
        }
        let mut dim = 1;
        while dim < self.extent.len() {
            let runs_on = |strides: &[u64]| strides[dim - 1] == strides[dim].saturating_mul(self.extent[dim]);
            if runs_on(&self.local.1) && runs_on(&self.gathered.1) {
                self.extent[dim - 1] *= self.extent[dim];
                self.extent.remove(dim);
                self.local.1.remove(dim - 1);
                self.gathered.1.remove(dim - 1);
            } else {
                dim += 1;
            }
        }
        self
    }

    fn is_alike(&self, other: &CopyOut) -> bool {
        (self.parameter, &self.extent, &self.local.1, &self.gathered.1)
            == (other.parameter, &other.extent, &other.local.1, &other.gathered.1)
    }
}

/// Copies that follow each other at equal distances, as one copy with a dim more.
fn merged(copies: Vec<CopyOut>) -> Vec<CopyOut> {
    let mut found: Vec<CopyOut> = Vec::new();
    let mut left = copies.as_slice();
    while let Some(first) = left.first() {
        let step = |from: &CopyOut, to: &CopyOut| {
            let ahead = |from: u64, to: u64| to.checked_sub(from);
            Some((ahead(from.local.0, to.local.0)?, ahead(from.gathered.0, to.gathered.0)?))
        };
        let distance =
            left.get(1).filter(|second| first.is_alike(second)).and_then(|second| step(first, second));
        let Some(distance) = distance else {
            found.push(first.clone());
            left = &left[1..];
            continue;
        };
        let more = left
            .windows(2)
            .take_while(|pair| pair[0].is_alike(&pair[1]) && step(&pair[0], &pair[1]) == Some(distance));
        let count = 1 + more.count();
        let mut one = first.clone();
        one.extent.insert(0, count as u64);
        one.local.1.insert(0, distance.0);
        one.gathered.1.insert(0, distance.1);
        found.push(one.joined());
        left = &left[count..];
    }
    found
}

/// Merged until nothing merges any more.
pub(super) fn settled(mut copies: Vec<CopyOut>) -> Vec<CopyOut> {
    crate::order::sort_by_key(&mut copies, |copy| copy.parameter);
    loop {
        let before = copies.len();
        copies = merged(copies);
        if copies.len() == before {
            return copies;
        }
    }
}
