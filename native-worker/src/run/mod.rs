//! Running a plan on this machine: a run folder, one process per rank, and a record of how it went.

use std::collections::BTreeMap;
use std::path::PathBuf;

use planner::wire::{Outcome, PlanFile, RunInfo, VERSION};
use planner::{Finding, Plan};

use crate::cli::{Failure, say};
use crate::probe::{self, RankBinary, Torch};

pub mod folder;
mod history;
pub mod log;
mod measured;
pub mod process;
mod programs;
mod progress;
mod ranks;
mod supervise;
mod verdict;

use folder::RunFolder;
use log::LogWriter;
use progress::Progress;
use ranks::RankCommand;

pub use history::history;
pub use measured::{Measured, measured};
pub use programs::Programs;
pub use ranks::library_path;

/// More ranks than this on one machine are a mistake, not a run.
pub const MAX_RANKS_HERE: u64 = 64;

/// What a person asks of `shardplan run`.
#[derive(Debug, Clone)]
pub struct Request {
    /// The plan.
    pub plan: PlanFile,
    /// Folder of run folders.
    pub runs: PathBuf,
    /// The run's id, when the caller has chosen one.
    pub id: Option<String>,
    /// Ranks that may share a GPU.
    pub ranks_per_gpu: u64,
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
    /// Steps, loss, speed.
    pub figures: serde_json::Value,
}

/// Runs a plan and waits for its end.
///
/// # Errors
/// When the plan is wrong or too large for this machine, something is missing, or the folder can't be written.
pub fn run(request: Request, programs: &Programs) -> anyhow::Result<Finished> {
    let native = native_plan(&request.plan)?;
    let resolved = Plan::resolve(&native);
    let Some(plan) = resolved.plan else { return Err(Failure::Findings(resolved.findings).into()) };
    let beyond = planner::layout::executor_limits(&plan);
    if planner::finding::has_error(&beyond) {
        return Err(Failure::Findings(beyond).into());
    }
    let world_size = plan.world_size();
    refuse_too_many_ranks(world_size)?;
    if let Some(finding) = too_few_gpus(world_size, probe::gpu_count() as u64, request.ranks_per_gpu) {
        return Err(Failure::finding(finding));
    }
    refuse_too_large(&native)?;
    let (torch, rank) = programs.find()?;

    let id = request.id.map_or_else(folder::new_id, Ok)?;
    let folder =
        RunFolder::create(&request.runs, &id).map_err(|error| Failure::environment(format!("{error:#}")))?;
    let log_path = folder.path().join(format!("launcher-{}.log", process::host_name()));
    let log = LogWriter::create(&log_path).map_err(|error| {
        Failure::environment(format!("the launcher's log can't be opened ({error}): {}", log_path.display()))
    })?;
    folder.write_plan(&native)?;
    folder.write_info(&info(&id, &plan, torch, rank))?;
    say(&format!("run {id}: {world_size} ranks, torch {}, {}", torch.version, folder.path().display()));

    let command = RankCommand {
        binary: rank.path.clone(),
        torch_lib: torch.lib.clone(),
        folder: folder.path().to_owned(),
        world_size,
        ranks_per_gpu: request.ranks_per_gpu,
        port: ranks::free_port()?,
    };
    let mut progress = Progress::new(&folder, plan.run.steps);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (outcome, reason) = runtime.block_on(supervise::supervise(&command, &folder, log, &mut progress))?;
    Ok(Finished { id, folder: folder.path().to_owned(), outcome, reason, figures: progress.summary() })
}

/// The same layout with runtime native, which is what ranks execute.
fn native_plan(file: &PlanFile) -> anyhow::Result<PlanFile> {
    let resolved = Plan::resolve(file);
    match resolved.plan {
        Some(plan) => Ok(plan.native()),
        None => Err(Failure::Findings(resolved.findings).into()),
    }
}

fn refuse_too_many_ranks(world_size: u64) -> anyhow::Result<()> {
    if world_size <= MAX_RANKS_HERE {
        return Ok(());
    }
    Err(Failure::finding(
        Finding::error(
            "cluster.nodes",
            world_size,
            format!(
                "this plan has {world_size} ranks, and at most {MAX_RANKS_HERE} are started on one machine; \
                 write a script for a cluster with `shardplan script`, or take a smaller cluster"
            ),
        )
        .rule("one process per rank"),
    ))
}

/// What is wrong when ranks outnumber the places on this machine's GPUs. Without a GPU, ranks are CPU processes.
fn too_few_gpus(world_size: u64, gpus: u64, ranks_per_gpu: u64) -> Option<Finding> {
    if gpus == 0 || world_size <= gpus.saturating_mul(ranks_per_gpu) {
        return None;
    }
    let needed = world_size.div_ceil(gpus);
    Some(
        Finding::error(
            "cluster.gpus_per_node",
            world_size,
            format!(
                "this plan has {world_size} ranks, and this machine has {gpus} GPUs with {ranks_per_gpu} ranks each; \
                 with --ranks-per-gpu {needed} they share them, by host memory instead of NCCL"
            ),
        )
        .rule("a rank has a GPU of its own unless it is told to share"),
    )
}

/// Refuses a plan whose predicted memory this machine does not have. GPUs are not asked: there the allocator says so.
fn refuse_too_large(native: &PlanFile) -> anyhow::Result<()> {
    let (Some(host), 0) = (probe::host_memory(), probe::gpu_count()) else { return Ok(()) };
    let Some(memory) = planner::estimate(native).memory else { return Ok(()) };
    let needed = memory
        .rank_classes
        .iter()
        .map(|class| class.peak_allocated_bytes.saturating_mul(class.count))
        .fold(0u64, u64::saturating_add);
    if needed <= host {
        return Ok(());
    }
    let gib = |bytes| planner::units::Bytes(bytes).gib();
    Err(Failure::finding(
        Finding::error(
            "model",
            needed,
            format!(
                "all ranks together need {:.1} GiB, and this machine has {:.1} GiB; take a smaller model, a shorter \
                 training.seq_len, or a cluster with `shardplan script`",
                gib(needed),
                gib(host)
            ),
        )
        .rule("without a GPU, ranks live in the host's memory"),
    ))
}

fn info(id: &str, plan: &Plan, torch: &Torch, rank: &RankBinary) -> RunInfo {
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
        started_unix_ms: folder::unix_ms(),
        command: std::env::args().collect(),
        versions: BTreeMap::from(versions.map(|(name, version)| (name.to_owned(), version))),
        launcher: Some(process::current()),
        slurm_job: None,
        world_size: plan.world_size(),
        attempts: 1,
        source: None,
    }
}

#[cfg(test)]
mod tests {
    use super::too_few_gpus;

    #[test]
    fn gpus_are_shared_only_when_asked() {
        let check = |world, gpus, per_gpu, expected: Option<&str>| {
            let said = too_few_gpus(world, gpus, per_gpu).map(|finding| finding.message);
            assert_eq!(said.is_some(), expected.is_some(), "{said:?}");
            assert!(said.unwrap_or_default().contains(expected.unwrap_or_default()));
        };
        check(8, 0, 1, None);
        check(8, 8, 1, None);
        check(8, 1, 8, None);
        check(8, 1, 1, Some("--ranks-per-gpu 8"));
        check(8, 3, 2, Some("--ranks-per-gpu 3"));
    }
}
