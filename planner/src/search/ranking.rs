//! How candidates of a search are ordered: all that merging partial results needs of it.

use serde::{Deserialize, Serialize};

use super::candidate::{Key, Scored, Terms};
use super::partial::Partial;
use super::room::Group;
use crate::wire::Objective;

/// The order of a search's candidates, and how many of the best are kept. Small, and can be sent to where results are
/// merged; as JSON it comes back as it was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// What is best.
    pub(super) objective: Objective,
    /// What the objective looks at, by corner.
    pub(super) terms: Vec<Terms>,
    /// Candidates of each group that are kept, and those that are simulated.
    pub(super) kept: u64,
    /// Rows of each group.
    pub(super) rows: u64,
}

impl Ranking {
    /// Adds what was found elsewhere.
    pub fn merge(&self, into: &mut Partial, other: &Partial) {
        into.merge(other, self.most(), self.objective, |scored| self.key(scored));
    }

    /// The candidates to simulate: the best that fit, and of tight ones those that become rows, with whatever the others
    /// leave of the number. Beside them the simplest that can't be told from the best.
    pub fn shortlist(&self, partial: &Partial) -> Vec<Scored> {
        let (fits, tight) = (&partial.fits.best, &partial.tight.best);
        let rows = usize::try_from(self.rows).unwrap_or(usize::MAX);
        // Some of them are one row.
        let promised = rows.saturating_mul(2).min(self.most() / 2).min(tight.len());
        let of_fits = fits.len().min(self.most() - promised);
        let of_tight = tight.len().min(self.most() - of_fits);
        let mut list: Vec<Scored> =
            fits.iter().take(of_fits).chain(tight.iter().take(of_tight)).copied().collect();
        let simple = Group::ALL.into_iter().flat_map(|group| partial.group(group).simple.values());
        for scored in simple {
            if list.iter().all(|known| known.candidate != scored.candidate) {
                list.push(*scored);
            }
        }
        list
    }

    pub(super) fn key(&self, scored: &Scored) -> Key {
        let terms = self.terms.get(scored.candidate.corner as usize).copied();
        let terms = terms.unwrap_or(Terms { gpus: 0.0, price: 0.0, capacity: 0.0, deadline: 0.0 });
        Key::of(self.objective, &terms, scored.seconds, scored.peak_bytes)
    }

    pub(super) fn most(&self) -> usize {
        usize::try_from(self.kept).unwrap_or(usize::MAX)
    }
}
