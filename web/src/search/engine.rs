//! The page's side of a search: hands out work, merges, starts again on every change. Whatever takes long is done by workers:
//! the page does not even make the space.

use std::sync::Arc;

use gloo::timers::callback::{Interval, Timeout};
use gloo::worker::Spawnable;
use leptos::prelude::*;
use planner::finding::Finding;
use planner::json::read_json;
use planner::search::{Request, SearchAnswer, WhyNot};
use web_sys::js_sys::Date;

use super::inner::{Heard, Inner, Remote, SearchWorker, Task};
use super::protocol::{ADDRESS, Ask, Json, Sought, Tell};

/// Most workers; more would wait for each other on the machines that pages are read on.
const MOST_WORKERS: usize = 8;
/// Milliseconds between two looks at unfinished results.
const LOOK: f64 = 400.0;
/// Milliseconds after which a page that nobody used yet starts its workers.
const IDLE: u32 = 1500;
/// Milliseconds after which a worker that owes an answer is taken for dead: its first answer includes loading, and others are
/// due after a slice of time. What would fit where nothing does takes longer.
const DEAD: [f64; 2] = [20_000.0, 8_000.0];
const DEAD_HELP: f64 = 120_000.0;
/// How often dead workers are replaced before the search gives up.
const REPLACEMENTS: u32 = 3;

/// How far a search is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was asked.
    #[default]
    Idle,
    /// The space is gone through.
    Looking,
    /// The best are simulated.
    Simulating,
    /// Done.
    Done,
    /// Stopped by the user.
    Cancelled,
    /// Given up, with the reason in `State::said`.
    Failed,
}

/// What the page shows of a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// How far it is.
    pub phase: Phase,
    /// Share of the phase that is done.
    pub progress: f64,
    /// What was found so far.
    pub answer: Option<Arc<SearchAnswer>>,
    /// What is wrong with the request.
    pub findings: Vec<Finding>,
    /// Seconds since the search began.
    pub seconds: f64,
    /// What happened on the way.
    pub said: Option<String>,
    /// Whether what would fit where nothing does is still looked for.
    pub helping: bool,
    /// Why a plan is not the best.
    pub why_not: Option<Result<WhyNot, String>>,
}

/// The plan of the search that makes workers warm.
const PLAN_TO_WARM: &str = r#"{"version":1,"model":{"preset":"deepseek-v3"},"cluster":{"gpu":"h100-sxm","nodes":256},"training":{"global_batch_size":2048}}"#;

/// A search of a model with most of what models have, for workers to get warm by.
fn warming() -> Option<Box<Sought>> {
    let mut request = Request::new(read_json(PLAN_TO_WARM).ok()?);
    (request.limits.rows, request.limits.simulated) = (2, 8);
    Some(sought(request))
}

/// A search with what the page has read of its model.
fn sought(request: Request) -> Box<Sought> {
    Box::new(Sought { architecture: request.architecture(), request })
}

/// The search of the page. Copied into whatever starts or shows it; its workers stay for the next search.
#[derive(Clone, Copy)]
pub struct Engine {
    /// What is shown.
    pub state: RwSignal<State>,
    inner: StoredValue<Inner, LocalStorage>,
}

impl Engine {
    /// One without workers; the first search starts them, or a page that has nothing to do.
    pub fn new() -> Engine {
        let inner = StoredValue::new_local(Inner::default());
        Engine { state: RwSignal::new(State::default()), inner }
    }

    /// Starts the workers once the page has nothing to do, and has them get warm.
    pub fn warm(self) {
        let warm = move || {
            if self.change(|inner| inner.workers.is_empty()) {
                self.raise();
                // What a browser compiled for one worker it has for the others.
                let sought = warming();
                self.change(|inner| {
                    if let (Some(worker), Some(sought)) = (inner.workers.first(), sought) {
                        worker.bridge.send(Ask::Warm(sought));
                    }
                });
            }
        };
        Timeout::new(IDLE, warm).forget();
    }

    /// Searches anew. What is under way is forgotten; workers hear of it within a slice of time.
    pub fn start(self, request: Request) {
        self.change(|inner| {
            inner.forget();
            inner.sought = Some(sought(request));
            inner.started = Date::now();
            inner.looked = inner.started;
        });
        // What was found for the plan before stays on screen until there is something new.
        let answer = self.state.with_untracked(|state| state.answer.clone());
        self.state.set(State { phase: Phase::Looking, answer, ..State::default() });
        self.raise();
        let watch = Interval::new(1000, move || self.watch());
        self.change(|inner| inner.watch = Some(watch));
        self.hand_out();
    }

    /// Stops. What was found so far stays.
    pub fn cancel(self) {
        let begun = self.change(|inner| {
            inner.stop();
            if inner.begun.is_none() {
                inner.sought = None;
            }
            inner.begun.is_some()
        });
        match begun {
            true => self.look(Phase::Cancelled),
            false => self.state.update(|state| state.phase = Phase::Cancelled),
        }
        self.hand_out();
    }

    /// Puts off what waits: a new search is about to begin.
    pub fn pause(self) {
        self.change(|inner| {
            inner.stop();
            (inner.sought, inner.wanted) = (None, None);
        });
    }

    /// Forgets everything but the workers.
    pub fn rest(self) {
        self.change(|inner| {
            inner.forget();
            (inner.sought, inner.watch) = (None, None);
        });
        self.state.set(State::default());
    }

    /// Has somebody find out why a plan is not the best, as `tp=4,pp=2`; nothing before there is an answer.
    pub fn why_not(self, wanted: &str) {
        let answer = self.state.with_untracked(|state| state.answer.clone());
        let asked = answer
            .filter(|_| !wanted.is_empty())
            .map(|answer| (wanted.to_owned(), answer.rows.first().cloned().map(Box::new)));
        if asked.is_none() && self.state.with_untracked(|state| state.why_not.is_some()) {
            self.state.update(|state| state.why_not = None);
        }
        self.change(|inner| inner.asked = asked);
        self.hand_out();
    }

    fn change<T: Default>(self, change: impl FnOnce(&mut Inner) -> T) -> T {
        self.inner.try_update_value(change).unwrap_or_default()
    }

    /// Starts the workers, once.
    fn raise(self) {
        let missing = self.change(|inner| workers_wanted().saturating_sub(inner.workers.len()));
        for _ in 0..missing {
            let place = self.change(|inner| inner.workers.len());
            let worker = self.worker(place);
            self.change(|inner| inner.workers.push(worker));
        }
    }

    fn worker(self, place: usize) -> SearchWorker {
        let bridge =
            Remote::spawner().encoding::<Json>().callback(move |tell| self.hear(place, tell)).spawn(ADDRESS);
        bridge.send(Ask::Data(planner::data::texts()));
        SearchWorker { bridge, knows: 0, heard: false, task: None, unsent: Vec::new() }
    }

    /// Gives every idle worker something to do.
    fn hand_out(self) {
        self.change(Inner::hand_out);
    }

    /// Something of the worker at `place`.
    fn hear(self, place: usize, tell: Tell) {
        match self.inner.try_update_value(|inner| inner.hear(place, tell)).unwrap_or(Heard::Nothing) {
            Heard::Found => self.advance(),
            Heard::Answer(answer, phase) => self.show(answer, phase),
            Heard::Refused(findings) => {
                self.change(|inner| inner.watch = None);
                self.state.set(State { findings, ..State::default() });
            }
            Heard::WhyNot(found) => self.state.update(|state| state.why_not = Some(*found)),
            Heard::Nothing => {}
        }
        self.hand_out();
    }

    /// From the space to the simulation, and from there to the end.
    fn advance(self) {
        let phase = self.state.with_untracked(|state| state.phase);
        let looking = phase == Phase::Looking;
        if !looking && phase != Phase::Simulating {
            return;
        }
        let next = self.change(|inner| {
            let number = inner.number;
            let works = |(of, task, _): &(u32, Task, f64)| {
                *of == number && matches!(task, Task::Parts { .. } | Task::Candidates(_))
            };
            let at_work =
                |worker: &SearchWorker| worker.task.as_ref().is_some_and(works) || !worker.unsent.is_empty();
            let busy = inner.workers.iter().any(at_work);
            let waiting = !inner.parts.is_empty() || !inner.candidates.is_empty();
            let (_, ranking) = inner.begun.as_ref()?;
            if !busy && !waiting {
                if looking {
                    inner.shortlist = ranking.shortlist(&inner.partial);
                }
                inner.candidates = ranking.next_round(&inner.shortlist, &inner.simulated).into();
                return match (inner.candidates.is_empty(), looking) {
                    (true, _) => Some((Phase::Done, true)),
                    // Simulating takes less time than two looks.
                    (false, true) => Some((Phase::Simulating, false)),
                    (false, false) => None,
                };
            }
            let phase = if looking { Phase::Looking } else { Phase::Simulating };
            (Date::now() - inner.looked > LOOK).then_some((phase, true))
        });
        match next {
            Some((phase, true)) => self.look(phase),
            Some((phase, false)) => self.state.update(|state| (state.phase, state.progress) = (phase, 0.0)),
            None => {}
        }
    }

    /// Shows how far the search is, and has an answer put together from what was found so far.
    fn look(self, phase: Phase) {
        let found = self.inner.try_update_value(|inner| {
            inner.looked = Date::now();
            let (parts, _) = inner.begun.as_ref()?;
            let only_first = inner.sought.as_ref().is_some_and(|sought| sought.request.only_first);
            // Nobody looks at rows of a choice before it is made.
            if !only_first || !matches!(phase, Phase::Looking | Phase::Simulating) {
                inner.wanted = Some(phase);
            }
            let wanted = inner.simulated.len() + inner.candidates.len();
            let progress = match phase {
                Phase::Simulating => inner.simulated.len() as f64 / wanted.max(1) as f64,
                Phase::Looking => inner.done as f64 / (*parts).max(1) as f64,
                _ => 1.0,
            };
            Some((progress, (inner.looked - inner.started) / 1000.0))
        });
        let Some(Some((progress, seconds))) = found else { return };
        self.state.update(|state| {
            // It is done when its answer is there.
            if phase != Phase::Done {
                state.phase = phase;
            }
            (state.progress, state.seconds) = (progress, seconds);
        });
    }

    /// Shows an answer that was put together for a phase.
    fn show(self, answer: Box<SearchAnswer>, phase: Phase) {
        let done = phase == Phase::Done;
        let (seconds, helping) = self.change(|inner| {
            let only_first = inner.sought.as_ref().is_some_and(|sought| sought.request.only_first);
            let lacks_help = answer.relief.as_ref().is_some_and(|relief| relief.suggestions.is_empty());
            // A tight plan is a choice.
            inner.helpless = done && lacks_help && (!only_first || answer.rows.is_empty());
            if phase == Phase::Cancelled || done && !inner.helpless {
                inner.watch = None;
            }
            ((Date::now() - inner.started) / 1000.0, inner.helpless)
        });
        self.state.update(|state| {
            if done {
                (state.phase, state.seconds) = (phase, seconds);
            }
            state.helping = helping;
            state.answer = Some(Arc::from(answer));
        });
    }

    /// Replaces workers that owe an answer for too long: one that crashed says nothing.
    fn watch(self) {
        let now = Date::now();
        let dead: Vec<usize> = self.change(|inner| {
            let owes = |worker: &SearchWorker| {
                worker.task.as_ref().is_some_and(|(_, task, since)| {
                    let due = match task {
                        Task::Help => DEAD_HELP,
                        _ if !worker.heard => DEAD[0],
                        _ => DEAD[1],
                    };
                    now - since > due
                })
            };
            inner
                .workers
                .iter()
                .enumerate()
                .filter(|(_, worker)| owes(worker))
                .map(|(place, _)| place)
                .collect()
        });
        for place in dead {
            let fresh = self.worker(place);
            let gave_up = self.change(|inner| {
                inner.replaced += 1;
                let number = inner.number;
                let Some(worker) = inner.workers.get_mut(place) else { return false };
                let old = std::mem::replace(worker, fresh);
                // What it did and told nothing of is done anew.
                for (first, end) in old.unsent {
                    inner.done = inner.done.saturating_sub(end - first);
                    inner.parts.push_front((first, end));
                }
                match old.task {
                    Some((of, Task::Parts { first, end }, _)) if of == number => {
                        inner.parts.push_front((first, end));
                    }
                    Some((of, Task::Candidates(candidates), _)) if of == number => {
                        inner.candidates.extend(candidates);
                    }
                    Some((of, Task::Answer(phase), _)) if of == number => inner.wanted = Some(phase),
                    Some((of, Task::Help, _)) if of == number => inner.helpless = true,
                    _ => {}
                }
                if inner.replaced > REPLACEMENTS {
                    inner.parts.clear();
                    inner.candidates.clear();
                    inner.shortlist.clear();
                    inner.watch = None;
                }
                inner.replaced > REPLACEMENTS
            });
            self.state.update(|state| {
                state.said = Some(if gave_up {
                    state.phase = Phase::Failed;
                    "Workers of the search keep stopping, so it gave up; reload the page, or bound an axis to make the space smaller".to_owned()
                } else {
                    "A worker of the search stopped; it was started again, and its part is done anew".to_owned()
                });
            });
        }
        self.hand_out();
    }
}

/// One worker for each processor.
fn workers_wanted() -> usize {
    let processors = window().navigator().hardware_concurrency();
    if processors.is_finite() && processors >= 1.0 { (processors as usize).min(MOST_WORKERS) } else { 1 }
}
