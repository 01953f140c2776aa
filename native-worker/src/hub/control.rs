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
use crate::run::stop_grace;

/// How often it is looked whether a run has ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a launcher may take to make its run folder: it asks Python where torch is.
const START_LIMIT: Duration = Duration::from_secs(60);

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
    let id = new_id().map_err(|error| format!("{error:#}"))?;
    begin(&hub, &id, Beginning::Plan(&plan)).await
}

/// Goes on with a run that has ended, in its own folder.
///
/// # Errors
/// A sentence: what is wrong with the run, or what is missing.
pub async fn resume(hub: Arc<Hub>, run: String) -> Result<String, String> {
    let known = RunFolder::at(&hub.settings.runs, &run).is_some_and(|folder| folder.path().is_dir());
    if !known {
        return Err(format!("There is no run {run:?} in the hub's folder"));
    }
    begin(&hub, &run, Beginning::Checkpoint).await
}

/// What a run begins from.
enum Beginning<'a> {
    /// A plan, with its first step.
    Plan(&'a PlanFile),
    /// Its own newest checkpoint.
    Checkpoint,
}

/// Starts the launcher of a run and waits until it has said in the run's folder that it is there.
async fn begin(hub: &Hub, id: &str, from: Beginning<'_>) -> Result<String, String> {
    let Ok(_permit) = hub.starting.acquire().await else { return Err("The hub is about to end".to_owned()) };
    let folder = RunFolder::at(&hub.settings.runs, id);
    let attempts = || folder.as_ref().and_then(RunFolder::info).map_or(0, |info| info.attempts);
    let before = attempts();
    let (mut child, mut complaint) =
        launch(hub, id, &from).await.map_err(|error| format!("The run can't be started: {error}"))?;
    let deadline = tokio::time::Instant::now() + START_LIMIT;
    loop {
        if attempts() > before {
            // Somebody must ask how it ended, or it stays in the table of processes.
            tokio::spawn(async move { child.wait().await });
            return Ok(id.to_owned());
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
async fn launch(hub: &Hub, id: &str, from: &Beginning<'_>) -> std::io::Result<(tokio::process::Child, File)> {
    let complaint = tempfile::tempfile()?;
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command
        .args(["run", "--detached", "--runs"])
        .arg(&hub.settings.runs)
        .args(match from {
            Beginning::Plan(_) => vec!["-", "--id", id],
            Beginning::Checkpoint => vec!["--resume", id],
        })
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
    if let (Some(mut input), Beginning::Plan(plan)) = (child.stdin.take(), from) {
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

/// Waits while the list of runs shows that a run goes on, so long at most.
async fn wait_for_end(hub: &Hub, run: &str, at_most: Duration) {
    let until = tokio::time::Instant::now() + at_most;
    while tokio::time::Instant::now() < until && lives(hub, run) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
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
    let plan = folder.plan().and_then(|plan| Plan::resolve(&plan).plan);
    let grace = stop_grace(plan.is_some_and(|plan| plan.run.checkpoint.is_some()));
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
            wait_for_end(&hub, &run, grace).await;
        }
        match find(named)? {
            Launcher::Lives(launcher) => launcher.terminate(),
            Launcher::Gone => end_orphans(&folder, named, grace).await,
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
        wait_for_end(&hub, &run, grace).await;
    }
    let Some(job) = info.slurm_job.clone() else { return Ok(()) };
    let cancelled = tokio::task::spawn_blocking(move || slurm::cancel(&info, &job)).await;
    cancelled.unwrap_or_else(|_| Err("Slurm could not be asked".to_owned()))
}

/// Ends ranks whose launcher is gone. A signal asks a rank to end after its step, as the control file does that a full disk
/// may not take.
async fn end_orphans(folder: &RunFolder, launcher: &ProcessId, grace: Duration) {
    let ranks = holding::orphans(folder, launcher);
    if ranks.is_empty() {
        return;
    }
    ranks.iter().for_each(Held::terminate);
    let until = tokio::time::Instant::now() + grace;
    while tokio::time::Instant::now() < until && !holding::orphans(folder, launcher).is_empty() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    holding::orphans(folder, launcher).iter().for_each(Held::kill);
}
