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
    /// Bytes beyond which a plan is not nearly one that fits.
    far: u64,
    most: usize,
    evaluated: u64,
    fitting: u64,
    endless: u64,
    mark: f64,
    faster: u64,
    front: Sieve,
    beyond: Sieve,
    smallest: Option<Scored>,
    /// Candidates that may be among the best.
    best: Vec<Scored>,
    /// What a candidate must be better than, once there are as many as are kept.
    worst: Option<Key>,
}

/// A front, with what beat a candidate last: candidates come in runs of like ones, so it beats most of the next ones too,
/// and they are spared the search through the front.
#[derive(Debug)]
struct Sieve {
    front: Front,
    last: (f64, u64),
}

impl Sieve {
    fn of(front: Option<Front>) -> Sieve {
        Sieve { front: front.unwrap_or_default(), last: (f64::INFINITY, u64::MAX) }
    }

    #[inline]
    fn put(&mut self, scored: &Scored) {
        if scored.seconds >= self.last.0 && scored.peak_bytes > self.last.1 {
            return;
        }
        if let Some(beaten_by) = self.front.put(scored) {
            self.last = beaten_by;
        }
    }

    /// Whether something beats whatever takes so many bytes and no fewer seconds than these.
    #[inline]
    fn beats(&mut self, seconds: f64, peak_bytes: u64) -> bool {
        if seconds >= self.last.0 && peak_bytes > self.last.1 {
            return true;
        }
        let beaten_by = self.front.beats(seconds, peak_bytes);
        self.last = beaten_by.unwrap_or(self.last);
        beaten_by.is_some()
    }
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
            terms: *search.ranking.terms.get(corner)?,
            cluster,
            capacity: gpu.capacity_bytes.unwrap_or(u64::MAX),
            // Kept: a multiplication that saturates is a slow one in WebAssembly.
            far: gpu.capacity_bytes.unwrap_or(u64::MAX).saturating_mul(FAR),
            most,
            evaluated: 0,
            fitting: 0,
            endless: 0,
            mark: search.mark,
            faster: 0,
            front: Sieve::of(partial.fronts.remove(&cluster)),
            beyond: Sieve::of(partial.beyond.remove(&cluster)),
            smallest: partial.smallest.remove(&cluster),
            best: Vec::new(),
            worst: partial.best.last().filter(|_| full).map(|last| search.key(last)),
        })
    }

    /// Takes a candidate whose fullest rank takes `peak_bytes` and whose step takes `least` seconds or more (0 where
    /// nothing is known, and where it may never end). Its seconds are only asked for where they matter. A candidate that
    /// takes more than `FAR` times the GPU's memory is counted as too large and no more, unless it is the smallest so far;
    /// one that is beaten even by its least seconds is counted and no more.
    #[inline]
    pub fn put(&mut self, candidate: Candidate, peak_bytes: u64, least: f64, seconds: impl FnOnce() -> f64) {
        if peak_bytes > self.far {
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
        if self.is_beaten(candidate, peak_bytes, least) {
            self.evaluated += 1;
            self.fitting += u64::from(peak_bytes <= self.capacity);
            return;
        }
        self.put_scored(&Scored { candidate, seconds: seconds(), peak_bytes });
    }

    /// Whether a candidate would change nothing but counts, whatever more seconds than `least` it takes.
    #[inline]
    fn is_beaten(&mut self, candidate: Candidate, peak_bytes: u64, least: f64) -> bool {
        let known = self.smallest.map(|known| (known.peak_bytes, known.candidate));
        if least <= 0.0 || least < self.mark || known.is_none_or(|known| (peak_bytes, candidate) < known) {
            return false;
        }
        if peak_bytes > self.capacity {
            return self.beyond.beats(least, peak_bytes);
        }
        let key = Key::of(self.objective, &self.terms, least, peak_bytes);
        self.worst.is_some_and(|worst| key.is_behind(&worst)) && self.front.beats(least, peak_bytes)
    }

    /// Counts so many candidates of which each takes at least `least_bytes`, where that alone says everything: far too large,
    /// and none the smallest.
    #[inline]
    pub fn all_far(&mut self, count: u64, least_bytes: u64) -> bool {
        let far = least_bytes > self.far && self.smallest.is_some_and(|known| known.peak_bytes < least_bytes);
        if far {
            self.evaluated += count;
        }
        far
    }

    /// Counts so many candidates, each of which takes bytes within these bounds and so many seconds at least (0 where
    /// nothing is known), where that alone says that all of them are beaten.
    #[inline]
    pub fn all_beaten(&mut self, count: u64, [least_bytes, most_bytes]: [u64; 2], least: f64) -> bool {
        if self.all_far(count, least_bytes) {
            return true;
        }
        if least <= 0.0
            || least < self.mark
            || self.smallest.is_none_or(|known| known.peak_bytes >= least_bytes)
        {
            return false;
        }
        if least_bytes > self.capacity {
            let beaten = self.beyond.beats(least, least_bytes);
            self.evaluated += if beaten { count } else { 0 };
            return beaten;
        }
        let key = Key::of(self.objective, &self.terms, least, least_bytes);
        let beaten = most_bytes <= self.capacity
            && self.worst.is_some_and(|worst| key.is_behind(&worst))
            && self.front.beats(least, least_bytes);
        if beaten {
            self.evaluated += count;
            self.fitting += count;
        }
        beaten
    }

    #[inline]
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
        if self.worst.is_none_or(|worst| !key.is_behind(&worst)) {
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
        for (sieve, into) in [(self.front, &mut partial.fronts), (self.beyond, &mut partial.beyond)] {
            if !sieve.front.0.is_empty() {
                into.insert(self.cluster, sieve.front);
            }
        }
        if let Some(smallest) = self.smallest {
            partial.smallest.insert(self.cluster, smallest);
        }
    }
}
