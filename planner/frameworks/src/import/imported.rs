//! Where a job ran, and what became of what it was started with.

use planner::finding::Finding;
use planner::wire::PlanFile;

/// Where a job ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Job<'a> {
    /// Id of its GPU.
    pub gpu: &'a str,
    /// Nodes.
    pub nodes: u64,
    /// GPUs of a node.
    pub gpus_per_node: u64,
    /// Environment variables.
    pub environment: &'a [(String, String)],
}

impl Job<'_> {
    /// The value of an environment variable.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What became of a command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The plan; none when something in the way of it is among the findings.
    pub file: Option<PlanFile>,
    /// What could not be read, or is not modelled.
    pub findings: Vec<Finding>,
    /// Options that nothing here knows, in order.
    pub unknown: Vec<String>,
}
