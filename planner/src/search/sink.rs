//! Where candidates of one subspace go: counts, the best and the fronts, at hand while a part is worked on.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Search;
use super::candidate::{Candidate, Key, Scored, Terms};
use super::failing::{Growth, Left};
use super::partial::{Front, Kept, Partial};
use super::room::{FitGroup, Room};
use super::simple::Classes;
use crate::wire::Objective;

/// Times the GPU's memory beyond which a plan is not nearly one that fits.
const FAR: u64 = 2;

/// Takes candidates of one subspace, and gives them back to a partial result.
#[derive(Debug)]
pub(super) struct Sink {
    objective: Objective,
    terms: Terms,
    cluster: u32,
    room: Room,
    /// What failed GPUs leave to others, by which those that matter are judged.
    growth: Option<Arc<Growth>>,
    /// Bytes beyond which a plan is not nearly one that fits; where only the first row is wanted nothing near it is, either.
    far: u64,
    most: usize,
    /// Whether only the first row is wanted.
    only_first: bool,
    /// Whether what does not fit says nothing.
    only_fitting: bool,
    classes: Classes,
    valid: u64,
    computed: u64,
    endless: u64,
    mark: f64,
    faster: u64,
    fits: Grouped,
    tight: Grouped,
    beyond: Sieve,
    smallest: Option<Scored>,
}

/// Candidates of one group.
#[derive(Debug)]
struct Grouped {
    count: u64,
    front: Sieve,
    /// Candidates that may be among the best.
    best: Vec<Scored>,
    /// What a candidate must be better than, once there are as many as are kept.
    worst: Option<Key>,
    /// The best so far.
    first: Option<Key>,
    /// The best of each class of simplicity, of those that could not be told from the best when they came.
    simple: BTreeMap<u8, Scored>,
}

impl Grouped {
    /// With what is known of the group so far.
    fn of(kept: &mut Kept, cluster: u32, most: usize, key: impl Fn(&Scored) -> Key) -> Grouped {
        let full = kept.best.len() >= most;
        Grouped {
            count: 0,
            front: Sieve::of(kept.fronts.remove(&cluster)),
            best: Vec::new(),
            worst: kept.best.last().filter(|_| full).map(&key),
            first: kept.best.first().map(&key),
            simple: BTreeMap::new(),
        }
    }

    /// Whether a candidate with this key, and no fewer seconds than these, changes nothing but counts.
    #[inline]
    fn beats(&mut self, key: &Key, objective: Objective, seconds: f64, peak_bytes: u64) -> bool {
        self.leads(key, objective) && self.front.beats(seconds, peak_bytes)
    }

    /// Whether a candidate with this key is neither among the best nor like the first.
    #[inline]
    fn leads(&self, key: &Key, objective: Objective) -> bool {
        self.worst.is_some_and(|worst| key.is_behind(&worst))
            && self.first.is_some_and(|first| !key.is_like(&first, objective))
    }

    #[inline]
    fn put(
        &mut self,
        scored: &Scored,
        (most, objective, classes): (usize, Objective, &Classes),
        key: impl Fn(&Scored) -> Key,
    ) {
        self.count += 1;
        self.front.put(scored);
        // Of equals the first in the order of the axes is kept, so they are looked at too.
        let own = key(scored);
        let first = *self.first.get_or_insert(own);
        if own.compare(&first).is_lt() {
            self.first = Some(own);
        }
        if own.is_like(&first, objective) {
            let known = self.simple.entry(classes.class(&scored.candidate)).or_insert(*scored);
            let order = own.compare(&key(known)).then(scored.candidate.cmp(&known.candidate));
            if order.is_lt() {
                *known = *scored;
            }
        }
        if self.worst.is_none_or(|worst| !own.is_behind(&worst)) {
            self.best.push(*scored);
            if self.best.len() >= 4 * most {
                self.sort(most, &key);
            }
        }
    }

    /// Keeps the best of what was taken.
    fn sort(&mut self, most: usize, key: &dyn Fn(&Scored) -> Key) {
        self.best
            .sort_by(|one, other| key(one).compare(&key(other)).then(one.candidate.cmp(&other.candidate)));
        self.best.truncate(most);
        if let Some(last) = self.best.last().filter(|_| self.best.len() >= most) {
            let last = key(last);
            let better = self.worst.is_none_or(|worst| last.compare(&worst).is_lt());
            self.worst = if better { Some(last) } else { self.worst };
        }
    }

    /// Gives everything to what is kept of the group.
    fn give(
        mut self,
        cluster: u32,
        (most, objective): (usize, Objective),
        key: impl Fn(&Scored) -> Key,
        into: &mut Kept,
    ) {
        self.sort(most, &key);
        into.count += self.count;
        into.put_best(&self.best, most, &key);
        into.put_simple(&self.simple, objective, key);
        self.front.give(cluster, &mut into.fronts);
    }
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

    /// Gives the front back.
    fn give(self, cluster: u32, into: &mut BTreeMap<u32, Front>) {
        if !self.front.0.is_empty() {
            into.insert(cluster, self.front);
        }
    }
}

impl Sink {
    /// For a subspace, with what is known so far.
    pub(super) fn of(search: &Search, subspace: usize, partial: &mut Partial) -> Option<Sink> {
        let cluster = *search.clusters.get(subspace)?;
        let capacity_bytes = search.space.subspaces.get(subspace)?.plan.cluster.capacity_bytes();
        let most = search.kept();
        let room = Room::of(capacity_bytes, search.request.margin);
        let key = |scored: &Scored| search.key(scored);
        Some(Sink {
            objective: search.request.objective,
            terms: *search.ranking.terms.get(subspace)?,
            cluster,
            room,
            growth: search.growth.get(subspace).cloned().flatten(),
            // Kept: a multiplication that saturates is a slow one in WebAssembly.
            far: room.capacity.saturating_mul(if search.request.only_first { 1 } else { FAR }),
            most,
            only_first: search.request.only_first,
            only_fitting: search.request.only_fitting,
            classes: search.space.subspaces.get(subspace)?.classes.clone(),
            valid: 0,
            computed: 0,
            endless: 0,
            mark: search.mark,
            faster: 0,
            fits: Grouped::of(&mut partial.fits, cluster, most, key),
            tight: Grouped::of(&mut partial.tight, cluster, most, key),
            beyond: Sieve::of(partial.beyond.remove(&cluster)),
            smallest: partial.smallest.remove(&cluster),
        })
    }

    #[inline]
    fn group(&mut self, group: FitGroup) -> &mut Grouped {
        match group {
            FitGroup::Fits => &mut self.fits,
            FitGroup::Tight => &mut self.tight,
        }
    }

    /// Takes a candidate whose fullest rank takes `peak_bytes`, the upper end of their likely range being `high`, and whose
    /// step takes `least` seconds or more (0 where nothing is known, and where it may never end). The upper end and its seconds
    /// are only asked for where they matter. A candidate that takes more than `far` is counted as too
    /// large and no more, unless it is the smallest so far; one that is beaten even by its least seconds is counted and no more.
    #[inline]
    pub(super) fn put(
        &mut self,
        candidate: Candidate,
        peak_bytes: u64,
        high: impl FnOnce() -> u64,
        least: f64,
        seconds: impl FnOnce() -> f64,
    ) {
        if peak_bytes > self.far {
            self.valid += 1;
            let mut peak_bytes = peak_bytes;
            if let Some(growth) = &self.growth {
                let enough = self.smallest.map_or(u64::MAX, |known| known.peak_bytes);
                match growth.left(&candidate, peak_bytes, &self.room, enough) {
                    Left::Nobody => return,
                    Left::Bytes(bytes, _) => peak_bytes = bytes,
                }
            }
            let known = self.smallest.map(|known| (known.peak_bytes, known.candidate));
            if known.is_none_or(|known| (peak_bytes, candidate) < known) {
                let seconds = seconds();
                if seconds.is_finite() {
                    self.smallest = Some(Scored { candidate, seconds, peak_bytes });
                }
            }
            return;
        }
        let mut group = self.room.group(peak_bytes, high);
        if self.is_beaten(candidate, peak_bytes, group, least) {
            self.count(group, 1);
            return;
        }
        let mut peak_bytes = peak_bytes;
        if let Some(growth) = &self.growth {
            // What is nearest to fitting is told exactly, too.
            let enough = self.smallest.map_or(u64::MAX, |known| known.peak_bytes).max(self.far);
            match growth.left(&candidate, peak_bytes, &self.room, enough) {
                Left::Nobody => return self.count(None, 1),
                Left::Bytes(bytes, left) => (peak_bytes, group) = (bytes, left),
            }
        }
        self.put_scored(&Scored { candidate, seconds: seconds(), peak_bytes }, group);
    }

    /// Counts so many candidates of a group, and no more.
    #[inline]
    fn count(&mut self, group: Option<FitGroup>, count: u64) {
        self.valid += count;
        if let Some(group) = group {
            self.group(group).count += count;
        }
    }

    /// Whether a candidate would change nothing but counts, whatever more seconds than `least` it takes.
    #[inline]
    fn is_beaten(
        &mut self,
        candidate: Candidate,
        peak_bytes: u64,
        group: Option<FitGroup>,
        least: f64,
    ) -> bool {
        let known = self.smallest.map(|known| (known.peak_bytes, known.candidate));
        if least <= 0.0 || least < self.mark || known.is_none_or(|known| (peak_bytes, candidate) < known) {
            return false;
        }
        self.beats(group, least, peak_bytes)
    }

    /// Whether only the first row is wanted.
    pub(super) fn only_first(&self) -> bool {
        self.only_first
    }

    /// Whether only the first row is wanted, and it is one that fits: what can't be valid is not even counted then.
    pub(super) fn dismisses(&self) -> bool {
        self.only_first && (self.only_fitting || self.fits.first.is_some())
    }

    /// Counts a candidate that is too large, and not the smallest.
    pub(super) fn count_too_large(&mut self) {
        self.valid += 1;
    }

    /// Whether so many bytes are more than the GPU has.
    #[inline]
    pub(super) fn is_too_large(&self, bytes: u64) -> bool {
        bytes > self.room.capacity
    }

    /// Whether [`Sink::is_hopeless`] can hold of anything: enough plans that fit are known.
    pub(super) fn knows_enough(&self) -> bool {
        self.only_first && self.fits.worst.is_some()
    }

    /// Whether nothing that takes so many seconds at least can matter for the first row, whatever its memory is: enough
    /// plans that fit are better. Never where more is wanted than that row.
    #[inline]
    pub(super) fn is_hopeless(&self, least: f64) -> bool {
        self.only_first && self.fits.leads(&Key::of(self.objective, &self.terms, least, 0), self.objective)
    }

    /// Whether a candidate of a group that is not the smallest would change nothing but counts.
    #[inline]
    fn beats(&mut self, group: Option<FitGroup>, least: f64, peak_bytes: u64) -> bool {
        if self.dismisses() && group != Some(FitGroup::Fits) {
            // Of tight ones the best is told where it is better than whatever fits.
            let may_be_told = group == Some(FitGroup::Tight) && !self.only_fitting;
            let first = self.fits.first.filter(|_| may_be_told);
            let key = Key::of(self.objective, &self.terms, least, peak_bytes);
            return first.is_none_or(|first| !key.compare(&first).is_lt());
        }
        match group {
            Some(group) if self.only_first => {
                let key = Key::of(self.objective, &self.terms, least, peak_bytes);
                let objective = self.objective;
                self.group(group).leads(&key, objective)
            }
            None => self.only_first || self.beyond.beats(least, peak_bytes),
            Some(group) => {
                let key = Key::of(self.objective, &self.terms, least, peak_bytes);
                let objective = self.objective;
                self.group(group).beats(&key, objective, least, peak_bytes)
            }
        }
    }

    /// Counts so many candidates of which each takes at least `least_bytes`, where that alone says everything: far too large,
    /// and none the smallest; for the first row alone, too large where something fits.
    #[inline]
    pub(super) fn all_far(&mut self, count: u64, least_bytes: u64) -> bool {
        if least_bytes > self.room.capacity && self.dismisses() {
            return true;
        }
        let far = least_bytes > self.far && self.smallest.is_some_and(|known| known.peak_bytes < least_bytes);
        if far {
            self.valid += count;
        }
        far
    }

    /// Counts so many candidates, not all of them far too large, each of which takes bytes within these bounds, the upper ends of their likely ranges within
    /// those of `high`, and so many seconds at least (0 where nothing is known), where that alone says that all of them are of
    /// one group and beaten.
    #[inline]
    pub(super) fn all_beaten(
        &mut self,
        count: u64,
        [least_bytes, most_bytes]: [u64; 2],
        [least_high, most_high]: [impl FnOnce() -> u64; 2],
        least: f64,
    ) -> bool {
        if least <= 0.0
            || least < self.mark
            || self.smallest.is_none_or(|known| known.peak_bytes >= least_bytes)
        {
            return false;
        }
        let group = self.room.group(least_bytes, least_high);
        let alike = group.is_none() || group == self.room.group(most_bytes, most_high);
        let beaten = alike && self.beats(group, least, least_bytes);
        if beaten {
            self.count(group, count);
        }
        beaten
    }

    #[inline]
    fn put_scored(&mut self, scored: &Scored, group: Option<FitGroup>) {
        if !scored.seconds.is_finite() {
            self.valid += 1;
            self.computed += 1;
            self.endless += 1;
            return;
        }
        let smaller = self
            .smallest
            .is_none_or(|known| (scored.peak_bytes, scored.candidate) < (known.peak_bytes, known.candidate));
        if smaller {
            self.smallest = Some(*scored);
        }
        self.valid += 1;
        self.computed += 1;
        let Some(group) = group else { return self.beyond.put(scored) };
        self.faster += u64::from(scored.seconds < self.mark);
        let (objective, terms, most) = (self.objective, self.terms, self.most);
        let key = move |scored: &Scored| Key::of(objective, &terms, scored.seconds, scored.peak_bytes);
        let (grouped, classes) = match group {
            FitGroup::Fits => (&mut self.fits, &self.classes),
            FitGroup::Tight => (&mut self.tight, &self.classes),
        };
        grouped.put(scored, (most, objective, classes), key);
    }

    /// Gives everything to the partial result.
    pub(super) fn give(self, search: &Search, partial: &mut Partial) {
        partial.valid += self.valid;
        partial.computed += self.computed;
        partial.endless += self.endless;
        partial.faster += self.faster;
        let (cluster, most) = (self.cluster, (self.most, self.objective));
        let key = |scored: &Scored| search.key(scored);
        self.fits.give(cluster, most, key, &mut partial.fits);
        self.tight.give(cluster, most, key, &mut partial.tight);
        self.beyond.give(cluster, &mut partial.beyond);
        if let Some(smallest) = self.smallest {
            partial.smallest.insert(cluster, smallest);
        }
    }
}
