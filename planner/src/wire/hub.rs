//! What page and hub say to each other over the websocket: JSON text frames, one message each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{GoingOn, PlanFile, Record, RunInfo};
use crate::json::by_field::by_field;
use crate::json::tagged::tagged;

/// The largest frame that the hub reads from a page, in bytes. A plan with a pasted config.json is some 10 KB.
pub const MAX_CLIENT_FRAME_BYTES: usize = 1024 * 1024;

tagged! {
    tag = "type", serde(rename_all = "snake_case");

    /// From the page to the hub. The first message must be `Hello`.
    #[derive(Debug, Clone, PartialEq)]
    pub enum ToHub {
        /// Opens the session.
        Hello {
            /// The token from the URL's fragment.
            token: String,
            /// `wire::VERSION` of the page.
            version: u32,
        },
        /// Asks for the list of runs, now and whenever it changes.
        ListRuns,
        /// Asks for a run's records from the start, then live.
        Watch {
            /// The run.
            run: String,
        },
        /// Ends a `Watch`.
        Unwatch {
            /// The run.
            run: String,
        },
        /// Starts a plan on the hub's machine.
        Start {
            /// The plan.
            plan: Box<PlanFile>,
            /// What becomes of it when ranks die.
            #[serde(default)]
            going_on: GoingOn,
        },
        /// Goes on with a run that has ended, from its newest checkpoint, on the hub's machine. When ranks die, it does what it did before.
        Resume {
            /// The run.
            run: String,
        },
        /// Stops a run.
        Stop {
            /// The run.
            run: String,
        },
        /// Takes a GPU of a run that this hub's machine runs for lost: ends its rank's process at once.
        MarkDead {
            /// The run.
            run: String,
            /// The rank, as the latest start numbers them.
            rank: u64,
        },
        /// Has a run that lost GPUs return to its whole plan, as they are back.
        ReturnToWhole {
            /// The run.
            run: String,
        },
    }
}

tagged! {
    tag = "type", serde(rename_all = "snake_case");

    /// From the hub to the page.
    #[derive(Debug, Clone, PartialEq)]
    pub enum ToPage {
        /// The session is open.
        Welcome {
            /// `wire::VERSION` of the hub.
            version: u32,
            /// The hub's host name.
            host: String,
            /// What the hub can run: absent parts as sentences.
            problems: Vec<String>,
            /// What the hub's machine has for ranks; one that does not say has no GPU.
            #[serde(default)]
            machine: MachineFacts,
        },
        /// What the hub can run has changed, as it does while a worker is still being built.
        Problems {
            /// Absent parts as sentences; none when plans can be started.
            problems: Vec<String>,
        },
        /// All runs, newest first.
        Runs {
            /// The runs.
            runs: Vec<RunSummary>,
        },
        /// A run was started on this page's request.
        Started {
            /// Its id.
            run: String,
        },
        /// Records of a watched run, in the order in which they were read.
        Records {
            /// The run.
            run: String,
            /// The records, each with its log's name.
            records: Vec<LogRecord>,
            /// True once everything that was on disk when the watch began has been sent.
            caught_up: bool,
            /// Step records of ranks other than 0 that were left out of this frame because the page reads slowly. The
            /// run folder has them all.
            merged: u64,
            /// Lines of logs that were passed over because they are no records: cut short by a kill or a full disk, or
            /// spoiled.
            #[serde(default)]
            unreadable: u64,
        },
        /// A request could not be met.
        Error {
            /// What failed, the value, and what to do.
            message: String,
        },
    }
}

/// What a machine has for ranks, as a hub tells its pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MachineFacts {
    /// GPUs that a CUDA program sees.
    pub gpus: u64,
    /// What the driver calls the first of them; empty where it does not say.
    pub gpu_name: String,
    /// How many there are of each kind, by what the driver calls them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_kinds: BTreeMap<String, u64>,
    /// Bytes of the smallest of them, where that is known.
    pub gpu_memory_bytes: Option<u64>,
    /// Bytes of the host's memory, where that is known.
    pub memory_bytes: Option<u64>,
}

by_field! { open MachineFacts { gpus, gpu_name, gpu_kinds, gpu_memory_bytes, memory_bytes } }

/// A record and the log that it stands in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogRecord {
    /// File name of the log, such as `rank-00000.log`.
    pub log: String,
    /// The record.
    pub record: Record,
}

/// A run in a list.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunSummary {
    /// Who, when, what.
    pub info: RunInfo,
    /// The plan that it runs.
    pub plan: PlanFile,
    /// How it stands.
    pub state: RunState,
    /// How it ended, in a sentence; while it runs empty, or what is wrong with it.
    pub reason: String,
    /// Steps that its newest checkpoint has, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<u64>,
}

by_field! { open RunSummary { info, plan, state, reason; checkpoint } }

/// How a run stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Ranks are being started or run.
    #[default]
    Running,
    /// Every step was done.
    Completed,
    /// Somebody stopped it.
    Stopped,
    /// It failed.
    Failed,
    /// Its launcher is gone without a word: killed, or the machine went down.
    Lost,
}
