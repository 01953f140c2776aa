//! How a run stands by what its launcher and ranks recorded, where a whole folder of a run is looked at.

use planner::units::capital;
use planner::wire::RunState;
use serde::{Deserialize, Serialize};

use super::answer::{Part, Sure, Verdict};
use super::origin::Origin;

/// How a run stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Whether it runs, and how it ended.
    pub state: RunState,
    /// Why, in a sentence; may be empty.
    pub reason: String,
    /// Whether a command was watched, of which only its exit code is known: it may be 0 though training failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_watched: bool,
}

impl Standing {
    /// Whether training came to its end, or ended because it was asked to.
    pub(super) fn ended_well(&self) -> bool {
        matches!(self.state, RunState::Completed | RunState::Stopped) && !self.is_watched
    }

    /// What ended the run where nothing went wrong; none where it did, where it runs, and where it came to its end.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        (self.state == RunState::Stopped).then(|| Verdict {
            cause: "stopped".to_owned(),
            family: "process".to_owned(),
            part: Part::Cause,
            title: "the run was stopped on request".to_owned(),
            meaning: format!(
                "{}: by SIGTERM, SIGINT (Ctrl-C) or SIGHUP (a terminal that closed), or by a word on the page or in the folder. Nothing is broken",
                self.said()
            ),
            sure: Sure::Certain,
            why: "the run's folder has it recorded".to_owned(),
            culprit: Origin::default(),
            ranks: Vec::new(),
            rank_count: 0,
            count: 1,
            time: None,
            evidence: Vec::new(),
            out_of_memory: None,
            against_plan: None,
            next: vec!["to go on from its last checkpoint: shardplan run --resume FOLDER".to_owned()],
        })
    }

    /// What else is to be said of it where nothing was found.
    pub(super) fn note(&self) -> Option<String> {
        match self.state {
            RunState::Completed if self.is_watched => {
                Some(format!("the command that was watched ended well: {}", self.said()))
            }
            RunState::Completed => Some(format!("the run is complete: {}", self.said())),
            RunState::Running if self.reason.is_empty() => {
                Some("the run has not ended: it is still running".to_owned())
            }
            RunState::Running => Some(format!("the run has not ended: {}", self.said())),
            RunState::Stopped => None,
            RunState::Failed | RunState::Lost => Some(format!(
                "the run's folder says: {}; nothing in its logs says why: give the output of the batch job too, and the node's dmesg where a \
                 node is suspected",
                self.said()
            )),
        }
    }

    fn said(&self) -> String {
        capital(&self.reason)
    }
}
