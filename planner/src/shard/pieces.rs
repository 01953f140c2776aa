//! What of a parameter somebody holds, and which elements two have in common: by this a checkpoint of one layout is read
//! in another.

use super::ParamShard;
pub use crate::wire::Piece;

/// Elements that two pieces have in common and that lie one after the other in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// The first, counted from the first element of the piece that has them.
    pub from: u64,
    /// The first, counted from the first element of the piece that wants them.
    pub to: u64,
    /// How many.
    pub count: u64,
}

impl Piece {
    /// Elements `start` to `end` of a rank's slice without those that are vocabulary padding, which belong to no word and
    /// are as many as the layout wants; none when that is all of them.
    pub fn of(shard: &ParamShard, start: u64, end: u64) -> Option<Piece> {
        let row: u64 = shard.local_shape.iter().skip(1).product();
        let rows = shard.offset.first().map_or(1, |first| shard.unpadded_rows.saturating_sub(*first));
        let end = end.min(shard.elements()).min(rows.saturating_mul(row));
        (start < end).then(|| Piece {
            offset: shard.offset.clone(),
            extent: shard.local_shape.clone(),
            start,
            elements: end - start,
        })
    }

    /// Whether it can be a piece of a parameter of this shape, whose first dim may be padded.
    pub fn is_of(&self, shape: &[u64]) -> bool {
        let within = |dim: usize| {
            let end = self.offset[dim].checked_add(self.extent[dim]);
            end.is_some_and(|end| dim == 0 || end <= shape[dim])
        };
        let elements = self.extent.iter().try_fold(1_u64, |product, extent| product.checked_mul(*extent));
        let end = self.start.checked_add(self.elements);
        self.offset.len() == shape.len()
            && self.extent.len() == shape.len()
            && (0..shape.len()).all(within)
            && end.is_some_and(|end| elements.is_some_and(|elements| end <= elements))
    }

    /// The same piece where dims of the whole, in groups of so many, are one dim each; none where the box is then none.
    fn merged(&self, shape: &[u64], groups: impl Iterator<Item = usize>) -> Option<Piece> {
        let (mut offset, mut extent, mut dim) = (Vec::new(), Vec::new(), 0);
        for count in groups {
            let (mut first, mut elements) = (0, 1);
            for (at, &whole) in shape.iter().enumerate().skip(dim).take(count) {
                // Behind a dim of several indices all must be whole.
                if elements > 1 && self.extent[at] != whole {
                    return None;
                }
                first = first * whole + self.offset[at];
                elements *= self.extent[at];
            }
            offset.push(first);
            extent.push(elements);
            dim += count;
        }
        Some(Piece { offset, extent, ..self.clone() })
    }

    fn end(&self) -> u64 {
        self.start + self.elements
    }
}

/// Dims of two shapes of one parameter, in groups that have as many elements in both; none where these are of other sizes. A
/// layout with more tensor-parallel ranks than groups of heads knows rows where others know groups and heads.
fn groups(one: &[u64], other: &[u64]) -> Option<Vec<(usize, usize)>> {
    let (mut found, mut left, mut right) = (Vec::new(), 0, 0);
    while left < one.len() && right < other.len() {
        let (first_left, first_right) = (left, right);
        let (mut of_left, mut of_right) = (one[left], other[right]);
        (left, right) = (left + 1, right + 1);
        while of_left != of_right {
            if of_left < of_right {
                of_left = of_left.checked_mul(*one.get(left)?)?;
                left += 1;
            } else {
                of_right = of_right.checked_mul(*other.get(right)?)?;
                right += 1;
            }
        }
        found.push((left - first_left, right - first_right));
    }
    (left == one.len() && right == other.len()).then_some(found)
}

/// The elements that `have` and `want` have in common, in ascending order, where the whole has the shapes given for either;
/// none where these are not shapes of one parameter.
pub fn copies_of(
    (want, want_shape): (&Piece, &[u64]),
    (have, have_shape): (&Piece, &[u64]),
) -> Option<Vec<Copied>> {
    if want_shape == have_shape {
        return Some(copies(want, have));
    }
    let groups = groups(want_shape, have_shape)?;
    let want = want.merged(want_shape, groups.iter().map(|group| group.0))?;
    let have = have.merged(have_shape, groups.iter().map(|group| group.1))?;
    Some(copies(&want, &have))
}

/// The elements that `have` and `want` have in common, in ascending order; both are pieces of one parameter.
pub fn copies(want: &Piece, have: &Piece) -> Vec<Copied> {
    let dims = want.extent.len().min(have.extent.len());
    // From the last dim on, whatever both have whole is one run with the dim before it.
    let mut inner = dims.saturating_sub(1);
    while inner > 0 && want.extent[inner] == have.extent[inner] && want.offset[inner] == have.offset[inner] {
        inner -= 1;
    }
    let mut common = Vec::with_capacity(inner + 1);
    for dim in 0..dims {
        let first = want.offset[dim].max(have.offset[dim]);
        let end = (want.offset[dim] + want.extent[dim]).min(have.offset[dim] + have.extent[dim]);
        if first >= end {
            return Vec::new();
        }
        common.push((first, end));
    }
    // Elements of one index of each dim, in both boxes.
    let strides = |extent: &[u64]| -> Vec<u64> {
        (0..dims).map(|dim| extent[dim + 1..dims].iter().product()).collect()
    };
    let (of_want, of_have) = (strides(&want.extent), strides(&have.extent));
    let place = |piece: &Piece, strides: &[u64], at: &[u64]| -> u64 {
        (0..dims).map(|dim| (at[dim] - piece.offset[dim]) * strides[dim]).sum()
    };
    let Some(&(_, end)) = common.get(inner) else { return Vec::new() };
    let run = (end - common[inner].0) * of_want[inner];
    let mut at: Vec<u64> = common.iter().map(|&(first, _)| first).collect();
    let mut found: Vec<Copied> = Vec::new();
    loop {
        let (to, from) = (place(want, &of_want, &at), place(have, &of_have, &at));
        found.extend(clipped(want, have, Copied { from, to, count: run }));
        if let [.., before, last] = found.as_mut_slice()
            && before.from + before.count == last.from
            && before.to + before.count == last.to
        {
            before.count += last.count;
            found.pop();
        }
        // The next row, counting the outer dims up like digits.
        let Some(dim) = (0..inner).rev().find(|&dim| at[dim] + 1 < common[dim].1) else { return found };
        at[dim] += 1;
        (dim + 1..inner).for_each(|dim| at[dim] = common[dim].0);
    }
}

/// What of a run, counted in the boxes, lies in both ranges, counted from their starts.
fn clipped(want: &Piece, have: &Piece, run: Copied) -> Option<Copied> {
    let skip = want.start.saturating_sub(run.to).max(have.start.saturating_sub(run.from));
    let left = want.end().saturating_sub(run.to).min(have.end().saturating_sub(run.from)).min(run.count);
    (skip < left).then(|| Copied {
        from: run.from + skip - have.start,
        to: run.to + skip - want.start,
        count: left - skip,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The number in the whole of each element of a piece.
    fn numbers(piece: &Piece, shape: &[u64]) -> Vec<u64> {
        let in_whole = |mut local: u64| {
            let (mut number, mut stride) = (0, 1);
            for dim in (0..shape.len()).rev() {
                number += (piece.offset[dim] + local % piece.extent[dim]) * stride;
                local /= piece.extent[dim];
                stride *= shape[dim];
            }
            number
        };
        (piece.start..piece.end()).map(in_whole).collect()
    }

    fn shape() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(1_u64..6, 1..5)
    }

    fn piece(shape: &[u64]) -> impl Strategy<Value = Piece> + use<> {
        let boxes: Vec<_> = shape
            .iter()
            .map(|&whole| (0..whole).prop_flat_map(move |first| (Just(first), 1..=whole - first)))
            .collect();
        (boxes, any::<(u32, u32)>()).prop_map(|(dims, (first, last))| {
            let (offset, extent): (Vec<u64>, Vec<u64>) = dims.into_iter().unzip();
            let all: u64 = extent.iter().product();
            let start = u64::from(first) % all;
            let elements = 1 + u64::from(last) % (all - start);
            Piece { offset, extent, start, elements }
        })
    }

    proptest! {
        #[test]
        fn copies_are_the_elements_that_both_have((shape, want, have) in shape().prop_flat_map(|shape| {
            let (want, have) = (piece(&shape), piece(&shape));
            (Just(shape), want, have)
        })) {
            prop_assert!(want.is_of(&shape) && have.is_of(&shape));
            let (wanted, held) = (numbers(&want, &shape), numbers(&have, &shape));
            let mut found = vec![None; wanted.len()];
            for copied in copies(&want, &have) {
                for step in 0..copied.count {
                    let slot = &mut found[(copied.to + step) as usize];
                    prop_assert!(slot.is_none(), "copied twice");
                    *slot = Some(held[(copied.from + step) as usize]);
                }
            }
            let expected: Vec<Option<u64>> =
                wanted.iter().map(|number| held.contains(number).then_some(*number)).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn pieces_of_other_shapes_meet_in_what_both_know() {
        // Two groups of four heads' rows of 8, cut by groups; and 64 rows, cut in four.
        let group = Piece { offset: vec![1, 0, 0, 0], extent: vec![1, 4, 8, 3], start: 0, elements: 96 };
        let rows = |first| Piece { offset: vec![first, 0], extent: vec![16, 3], start: 0, elements: 48 };
        let between = |want: &Piece, have: &Piece| copies_of((want, &[64, 3]), (have, &[2, 4, 8, 3]));
        assert_eq!(between(&rows(48), &group), Some(vec![Copied { from: 48, to: 0, count: 48 }]));
        assert_eq!(between(&rows(16), &group), Some(Vec::new()));
        // Columns of what is written back.
        let columns = Piece { offset: vec![0, 24], extent: vec![5, 8], start: 0, elements: 40 };
        let half = Piece { offset: vec![0, 1, 0, 0], extent: vec![5, 1, 2, 8], start: 0, elements: 80 };
        let found = copies_of((&columns, &[5, 32]), (&half, &[5, 2, 2, 8])).unwrap();
        assert_eq!(found.len(), 5);
        assert_eq!(found[1], Copied { from: 24, to: 8, count: 8 });
        assert_eq!(copies_of((&columns, &[5, 32]), (&half, &[5, 2, 2, 9])), None);
    }

    #[test]
    fn whole_rows_are_one_run() {
        let piece = |offset: [u64; 3], extent: [u64; 3]| Piece {
            offset: offset.to_vec(),
            extent: extent.to_vec(),
            start: 0,
            elements: extent.iter().product(),
        };
        let (whole, half) = (piece([0, 0, 0], [8, 4, 16]), piece([4, 0, 0], [4, 4, 16]));
        assert_eq!(copies(&whole, &half), [Copied { from: 0, to: 256, count: 256 }]);
        assert_eq!(copies(&half, &whole), [Copied { from: 256, to: 0, count: 256 }]);
        assert_eq!(copies(&whole, &piece([0, 2, 0], [8, 2, 16])).len(), 8);
        assert_eq!(copies(&half, &piece([0, 0, 0], [4, 4, 16])), []);
    }

    #[test]
    fn what_is_no_piece_of_a_shape_is_refused() {
        let good = Piece { offset: vec![0, 1], extent: vec![2, 3], start: 1, elements: 5 };
        assert!(good.is_of(&[2, 4]) && good.is_of(&[1, 4]));
        for bad in [
            Piece { offset: vec![0, 2], ..good.clone() },
            Piece { offset: vec![0], ..good.clone() },
            Piece { elements: 6, ..good.clone() },
            Piece { start: u64::MAX, ..good.clone() },
            Piece { extent: vec![u64::MAX, 3], ..good.clone() },
        ] {
            assert!(!bad.is_of(&[2, 4]), "{bad:?}");
        }
    }
}
