//! What is known of a part of the space: counts, the best, the fronts. Partial results of any parts can be merged, in any
//! order, to the same whole.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::candidate::{Candidate, Key, Scored};
use super::room::FitGroup;
use super::tally::Tally;
use crate::json::by_field::by_field;
use crate::wire::Objective;

/// What was found in some parts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Partial {
    /// Refused by rules.
    pub refused: Tally,
    /// Valid by every rule.
    pub valid: u64,
    /// Of them, those whose memory and step were computed; bounds dismissed the others. How many depends on the order of the parts.
    pub computed: u64,
    /// Of them, those whose step would never end.
    pub endless: u64,
    /// Of those whose peak fits, tight ones among them, the ones that are faster than the search's mark.
    pub faster: u64,
    /// Those that fit.
    pub fits: Kept,
    /// Tight ones.
    pub tight: Kept,
    /// Of those that don't fit, by cluster, the ones that no other beats in both seconds and memory.
    pub beyond: BTreeMap<u32, Front>,
    /// The one that takes the least memory, fitting or not, by cluster.
    pub smallest: BTreeMap<u32, Scored>,
}

by_field! { open Partial { refused, valid, endless, fits, tight, beyond, smallest; computed, faster } }

/// What is kept of the candidates of one group: so none is crowded out by those of the other.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Kept {
    /// How many there are.
    pub count: u64,
    /// The best, the best first.
    pub best: Vec<Scored>,
    /// By cluster, the ones that no other of the group beats in both seconds and memory.
    pub fronts: BTreeMap<u32, Front>,
    /// Of those that the time model can't tell from the best, the best of each class of simplicity.
    pub simple: BTreeMap<u8, Scored>,
}

by_field! { open Kept { count, best, fronts; simple } }

/// Candidates of which none is beaten in both seconds and memory: rising in seconds, falling in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Front(pub Vec<Scored>);

impl Front {
    /// Seconds and bytes of one that beats whatever takes so many bytes and no fewer seconds than these.
    #[inline]
    pub fn beats(&self, seconds: f64, peak_bytes: u64) -> Option<(f64, u64)> {
        let at = self.0.partition_point(|known| known.seconds <= seconds);
        let before = self.0.get(at.checked_sub(1)?)?;
        (before.peak_bytes < peak_bytes).then_some((before.seconds, before.peak_bytes))
    }

    /// Puts a candidate in, unless it is beaten; takes out what it beats. Gives seconds and bytes of what beat it.
    pub fn put(&mut self, scored: &Scored) -> Option<(f64, u64)> {
        let at = self.0.partition_point(|known| known.seconds <= scored.seconds);
        let mut from = at;
        if let Some(before) = at.checked_sub(1).and_then(|before| self.0.get(before)) {
            let same = before.seconds == scored.seconds && before.peak_bytes == scored.peak_bytes;
            if before.peak_bytes <= scored.peak_bytes && !(same && scored.candidate < before.candidate) {
                return Some((before.seconds, before.peak_bytes));
            }
            if before.seconds == scored.seconds {
                from = at - 1;
            }
        }
        let beaten = self.0[at..].iter().take_while(|known| known.peak_bytes >= scored.peak_bytes).count();
        self.0.splice(from..at + beaten, [*scored]);
        None
    }

    /// Puts all of another one's candidates in.
    fn merge(&mut self, other: &Front) {
        other.0.iter().for_each(|scored| {
            self.put(scored);
        });
    }
}

impl Kept {
    /// Puts candidates among the best, of which `most` are kept. `found` are in the order of their keys.
    pub(super) fn put_best(&mut self, found: &[Scored], most: usize, key: impl Fn(&Scored) -> Key) {
        if found.is_empty() {
            return;
        }
        let known = std::mem::take(&mut self.best);
        self.best = Vec::with_capacity(most.min(known.len() + found.len()));
        let order = |one: &Scored, other: &Scored| {
            key(one).compare(&key(other)).then_with(|| one.candidate.cmp(&other.candidate))
        };
        let (mut mine, mut theirs) = (known.iter().peekable(), found.iter().peekable());
        while self.best.len() < most {
            let next = match (mine.peek(), theirs.peek()) {
                (Some(one), Some(other)) => match order(one, other) {
                    Ordering::Less => mine.next(),
                    Ordering::Greater => theirs.next(),
                    Ordering::Equal => {
                        theirs.next();
                        mine.next()
                    }
                },
                (Some(_), None) => mine.next(),
                (None, _) => theirs.next(),
            };
            match next {
                Some(scored) => self.best.push(*scored),
                None => break,
            }
        }
    }

    /// Puts the best of classes of simplicity, and keeps those that can't be told from the best of all.
    pub(super) fn put_simple(
        &mut self,
        found: &BTreeMap<u8, Scored>,
        objective: Objective,
        key: impl Fn(&Scored) -> Key,
    ) {
        for (class, scored) in found {
            let known = self.simple.entry(*class).or_insert(*scored);
            let order = key(scored).compare(&key(known)).then(scored.candidate.cmp(&known.candidate));
            if order.is_lt() {
                *known = *scored;
            }
        }
        let best = self.best.first().map(&key);
        self.simple.retain(|_, one| best.is_some_and(|best| key(one).is_like(&best, objective)));
    }

    /// Adds what was found in other parts.
    fn merge(&mut self, other: &Kept, most: usize, objective: Objective, key: impl Fn(&Scored) -> Key) {
        self.count += other.count;
        self.put_best(&other.best, most, &key);
        self.put_simple(&other.simple, objective, key);
        for (cluster, front) in &other.fronts {
            self.fronts.entry(*cluster).or_default().merge(front);
        }
    }
}

impl Partial {
    /// What is kept of a group.
    pub fn group(&self, group: FitGroup) -> &Kept {
        match group {
            FitGroup::Fits => &self.fits,
            FitGroup::Tight => &self.tight,
        }
    }

    pub(super) fn group_mut(&mut self, group: FitGroup) -> &mut Kept {
        match group {
            FitGroup::Fits => &mut self.fits,
            FitGroup::Tight => &mut self.tight,
        }
    }

    /// Candidates whose peak fits, tight ones among them.
    pub fn fitting(&self) -> u64 {
        self.fits.count + self.tight.count
    }

    /// Adds what was found in other parts.
    pub(super) fn merge(
        &mut self,
        other: &Partial,
        most: usize,
        objective: Objective,
        key: impl Fn(&Scored) -> Key,
    ) {
        self.refused.merge(&other.refused);
        self.valid += other.valid;
        self.computed += other.computed;
        self.endless += other.endless;
        self.faster += other.faster;
        for group in FitGroup::ALL {
            self.group_mut(group).merge(other.group(group), most, objective, &key);
        }
        for (cluster, front) in &other.beyond {
            self.beyond.entry(*cluster).or_default().merge(front);
        }
        let id = |scored: &Scored| -> (u64, Candidate) { (scored.peak_bytes, scored.candidate) };
        for (cluster, scored) in &other.smallest {
            let known = self.smallest.entry(*cluster).or_insert(*scored);
            if id(scored) < id(known) {
                *known = *scored;
            }
        }
    }

    /// The same for others who were told of all that it counts: what is best stays, and nothing is counted twice.
    #[must_use]
    pub fn without_counts(self) -> Partial {
        let Partial { fits, tight, beyond, smallest, .. } = self;
        let [fits, tight] = [fits, tight].map(|kept| Kept { count: 0, ..kept });
        Partial { fits, tight, beyond, smallest, ..Partial::default() }
    }

    /// Candidates refused or valid.
    pub fn candidates(&self) -> u64 {
        self.valid.saturating_add(self.refused.total())
    }
}
