//! Which rows of a cut parameter's gradient extras send to cores, and which shards each healthy rank holds.

use super::Refusal;

/// Traffic of one parameter within a healthy tensor-parallel group, along the dim that is cut. Rows are extents of
/// that dim; what comes back after the gradient's sum is the transpose.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ReshardTraffic {
    /// Rows of one shard, such as one head.
    pub shard_rows: u64,
    /// `send[from][to]`: rows that slot `from` sends to slot `to`; zero but from extras to cores.
    pub send: Vec<Vec<u64>>,
    /// Rows that each slot receives: the side buffer of a core; zero for extras.
    pub side_rows: Vec<u64>,
}

impl ReshardTraffic {
    /// `recv[to][from]`: the transpose of `send`.
    pub fn recv(&self) -> Vec<Vec<u64>> {
        let slots = 0..self.send.len();
        slots.clone().map(|to| slots.clone().map(|from| self.send[from][to]).collect()).collect()
    }
}

/// How many shards each extra gives to each core: dealt one at a time to the cores in turn, the turn carried on from
/// extra to extra.
fn deal(shards: u64, base: u64, reduced: u64) -> Vec<Vec<u64>> {
    let mut turn = 0;
    let mut given = vec![vec![0; base as usize]; base as usize];
    for extra in given.iter_mut().skip(reduced as usize) {
        for _ in 0..shards / base {
            extra[turn as usize] += 1;
            turn = (turn + 1) % reduced;
        }
    }
    given
}

fn whole(shards: u64, base: u64, reduced: u64) -> Result<(), Refusal> {
    for degree in [base, reduced] {
        if degree == 0 || reduced > base || !shards.is_multiple_of(degree) {
            let allowed = super::allowed_degrees(base, &[super::Sharded { what: "shards", count: shards }]);
            return Err(Refusal::NotDivisible { what: "shards", count: shards, degree, allowed });
        }
    }
    Ok(())
}

/// Splits of a parameter of `shards` pieces, of which each of `base` ranks holds `local` rows, towards `reduced`.
///
/// # Errors
/// When the shards can't be cut into `base` or `reduced` parts, or the rows are not whole shards.
pub fn reshard(shards: u64, local: u64, base: u64, reduced: u64) -> Result<ReshardTraffic, Refusal> {
    whole(shards, base, reduced)?;
    let rows = local.checked_mul(base).filter(|rows| shards > 0 && rows.is_multiple_of(shards));
    let shard_rows = rows.ok_or(Refusal::Uneven { local, base, shards })? / shards;
    let mut send = deal(shards, base, reduced);
    for rows in send.iter_mut().flatten() {
        *rows *= shard_rows;
    }
    let side_rows = (0..base as usize).map(|to| send.iter().map(|rows| rows[to]).sum()).collect();
    Ok(ReshardTraffic { shard_rows, send, side_rows })
}

/// The shards that each healthy slot holds, in order. A core keeps the first `shards / base` of what the reduced rank
/// of its number holds; the rest of that goes to the extras in turn, each keeping its blocks in the order of their
/// cores. So a core's own rows and then those it receives are a reduced rank's rows, in its order.
///
/// # Errors
/// When the shards can't be cut into `base` or `reduced` parts.
pub(crate) fn canonical_rows(shards: u64, base: u64, reduced: u64) -> Result<Vec<Vec<u64>>, Refusal> {
    whole(shards, base, reduced)?;
    let (own, wide) = (shards / base, shards / reduced);
    let mut next: Vec<u64> = (0..reduced).map(|core| core * wide + own).collect();
    let mut held: Vec<Vec<u64>> =
        (0..reduced).map(|core| (core * wide..core * wide + own).collect()).collect();
    for given in deal(shards, base, reduced).into_iter().skip(reduced as usize) {
        let mut mine = Vec::with_capacity(own as usize);
        for (next, count) in next.iter_mut().zip(given) {
            mine.extend(*next..*next + count);
            *next += count;
        }
        held.push(mine);
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(shards: u64, local: u64, base: u64, reduced: u64, sent: &[(usize, &[u64])], side: u64) {
        let found = reshard(shards, local, base, reduced).unwrap();
        for (from, rows) in sent {
            assert_eq!(found.send[*from][..rows.len()], **rows, "from {from}");
        }
        for core in 0..reduced as usize {
            assert_eq!(found.side_rows[core], side);
            assert_eq!(local + side, local * base / reduced, "a core then has what a reduced rank has");
        }
    }

    #[test]
    fn worked_examples() {
        check(24, 48, 8, 6, &[(6, &[16, 16, 16, 0, 0, 0, 0, 0]), (7, &[0, 0, 0, 16, 16, 16, 0, 0])], 16);
        check(8, 64, 4, 2, &[(2, &[32, 32, 0, 0]), (3, &[32, 32, 0, 0])], 64);
        check(56, 896, 8, 7, &[(7, &[128; 7])], 128);
        check(14336, 1792, 8, 7, &[(7, &[256; 7])], 256);
        check(1024, 256, 4, 2, &[(2, &[128, 128]), (3, &[128, 128])], 256);
    }

    #[test]
    fn canonical_layouts() {
        let rows = canonical_rows(24, 8, 6).unwrap();
        let expected: [&[u64]; 8] = [
            &[0, 1, 2],
            &[4, 5, 6],
            &[8, 9, 10],
            &[12, 13, 14],
            &[16, 17, 18],
            &[20, 21, 22],
            &[3, 7, 11],
            &[15, 19, 23],
        ];
        assert_eq!(rows, expected);
        assert_eq!(canonical_rows(8, 4, 2).unwrap(), [[0, 1], [4, 5], [2, 6], [3, 7]]);
    }

    #[test]
    fn what_can_not_be_cut_is_refused() {
        assert!(reshard(32, 4, 8, 7).unwrap_err().to_string().contains("4, 2 and 1"));
        assert!(reshard(32, 4, 8, 6).is_err());
        assert!(reshard(8, 3, 8, 4).is_ok());
        assert!(reshard(16, 3, 8, 4).unwrap_err().to_string().contains("not whole shards"));
        assert!(reshard(8, 4, 4, 8).is_err());
        assert!(reshard(8, u64::MAX, 4, 2).is_err());
        assert!(reshard(0, 0, 0, 0).is_err());
    }

    proptest! {
        #[test]
        fn every_shard_is_held_once_and_sent_where_a_reduced_rank_holds_it(
            reduced in 1u64..12, more in 0u64..6, times in 1u64..5, rows in 1u64..5,
        ) {
            let base = reduced + more;
            let shards = base * reduced * times;
            let held = canonical_rows(shards, base, reduced).unwrap();
            let mut all: Vec<u64> = held.iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..shards).collect::<Vec<u64>>());
            let split = reshard(shards, shards / base * rows, base, reduced).unwrap();
            prop_assert_eq!(split.shard_rows, rows);
            for (from, sent) in split.send.iter().enumerate() {
                let expected = if (from as u64) < reduced { 0 } else { shards / base * rows };
                prop_assert_eq!(sent.iter().sum::<u64>(), expected);
            }
            let wide = shards / reduced;
            for core in 0..reduced as usize {
                // Own shards, then those received, sender after sender.
                let mut joined = held[core].clone();
                for (extra, recv) in split.recv()[core].iter().enumerate() {
                    let before: u64 = split.send[extra][..core].iter().sum::<u64>() / rows;
                    let at = before as usize;
                    joined.extend(&held[extra][at..at + (recv / rows) as usize]);
                }
                prop_assert_eq!(joined, (core as u64 * wide..(core as u64 + 1) * wide).collect::<Vec<u64>>());
            }
        }
    }
}
