//! Who sends what to whom, derived from the lists.
//!
//! The rule: an action whose input another stage makes receives it just before; an action whose result another stage
//! needs sends it just after. A forward takes the activation of the virtual stage before and makes that of its own; a
//! backward (whole, or of the input) takes the gradient of what its virtual stage made and makes that of what it took.
//! Weight gradients travel nowhere. Neighbours on the same stage hand over without a transfer.
//!
//! Nothing here takes for granted that a message is kept until somebody takes it: NCCL's send may wait until the other end
//! expects it. So each stage's list says where a message is expected (`StageStep::Expect`), which may be long before the action
//! that needs it: both ends of every message stand at the same place of one order of all that the pipeline does, the order
//! in which actions end when forward takes one unit of time and a backward two. A list that follows one order of
//! everything can wait at both ends and never deadlocks: whatever comes first in that order has all of its partners there.
//! It also makes every pair of stages one channel, first in, first out, without tags.

use super::lists::{actions, forwards};
use super::{Action, ActionKind, Payload, Pipeline, StageStep, Transfer};

/// What `stage` does in a step, in order: its actions with the transfers that belong to them.
pub fn steps(pipeline: &Pipeline, stage: u64) -> Vec<StageStep> {
    with_transfers(pipeline, stage, actions)
}

/// What `stage` does to evaluate, in order: forwards alone.
pub fn forward_steps(pipeline: &Pipeline, stage: u64) -> Vec<StageStep> {
    with_transfers(pipeline, stage, |pipeline, _| forwards(pipeline))
}

fn with_transfers(
    pipeline: &Pipeline,
    stage: u64,
    list: impl Fn(&Pipeline, u64) -> Vec<Action>,
) -> Vec<StageStep> {
    let timetable = Timetable::of(pipeline, list);
    let mut expected = Vec::new();
    for (action, _) in timetable.of_stage(stage) {
        if let (Some(transfer), Some(product)) =
            (pipeline.needs(stage, action), timetable.source(stage, action))
        {
            // Sent when the other stage has made it.
            expected.push(((timetable.made(&product), transfer.peer), transfer));
        }
    }
    crate::order::sort_by_key(&mut expected, |&(place, _)| place);
    let mut expected = expected.into_iter().peekable();
    let mut steps = Vec::new();
    for (action, end) in timetable.of_stage(stage) {
        while let Some((_, transfer)) = expected.next_if(|&(place, _)| place < (*end, stage)) {
            steps.push(StageStep::Expect(transfer));
        }
        steps.extend(pipeline.needs(stage, action).map(StageStep::Receive));
        steps.push(StageStep::Compute(*action));
        steps.extend(pipeline.makes(stage, action).map(StageStep::Send));
    }
    steps
}

/// What a virtual stage makes of a micro batch for another: its number there and what it is.
type Product = (Payload, u64, u64);

/// When each action of a pipeline ends, in units of a forward.
struct Timetable<'a> {
    pipeline: &'a Pipeline,
    stages: Vec<Vec<(Action, u64)>>,
    /// By `Product`; zero is not yet.
    made: Vec<u64>,
}

impl<'a> Timetable<'a> {
    /// Every action as early as its stage's list and what it needs allow.
    fn of(pipeline: &'a Pipeline, list: impl Fn(&Pipeline, u64) -> Vec<Action>) -> Timetable<'a> {
        let products = 2 * pipeline.virtual_stages() * pipeline.microbatches;
        let lists: Vec<Vec<Action>> = (0..pipeline.stages).map(|stage| list(pipeline, stage)).collect();
        let mut timetable = Timetable {
            pipeline,
            stages: lists.iter().map(|list| Vec::with_capacity(list.len())).collect(),
            made: vec![0; products as usize],
        };
        loop {
            let mut moved = false;
            for (stage, list) in lists.iter().enumerate() {
                while let Some(action) = list.get(timetable.stages[stage].len()) {
                    if !timetable.end(stage, action) {
                        break;
                    }
                    moved = true;
                }
            }
            if !moved {
                return timetable;
            }
        }
    }

    /// Ends an action; false when what it needs is not made yet.
    fn end(&mut self, stage: usize, action: &Action) -> bool {
        let Action { kind, microbatch, chunk } = *action;
        let ready = match self.source(stage as u64, action) {
            None => 0,
            Some(product) => match self.made(&product) {
                0 => return false,
                end => end,
            },
        };
        let before = self.stages[stage].last().map_or(0, |&(_, end)| end);
        let end = ready.max(before) + if kind == ActionKind::Backward { 2 } else { 1 };
        self.stages[stage].push((*action, end));
        let makes = match kind {
            ActionKind::Forward => Some(Payload::Activation),
            ActionKind::Backward | ActionKind::BackwardInput => Some(Payload::Gradient),
            ActionKind::BackwardWeight => None,
        };
        if let Some(payload) = makes {
            let place = self.place(&(payload, self.pipeline.virtual_stage(stage as u64, chunk), microbatch));
            self.made[place] = end;
        }
        true
    }

    /// What an action takes of a neighbour, on whatever stage that is; none at the ends of the model.
    fn source(&self, stage: u64, action: &Action) -> Option<Product> {
        let (payload, after) = match action.kind {
            ActionKind::Forward => (Payload::Activation, false),
            ActionKind::Backward | ActionKind::BackwardInput => (Payload::Gradient, true),
            ActionKind::BackwardWeight => return None,
        };
        let (peer, chunk) = self.pipeline.neighbour(stage, action.chunk, after)?;
        Some((payload, self.pipeline.virtual_stage(peer, chunk), action.microbatch))
    }

    fn place(&self, &(payload, virtual_stage, microbatch): &Product) -> usize {
        let row = 2 * virtual_stage + u64::from(payload == Payload::Gradient);
        (row * self.pipeline.microbatches + microbatch) as usize
    }

    fn made(&self, product: &Product) -> u64 {
        self.made[self.place(product)]
    }

    fn of_stage(&self, stage: u64) -> &[(Action, u64)] {
        self.stages.get(stage as usize).map_or(&[], Vec::as_slice)
    }
}

impl Pipeline {
    /// What `stage` must have received before an action; none when it has it itself or needs nothing.
    pub fn needs(&self, stage: u64, action: &Action) -> Option<Transfer> {
        match action.kind {
            ActionKind::Forward => self.transfer(stage, action, Payload::Activation, false),
            ActionKind::Backward | ActionKind::BackwardInput => {
                self.transfer(stage, action, Payload::Gradient, true)
            }
            ActionKind::BackwardWeight => None,
        }
    }

    /// What `stage` sends after an action; none when it needs the result itself or nobody does.
    pub fn makes(&self, stage: u64, action: &Action) -> Option<Transfer> {
        match action.kind {
            ActionKind::Forward => self.transfer(stage, action, Payload::Activation, true),
            ActionKind::Backward | ActionKind::BackwardInput => {
                self.transfer(stage, action, Payload::Gradient, false)
            }
            ActionKind::BackwardWeight => None,
        }
    }

    /// The virtual stage after (or before) chunk `chunk` of `stage`, as stage and chunk; none at the ends of the model.
    pub fn neighbour(&self, stage: u64, chunk: u64, after: bool) -> Option<(u64, u64)> {
        let here = self.virtual_stage(stage, chunk);
        let there = if after { here + 1 } else { here.checked_sub(1)? };
        (there < self.virtual_stages()).then(|| self.place(there))
    }

    fn transfer(&self, stage: u64, action: &Action, payload: Payload, after: bool) -> Option<Transfer> {
        let (peer, _) = self.neighbour(stage, action.chunk, after)?;
        let Action { microbatch, chunk, .. } = *action;
        (peer != stage).then_some(Transfer { payload, microbatch, chunk, peer })
    }
}
