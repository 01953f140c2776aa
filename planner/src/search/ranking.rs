//! How candidates of a search are ordered: all that merging partial results needs of it.

use serde::{Deserialize, Serialize};

use super::Simulated;
use super::candidate::{Key, Scored, Terms};
use super::partial::Partial;
use super::room::FitGroup;
use crate::wire::Objective;

/// A simulated step takes at least so much of the closed form's seconds, as a test of `choose_tests` holds for hundreds of plans;
/// measured over more in `docs/measurements/2026-11-23-choose.md`.
pub(super) const SIMULATED_LEAST: f64 = 0.95;

/// Candidates of a shortlist that are simulated at a time, where only the first row is wanted: what comes out of them spares others.
const ROUND: usize = 16;

/// The order of a search's candidates, and how many of the best are kept. Small, and can be sent to where results are
/// merged; as JSON it comes back as it was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
}

impl Ranking {
    /// Adds what was found elsewhere.
    pub fn merge(&self, into: &mut Partial, other: &Partial) {
        into.merge(other, self.most(), self.objective, |scored| self.key(scored));
    }

    /// The candidates to simulate: the best that fit, but for as many as tight ones may have rows, whether there are any or
    /// not; then tight ones. Beside them the simplest that can't be told from the best.
    pub fn shortlist(&self, partial: &Partial) -> Vec<Scored> {
        let groups: &[FitGroup] = if self.only_first { &[self.first_group(partial)] } else { &FitGroup::ALL };
        let best = |group: FitGroup| match groups.contains(&group) {
            true => partial.group(group).best.as_slice(),
            false => &[],
        };
        let (fits, tight) = (best(FitGroup::Fits), best(FitGroup::Tight));
        let rows = usize::try_from(self.rows).unwrap_or(usize::MAX);
        // Some of them are one row.
        let promised = rows.saturating_mul(2).min(self.most() / 2);
        let of_fits = fits.len().min(self.most() - promised);
        let of_tight = tight.len().min(self.most() - of_fits);
        let mut list: Vec<Scored> =
            fits.iter().take(of_fits).chain(tight.iter().take(of_tight)).copied().collect();
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

    /// The group of the first row.
    pub(super) fn first_group(&self, partial: &Partial) -> FitGroup {
        if partial.fits.best.is_empty() { FitGroup::Tight } else { FitGroup::Fits }
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
