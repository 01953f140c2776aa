//! What a search of the page has and waits for: chunks of the space, candidates to simulate, and what each worker is busy
//! with. Nothing here draws or counts time.

use std::collections::VecDeque;

use gloo::timers::callback::Interval;
use gloo::worker::{HandlerId, Worker, WorkerBridge, WorkerScope};
use planner::finding::Finding;
use planner::search::{Partial, Ranking, Row, Scored, SearchAnswer, Simulated, WhyNot};
use web_sys::js_sys::Date;

use super::engine::Phase;
use super::protocol::{Ask, Sought, Tell};

/// Chunks of the space for each worker: small enough that all end at about the same time.
const CHUNKS: u64 = 16;
/// Candidates that a worker simulates at a go.
const AT_A_GO: usize = 4;

/// The type of the workers as the page sees them: what they do stands in their own module.
pub struct Remote;

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
pub enum Task {
    Begin,
    WhyNot,
    Parts { first: u64, end: u64 },
    Candidates(Vec<Scored>),
    Answer(Phase),
    Help,
}

/// A worker.
pub struct SearchWorker {
    pub bridge: WorkerBridge<Remote>,
    /// Number of the search that it was told of last.
    pub knows: u32,
    /// Whether it was ever heard of.
    pub heard: bool,
    /// What it is busy with: for which search, since when.
    pub task: Option<(u32, Task, f64)>,
    /// Parts that it did and told nothing of yet.
    pub unsent: Vec<(u64, u64)>,
}

#[derive(Default)]
pub struct Inner {
    pub workers: Vec<SearchWorker>,
    pub number: u32,
    pub sought: Option<Box<Sought>>,
    /// Parts of the space and the order of its candidates, once a worker said.
    pub begun: Option<(u64, Box<Ranking>)>,
    pub parts: VecDeque<(u64, u64)>,
    pub done: u64,
    pub partial: Partial,
    /// Candidates that are simulated, as far as they may still be the first row.
    pub shortlist: Vec<Scored>,
    pub candidates: VecDeque<Scored>,
    pub simulated: Vec<Simulated>,
    /// The phase for which an answer is to be put together.
    pub wanted: Option<Phase>,
    /// Whether what would fit is to be looked for.
    pub helpless: bool,
    /// What somebody had in mind, and the best that it is held against, where something fits.
    pub asked: Option<(String, Option<Box<Row>>)>,
    pub started: f64,
    pub looked: f64,
    pub replaced: u32,
    pub watch: Option<Interval>,
}

/// What a worker said, as far as it matters.
pub enum Heard {
    Nothing,
    Found,
    Answer(Box<SearchAnswer>, Phase),
    Refused(Vec<Finding>),
    WhyNot(Box<Result<WhyNot, String>>),
}

impl Inner {
    /// Ends the search: what workers say of it is not heard any more, and what they did not tell is gone.
    pub fn stop(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.parts.clear();
        self.candidates.clear();
        self.shortlist.clear();
        self.workers.iter_mut().for_each(|worker| worker.unsent.clear());
    }

    /// Forgets the search that was.
    pub fn forget(&mut self) {
        self.stop();
        self.begun = None;
        self.partial = Partial::default();
        self.simulated.clear();
        (self.wanted, self.asked, self.helpless) = (None, None, false);
        (self.done, self.replaced) = (0, 0);
    }

    /// What the worker at `place` is to do next, if it has nothing to do. The first puts answers together: it has rows of
    /// earlier ones.
    fn task_for(&mut self, place: usize) -> Option<Task> {
        let worker = self.workers.get(place)?;
        if worker.task.is_some() || self.sought.is_none() {
            return None;
        }
        if worker.knows != self.number {
            return Some(Task::Begin);
        }
        if place == 0
            && let Some(phase) = self.wanted.take()
        {
            return Some(Task::Answer(phase));
        }
        // Which takes long, so the one that puts answers together stays free for the next search.
        if place + 1 == self.workers.len() && std::mem::take(&mut self.helpless) {
            return Some(Task::Help);
        }
        if self.asked.is_some() {
            return Some(Task::WhyNot);
        }
        if let Some((first, end)) = self.parts.pop_front() {
            // The last ones are shared, so that all are done at about the same time.
            let half = first + (end - first).div_ceil(2);
            if self.parts.len() < self.workers.len() && half < end {
                self.parts.push_front((half, end));
                return Some(Task::Parts { first, end: half });
            }
            return Some(Task::Parts { first, end });
        }
        if let Some(&(_, end)) = self.workers.get(place)?.unsent.last() {
            return Some(Task::Parts { first: end, end });
        }
        let some = self.candidates.len().min(AT_A_GO);
        (some > 0).then(|| Task::Candidates(self.candidates.drain(..some).collect()))
    }

    pub fn hand_out(&mut self) {
        for place in 0..self.workers.len() {
            let Some(task) = self.task_for(place) else { continue };
            let number = self.number;
            let ask = match &task {
                Task::Begin => self.sought.clone().map(|sought| Ask::Begin { number, sought }),
                Task::WhyNot => self.asked.take().map(|(wanted, best)| Ask::WhyNot { number, wanted, best }),
                Task::Parts { first, end } => Some(Ask::Work { number, first: *first, end: *end }),
                Task::Candidates(candidates) => {
                    Some(Ask::Simulate { number, candidates: candidates.clone() })
                }
                Task::Answer(_) | Task::Help => Some(Ask::Answer {
                    number,
                    last: matches!(task, Task::Answer(Phase::Done) | Task::Help),
                    help: matches!(task, Task::Help),
                    partial: Box::new(self.partial.clone()),
                    simulated: self.simulated.clone(),
                }),
            };
            if let (Some(worker), Some(ask)) = (self.workers.get_mut(place), ask) {
                worker.knows = number;
                worker.bridge.send(ask);
                worker.task = Some((number, task, Date::now()));
            }
        }
    }

    /// The space, cut into chunks.
    fn begin(&mut self, parts: u64, ranking: Box<Ranking>) {
        if self.begun.is_some() {
            return;
        }
        self.begun = Some((parts, ranking));
        // What was refused with whole axes is counted with the first part, even where there is none.
        let parts = parts.max(1);
        let each = (parts / (CHUNKS * self.workers.len() as u64).max(1)).max(1);
        self.parts = (0..parts)
            .step_by(usize::try_from(each).unwrap_or(usize::MAX))
            .map(|first| (first, (first + each).min(parts)))
            .collect();
    }

    pub fn hear(&mut self, place: usize, tell: Tell) -> Heard {
        let Some(worker) = self.workers.get_mut(place) else { return Heard::Nothing };
        worker.heard = true;
        let task = worker.task.take();
        if tell.number() != self.number {
            return Heard::Nothing;
        }
        match tell {
            Tell::Begun { parts, ranking, .. } => {
                self.begin(parts, ranking);
                Heard::Nothing
            }
            Tell::Refused { findings, .. } => {
                self.sought = None;
                Heard::Refused(findings)
            }
            Tell::Worked { next, partial, .. } => {
                if let Some((_, Task::Parts { first, end }, _)) = task {
                    self.done += next.saturating_sub(first);
                    worker.unsent.push((first, next));
                    if next < end {
                        self.parts.push_front((next, end));
                    }
                }
                if let (Some(partial), Some((_, ranking))) = (partial, &self.begun) {
                    worker.unsent.clear();
                    ranking.merge(&mut self.partial, &partial);
                }
                Heard::Found
            }
            Tell::Simulated { found, .. } => {
                self.simulated.extend(found);
                Heard::Found
            }
            Tell::Answered { answer, .. } => match task {
                Some((_, Task::Answer(phase), _)) => Heard::Answer(answer, phase),
                Some((_, Task::Help, _)) => Heard::Answer(answer, Phase::Done),
                _ => Heard::Nothing,
            },
            Tell::WhyNot { found, .. } => Heard::WhyNot(found),
        }
    }
}
