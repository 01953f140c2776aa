//! `run.json`: what is known of a run from its start.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::GoingOn;
use super::record::first_attempt;
use crate::json::by_field::by_field;

/// `run.json`: who started a run, when, with what.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunInfo {
    /// Version of the run folder's format; 1.
    pub version: u32,
    /// The run's id, which is its folder's name.
    pub id: String,
    /// The plan's name.
    pub name: String,
    /// User that started it.
    pub user: String,
    /// Host that it was started on.
    pub host: String,
    /// Milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The command line.
    pub command: Vec<String>,
    /// Versions of the parts: `shardplan`, `shardplan-rank`, `torch`.
    pub versions: BTreeMap<String, String>,
    /// The process that started the ranks here, to be signalled for a stop; none under Slurm.
    pub launcher: Option<ProcessId>,
    /// The Slurm job, to be cancelled for a stop.
    pub slurm_job: Option<String>,
    /// The cluster that counts this job, as Slurm calls it: numbers of jobs are a cluster's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_cluster: Option<String>,
    /// Ranks of the run.
    pub world_size: u64,
    /// Times that it was started: more than 1 when Slurm has requeued its job.
    pub attempts: u64,
    /// What it does when ranks of it die.
    #[serde(skip_serializing_if = "GoingOn::stops")]
    pub going_on: GoingOn,
    /// Set where the run is another framework's, watched from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<RunSource>,
}

by_field! { open RunInfo { version, id, name, user, host, started_unix_ms, command, versions, world_size; launcher, slurm_job, slurm_cluster, attempts, going_on, source } }

impl Default for RunInfo {
    fn default() -> RunInfo {
        RunInfo {
            version: 0,
            id: String::new(),
            name: String::new(),
            user: String::new(),
            host: String::new(),
            started_unix_ms: 0,
            command: Vec::new(),
            versions: BTreeMap::new(),
            launcher: None,
            slurm_job: None,
            slurm_cluster: None,
            world_size: 0,
            // Whoever says nothing of it started once.
            attempts: first_attempt(),
            going_on: GoingOn::default(),
            source: None,
        }
    }
}

impl RunInfo {
    /// What a hub says to a launcher that it starts.
    pub const DETACHED: &str = "--detached";

    /// Whether a hub started it, by a launcher of its own machine.
    pub fn was_started_by_a_hub(&self) -> bool {
        self.launcher.is_some() && self.command.iter().any(|word| word == Self::DETACHED)
    }
}

/// A run that Shardplan did not execute but watched: what it is, and where its plan is from.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunSource {
    /// The framework by its name in [`super::Iteration::framework`], as the command line tells; `unknown` until a line does.
    pub framework: String,
    /// Where the plan is from.
    pub plan: PlanOrigin,
    /// Processes that write a log into this folder, one for each command that is watched.
    pub writers: u64,
    /// What was read for the plan and could not be mapped, as sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

by_field! { open RunSource { framework, plan, writers; remarks } }

/// Where the plan of a watched run is from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanOrigin {
    /// A plan file that was named.
    File,
    /// The command line, or the configuration that it names.
    Recovered,
    /// There is none.
    #[default]
    None,
}

/// A process, told apart from a later one with the same number by its start time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ProcessId {
    /// Process number; also its process group.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
    /// Boot id of the machine (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
}

by_field! { open ProcessId { pid, start_ticks, boot_id; } }
