//! Cancelling the Slurm job that a run's folder names, if it is that job.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use planner::wire::RunInfo;

use crate::probe;
use run_folder::is_job_id;

/// How long Slurm may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Name of the cluster that this machine belongs to; none where Slurm does not say.
pub fn cluster() -> Option<String> {
    static NAME: OnceLock<String> = OnceLock::new();
    if let Some(name) = NAME.get() {
        return Some(name.clone());
    }
    let output = ask("scontrol", &["show", "config"]).ok()?;
    let name = cluster_of(&String::from_utf8_lossy(&output.stdout))?;
    Some(NAME.get_or_init(|| name).clone())
}

fn cluster_of(config: &str) -> Option<String> {
    let (_, name) = config
        .lines()
        .filter_map(|line| line.split_once('='))
        .find(|(key, _)| key.trim() == "ClusterName")?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Whether the run's job is one of the cluster that can be asked here. A run whose cluster is not recorded is taken for
/// one, to be looked at only.
pub fn is_of_this_cluster(info: &RunInfo) -> bool {
    named_cluster(info).is_none_or(|named| cluster().as_deref() == Some(named))
}

/// The cluster that the run's folder names.
fn named_cluster(info: &RunInfo) -> Option<&str> {
    info.slurm_cluster.as_deref().filter(|name| !name.is_empty())
}

/// Cancels the job that a run names. One that has ended is no error.
///
/// # Errors
/// A sentence: the job is another cluster's or another user's, or Slurm can't be asked.
pub fn cancel(info: &RunInfo, job: &str) -> Result<(), String> {
    if !is_job_id(job) {
        return Err(format!("The run names {job:?} as its Slurm job, which is no job's number"));
    }
    if probe::program("scancel").is_none() {
        return Err(format!("There is no scancel on this machine; run `scancel {job}` on the cluster"));
    }
    let here = cluster().ok_or("Slurm does not say which cluster this is; see `scontrol show config`")?;
    match named_cluster(info) {
        Some(named) if named == here => {}
        Some(named) => {
            return Err(format!(
                "Job {job} is of the cluster {named:?}, and this is {here:?}, where it would be another's; run \
                 `scancel {job}` there"
            ));
        }
        None => {
            return Err(format!(
                "The run's folder does not say of which cluster its job {job} is, so it is not cancelled from here; \
                 see `squeue --jobs={job}`, and run `scancel {job}`"
            ));
        }
    }
    let jobs = format!("--jobs={job}");
    let found = ask("squeue", &["--noheader", "--format=%U", &jobs])?;
    let said = text(&found.stderr);
    if !found.status.success() && !said.contains("Invalid job id") {
        return Err(format!("squeue {jobs}: {said}"));
    }
    let us = nix::unistd::geteuid().as_raw().to_string();
    let owners = text(&found.stdout);
    // No line: the job has ended.
    if let Some(owner) = owners.lines().map(str::trim).find(|owner| *owner != us) {
        return Err(format!(
            "Job {job} belongs to user {owner}, not to you (user {us}), so it is not cancelled"
        ));
    }
    if owners.is_empty() {
        return Ok(());
    }
    let cancelled = ask("scancel", &[job])?;
    let said = text(&cancelled.stderr);
    // A job that ended at the asking is what was wanted.
    if cancelled.status.success() || said.contains("Invalid job id") || said.is_empty() {
        Ok(())
    } else {
        Err(format!("scancel {job}: {said}"))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

fn ask(name: &str, arguments: &[&str]) -> Result<Output, String> {
    let program = probe::program(name).ok_or_else(|| format!("There is no {name} on this machine"))?;
    let configure = |command: &mut Command| {
        command.args(arguments);
    };
    probe::ask(Path::new(&program), configure, PATIENCE)
        .map_err(|error| format!("{name} {}: {error}", arguments.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clusters_name() {
        let config = "Configuration data as of 2026-11-22T10:00:00\nClusterName             = left \nSlurmctldPort = 6817\n";
        assert_eq!(cluster_of(config).as_deref(), Some("left"));
        assert_eq!(cluster_of("ClusterName = \n"), None);
        assert_eq!(cluster_of(""), None);
    }
}
