//! Where candidates of one corner go: counts, the best and the fronts, at hand while a part is worked on.

use super::Search;
use super::candidate::{Candidate, Key, Scored, Terms};
use super::partial::{Front, Partial};
use super::request::Objective;

/// Times the GPU's memory beyond which a plan is not nearly one that fits.
const FAR: u64 = 2;

/// Takes candidates of one corner, and gives them back to a partial result.
#[derive(Debug)]
pub struct Sink {
    objective: Objective,
    terms: Terms,
    cluster: u32,
    capacity: u64,
    most: usize,
    evaluated: u64,
    fitting: u64,
    endless: u64,
    mark: f64,
    faster: u64,
    front: Front,
    beyond: Front,
    smallest: Option<Scored>,
    /// Candidates that may be among the best.
    best: Vec<Scored>,
    /// What a candidate must be better than, once there are as many as are kept.
    worst: Option<Key>,
}

impl Sink {
    /// For a corner, with what is known so far.
    pub fn of(search: &Search, corner: usize, partial: &mut Partial) -> Option<Sink> {
        let cluster = *search.clusters.get(corner)?;
        let gpu = search.space.corners.get(corner)?.plan.cluster.gpu;
        let most = search.kept();
        let full = partial.best.len() >= most;
        Some(Sink {
            objective: search.request.objective,
            terms: *search.terms.get(corner)?,
            cluster,
            capacity: gpu.capacity_bytes.unwrap_or(u64::MAX),
            most,
            evaluated: 0,
            fitting: 0,
            endless: 0,
            mark: search.mark,
            faster: 0,
            front: partial.fronts.remove(&cluster).unwrap_or_default(),
            beyond: partial.beyond.remove(&cluster).unwrap_or_default(),
            smallest: partial.smallest.remove(&cluster),
            best: Vec::new(),
            worst: partial.best.last().filter(|_| full).map(|last| search.key(last)),
        })
    }

    /// Takes a candidate whose fullest rank takes `peak_bytes`. Its seconds are only asked for where they matter: a
    /// candidate that takes more than `FAR` times the GPU's memory is counted as too large and no more, unless it is the
    /// smallest so far.
    #[inline]
    pub fn put(&mut self, candidate: Candidate, peak_bytes: u64, seconds: impl FnOnce() -> f64) {
        if peak_bytes > self.capacity.saturating_mul(FAR) {
            self.evaluated += 1;
            let known = self.smallest.map(|known| (known.peak_bytes, known.candidate));
            if known.is_none_or(|known| (peak_bytes, candidate) < known) {
                let seconds = seconds();
                if seconds.is_finite() {
                    self.smallest = Some(Scored { candidate, seconds, peak_bytes });
                }
            }
            return;
        }
        self.put_scored(&Scored { candidate, seconds: seconds(), peak_bytes });
    }

    fn put_scored(&mut self, scored: &Scored) {
        self.evaluated += 1;
        if !scored.seconds.is_finite() {
            self.endless += 1;
            return;
        }
        let smaller = self
            .smallest
            .is_none_or(|known| (scored.peak_bytes, scored.candidate) < (known.peak_bytes, known.candidate));
        if smaller {
            self.smallest = Some(*scored);
        }
        if scored.peak_bytes > self.capacity {
            self.beyond.put(scored);
            return;
        }
        self.fitting += 1;
        self.faster += u64::from(scored.seconds < self.mark);
        self.front.put(scored);
        let key = Key::of(self.objective, &self.terms, scored.seconds, scored.peak_bytes);
        // Of equals the first in the order of the axes is kept, so they are looked at too.
        if self.worst.is_none_or(|worst| key.compare(&worst).is_le()) {
            self.best.push(*scored);
            if self.best.len() >= 4 * self.most {
                self.sort();
            }
        }
    }

    /// Keeps the best of what was taken.
    fn sort(&mut self) {
        let (objective, terms) = (self.objective, self.terms);
        let key = |scored: &Scored| Key::of(objective, &terms, scored.seconds, scored.peak_bytes);
        self.best
            .sort_by(|one, other| key(one).compare(&key(other)).then(one.candidate.cmp(&other.candidate)));
        self.best.truncate(self.most);
        if let Some(last) = self.best.last().filter(|_| self.best.len() >= self.most) {
            let last = key(last);
            let better = self.worst.is_none_or(|worst| last.compare(&worst).is_lt());
            self.worst = if better { Some(last) } else { self.worst };
        }
    }

    /// Gives everything to the partial result.
    pub fn give(mut self, search: &Search, partial: &mut Partial) {
        self.sort();
        partial.evaluated += self.evaluated;
        partial.fitting += self.fitting;
        partial.endless += self.endless;
        partial.faster += self.faster;
        partial.put_best(&self.best, self.most, |scored| search.key(scored));
        for (front, into) in [(self.front, &mut partial.fronts), (self.beyond, &mut partial.beyond)] {
            if !front.0.is_empty() {
                into.insert(self.cluster, front);
            }
        }
        if let Some(smallest) = self.smallest {
            partial.smallest.insert(self.cluster, smallest);
        }
    }
}
