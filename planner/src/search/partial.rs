//! What is known of a part of the space: counts, the best, the fronts. Partial results of any parts can be merged, in any
//! order, to the same whole.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::candidate::{Candidate, Key, Scored};
use super::tally::Tally;

/// What was found in some parts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Partial {
    /// Refused by rules.
    pub refused: Tally,
    /// Evaluated: valid by every rule.
    pub evaluated: u64,
    /// Of them, those that fit.
    pub fitting: u64,
    /// Of them, those whose step would never end.
    pub endless: u64,
    /// The best that fit, the best first.
    pub best: Vec<Scored>,
    /// Of those that fit, by cluster, the ones that no other beats in both seconds and memory.
    pub fronts: BTreeMap<u32, Front>,
    /// The same of those that don't fit.
    pub beyond: BTreeMap<u32, Front>,
    /// The one that takes the least memory, fitting or not, by cluster.
    pub smallest: BTreeMap<u32, Scored>,
}

/// Candidates of which none is beaten in both seconds and memory: rising in seconds, falling in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Front(pub Vec<Scored>);

impl Front {
    /// Puts a candidate in, unless it is beaten; takes out what it beats.
    pub fn put(&mut self, scored: &Scored) {
        let at = self.0.partition_point(|known| known.seconds <= scored.seconds);
        let mut from = at;
        if let Some(before) = at.checked_sub(1).and_then(|before| self.0.get(before)) {
            let same = before.seconds == scored.seconds && before.peak_bytes == scored.peak_bytes;
            if before.peak_bytes <= scored.peak_bytes && !(same && scored.candidate < before.candidate) {
                return;
            }
            if before.seconds == scored.seconds {
                from = at - 1;
            }
        }
        let beaten = self.0[at..].iter().take_while(|known| known.peak_bytes >= scored.peak_bytes).count();
        self.0.splice(from..at + beaten, [*scored]);
    }
}

impl Partial {
    /// Notes an evaluated candidate of a cluster. `most` candidates are kept as the best.
    pub fn put(
        &mut self,
        scored: &Scored,
        cluster: u32,
        fits: bool,
        most: usize,
        key: impl Fn(&Scored) -> Key,
    ) {
        self.evaluated += 1;
        if !scored.seconds.is_finite() {
            self.endless += 1;
            return;
        }
        match self.smallest.get_mut(&cluster) {
            Some(known) => {
                let order = scored.peak_bytes.cmp(&known.peak_bytes);
                if order.then(scored.candidate.cmp(&known.candidate)).is_lt() {
                    *known = *scored;
                }
            }
            None => {
                self.smallest.insert(cluster, *scored);
            }
        }
        if !fits {
            self.beyond.entry(cluster).or_default().put(scored);
            return;
        }
        self.fitting += 1;
        self.fronts.entry(cluster).or_default().put(scored);
        self.put_best(scored, most, key);
    }

    fn put_best(&mut self, scored: &Scored, most: usize, key: impl Fn(&Scored) -> Key) {
        let mine = key(scored);
        let order =
            |other: &Scored| key(other).compare(&mine).then_with(|| other.candidate.cmp(&scored.candidate));
        if self.best.len() >= most && self.best.last().is_none_or(|last| order(last) != Ordering::Greater) {
            return;
        }
        let at = self.best.partition_point(|known| order(known) == Ordering::Less);
        if self.best.get(at).is_some_and(|known| known.candidate == scored.candidate) {
            return;
        }
        self.best.insert(at, *scored);
        self.best.truncate(most);
    }

    /// Adds what was found in other parts.
    pub fn merge(&mut self, other: &Partial, most: usize, key: impl Fn(&Scored) -> Key) {
        self.refused.merge(&other.refused);
        self.evaluated += other.evaluated;
        self.fitting += other.fitting;
        self.endless += other.endless;
        for scored in &other.best {
            self.put_best(scored, most, &key);
        }
        for (mine, theirs) in [(&mut self.fronts, &other.fronts), (&mut self.beyond, &other.beyond)] {
            for (cluster, front) in theirs {
                let into = mine.entry(*cluster).or_default();
                front.0.iter().for_each(|scored| into.put(scored));
            }
        }
        let id = |scored: &Scored| -> (u64, Candidate) { (scored.peak_bytes, scored.candidate) };
        for (cluster, scored) in &other.smallest {
            let known = self.smallest.entry(*cluster).or_insert(*scored);
            if id(scored) < id(known) {
                *known = *scored;
            }
        }
    }

    /// Candidates refused or evaluated.
    pub fn candidates(&self) -> u64 {
        self.evaluated.saturating_add(self.refused.total())
    }
}
