//! A run that goes on after ranks have died: what is asked for, and what becomes of it.

use serde::{Deserialize, Serialize};

use crate::json::by_field::by_field;

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

/// What a run does when ranks of it die, as it is asked for: by the command, by a page of its hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GoingOn {
    /// How it goes on.
    pub on_failure: OnFailure,
    /// GPUs beside the plan's that stand by; on a CPU, processes that are not started.
    pub spares: u64,
    /// How often it goes on without a step that was never done before.
    pub max_recoveries: u64,
}

impl Default for GoingOn {
    fn default() -> Self {
        GoingOn::STOP
    }
}

impl GoingOn {
    /// To end.
    pub const STOP: GoingOn = GoingOn { on_failure: OnFailure::Stop, spares: 0, max_recoveries: 3 };
    /// Spares that may stand by.
    pub const MOST_SPARES: u64 = 64;
    /// The most that may be asked for, in a row without a new step.
    pub const MOST_RECOVERIES: u64 = 1000;

    /// Whether a failure ends the run.
    pub fn stops(&self) -> bool {
        self.on_failure == OnFailure::Stop
    }

    /// Why a run can't be asked for this, if it can't, in a sentence. `saves` says whether its plan saves checkpoints, `stand_by` how many
    /// GPUs there are beside its own: the spares, or what an allocation has more; `spares_by` how people say that.
    pub fn refusal(&self, saves: bool, stand_by: u64, spares_by: SparesBy) -> Option<String> {
        let word = self.on_failure.name();
        let GoingOn { spares, max_recoveries, .. } = *self;
        if spares > Self::MOST_SPARES {
            return Some(format!(
                "spares: {spares} are more than the {} that may stand by",
                Self::MOST_SPARES
            ));
        }
        if !(1..=Self::MOST_RECOVERIES).contains(&max_recoveries) {
            return Some(format!(
                "max-recoveries: {max_recoveries} is not from 1 to {}",
                Self::MOST_RECOVERIES
            ));
        }
        match (self.on_failure, spares, stand_by) {
            (OnFailure::Stop, 0, _) => None,
            (OnFailure::Stop, ..) => Some(format!(
                "spares: {spares} stand by for a run that goes on after a failure, and this one ends; set on-failure to spare, drop or \
                 ntp, or spares to 0"
            )),
            (OnFailure::Spare, _, 0) => {
                Some(format!("on-failure: spare needs spares; {}", spares_by.advice()))
            }
            _ if !saves => Some(format!(
                "on-failure: {word} goes on from checkpoints, and this plan saves none; say how often it shall, as \
                 run.checkpoint.every_steps 100"
            )),
            _ => None,
        }
    }
}

/// How people say that GPUs stand by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparesBy {
    /// GPUs of the machine that a run is on, by an option of `shardplan run` or on the page.
    Gpus,
    /// Nodes that a script asks Slurm for, by an option of `shardplan script` or on the page.
    Nodes,
    /// Nodes that an allocation has beside the plan's.
    Allocation,
}

impl SparesBy {
    fn advice(self) -> &'static str {
        match self {
            SparesBy::Gpus => {
                "say how many GPUs beside the plan's stand by: --spares 1, or Spares on the page"
            }
            SparesBy::Nodes => {
                "say how many nodes beside the plan's stand by: --spare-nodes 1, or Nodes that stand by on the page"
            }
            SparesBy::Allocation => {
                "this allocation has no node beside the plan's: ask Slurm for one more, or for a plan of fewer nodes"
            }
        }
    }
}

/// A launcher goes on after ranks have died, or with all of them again: what it starts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<u64>,
    /// Steps of the newest checkpoint; none where the run begins anew, or from another run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_step: Option<u64>,
    /// Seconds of a step as they are predicted for what goes on; none where nothing is predicted for the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_step_seconds: Option<f64>,
    /// Those that are predicted for the run's own plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_whole_step_seconds: Option<f64>,
    /// When the launcher saw the first of the ranks' ends that it goes on after, in milliseconds since 1970.
    pub failed_unix_ms: u64,
}

by_field! { open Recovering {
    attempt, policy, dead, reason, change, world_size, dp, global_batch, failed_unix_ms; instead_of,
    from_step, predicted_step_seconds, predicted_whole_step_seconds
} }

/// A recovery has done its first step.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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

by_field! { open Recovered { attempt, step, restart_seconds, seconds; } }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_asked_for_is_said() {
        let asked = |on_failure, spares| GoingOn { on_failure, spares, max_recoveries: 3 };
        let said = |asked: GoingOn, saves| asked.refusal(saves, asked.spares, SparesBy::Gpus);
        for (going_on, saves) in [
            (GoingOn::STOP, false),
            (asked(OnFailure::Ntp, 0), true),
            (asked(OnFailure::Drop, 64), true),
            (asked(OnFailure::Spare, 1), true),
        ] {
            assert_eq!(said(going_on, saves), None, "{going_on:?}");
        }
        // An allocation with more nodes than the plan's has spares that nobody counted.
        assert_eq!(asked(OnFailure::Spare, 0).refusal(true, 4, SparesBy::Allocation), None);
        for (going_on, saves, part) in [
            (asked(OnFailure::Stop, 1), true, "this one ends"),
            (asked(OnFailure::Spare, 0), true, "spare needs spares"),
            (asked(OnFailure::Drop, 0), false, "run.checkpoint.every_steps"),
            (asked(OnFailure::Ntp, 65), true, "more than the 64"),
            (GoingOn { max_recoveries: 0, ..asked(OnFailure::Ntp, 0) }, true, "max-recoveries: 0"),
            (GoingOn { max_recoveries: 1001, ..asked(OnFailure::Ntp, 0) }, true, "from 1 to 1000"),
        ] {
            let why = said(going_on, saves).unwrap_or_default();
            assert!(why.contains(part), "{going_on:?}: {why}");
        }
    }

    #[test]
    fn a_page_that_says_nothing_of_it_starts_a_run_that_ends() {
        assert_eq!(serde_json::from_str::<GoingOn>("{}").unwrap(), GoingOn::STOP);
        let ntp: GoingOn = serde_json::from_str(r#"{"on_failure": "ntp"}"#).unwrap();
        assert_eq!((ntp.on_failure, ntp.spares, ntp.max_recoveries), (OnFailure::Ntp, 0, 3));
        assert!(serde_json::from_str::<GoingOn>(r#"{"on_failure": "shrug"}"#).is_err());
        assert!(serde_json::from_str::<GoingOn>(r#"{"spares": -1}"#).is_err());
    }
}
