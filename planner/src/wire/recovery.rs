//! A run that goes on after ranks have died: what is asked for, and what becomes of it.

use serde::{Deserialize, Serialize};

/// What a run does when ranks of it die.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Goes on with fewer tensor-parallel slots in the replicas that lost some.
    Ntp,
    /// Goes on with fewer replicas.
    Drop,
    /// Goes on with spare GPUs in the places of those that are lost.
    Spare,
    /// Ends.
    #[default]
    Stop,
}

impl OnFailure {
    /// All of them.
    pub const ALL: [OnFailure; 4] = [OnFailure::Ntp, OnFailure::Drop, OnFailure::Spare, OnFailure::Stop];

    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            OnFailure::Ntp => "ntp",
            OnFailure::Drop => "drop",
            OnFailure::Spare => "spare",
            OnFailure::Stop => "stop",
        }
    }
}

/// A launcher goes on after ranks have died, or with all of them again: what it starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recovering {
    /// The attempt that it starts.
    pub attempt: u64,
    /// How the survivors go on: spares step in first, whatever is asked for besides.
    pub policy: OnFailure,
    /// Ranks of the attempt before that are lost, ascending; none where the whole plan is returned to.
    pub dead: Vec<u64>,
    /// How they died, in a sentence.
    pub reason: String,
    /// What goes on how, in a sentence.
    pub change: String,
    /// Ranks that are started.
    pub world_size: u64,
    /// Replicas.
    pub dp: u64,
    /// Sequences of a step.
    pub global_batch: u64,
    /// Those of the run's own plan, where they are others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<u64>,
    /// Steps of the newest checkpoint; none where the run begins anew, or from another run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<u64>,
    /// Seconds of a step as they are predicted for what goes on; none where nothing is predicted for the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_step_seconds: Option<f64>,
    /// When the launcher saw the first of the ranks' ends that it goes on after, in milliseconds since 1970.
    pub failed_unix_ms: u64,
}

/// A recovery has done its first step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recovered {
    /// The attempt.
    pub attempt: u64,
    /// The step.
    pub step: u64,
    /// Seconds from the first of the ranks' ends to the start of the survivors.
    pub restart_seconds: f64,
    /// Seconds from the first of the ranks' ends to the end of this step.
    pub seconds: f64,
}
