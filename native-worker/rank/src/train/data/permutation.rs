//! An order of many things that follows from a key alone: nothing is stored, and any place of it is known at once.

use crate::state::init::mix;

/// Rounds of the network; four make it as good as random to anybody who does not look for its structure.
const ROUNDS: u64 = 4;

/// Where thing `place` of `count` stands in the order of `key`: over all places each number below `count` once.
///
/// A Feistel network over the least power of four that holds them all; what falls beyond is sent through again.
pub fn permuted(key: u64, count: u64, place: u64) -> u64 {
    if count <= 1 {
        return 0;
    }
    let bits = u64::BITS - (count - 1).leading_zeros();
    let half = bits.div_ceil(2);
    let mask = (1_u64 << half) - 1;
    let mut number = place;
    loop {
        let (mut left, mut right) = (number >> half, number & mask);
        for round in 0..ROUNDS {
            let next = left ^ (mix(key ^ mix(right ^ (round << 58))) & mask);
            (left, right) = (right, next);
        }
        number = (left << half) | right;
        if number < count {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_stands_once_and_keys_differ() {
        for count in [1, 2, 3, 5, 16, 17, 1000, 4097] {
            let of = |key| (0..count).map(|place| permuted(key, count, place)).collect::<Vec<_>>();
            let mut sorted = of(7);
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count).collect::<Vec<_>>(), "{count}");
            if count > 5 {
                assert_ne!(of(7), of(8), "{count}");
                assert_ne!(of(7), (0..count).collect::<Vec<_>>(), "{count}");
            }
        }
    }

    #[test]
    fn neighbours_are_sent_apart() {
        let count = 100_000;
        let near = (0..count - 1)
            .filter(|&place| permuted(3, count, place).abs_diff(permuted(3, count, place + 1)) < count / 100)
            .count();
        // Of pairs at random, 2 in 100 are so near.
        assert!((1000..3000).contains(&near), "{near}");
    }
}
