//! Starting a run on a page's request, and stopping one.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use planner::Plan;
use planner::wire::{PlanFile, ProcessId, RunState};
use tokio::io::AsyncWriteExt;

use super::{Hub, slurm};
use crate::run::folder::{RunFolder, new_id};
use crate::run::holding::{self, Held, Launcher};

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

/// Whether the list of runs shows that a run goes on.
fn lives(hub: &Hub, run: &str) -> bool {
    hub.runs.borrow().iter().any(|known| known.info.id == run && known.state == RunState::Running)
}

/// Stops a run: asks its ranks, which look at every step, and sees to it that they do. Nothing is signalled or
/// cancelled that is not found to be the run's.
///
/// # Errors
/// A sentence, when the run is not there, is not ours, or can't be asked.
pub async fn stop(hub: Arc<Hub>, run: String) -> Result<(), String> {
    let folder = RunFolder::at(&hub.settings.runs, &run).filter(|folder| folder.path().is_dir());
    let Some(folder) = folder else { return Err(format!("There is no run {run:?} in the hub's folder")) };
    let refused = |why: String| format!("Run {run} is not stopped from here: {why}");
    if let Some(refusal) = folder.refusal() {
        return Err(refused(refusal));
    }
    let Some(info) = folder.info() else {
        return Err(format!("Run {run} has no run.json, so it can't be stopped"));
    };
    run_folder::check_written_by_us(&folder.path().join("run.json"))
        .map_err(|error| refused(error.to_string()))?;
    // Before anything is asked, so that a copy says at once that it is one.
    let find = |named| holding::launcher(&folder, &info, named).map_err(refused);
    info.launcher.as_ref().map(find).transpose()?;
    let asked = folder.ask_to_stop().map_err(|error| format!("Run {run} can't be asked to stop: {error:#}"));
    if let Some(named) = &info.launcher {
        // Without a launcher nobody sees to it but this hub.
        if asked.is_ok() && !matches!(find(named)?, Launcher::Gone) {
            tokio::time::sleep(STOP_GRACE).await;
        }
        match find(named)? {
            Launcher::Lives(launcher) => launcher.terminate(),
            Launcher::Gone => end_orphans(&folder, named).await,
            Launcher::Elsewhere if lives(&hub, &run) => {
                return Err(format!(
                    "Run {run} has been asked to stop and goes on; it was started on {}, whose processes can't be \
                     signalled from here: stop it by a hub there",
                    info.host
                ));
            }
            Launcher::Elsewhere => asked?,
        }
    } else {
        if info.slurm_job.is_none() {
            asked?;
        }
        tokio::time::sleep(STOP_GRACE).await;
    }
    let Some(job) = info.slurm_job.clone() else { return Ok(()) };
    let cancelled = tokio::task::spawn_blocking(move || slurm::cancel(&info, &job)).await;
    cancelled.unwrap_or_else(|_| Err("Slurm could not be asked".to_owned()))
}

/// Ends ranks whose launcher is gone. A signal asks a rank to end after its step, as the control file does that a full disk
/// may not take.
async fn end_orphans(folder: &RunFolder, launcher: &ProcessId) {
    let ranks = holding::orphans(folder, launcher);
    if ranks.is_empty() {
        return;
    }
    ranks.iter().for_each(Held::terminate);
    tokio::time::sleep(STOP_GRACE).await;
    holding::orphans(folder, launcher).iter().for_each(Held::kill);
}
