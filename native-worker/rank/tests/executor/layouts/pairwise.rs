//! Choosing few of many candidates so that every pair of settings that occurs in any of them occurs in one chosen.

use std::collections::{BTreeMap, BTreeSet};

/// For each factor, the number of its level.
pub type Levels = Vec<usize>;

/// A level of one factor with a level of another.
type Pair = (usize, usize, usize, usize);

fn pairs(levels: &Levels) -> impl Iterator<Item = Pair> + use<'_> {
    let factors = 0..levels.len();
    factors.flat_map(move |a| (a + 1..levels.len()).map(move |b| (a, levels[a], b, levels[b])))
}

/// What was chosen.
pub struct Chosen {
    /// Numbers of the candidates.
    pub candidates: Vec<usize>,
    /// Pairs that occur in any candidate, all of which occur in one chosen.
    pub pairs: usize,
}

/// Chooses at least `least` candidates (or all, where there are fewer) that cover all pairs: each time the one with the
/// most pairs that are not yet covered for what it costs, and, once all are, with those that were covered least.
pub fn choose(candidates: &[Levels], cost: impl Fn(usize) -> u64, least: usize) -> Chosen {
    let all: BTreeSet<Pair> = candidates.iter().flat_map(pairs).collect();
    let numbers: BTreeMap<Pair, usize> = all.into_iter().zip(0..).collect();
    let numbered: Vec<Vec<usize>> =
        candidates.iter().map(|levels| pairs(levels).map(|pair| numbers[&pair]).collect()).collect();
    let mut covered = vec![0_u32; numbers.len()];
    let mut chosen: Vec<usize> = Vec::new();
    while chosen.len() < candidates.len() && (covered.contains(&0) || chosen.len() < least) {
        let worth = |number: &usize| -> (u64, i64) {
            let (mut fresh, mut times) = (0, 0);
            for &pair in &numbered[*number] {
                fresh += u64::from(covered[pair] == 0);
                times -= i64::from(covered[pair]);
            }
            (fresh * 1_000 / cost(*number).max(1), times)
        };
        let left = (0..candidates.len()).filter(|number| !chosen.contains(number));
        let Some(best) = left.max_by_key(worth) else { break };
        for &pair in &numbered[best] {
            covered[pair] += 1;
        }
        chosen.push(best);
    }
    Chosen { candidates: chosen, pairs: numbers.len() }
}

#[test]
fn every_pair_is_covered() {
    let candidates: Vec<Levels> =
        (0..81).map(|number| vec![number % 3, number / 3 % 3, number / 9 % 3, number / 27]).collect();
    let chosen = choose(&candidates, |_| 1, 0);
    assert_eq!(chosen.pairs, 6 * 9);
    let found: BTreeSet<Pair> =
        chosen.candidates.iter().flat_map(|&number| pairs(&candidates[number])).collect();
    assert_eq!(found.len(), chosen.pairs);
    // Nine would do; greedy choice is not far from it.
    assert!((9..=14).contains(&chosen.candidates.len()), "{:?}", chosen.candidates);
    assert_eq!(choose(&candidates, |_| 1, 40).candidates.len(), 40);
    assert_eq!(choose(&candidates[..5], |_| 1, 40).candidates.len(), 5);
}
