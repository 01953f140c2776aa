//! What the facts of a machine mean for training on it: one line a matter, with what to do.

use std::path::Path;

use planner::finding::Severity;
use serde::Serialize;

use super::facts::Facts;
use super::storage::{Reach, mount_of};

mod gpus;
mod network;
mod programs;
mod storage;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is about. Names stay; one matter may have several lines.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// How much it matters: an error stands in the way of running here.
    pub severity: Severity,
    /// What was found.
    pub detail: String,
    /// What to do; none where nothing is to be done.
    pub fix: Option<String>,
}

/// How a matter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// There and right.
    Ok,
    /// Not there, and not needed to run on this machine.
    Absent,
    /// There, and likely not as it should be.
    Doubtful,
    /// Needed, and missing or wrong.
    Missing,
}

/// All checks, always in the same order.
pub fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::new();
    programs::python(facts, &mut checks);
    programs::torch(facts, &mut checks);
    programs::rank(facts, &mut checks);
    gpus::gpus(facts, &mut checks);
    gpus::driver(facts, &mut checks);
    network::nccl(facts, &mut checks);
    network::nvlink(facts, &mut checks);
    network::fabric(facts, &mut checks);
    programs::slurm(facts, &mut checks);
    programs::limits(facts, &mut checks);
    storage::runs(facts, &mut checks);
    storage::caches(facts, &mut checks);
    checks
}

fn ok(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, state: State::Ok, severity: Severity::Info, detail: detail.into(), fix: None }
}

fn absent(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
    let fix = Some(fix.into()).filter(|fix| !fix.is_empty());
    Check { name, state: State::Absent, severity: Severity::Info, detail: detail.into(), fix }
}

fn doubtful(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
    let (detail, fix) = (detail.into(), Some(fix.into()));
    Check { name, state: State::Doubtful, severity: Severity::Warning, detail, fix }
}

/// A sentence whose way out stands after its last `; `.
fn missing(name: &'static str, sentence: &str) -> Check {
    let (detail, fix) = match sentence.rsplit_once("; ") {
        Some((detail, fix)) => (detail.to_owned(), Some(fix.to_owned())),
        None => (sentence.to_owned(), None),
    };
    Check { name, state: State::Missing, severity: Severity::Error, detail, fix }
}

impl Facts {
    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether jobs run on other nodes than this one.
    fn has_slurm(&self) -> bool {
        self.slurm.contains(&"sbatch") || self.variables.contains_key("SLURM_JOB_ID")
    }

    fn has_gpus(&self) -> bool {
        matches!(&self.gpus, Some(Ok(machine)) if !machine.gpus.is_empty())
    }

    fn reach(&self, path: &Path) -> Reach {
        mount_of(&self.mounts, path).map_or(Reach::Unknown, super::storage::Mount::reach)
    }
}

#[cfg(test)]
mod tests;
