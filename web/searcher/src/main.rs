//! A worker of the page's search: works on parts of the space and simulates candidates, a slice of time at a go, so that
//! it hears of a new search soon.

#[path = "../../src/search/protocol.rs"]
mod protocol;
mod warm;

use gloo::worker::{HandlerId, Registrable, Worker, WorkerScope};
use planner::search::{Known, PartCache, Partial, Request, Search};
use protocol::{Ask, Json, Sought, Tell};
use warm::Warm;
use web_sys::js_sys::Date;

/// Milliseconds after which a worker answers with what it has.
const SLICE: f64 = 60.0;
/// Milliseconds after which it tells what it found; in between it only says how far it is.
const TELL: f64 = 250.0;

/// The search that is worked on, and what is kept over its parts and its answers.
struct Task {
    number: u32,
    search: Search,
    cache: PartCache,
    /// What was found. Its counts are of what was not told yet; the best and the fronts stay, so that less is among them.
    found: Box<Partial>,
    /// When it was sent last.
    sent: f64,
    known: Known,
}

impl Task {
    fn work(&mut self, first: u64, end: u64) -> Tell {
        let started = Date::now();
        let mut next = first;
        while next < end {
            self.cache.run(&self.search, next, &mut self.found);
            next += 1;
            if Date::now() - started > SLICE {
                break;
            }
        }
        let now = Date::now();
        let partial = (first >= end || now - self.sent > TELL).then(|| {
            self.sent = now;
            let partial = self.found.clone();
            *self.found = std::mem::take(&mut *self.found).without_counts();
            partial
        });
        Tell::Worked { number: self.number, next, partial }
    }
}

/// What is to be searched, as planner reads it here.
fn request_of(sought: Sought) -> Request {
    sought.request.with_architecture(sought.architecture)
}

/// A worker.
#[derive(Default)]
struct Searcher {
    task: Option<Task>,
    warm: Option<Warm>,
}

impl Searcher {
    /// The search of this number, if it is the one that was begun last.
    fn task(&mut self, number: u32) -> Option<&mut Task> {
        self.task.as_mut().filter(|task| task.number == number)
    }

    fn answer(&mut self, ask: Ask) -> Option<Tell> {
        match ask {
            Ask::Data(texts) => {
                planner::data::give(texts);
                None
            }
            Ask::Warm(sought) => {
                if self.task.is_none() {
                    self.warm = Warm::new(&request_of(*sought));
                }
                None
            }
            Ask::Begin { number, sought } => {
                (self.task, self.warm) = (None, None);
                Some(match Search::new(&request_of(*sought)) {
                    Err(findings) => Tell::Refused { number, findings },
                    Ok(search) => {
                        let (parts, ranking) = (search.parts(), Box::new(search.ranking().clone()));
                        self.task = Some(Task {
                            number,
                            search,
                            cache: PartCache::default(),
                            found: Box::default(),
                            sent: Date::now(),
                            known: Known::default(),
                        });
                        Tell::Begun { number, parts, ranking }
                    }
                })
            }
            Ask::Work { number, first, end } => Some(self.task(number)?.work(first, end)),
            Ask::Simulate { number, candidates } => {
                let search = &self.task(number)?.search;
                let found = candidates.iter().map(|one| search.simulate(one)).collect();
                Some(Tell::Simulated { number, found })
            }
            Ask::Answer { number, partial, simulated, last, help } => {
                let Task { search, known, .. } = self.task(number)?;
                let mut answer = match last {
                    true => search.finish_with(known, &partial, &simulated),
                    false => search.so_far(known, &partial, &simulated),
                };
                if help {
                    answer.relief = Some(search.help(&partial));
                }
                Some(Tell::Answered { number, answer: Box::new(answer) })
            }
            Ask::WhyNot { number, wanted, best } => {
                let found = self.task(number)?.search.why_not(&wanted, best.as_deref());
                Some(Tell::WhyNot { number, found: Box::new(found) })
            }
        }
    }
}

/// The next slice of getting warm.
struct Warmer;

impl Worker for Searcher {
    type Message = Warmer;
    type Input = Ask;
    type Output = Tell;

    fn create(_scope: &WorkerScope<Self>) -> Self {
        Searcher::default()
    }

    fn update(&mut self, scope: &WorkerScope<Self>, _message: Warmer) {
        if let Some(warm) = self.warm.take().and_then(Warm::on) {
            self.warm = Some(warm);
            warm::later(scope.clone());
        }
    }

    fn received(&mut self, scope: &WorkerScope<Self>, ask: Ask, id: HandlerId) {
        if matches!(ask, Ask::Warm(_)) {
            warm::later(scope.clone());
        }
        if let Some(answer) = self.answer(ask) {
            scope.respond(id, answer);
        }
    }
}

fn main() {
    console_error_panic_hook::set_once();
    Searcher::registrar().encoding::<Json>().register();
}
