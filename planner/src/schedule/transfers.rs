//! Who sends what to whom, derived from the lists.
//!
//! The rule: an action whose input another stage makes receives it just before; an action whose result another stage
//! needs sends it just after. A forward takes the activation of the virtual stage before and makes that of its own; a
//! backward (whole, or of the input) takes the gradient of what its virtual stage made and makes that of what it took.
//! Weight gradients travel nowhere. Neighbours on the same stage hand over without a transfer.
//!
//! Sends don't wait for their receiver: the transport keeps what was sent until it is taken. Then no order of stages can
//! deadlock, as no action waits for a later one. Between two stages there are two channels in each direction, one for
//! activations and one for gradients, and each is first in, first out: the lists take from a channel in the order in
//! which they put into it. A transport needs nothing more: neither tags nor a search among what has arrived.

use serde::{Deserialize, Serialize};

use super::lists::actions;
use super::{Action, ActionKind, Pipeline};

/// What travels between stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// What a virtual stage made in forward, for the next one.
    Activation,
    /// The gradient of what a virtual stage took, for the one before.
    Gradient,
}

/// One transfer, as one of its two ends sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transfer {
    /// What travels.
    pub payload: Payload,
    /// The micro batch.
    pub microbatch: u64,
    /// The chunk of this stage that needs or made it.
    pub chunk: u64,
    /// The stage at the other end.
    pub peer: u64,
}

/// What a stage does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Takes what another stage sent.
    Receive(Transfer),
    /// Computes.
    Compute(Action),
    /// Sends to another stage.
    Send(Transfer),
}

/// What `stage` does in a step, in order: its actions with the transfers that belong to them.
pub fn steps(pipeline: &Pipeline, stage: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    for action in actions(pipeline, stage) {
        steps.extend(pipeline.needs(stage, &action).map(Step::Receive));
        steps.push(Step::Compute(action));
        steps.extend(pipeline.makes(stage, &action).map(Step::Send));
    }
    steps
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
