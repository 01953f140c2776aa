//! Getting warm: a browser compiles what runs often anew, to run it faster, which takes as long as a search may. So a worker
//! that has nothing to do yet goes through some of a space that nobody asked for.

use gloo::timers::callback::Timeout;
use gloo::worker::WorkerScope;
use planner::search::{Known, PartCache, Partial, Request, Search};
use web_sys::js_sys::Date;

use crate::{Searcher, Warmer};

/// Milliseconds of a slice, and of all of them.
const SLICE: f64 = 25.0;
const ALL: f64 = 500.0;

/// How far it is.
pub struct Warm {
    search: Search,
    cache: PartCache,
    found: Partial,
    next: u64,
    spent: f64,
}

impl Warm {
    /// The beginning of this search.
    pub fn new(request: &Request) -> Option<Warm> {
        let search = Search::new(request).ok()?;
        Some(Warm { search, cache: PartCache::default(), found: Partial::default(), next: 0, spent: 0.0 })
    }

    /// One slice further; none once it was enough.
    pub fn on(mut self) -> Option<Warm> {
        let started = Date::now();
        let mut spent = 0.0;
        // Parts far apart, so that all kinds of them come up.
        while spent < SLICE && self.next < self.search.parts() {
            self.cache.run(&self.search, self.next, &mut self.found);
            self.next += 7;
            spent = Date::now() - started;
        }
        self.spent += spent;
        if self.spent < ALL && self.next < self.search.parts() {
            return Some(self);
        }
        let best = self.search.shortlist(&self.found);
        let simulated: Vec<_> = best.iter().map(|one| self.search.simulate(one)).collect();
        self.search.finish_with(&mut Known::default(), &self.found, &simulated);
        None
    }
}

/// The next slice, once everything else was heard that waits.
pub fn later(scope: WorkerScope<Searcher>) {
    Timeout::new(0, move || scope.send_message(Warmer)).forget();
}
