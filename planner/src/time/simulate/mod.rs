//! One step of a pipeline, action by action: when each starts and ends, who waits for whom, and what the step costs.
//!
//! Every stage does the actions of its list in order. An action starts when the one before it is done and what it needs
//! from the neighbouring virtual stage has arrived. So the timeline is the longest path through a graph without cycles,
//! and each action is looked at once: a stage runs on until it must wait, and is woken when its neighbour sends.
//!
//! A transfer takes `StageCosts::transfer` seconds. The exposed share of it keeps the sender from its next action: all of
//! it in Megatron's 1F1B, which waits for its sends, so that a stage in the middle spends two transfers on each micro
//! batch, the first and the last stage one. The rest only delays the receiver.

mod costs;
mod error;
mod path;
mod steady;
#[cfg(test)]
mod tests;

pub use costs::{ChunkSeconds, StageCosts};
pub use error::SimulationError;
pub use path::PathStep;
pub(crate) use steady::simulated_length;

use crate::schedule::{Action, ActionKind, Pipeline, actions};

/// Most actions that a simulation takes: 48 MiB of spans, some 30 ms.
pub(crate) const MAX_ACTIONS: u64 = 1 << 20;

/// When an action was done, in seconds since the start of the step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// What was computed.
    pub action: Action,
    /// Its start.
    pub start: f64,
    /// Its end.
    pub end: f64,
    /// When the stage is free again: later than `end` where it had to wait for its send.
    pub free: f64,
}

/// A stage's part of the step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StageTimeline {
    /// What it did, in order.
    pub spans: Vec<Span>,
    /// Seconds of computing.
    pub computing: f64,
    /// Seconds of sending, when it could not compute.
    pub sending: f64,
}

impl StageTimeline {
    /// Seconds that the stage computes actions of a kind.
    pub fn seconds_of(&self, kind: ActionKind) -> f64 {
        let of_kind = self.spans.iter().filter(|span| span.action.kind == kind);
        of_kind.map(|span| span.end - span.start).sum()
    }
}

/// A simulated step: the pipeline alone, without optimizer and gradient reduction.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// What was simulated.
    pub pipeline: Pipeline,
    /// What each stage did.
    pub stages: Vec<StageTimeline>,
    /// From the start of the first action to the end of the last.
    pub seconds: f64,
    /// Seconds of one transfer.
    pub transfer: f64,
}

impl Timeline {
    /// Seconds in which a stage neither computes nor sends.
    pub fn idle(&self, stage: usize) -> f64 {
        self.stages.get(stage).map_or(0.0, |stage| (self.seconds - stage.computing - stage.sending).max(0.0))
    }

    /// Share of all stages' time that is idle.
    pub fn bubble(&self) -> f64 {
        let idle: f64 = (0..self.stages.len()).map(|stage| self.idle(stage)).sum();
        let all = self.seconds * self.stages.len() as f64;
        if all > 0.0 { idle / all } else { 0.0 }
    }

    /// Actions of all stages.
    pub fn actions(&self) -> usize {
        self.stages.iter().map(|stage| stage.spans.len()).sum()
    }
}

/// Actions of all stages of a step.
pub(crate) fn action_count(pipeline: &Pipeline) -> u64 {
    let split = pipeline.schedule.kind().splits_backward;
    let each = if split { 3 } else { 2 };
    [pipeline.stages, pipeline.chunks, pipeline.microbatches].into_iter().fold(each, u64::saturating_mul)
}

/// The timeline of planner's own lists.
///
/// # Errors
/// When the step has more than `MAX_ACTIONS` actions, or `costs` don't fit the pipeline.
pub fn simulate(pipeline: &Pipeline, costs: &StageCosts) -> Result<Timeline, SimulationError> {
    let count = action_count(pipeline);
    if count > MAX_ACTIONS {
        return Err(SimulationError::TooLong { actions: count });
    }
    let lists: Vec<Vec<Action>> = (0..pipeline.stages).map(|stage| actions(pipeline, stage)).collect();
    simulate_lists(pipeline, &lists, costs)
}

/// The timeline of given lists, one for each stage.
///
/// # Errors
/// When lists or costs don't fit the pipeline, or a list waits for what never comes.
pub(crate) fn simulate_lists(
    pipeline: &Pipeline,
    lists: &[Vec<Action>],
    costs: &StageCosts,
) -> Result<Timeline, SimulationError> {
    let count: u64 = lists.iter().map(|list| list.len() as u64).sum();
    // Bounds the tables too: each pair of virtual stage and micro batch has at least its forward in a sound list.
    if action_count(pipeline).max(count) > MAX_ACTIONS {
        return Err(SimulationError::TooLong { actions: action_count(pipeline).max(count) });
    }
    costs.check(pipeline)?;
    error::check_lists(pipeline, lists)?;
    let mut run = Run::new(pipeline, lists, costs);
    run.all();
    run.timeline(pipeline, costs)
}

/// What one chunk of one stage needs to know in the inner loop.
#[derive(Clone, Copy)]
struct Place {
    virtual_stage: usize,
    /// Stages that its activations and its gradients go to.
    peers: [Option<usize>; 2],
    seconds: [f64; 4],
}

/// A stage that is being run.
struct Running<'a> {
    list: &'a [Action],
    done: StageTimeline,
    clock: f64,
    queued: bool,
}

struct Run<'a> {
    virtual_stages: usize,
    chunks: usize,
    places: Vec<Place>,
    stages: Vec<Running<'a>>,
    /// When the next virtual stage has what a virtual stage made of a micro batch; infinite until it is made.
    activations: Vec<f64>,
    /// When the virtual stage before has its gradient.
    gradients: Vec<f64>,
    transfer: f64,
    /// Of a transfer, what keeps the sender.
    blocking: f64,
    ready: Vec<usize>,
}

impl<'a> Run<'a> {
    fn new(pipeline: &Pipeline, lists: &'a [Vec<Action>], costs: &StageCosts) -> Run<'a> {
        let mut places = Vec::with_capacity(costs.chunks.len());
        for stage in 0..pipeline.stages {
            for chunk in 0..pipeline.chunks {
                let peer = |after| {
                    let (peer, _) = pipeline.neighbour(stage, chunk, after)?;
                    (peer != stage).then_some(peer as usize)
                };
                places.push(Place {
                    virtual_stage: pipeline.virtual_stage(stage, chunk) as usize,
                    peers: [peer(true), peer(false)],
                    seconds: costs.chunks[places.len()].by_kind(),
                });
            }
        }
        let pairs = (pipeline.virtual_stages() * pipeline.microbatches) as usize;
        let stages = lists.iter().map(|list| Running {
            list,
            done: StageTimeline { spans: Vec::with_capacity(list.len()), ..StageTimeline::default() },
            clock: 0.0,
            queued: true,
        });
        Run {
            virtual_stages: pipeline.virtual_stages() as usize,
            chunks: pipeline.chunks as usize,
            places,
            stages: stages.collect(),
            activations: vec![f64::INFINITY; pairs],
            gradients: vec![f64::INFINITY; pairs],
            transfer: costs.transfer,
            blocking: costs.exposed * costs.transfer,
            // The first stage is on top: nothing starts before it.
            ready: (0..lists.len()).rev().collect(),
        }
    }

    /// When what an action needs is there; infinite when it is not made yet.
    fn needed(&self, action: &Action, virtual_stage: usize) -> f64 {
        let at = action.microbatch as usize * self.virtual_stages + virtual_stage;
        // What the stage made itself was made by an earlier action of its list, so it is there as soon as it exists.
        let own = |made: f64| if made.is_finite() { 0.0 } else { f64::INFINITY };
        match action.kind {
            ActionKind::Forward if virtual_stage == 0 => 0.0,
            ActionKind::Forward => self.activations[at - 1],
            ActionKind::Backward | ActionKind::BackwardInput => {
                let own = own(self.activations[at]);
                if virtual_stage + 1 == self.virtual_stages { own } else { own.max(self.gradients[at + 1]) }
            }
            ActionKind::BackwardWeight => own(self.gradients[at]),
        }
    }

    /// Runs every stage until all are done or wait for ever.
    fn all(&mut self) {
        while let Some(stage) = self.ready.pop() {
            self.stages[stage].queued = false;
            self.on(stage);
        }
    }

    /// Runs a stage until it must wait.
    fn on(&mut self, stage: usize) {
        let list = self.stages[stage].list;
        for &action in &list[self.stages[stage].done.spans.len()..] {
            let place = self.places[stage * self.chunks + action.chunk as usize];
            let needed = self.needed(&action, place.virtual_stage);
            if needed == f64::INFINITY {
                return;
            }
            let seconds = place.seconds[action.kind as usize];
            let at = action.microbatch as usize * self.virtual_stages + place.virtual_stage;
            let made = match action.kind {
                ActionKind::Forward => Some((&mut self.activations, place.peers[0])),
                ActionKind::Backward | ActionKind::BackwardInput => {
                    Some((&mut self.gradients, place.peers[1]))
                }
                ActionKind::BackwardWeight => None,
            };
            let running = &mut self.stages[stage];
            let start = running.clock.max(needed);
            let end = start + seconds;
            let mut free = end;
            let mut woken = None;
            if let Some((arrivals, peer)) = made {
                arrivals[at] = end;
                if peer.is_some() {
                    arrivals[at] = end + self.transfer;
                    free = end + self.blocking;
                    running.done.sending += self.blocking;
                    woken = peer;
                }
            }
            running.clock = free;
            running.done.computing += seconds;
            running.done.spans.push(Span { action, start, end, free });
            if let Some(peer) = woken
                && !std::mem::replace(&mut self.stages[peer].queued, true)
            {
                self.ready.push(peer);
            }
        }
    }

    fn timeline(self, pipeline: &Pipeline, costs: &StageCosts) -> Result<Timeline, SimulationError> {
        for (stage, running) in self.stages.iter().enumerate() {
            let position = running.done.spans.len();
            if let Some(&action) = running.list.get(position) {
                return Err(SimulationError::Deadlock {
                    stage: stage as u64,
                    position: position as u64,
                    action,
                });
            }
        }
        let stages: Vec<StageTimeline> = self.stages.into_iter().map(|running| running.done).collect();
        let last = |stage: &StageTimeline| stage.spans.last().map_or(0.0, |span| span.free);
        let seconds = stages.iter().map(last).fold(0.0, f64::max);
        Ok(Timeline { pipeline: *pipeline, stages, seconds, transfer: costs.transfer })
    }
}
