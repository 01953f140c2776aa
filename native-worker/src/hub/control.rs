//! Starting a run on a page's request, and stopping one.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::Plan;
use planner::wire::{PlanFile, ProcessId};
use tokio::io::AsyncWriteExt;

use super::Hub;
use crate::probe;
use crate::run::folder::{RunFolder, new_id};
use crate::run::process::{Liveness, liveness};

/// How long a launcher may take to make its run folder: it asks Python where torch is.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a run may take to stop by itself before it is signalled. The launcher's own limits are shorter.
const STOP_GRACE: Duration = Duration::from_secs(16);

/// Starts a plan in a process that outlives the hub. Returns the run's id once its folder is there.
///
/// # Errors
/// A sentence: what is wrong with the plan, or what is missing.
pub async fn start(hub: Arc<Hub>, plan: PlanFile) -> Result<String, String> {
    let resolved = Plan::resolve(&plan);
    if resolved.plan.is_none() {
        let errors: Vec<String> = resolved
            .findings
            .iter()
            .filter(|finding| finding.severity == planner::Severity::Error)
            .map(|finding| format!("{}: {}", finding.field, finding.message))
            .collect();
        return Err(format!("The plan can't be run. {}", errors.join("; ")));
    }
    let Ok(_permit) = hub.starting.acquire().await else { return Err("The hub is about to end".to_owned()) };
    let id = new_id().map_err(|error| format!("{error:#}"))?;
    let (mut child, mut complaint) =
        launch(&hub, &id, &plan).await.map_err(|error| format!("The run can't be started: {error}"))?;
    let folder = RunFolder::at(&hub.settings.runs, &id);
    let deadline = tokio::time::Instant::now() + START_LIMIT;
    loop {
        if folder.as_ref().is_some_and(|folder| folder.info().is_some()) {
            // Somebody must ask how it ended, or it stays in the table of processes.
            tokio::spawn(async move { child.wait().await });
            return Ok(id);
        }
        if let Ok(Some(status)) = child.try_wait() {
            let said = read_from_start(&mut complaint);
            let said = said.trim().trim_start_matches("error: ");
            return Err(if said.is_empty() {
                format!("The run did not start: {status}")
            } else {
                said.to_owned()
            });
        }
        if tokio::time::Instant::now() >= deadline {
            let _ = child.start_kill();
            return Err(format!("The run did not start within {} s", START_LIMIT.as_secs()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Starts `shardplan run` and hands it the plan. What it says goes to a file without a name: a pipe would end it
/// once the hub is gone.
async fn launch(hub: &Hub, id: &str, plan: &PlanFile) -> std::io::Result<(tokio::process::Child, File)> {
    let complaint = tempfile::tempfile()?;
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command
        .args(["run", "-", "--detached", "--id", id, "--runs"])
        .arg(&hub.settings.runs)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(complaint.try_clone()?);
    if let Some(rank) = &hub.settings.rank_binary {
        command.arg("--rank-binary").arg(rank);
    }
    if let Some(python) = &hub.settings.torch_python {
        command.arg("--torch").arg(python);
    }
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&serde_json::to_vec(plan)?).await?;
        input.shutdown().await?;
    }
    Ok((child, complaint))
}

/// The first lines of what a launcher said.
fn read_from_start(file: &mut File) -> String {
    let mut text = String::new();
    let mut limited = match file.seek(SeekFrom::Start(0)) {
        Ok(_) => file.take(8192),
        Err(_) => return text,
    };
    let _ = limited.read_to_string(&mut text);
    text
}

/// Stops a run: asks its ranks, which look at every step, and sees to it that they do.
///
/// # Errors
/// A sentence, when the run is not there or can't be asked.
pub async fn stop(hub: Arc<Hub>, run: String) -> Result<(), String> {
    let folder = RunFolder::at(&hub.settings.runs, &run).filter(|folder| folder.path().is_dir());
    let Some(folder) = folder else { return Err(format!("There is no run {run:?} in the hub's folder")) };
    let Some(info) = folder.info() else {
        return Err(format!("Run {run} has no run.json, so it can't be stopped"));
    };
    folder.ask_to_stop().map_err(|error| format!("Run {run} can't be asked to stop: {error:#}"))?;
    tokio::time::sleep(STOP_GRACE).await;
    if let Some(launcher) = &info.launcher {
        if liveness(launcher, &info.host) == Liveness::Alive {
            terminate(launcher);
        } else {
            terminate_orphans(&folder);
        }
    }
    match &info.slurm_job {
        Some(job) => cancel(job.clone()).await,
        None => Ok(()),
    }
}

/// The launcher ends its ranks when it is told to end.
fn terminate(launcher: &ProcessId) {
    if let Ok(pid) = i32::try_from(launcher.pid) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

/// Ranks whose launcher was killed. They are known by their command line, which names the run's folder.
fn terminate_orphans(folder: &RunFolder) {
    let wanted = folder.path().as_os_str().as_encoded_bytes();
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let mut words = line.split(|&byte| byte == 0);
        if words.any(|word| word == b"--run-dir") && words.next() == Some(wanted) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}

/// Whether `job` can be the number of a Slurm job, and nothing else.
pub fn is_job_id(job: &str) -> bool {
    (1..=32).contains(&job.len()) && job.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}

async fn cancel(job: String) -> Result<(), String> {
    if !is_job_id(&job) {
        return Err(format!("The run names {job:?} as its Slurm job, which is no job's number"));
    }
    let Some(scancel) = probe::program("scancel") else {
        return Err(format!("There is no scancel on this machine; run `scancel {job}` on the cluster"));
    };
    let name = job.clone();
    let asked = tokio::task::spawn_blocking(move || {
        probe::ask(
            &scancel,
            |command| {
                command.arg(&name);
            },
            Duration::from_secs(20),
        )
    });
    match asked.await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            // A job that ended at the asking is what was wanted.
            if said.contains("Invalid job id") || said.is_empty() {
                Ok(())
            } else {
                Err(format!("scancel {job}: {said}"))
            }
        }
        Ok(Err(error)) => Err(format!("scancel {job}: {error}")),
        Err(_) => Err(format!("scancel {job} could not be run")),
    }
}
