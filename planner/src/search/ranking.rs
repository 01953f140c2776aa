//! How candidates of a search are ordered: all that merging partial results needs of it.

use serde::Serialize;

use super::Simulated;
use super::candidate::{Key, Scored, Terms};
use super::partial::Partial;
use super::room::FitGroup;
use crate::json::by_field::by_field;
use crate::wire::Objective;

/// A simulated step takes at least so much of the closed form's seconds, as a test of `choose_tests` holds for hundreds of plans;
/// measured over more in `docs/measurements/2026-11-23-choose.md`.
pub(super) const SIMULATED_LEAST: f64 = 0.95;

/// Candidates of a shortlist that are simulated at a time, where only the first row is wanted: what comes out of them spares others.
const ROUND: usize = 16;

/// How many times as good a tight plan has to be to stand before all that fit. Its predicted peak fits, and the true one is as likely
/// below as above it, so it trains every other time at least: one that is more than twice as fast trains more for the same hours.
const WORTH_TIGHT: f64 = 2.0;

/// The order of a search's candidates, and how many of the best are kept. Small, and can be sent to where results are
/// merged; as JSON it comes back as it was.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Ranking {
    /// What is best.
    pub(super) objective: Objective,
    /// What the objective looks at, by subspace.
    pub(super) terms: Vec<Terms>,
    /// Candidates of each group that are kept, and those that are simulated.
    pub(super) kept: u64,
    /// Rows of each group.
    pub(super) rows: u64,
    /// Whether only the first row is wanted: where something fits, of tight ones only those better than it are known then.
    pub(super) only_first: bool,
    /// Whether somebody asked for a margin, which no tight plan may take.
    pub(super) by_margin: bool,
}

by_field! { open Ranking { objective, terms, kept, rows, only_first, by_margin; } }

impl Ranking {
    /// Adds what was found elsewhere.
    pub fn merge(&self, into: &mut Partial, other: &Partial) {
        into.merge(other, self.most(), self.objective, |scored| self.key(scored));
    }

    /// The candidates to simulate: the best of the first group, but for as many as the second may have rows, whether there are any or
    /// not; then the second's. Beside them the simplest that can't be told from the best.
    pub fn shortlist(&self, partial: &Partial) -> Vec<Scored> {
        let both = self.groups(partial);
        let groups = if self.only_first { &both[..1] } else { &both };
        let best = |group: &FitGroup| match groups.contains(group) {
            true => partial.group(*group).best.as_slice(),
            false => &[],
        };
        let [first, second] = [best(&both[0]), best(&both[1])];
        let rows = usize::try_from(self.rows).unwrap_or(usize::MAX);
        // Some of them are one row.
        let promised = rows.saturating_mul(2).min(self.most() / 2);
        let of_first = first.len().min(self.most() - promised);
        let of_second = second.len().min(self.most() - of_first);
        let mut list: Vec<Scored> =
            first.iter().take(of_first).chain(second.iter().take(of_second)).copied().collect();
        let simple = groups.iter().flat_map(|group| partial.group(*group).simple.values());
        for scored in simple {
            if list.iter().all(|known| known.candidate != scored.candidate) {
                list.push(*scored);
            }
        }
        list
    }

    /// Of a shortlist, what is to be simulated next, once these were; nothing when that is all. Where only the first row is wanted,
    /// some at a time, and of those only what may still be it.
    pub fn next_round(&self, shortlist: &[Scored], simulated: &[Simulated]) -> Vec<Scored> {
        let waits = |scored: &&Scored| simulated.iter().all(|one| one.candidate != scored.candidate);
        let waiting = shortlist.iter().filter(waits).copied();
        if !self.only_first {
            return waiting.collect();
        }
        let known = simulated.iter().filter_map(|one| {
            let (candidate, seconds, peak_bytes) = (one.candidate, one.seconds?, one.peak_bytes);
            Some(self.key(&Scored { candidate, seconds, peak_bytes }))
        });
        let best = known.min_by(Key::compare);
        let may_be = |scored: &Scored| {
            let least = self.key(&Scored { seconds: scored.seconds * SIMULATED_LEAST, ..*scored });
            best.as_ref().is_none_or(|best| !least.is_behind(best) || least.is_like(best, self.objective))
        };
        waiting.filter(may_be).take(ROUND).collect()
    }

    /// Both groups in their order: plans that fit before tight ones, but where a tight one is worth a try.
    pub(super) fn groups(&self, partial: &Partial) -> [FitGroup; 2] {
        let (fits, tight) = (partial.fits.best.first(), partial.tight.best.first());
        let tight_first = match (fits, tight) {
            (Some(fits), Some(tight)) => self.is_worth(tight, fits),
            (fits, _) => fits.is_none(),
        };
        if tight_first { [FitGroup::Tight, FitGroup::Fits] } else { FitGroup::ALL }
    }

    /// Whether a tight plan stands before the best that fits. Never where memory is what was asked for.
    fn is_worth(&self, tight: &Scored, fits: &Scored) -> bool {
        let gain = fits.seconds / tight.seconds;
        let gain = match self.objective {
            Objective::Fastest | Objective::Deadline => gain,
            Objective::Cheapest => {
                let paid = |one: &Scored| {
                    self.terms
                        .get(one.candidate.subspace as usize)
                        .map_or(1.0, |terms| terms.gpus * terms.price)
                };
                gain * paid(fits) / paid(tight)
            }
            Objective::FewestGpus | Objective::MostHeadroom => return false,
        };
        !self.by_margin && gain > WORTH_TIGHT && self.key(tight).compare(&self.key(fits)).is_lt()
    }

    /// Whether nothing of a subspace that takes so many seconds at least can matter for the first row: enough plans that fit are
    /// known that are better.
    pub(super) fn is_hopeless(&self, partial: &Partial, subspace: usize, least: f64) -> bool {
        let best = &partial.fits.best;
        let full = self.only_first && best.len() >= self.most();
        let (Some(terms), Some(first), Some(worst)) =
            (self.terms.get(subspace), best.first(), best.last().filter(|_| full))
        else {
            return false;
        };
        let key = Key::of(self.objective, terms, least, 0);
        key.is_behind(&self.key(worst)) && !key.is_like(&self.key(first), self.objective)
    }

    pub(super) fn key(&self, scored: &Scored) -> Key {
        let terms = self.terms.get(scored.candidate.subspace as usize).copied();
        let terms = terms.unwrap_or(Terms { gpus: 0.0, price: 0.0, capacity: 0.0, deadline: 0.0 });
        Key::of(self.objective, &terms, scored.seconds, scored.peak_bytes)
    }

    pub(super) fn most(&self) -> usize {
        usize::try_from(self.kept).unwrap_or(usize::MAX)
    }
}
