//! A worker of the page's search: works on parts of the space and simulates candidates, a slice of time at a go, so that
//! it hears of a new search soon.

#[path = "../../src/search/protocol.rs"]
mod protocol;

use gloo::worker::{HandlerId, Registrable, Worker, WorkerScope};
use planner::search::{Known, Partial, Search};
use protocol::{Ask, Json, Tell};
use web_sys::js_sys::Date;

/// Milliseconds after which a worker answers with what it has.
const SLICE: f64 = 60.0;

/// The search that is worked on.
#[derive(Default)]
struct Searcher {
    search: Option<(u32, Search)>,
}

impl Searcher {
    /// The search of this number, if it is the one that was begun last.
    fn search(&self, number: u32) -> Option<&Search> {
        self.search.as_ref().filter(|(known, _)| *known == number).map(|(_, search)| search)
    }

    fn work(&self, number: u32, first: u64, end: u64) -> Option<Tell> {
        let mut worker = self.search(number)?.worker();
        let mut partial = Box::<Partial>::default();
        let started = Date::now();
        let mut next = first;
        while next < end {
            worker.run(next, &mut partial);
            next += 1;
            if Date::now() - started > SLICE {
                break;
            }
        }
        Some(Tell::Worked { number, next, partial })
    }
}

impl Worker for Searcher {
    type Message = ();
    type Input = Ask;
    type Output = Tell;

    fn create(_scope: &WorkerScope<Self>) -> Self {
        Searcher::default()
    }

    fn update(&mut self, _scope: &WorkerScope<Self>, _message: ()) {}

    fn received(&mut self, scope: &WorkerScope<Self>, ask: Ask, id: HandlerId) {
        let answer = match ask {
            Ask::Begin { number, request } => {
                // The page made the same search from it already, and showed what was wrong with it.
                self.search = Search::new(&request).ok().map(|search| (number, search));
                None
            }
            Ask::Work { number, first, end } => self.work(number, first, end),
            Ask::Simulate { number, candidates } => self.search(number).map(|search| Tell::Simulated {
                number,
                found: candidates.iter().map(|one| search.simulate(one)).collect(),
            }),
            Ask::Answer { number, partial, simulated, last } => self.search(number).map(|search| {
                let answer = match last {
                    true => search.finish(&partial, &simulated),
                    false => search.so_far(&mut Known::default(), &partial, &simulated),
                };
                Tell::Answered { number, answer: Box::new(answer) }
            }),
        };
        if let Some(answer) = answer {
            scope.respond(id, answer);
        }
    }
}

fn main() {
    console_error_panic_hook::set_once();
    Searcher::registrar().encoding::<Json>().register();
}
