//! What a stage of a pipeline does, as it is planned and recorded.

use serde::{Deserialize, Serialize};

/// What an action computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// Forward.
    Forward,
    /// Gradients of the input and of the weights.
    Backward,
    /// Gradient of the input alone; a `BackwardWeight` follows.
    BackwardInput,
    /// Gradients of the weights, put off from `BackwardInput`.
    BackwardWeight,
}

/// One computation of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Action {
    /// What is computed.
    pub kind: ActionKind,
    /// The micro batch, from 0.
    pub microbatch: u64,
    /// The chunk of the stage, from 0.
    pub chunk: u64,
}

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
pub enum StageStep {
    /// Is ready to take what another stage sends, from here on.
    Expect(Transfer),
    /// Waits for what it expects.
    Receive(Transfer),
    /// Computes.
    Compute(Action),
    /// Sends to another stage.
    Send(Transfer),
}
