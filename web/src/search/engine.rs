//! The page's side of a search: hands out work, merges, starts again on every change.

use std::collections::VecDeque;
use std::sync::Arc;

use gloo::timers::callback::Interval;
use gloo::worker::{HandlerId, Spawnable, Worker, WorkerBridge, WorkerScope};
use leptos::prelude::*;
use planner::finding::Finding;
use planner::search::{Partial, Request, Scored, Search, SearchAnswer, Simulated, WhyNot};
use web_sys::js_sys::Date;

use super::protocol::{ADDRESS, Ask, Json, Tell};

/// Most workers; more would wait for each other on the machines that pages are read on.
const MOST_WORKERS: usize = 8;
/// Chunks of the space for each worker: small enough that all end at about the same time.
const CHUNKS: u64 = 16;
/// Candidates that a worker simulates at a go.
const AT_A_GO: usize = 4;
/// Milliseconds between two looks at unfinished results.
const LOOK: f64 = 300.0;
/// Milliseconds after which a worker that owes an answer is taken for dead: its first answer includes loading, and others are
/// due after a slice of time.
const DEAD: [f64; 2] = [20_000.0, 8_000.0];
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
}

/// The type of the workers as the page sees them: what they do stands in their own module.
struct Remote;

impl Worker for Remote {
    type Message = ();
    type Input = Ask;
    type Output = Tell;

    fn create(_scope: &WorkerScope<Self>) -> Self {
        Remote
    }

    fn update(&mut self, _scope: &WorkerScope<Self>, _message: ()) {}

    fn received(&mut self, _scope: &WorkerScope<Self>, _ask: Ask, _id: HandlerId) {}
}

/// What a worker owes an answer to.
enum Task {
    Parts { first: u64, end: u64 },
    Candidates(Vec<Scored>),
    Answer(Phase),
}

/// A worker.
struct Hand {
    bridge: WorkerBridge<Remote>,
    /// Number of the search that it was told of last.
    knows: u32,
    /// Whether it was ever heard of.
    heard: bool,
    /// What it is busy with: for which search, since when.
    task: Option<(u32, Task, f64)>,
}

#[derive(Default)]
struct Inner {
    hands: Vec<Hand>,
    number: u32,
    request: Option<Box<Request>>,
    search: Option<Search>,
    parts: VecDeque<(u64, u64)>,
    done: u64,
    partial: Partial,
    candidates: VecDeque<Scored>,
    simulated: Vec<Simulated>,
    /// The phase for which an answer is to be put together.
    wanted: Option<Phase>,
    started: f64,
    looked: f64,
    replaced: u32,
    watch: Option<Interval>,
}

/// A search of the page. Copied into whatever starts or shows it; its workers end with its owner.
#[derive(Clone, Copy)]
pub struct Engine {
    /// What is shown.
    pub state: RwSignal<State>,
    inner: StoredValue<Inner, LocalStorage>,
}

impl Engine {
    /// One without workers; the first search starts them.
    pub fn new() -> Engine {
        let inner = StoredValue::new_local(Inner::default());
        Engine { state: RwSignal::new(State::default()), inner }
    }

    /// Searches anew. What is under way is forgotten; workers hear of it within a slice of time.
    pub fn start(self, request: Request) {
        let found = Search::new(&request);
        self.change(|inner| {
            inner.number = inner.number.wrapping_add(1);
            inner.request = Some(Box::new(request));
            inner.partial = Partial::default();
            inner.simulated.clear();
            inner.candidates.clear();
            inner.parts.clear();
            inner.wanted = None;
            (inner.done, inner.replaced) = (0, 0);
            inner.started = Date::now();
            inner.looked = inner.started;
            inner.search = None;
        });
        match found {
            Err(findings) => self.state.set(State { findings, ..State::default() }),
            Ok(search) => {
                // What was refused with whole axes is counted with the first part, even where there is none.
                let parts = search.parts().max(1);
                self.change(|inner| {
                    inner.search = Some(search);
                    let each = (parts / (CHUNKS * hands_wanted() as u64)).max(1);
                    inner.parts = (0..parts)
                        .step_by(usize::try_from(each).unwrap_or(usize::MAX))
                        .map(|first| (first, (first + each).min(parts)))
                        .collect();
                });
                // What was found for the plan before stays on screen until there is something new.
                let answer = self.state.with_untracked(|state| state.answer.clone());
                self.state.set(State { phase: Phase::Looking, answer, ..State::default() });
                self.raise();
                self.hand_out();
            }
        }
    }

    /// Stops. What was found so far stays.
    pub fn cancel(self) {
        self.change(|inner| {
            inner.number = inner.number.wrapping_add(1);
            inner.parts.clear();
            inner.candidates.clear();
        });
        self.look(Phase::Cancelled);
        self.hand_out();
    }

    /// Puts off what waits: a new search is about to begin.
    pub fn pause(self) {
        self.change(|inner| {
            inner.number = inner.number.wrapping_add(1);
            inner.parts.clear();
            inner.candidates.clear();
            inner.wanted = None;
        });
    }

    /// Ends the workers.
    pub fn end(self) {
        self.change(|inner| *inner = Inner::default());
    }

    /// Why a plan is not the best, as `tp=4,pp=2`; nothing before there is a best.
    pub fn why_not(self, wanted: &str) -> Option<Result<WhyNot, String>> {
        let answer = self.state.with_untracked(|state| state.answer.clone())?;
        let best = answer.rows.first()?;
        self.change(|inner| inner.search.as_ref().map(|search| search.why_not(wanted, best)))
    }

    fn change<T: Default>(self, change: impl FnOnce(&mut Inner) -> T) -> T {
        self.inner.try_update_value(change).unwrap_or_default()
    }

    /// Starts the workers, once.
    fn raise(self) {
        let missing = self.change(|inner| hands_wanted().saturating_sub(inner.hands.len()));
        for _ in 0..missing {
            let place = self.change(|inner| inner.hands.len());
            let hand = self.hand(place);
            self.change(|inner| inner.hands.push(hand));
        }
        let watch = Interval::new(1000, move || self.watch());
        self.change(|inner| inner.watch = Some(watch));
    }

    fn hand(self, place: usize) -> Hand {
        let bridge =
            Remote::spawner().encoding::<Json>().callback(move |tell| self.hear(place, tell)).spawn(ADDRESS);
        Hand { bridge, knows: 0, heard: false, task: None }
    }

    /// Gives every idle worker something to do.
    fn hand_out(self) {
        self.change(|inner| {
            let mut wanted_later = None;
            let Inner { hands, number, request, parts, candidates, partial, simulated, wanted, .. } = inner;
            let answering = |hand: &Hand| {
                hand.task
                    .as_ref()
                    .is_some_and(|(of, task, _)| of == number && matches!(task, Task::Answer(_)))
            };
            // One at a time: an answer that is late is followed by one that is not.
            if hands.iter().any(answering) {
                wanted_later = wanted.take();
            }
            for hand in hands.iter_mut().filter(|hand| hand.task.is_none()) {
                let task = if let Some(phase) = wanted.take() {
                    Task::Answer(phase)
                } else if let Some((first, end)) = parts.pop_front() {
                    Task::Parts { first, end }
                } else if !candidates.is_empty() {
                    let some = candidates.len().min(AT_A_GO);
                    Task::Candidates(candidates.drain(..some).collect())
                } else {
                    break;
                };
                if hand.knows != *number {
                    let Some(request) = request.clone() else { break };
                    hand.knows = *number;
                    hand.bridge.send(Ask::Begin { number: *number, request });
                }
                hand.bridge.send(match &task {
                    Task::Parts { first, end } => Ask::Work { number: *number, first: *first, end: *end },
                    Task::Candidates(candidates) => {
                        Ask::Simulate { number: *number, candidates: candidates.clone() }
                    }
                    Task::Answer(phase) => Ask::Answer {
                        number: *number,
                        last: *phase == Phase::Done,
                        partial: Box::new(partial.clone()),
                        simulated: simulated.clone(),
                    },
                });
                hand.task = Some((*number, task, Date::now()));
            }
            *wanted = wanted.or(wanted_later);
        });
    }

    /// Something of the worker at `place`.
    fn hear(self, place: usize, tell: Tell) {
        enum Heard {
            Old,
            Found,
            Answer(Box<SearchAnswer>, Phase),
        }
        let heard = self.inner.try_update_value(|inner| {
            let hand = inner.hands.get_mut(place);
            let task = hand.and_then(|hand| {
                hand.heard = true;
                hand.task.take()
            });
            let Inner { search: Some(search), number, parts, done, partial, simulated, .. } = inner else {
                return Heard::Old;
            };
            if tell.number() != *number {
                return Heard::Old;
            }
            match (tell, task) {
                (Tell::Worked { next, partial: found, .. }, task) => {
                    search.merge(partial, &found);
                    if let Some((_, Task::Parts { first, end }, _)) = task {
                        *done += next.saturating_sub(first);
                        if next < end {
                            parts.push_front((next, end));
                        }
                    }
                    Heard::Found
                }
                (Tell::Simulated { found, .. }, _) => {
                    simulated.extend(found);
                    Heard::Found
                }
                (Tell::Answered { answer, .. }, Some((_, Task::Answer(phase), _))) => {
                    Heard::Answer(answer, phase)
                }
                (Tell::Answered { .. }, _) => Heard::Old,
            }
        });
        match heard {
            Some(Heard::Found) => self.advance(),
            Some(Heard::Answer(answer, phase)) => self.show(answer, phase),
            Some(Heard::Old) | None => {}
        }
        self.hand_out();
    }

    /// From the space to the simulation, and from there to the end.
    fn advance(self) {
        let looking = self.state.with_untracked(|state| state.phase == Phase::Looking);
        let next = self.change(|inner| {
            let number = inner.number;
            let works = |(of, task, _): &(u32, Task, f64)| *of == number && !matches!(task, Task::Answer(_));
            let busy = inner.hands.iter().any(|hand| hand.task.as_ref().is_some_and(works));
            let waiting = !inner.parts.is_empty() || !inner.candidates.is_empty();
            let search = inner.search.as_ref()?;
            if !busy && !waiting {
                if !looking {
                    return Some(Phase::Done);
                }
                inner.candidates = search.shortlist(&inner.partial).into();
                return Some(if inner.candidates.is_empty() { Phase::Done } else { Phase::Simulating });
            }
            let phase = if looking { Phase::Looking } else { Phase::Simulating };
            (Date::now() - inner.looked > LOOK).then_some(phase)
        });
        if let Some(phase) = next {
            self.look(phase);
        }
    }

    /// Shows how far the search is, and has an answer put together from what was found so far.
    fn look(self, phase: Phase) {
        let found = self.inner.try_update_value(|inner| {
            inner.looked = Date::now();
            let search = inner.search.as_ref()?;
            inner.wanted = Some(phase);
            let wanted = inner.simulated.len() + inner.candidates.len();
            let progress = match phase {
                Phase::Simulating => inner.simulated.len() as f64 / wanted.max(1) as f64,
                Phase::Looking => inner.done as f64 / search.parts().max(1) as f64,
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
        let seconds = self.change(|inner| {
            if matches!(phase, Phase::Done | Phase::Cancelled) {
                inner.watch = None;
            }
            (Date::now() - inner.started) / 1000.0
        });
        self.state.update(|state| {
            if phase == Phase::Done {
                (state.phase, state.seconds) = (phase, seconds);
            }
            state.answer = Some(Arc::from(answer));
        });
    }

    /// Replaces workers that owe an answer for too long: one that crashed says nothing.
    fn watch(self) {
        let now = Date::now();
        let dead: Vec<usize> = self.change(|inner| {
            let owes = |hand: &Hand| {
                hand.task.as_ref().is_some_and(|(_, task, since)| {
                    // What would fit where nothing does takes its time too.
                    let slow = !hand.heard || matches!(task, Task::Answer(_));
                    now - since > if slow { DEAD[0] } else { DEAD[1] }
                })
            };
            inner.hands.iter().enumerate().filter(|(_, hand)| owes(hand)).map(|(place, _)| place).collect()
        });
        for place in dead {
            let fresh = self.hand(place);
            let gave_up = self.change(|inner| {
                inner.replaced += 1;
                let number = inner.number;
                let Some(hand) = inner.hands.get_mut(place) else { return false };
                let old = std::mem::replace(hand, fresh);
                match old.task {
                    Some((of, Task::Parts { first, end }, _)) if of == number => {
                        inner.parts.push_front((first, end));
                    }
                    Some((of, Task::Candidates(candidates), _)) if of == number => {
                        inner.candidates.extend(candidates);
                    }
                    Some((of, Task::Answer(phase), _)) if of == number => inner.wanted = Some(phase),
                    _ => {}
                }
                if inner.replaced > REPLACEMENTS {
                    inner.parts.clear();
                    inner.candidates.clear();
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
fn hands_wanted() -> usize {
    let processors = window().navigator().hardware_concurrency();
    if processors.is_finite() && processors >= 1.0 { (processors as usize).min(MOST_WORKERS) } else { 1 }
}
