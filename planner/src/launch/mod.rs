//! Launch scripts: what a person pastes on a cluster to run a plan. Submitting is the user's; nothing here runs.
//!
//! A script is written in two languages. `#SBATCH` lines are read by Slurm, which knows no quoting, so their values
//! come from an allow-list; everything after them is shell, where every value is quoted. No value that looks like a
//! secret gets in: a script tests that a variable exists.

mod bridge;
mod header;
mod site;
pub(crate) mod text;
mod worker;
mod writer;

pub use site::{GpuRequest, Site};
pub use text::is_variable;

use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::plan::Plan;
use writer::Writer;

/// What the script runs on every GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// `shardplan-rank`, Shardplan's own executor.
    #[default]
    Worker,
    /// A recipe of Megatron Bridge.
    Bridge,
}

/// How processes are spawned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By Slurm: one task per GPU.
    #[default]
    Srun,
}

/// What kind of script is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScriptOptions {
    /// How processes are spawned.
    pub mode: Mode,
    /// What they run.
    pub body: Body,
    /// A missing site value is an error instead of a placeholder to fill in.
    pub strict: bool,
}

/// Writes the batch script that runs `plan` on a cluster described by `site`. Missing values stand as
/// `<PLACEHOLDERS>` and are findings; a value that could break the script is an error, and a placeholder stands in
/// its place.
pub fn script(plan: &Plan, site: &Site, options: ScriptOptions) -> (String, Vec<Finding>) {
    let mut writer = Writer::new(plan, site, options);
    let Mode::Srun = options.mode;
    let body = match options.body {
        Body::Worker => worker::body(&mut writer),
        Body::Bridge => bridge::body(&mut writer),
    };
    let text = writer.header() + &body;
    let mut findings = writer.into_findings();
    findings.sort_by_key(|finding| finding.severity);
    findings.dedup();
    (text, findings)
}

#[cfg(test)]
mod tests;
