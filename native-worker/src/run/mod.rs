//! Running a plan on this machine: a run folder, one process per rank, and a record of how it went.

use std::collections::BTreeMap;
use std::path::PathBuf;

use planner::plan::data_files;
use planner::recovery::Standing;
use planner::rules::executor_limits;
use planner::startable::startable;
use planner::units::counted;
use planner::wire::{Gap, GoingOn, Outcome, PlanFile, RunInfo, VERSION};
use planner::{Finding, Plan, Severity};
use run_folder::{Checkpoints, Log, LogWriter, RunFolder};
use serde_json::Value;

use crate::probe::{self, RankBinary, Torch};
use crate::process;
use crate::report::{Failure, notice, text};

mod compared;
mod ground;
mod history;
pub mod holding;
mod id;
mod measured;
mod origin;
mod programs;
mod progress;
mod ranks;
mod supervise;
mod survivors;

use compared::compared_with;
use ground::Ground;
use progress::Progress;
use ranks::RankCommand;
use supervise::{Ended, Supervisor};
use survivors::Survivors;

/// Seconds of a step from which a run says at its start how long one takes.
const LONG_STEP: f64 = 10.0;

pub use compared::Compared;
pub use history::history;
pub use id::new_id;
pub use measured::MeasuredRun;
pub use origin::Origin;
pub use planner::startable::MOST_RANKS as MAX_RANKS_HERE;
pub use programs::Programs;
pub use supervise::stop_grace;
pub use survivors::Recovery;

/// What a person asks of `shardplan run`.
#[derive(Debug, Clone)]
pub struct Request {
    /// The plan.
    pub plan: PlanFile,
    /// Folder of run folders.
    pub runs: PathBuf,
    /// Where it is recorded, and what it goes on from.
    pub place: Place,
    /// Ranks that may share a GPU.
    pub ranks_per_gpu: u64,
    /// What becomes of it when ranks die.
    pub going_on: GoingOn,
    /// Whether ranks are started on the nodes of the Slurm allocation that this process is in.
    pub slurm: bool,
}

/// Where a run is recorded.
#[derive(Debug, Clone)]
pub enum Place {
    /// In a folder of its own.
    New {
        /// The run's id, when the caller has chosen one.
        id: Option<String>,
        /// Checkpoints to go on from.
        resume: Option<PathBuf>,
    },
    /// In the folder of the run that it goes on with.
    Own {
        /// The folder.
        folder: RunFolder,
        /// Who began it.
        info: Box<RunInfo>,
    },
}

/// How a run ended.
#[derive(Debug)]
pub struct Finished {
    /// Its id.
    pub id: String,
    /// Its folder.
    pub folder: PathBuf,
    /// How it ended.
    pub outcome: Outcome,
    /// That in a sentence.
    pub reason: String,
    /// What is missing in its logs, because it could not be written.
    pub missing: Option<Gap>,
    /// The prediction that it is compared with.
    pub compared: Compared,
    /// How it went on after failures.
    pub recoveries: Vec<Recovery>,
    /// What its ranks took at most; none of one that did no step.
    pub measured: Option<MeasuredRun>,
    /// Steps, loss, speed.
    pub figures: serde_json::Value,
}

/// Runs a plan and waits for its end.
///
/// # Errors
/// When the plan is wrong or too large for this machine, something is missing, or the folder can't be written.
pub fn run(request: Request, programs: &Programs) -> anyhow::Result<Finished> {
    let asked = resolve(&request.plan)?;
    if !request.slurm {
        refuse_what_can_not_start(&asked, request.ranks_per_gpu)?;
        let begins = matches!(request.place, Place::New { resume: None, .. });
        refuse_data_that_is_missing(&asked, begins)?;
    }
    let native = asked.executed();
    let mut resolved = Plan::resolve(&native);
    let Some(plan) = resolved.plan.take() else { return Err(Failure::Findings(resolved.findings).into()) };
    let limits = executor_limits(&plan);
    if !limits.is_empty() {
        return Err(Failure::Findings(limits).into());
    }
    let ground = if request.slurm { Ground::slurm(&plan)? } else { Ground::here(&plan) };
    let (seats, spares) = ground.seats(&plan, request.going_on.spares);
    let standing = Standing::new(plan.clone(), &seats, spares);
    let (ranks, seats) = (standing.ranks(), standing.seats());
    let survivors = Survivors::new(request.going_on, standing, &ground, request.ranks_per_gpu)?;
    let compared = compared_with(&asked, &native, &resolved.findings);
    let (torch, rank) = programs.find()?;
    if let Place::Own { folder, .. } = &request.place
        && let Some(why) = Checkpoints::of_run(folder.path()).refusal(&plan)
    {
        return Err(Failure::environment(why));
    }

    compared.lines().iter().for_each(|line| notice(line));
    let (folder, info, resume) = match request.place {
        Place::New { id, resume } => {
            let id = id.map_or_else(new_id, Ok)?;
            let folder = RunFolder::create(&request.runs, &id)
                .map_err(|error| Failure::environment(format!("{error:#}")))?;
            (folder, info(&id, (&plan, ranks.len() as u64), torch, rank), resume)
        }
        Place::Own { folder, info: earlier } => {
            folder.allow().map_err(|error| Failure::environment(format!("{error:#}")))?;
            let RunInfo { id, started_unix_ms, attempts, .. } = *earlier;
            let attempts = attempts.saturating_add(1);
            let info =
                RunInfo { started_unix_ms, attempts, ..info(&id, (&plan, ranks.len() as u64), torch, rank) };
            (folder, info, None)
        }
    };
    let info = if let Ground::Slurm { job, .. } = &ground { of_job(info, job) } else { info };
    let info = RunInfo { going_on: request.going_on, ..info };
    let id = info.id.clone();
    let log_path = folder.log(LogWriter::Launcher(&process::host_name()));
    let log = Log::open(&log_path).map_err(|error| {
        Failure::environment(format!("the launcher's log can't be opened ({error}): {}", log_path.display()))
    })?;
    folder.begin_plan(&native)?;
    folder.write_info(&info)?;
    let started = counted(ranks.len() as u64, "rank");
    notice(&format!("run {id}: {started}, torch {}, {}", torch.version, folder.path().display()));
    if let Some((step, [low, high])) = compared.step_seconds.zip(compared.interval_seconds)
        && step >= LONG_STEP
    {
        let [step, low, high] = [step, low, high].map(text::seconds);
        notice(&format!(
            "a step is predicted to take {step} s ({low} to {high} likely), and its line comes when it is done"
        ));
    }

    let command = RankCommand {
        binary: rank.path.clone(),
        torch_lib: torch.lib.clone(),
        folder: folder.path().to_owned(),
        world_size: plan.world_size(),
        ranks,
        ranks_per_gpu: request.ranks_per_gpu,
        on_cpu: plan.cluster.gpu.is_cpu(),
        put: ground.put(&seats, request.ranks_per_gpu, info.attempts)?,
        attempt: info.attempts,
        resume,
        saves: plan.run.checkpoint.is_some(),
    };
    let mut progress = Progress::new(&folder, plan.run.steps);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (ended, last) = runtime.block_on(train((command, survivors), (&folder, info), log, &mut progress))?;
    // What was measured last is the survivors', and so is what it is compared with.
    let compared = last.file.map_or(compared, |file| {
        let findings = Plan::resolve(&file).findings;
        compared_with(&asked, &file, &findings)
    });
    Ok(Finished {
        id,
        folder: folder.path().to_owned(),
        outcome: ended.outcome,
        reason: ended.reason,
        missing: ended.missing,
        recoveries: ended.recoveries,
        compared,
        measured: MeasuredRun::of(&folder, last.ranks),
        figures: progress.summary(),
    })
}

/// What was started last.
struct Last {
    /// The plan under the worker's rules, where it is not the one that the run began with.
    file: Option<PlanFile>,
    /// Its ranks.
    ranks: Vec<u64>,
}

/// Starts the ranks, and again what is left of them where that goes on after a failure, until the run ends.
async fn train(
    (mut command, mut survivors): (RankCommand, Option<Survivors>),
    (folder, mut info): (&RunFolder, RunInfo),
    log: Log,
    progress: &mut Progress,
) -> anyhow::Result<(Ended, Last)> {
    let mut supervisor = Supervisor::new(folder.clone(), log)?;
    let mut file = None;
    loop {
        let lack = survivors.as_ref().is_some_and(Survivors::lack);
        let attempt = supervisor.attempt(&command, (survivors.is_some(), lack), progress).await;
        let failed = attempt.outcome == Outcome::Failed && !attempt.ends.is_empty();
        let whole_again = attempt.whole_again && attempt.outcome == Outcome::Stopped;
        let goes_on = (failed || whole_again) && !attempt.stopped;
        let Some(survivors) = survivors.as_mut().filter(|_| goes_on) else {
            let last = Last { file, ranks: command.ranks };
            return Ok((supervisor.finish(attempt.outcome, attempt.reason), last));
        };
        let number = info.attempts.saturating_add(1);
        // A stop for the sake of the whole plan is none of what follows.
        let allowed = if attempt.whole_again { folder.allow() } else { Ok(()) };
        let next = allowed.map_err(|error| format!("{error:#}")).and_then(|()| match whole_again {
            true => survivors.whole_again(number, folder),
            false => survivors.next(&attempt, progress.highest(), number, folder),
        });
        let next = next.and_then(|next| {
            info.attempts = next.recovering.attempt;
            info.world_size = next.ranks.len() as u64;
            let written = folder.write_plan_after_failure(info.attempts, &next.file, &survivors.whole());
            // Readers look for the plan when this is new.
            written.and_then(|()| folder.write_info(&info)).map_err(|error| format!("{error:#}"))?;
            (command.attempt, command.world_size, command.put) =
                (info.attempts, next.world_size, next.put.clone());
            command.ranks.clone_from(&next.ranks);
            Ok(next)
        });
        match next {
            Err(why) => {
                let last = Last { file, ranks: command.ranks };
                let why = format!("{}. {why}", attempt.reason);
                return Ok((supervisor.finish(Outcome::Failed, why), last));
            }
            Ok(next) => {
                file = Some(next.file);
                let began = next.recovering;
                let from = match began.from_step {
                    Some(step) => format!("from step {step}"),
                    None => "from the beginning, as nothing was saved yet".to_owned(),
                };
                notice(&format!("{}. {} ({from})", began.reason, began.change));
                supervisor.begin_recovery(began);
                progress.begin_again(folder);
            }
        }
    }
}

fn resolve(file: &PlanFile) -> anyhow::Result<Plan> {
    let resolved = Plan::resolve(file);
    resolved.plan.ok_or_else(|| Failure::Findings(resolved.findings).into())
}

/// Refuses a plan that can't be started on this machine, with what can be done instead.
fn refuse_what_can_not_start(plan: &Plan, ranks_per_gpu: u64) -> anyhow::Result<()> {
    let mut found = startable(plan, &probe::machine(), ranks_per_gpu);
    if found.can_start() {
        for warning in found.findings.iter().filter(|finding| finding.severity == Severity::Warning) {
            notice(&format!("warning: {}", warning.message));
        }
        return Ok(());
    }
    let instead = found.instead.iter().map(|instead| instead.in_words());
    found.findings.extend(instead.map(|words| Finding::info("", Value::Null, format!("instead, {words}"))));
    Err(Failure::Findings(found.findings).into())
}

/// Refuses a plan whose data are not on this machine, or the weights that it begins with, before any rank takes the time to
/// start and find that out.
fn refuse_data_that_is_missing(plan: &Plan, begins: bool) -> anyhow::Result<()> {
    let run = &plan.run;
    let held_out = run.evaluation.iter().flat_map(|evaluation| data_files(&evaluation.data));
    let files = data_files(&run.data).into_iter().map(|path| ("run.data", path));
    let files = files.chain(held_out.map(|path| ("run.evaluation.data", path)));
    let weights = run.weights.iter().filter(|_| begins).map(|path| ("run.weights", path.clone()));
    let missing = files.chain(weights).filter_map(|(field, path)| {
        let error = std::fs::metadata(&path).err()?;
        let message = format!(
            "{field}: {path:?} can't be read: {error}; ranks read it under that path, which is looked for from the folder that `run` is called in"
        );
        Some(Finding::error(field, path, message))
    });
    let missing: Vec<Finding> = missing.collect();
    if missing.is_empty() { Ok(()) } else { Err(Failure::Findings(missing).into()) }
}

/// A run whose ranks Slurm has started is its job's: whether it lives, Slurm tells, and who stops it asks Slurm.
fn of_job(info: RunInfo, job: &str) -> RunInfo {
    let cluster = std::env::var("SLURM_CLUSTER_NAME").ok().filter(|name| !name.is_empty());
    RunInfo { launcher: None, slurm_job: Some(job.to_owned()), slurm_cluster: cluster, ..info }
}

fn info(id: &str, (plan, world_size): (&Plan, u64), torch: &Torch, rank: &RankBinary) -> RunInfo {
    let versions = [
        ("shardplan", env!("CARGO_PKG_VERSION").to_owned()),
        ("shardplan-rank", rank.version().to_owned()),
        ("torch", torch.version.clone()),
    ];
    RunInfo {
        version: VERSION,
        id: id.to_owned(),
        name: plan.name.clone(),
        user: process::user_name(),
        host: process::host_name(),
        started_unix_ms: run_folder::unix_ms(),
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        versions: BTreeMap::from(versions.map(|(name, version)| (name.to_owned(), version))),
        launcher: Some(process::current()),
        slurm_job: None,
        slurm_cluster: None,
        world_size,
        attempts: 1,
        going_on: GoingOn::STOP,
        source: None,
    }
}
