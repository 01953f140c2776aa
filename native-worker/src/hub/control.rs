//! Starting a run on a page's request, and stopping one.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use planner::Plan;
use planner::wire::{GoingOn, PlanFile, ProcessId, RunInfo, RunState, SparesBy};
use tokio::io::AsyncWriteExt;

use super::{Hub, slurm};
use crate::run::holding::{self, Held, Launcher};
use crate::run::new_id;
use crate::run::stop_grace;
use run_folder::RunFolder;

/// How often it is looked whether a run has ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a launcher may take to make its run folder: it asks Python where torch is.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Starts a plan in a process that outlives the hub. Returns the run's id once its folder is there.
///
/// # Errors
/// A sentence: what is wrong with the plan, or what is missing.
pub async fn start(hub: Arc<Hub>, plan: PlanFile, going_on: GoingOn) -> Result<String, String> {
    let resolved = Plan::resolve(&plan);
    let Some(known) = &resolved.plan else {
        let errors: Vec<String> = resolved
            .findings
            .iter()
            .filter(|finding| finding.severity == planner::Severity::Error)
            .map(|finding| format!("{}: {}", finding.field, finding.message))
            .collect();
        return Err(format!("The plan can't be run. {}", errors.join("; ")));
    };
    if let Some(why) = going_on.refusal(known.run.checkpoint.is_some(), going_on.spares, SparesBy::Gpus) {
        return Err(format!("The run can't be started so. {why}"));
    }
    let id = new_id().map_err(|error| format!("{error:#}"))?;
    begin(&hub, &id, (Beginning::Plan(&plan), going_on)).await
}

/// Goes on with a run that has ended, in its own folder.
///
/// # Errors
/// A sentence: what is wrong with the run, or what is missing.
pub async fn resume(hub: Arc<Hub>, run: String) -> Result<String, String> {
    let folder = folder_of(&hub, &run)?;
    let going_on = folder.info().map_or(GoingOn::STOP, |info| info.going_on);
    begin(&hub, &run, (Beginning::Checkpoint, going_on)).await
}

/// What a run begins from.
enum Beginning<'a> {
    /// A plan, with its first step.
    Plan(&'a PlanFile),
    /// Its own newest checkpoint.
    Checkpoint,
}

/// The folder of a run of this hub's.
pub(super) fn folder_of(hub: &Hub, run: &str) -> Result<RunFolder, String> {
    RunFolder::at(&hub.settings.runs, run)
        .filter(|folder| folder.path().is_dir())
        .ok_or_else(|| format!("There is no run {run:?} in the hub's folder"))
}

/// The folder and description of a run that this hub may do something to; `refused` makes a sentence of why it may not.
fn own(hub: &Hub, run: &str, refused: impl Fn(String) -> String) -> Result<(RunFolder, RunInfo), String> {
    let folder = folder_of(hub, run)?;
    if let Some(refusal) = folder.refusal() {
        return Err(refused(refusal));
    }
    let info = folder.info().ok_or_else(|| refused("it has no run.json".to_owned()))?;
    run_folder::check_written_by_us(&folder.info_path()).map_err(|error| refused(error.to_string()))?;
    Ok((folder, info))
}

/// Starts the launcher of a run and waits until it has said in the run's folder that it is there.
async fn begin(hub: &Hub, id: &str, from: (Beginning<'_>, GoingOn)) -> Result<String, String> {
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
async fn launch(
    hub: &Hub,
    id: &str,
    (from, going_on): &(Beginning<'_>, GoingOn),
) -> std::io::Result<(tokio::process::Child, File)> {
    let complaint = tempfile::tempfile()?;
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command
        .args(["run", RunInfo::DETACHED, "--runs"])
        .arg(&hub.settings.runs)
        .args(match from {
            Beginning::Plan(_) => vec!["-", "--id", id],
            Beginning::Checkpoint => vec!["--resume", id],
        })
        .args(["--on-failure", going_on.on_failure.name()])
        .args(["--spares", &going_on.spares.to_string()])
        .args(["--max-recoveries", &going_on.max_recoveries.to_string()])
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
    let refused = |why: String| format!("Run {run} is not stopped from here: {why}");
    let (folder, info) = own(&hub, &run, refused)?;
    let plan = folder.plan().and_then(|plan| Plan::resolve(&plan).plan);
    let grace = stop_grace(plan.is_some_and(|plan| plan.run.checkpoint.is_some()));
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

/// Takes a GPU of a run for lost: ends its rank's process at once, as a GPU that fails would. Only of a run that was started by a hub, by a
/// launcher that lives here, and only the process that this one recorded as the rank's.
///
/// # Errors
/// A sentence, when the run or the rank is not there, or is not ours to end.
pub fn mark_dead(hub: &Hub, run: &str, rank: u64) -> Result<(), String> {
    let refused = |why: String| format!("Rank {rank} of run {run} is not ended from here: {why}");
    let (folder, info) = own(hub, run, refused)?;
    let Some(named) = info.launcher.as_ref().filter(|_| info.was_started_by_a_hub()) else {
        return Err(refused("it was not started by a hub".to_owned()));
    };
    match holding::launcher(&folder, &info, named).map_err(refused)? {
        Launcher::Lives(_) => {}
        Launcher::Gone => return Err(refused("the run has ended".to_owned())),
        Launcher::Elsewhere => return Err(refused(format!("it was started on {}", info.host))),
    }
    let held = holding::rank(&folder, named, &info.host, rank)
        .ok_or_else(|| refused("no such rank of it is running".to_owned()))?;
    held.kill();
    Ok(())
}

/// Has a run that lost GPUs return to its whole plan after this step.
///
/// # Errors
/// A sentence, when the run is not there, is not ours, has lost nothing or can't be asked.
pub fn return_to_whole(hub: &Hub, run: &str) -> Result<(), String> {
    let refused = |why: String| format!("Run {run} does not return to its whole plan: {why}");
    let (folder, info) = own(hub, run, refused)?;
    if !lives(hub, run) {
        return Err(refused("it does not run; go on with it, and it has its whole plan".to_owned()));
    }
    // Asked of a run that has it, the word would be heard after the next failure.
    let known = holding::of_launcher(&folder, &info.host);
    let last = known.recoveries.last_key_value().map(|(_, (began, _))| began);
    if last.is_none_or(|began| began.attempt < info.attempts || began.dead.is_empty()) {
        return Err(refused("it has lost nothing".to_owned()));
    }
    folder.ask_for_whole().map_err(|error| refused(format!("{error:#}")))
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
