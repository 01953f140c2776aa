//! What a run outlives, and what it does not: a full disk, a killed launcher, real ranks.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::wire::{Event, Outcome, Record, RunState, RunSummary, ToHub, ToPage};
use system_tests::hub::{Hub, Session};
use system_tests::plans::four_ranks;
use system_tests::process::Guarded;
use system_tests::programs::shardplan;
use system_tests::run_folder::{all_records, ended, log_of, steps};
use system_tests::runs::Runs;
use system_tests::small_disk::SmallDisk;
use system_tests::wait::{Attempt, LONG, SOON, until};

use crate::worker::{run_command, training};

const RANKS: u64 = 4;

/// A run of four ranks that has done some steps, and its launcher.
async fn started(runs: &Runs, steps: u64) -> Result<(Guarded, PathBuf)> {
    let mut command = run_command(&four_ranks("fp32", steps), runs)?;
    let launcher = Guarded::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let run = training(runs.path(), 2).await?;
    Ok((launcher, run))
}

fn pids(records: &[(String, Record)]) -> Vec<Pid> {
    let started = records.iter().filter_map(|(_, record)| match record.event {
        Event::Started { pid, .. } => i32::try_from(pid).ok(),
        _ => None,
    });
    started.map(Pid::from_raw).collect()
}

/// Whether a process runs; of one that has ended and that nobody has asked about, there is no command line.
fn is_there(pid: Pid) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Waits until the hub lists the only run as wanted.
async fn listed(session: &mut Session, wanted: impl Fn(&RunSummary) -> bool) -> Result<RunSummary> {
    session.send(&ToHub::ListRuns).await?;
    loop {
        if let ToPage::Runs { runs } = session.next().await?
            && let Some(run) = runs.iter().find(|run| wanted(run))
        {
            return Ok(run.clone());
        }
    }
}

#[tokio::test]
async fn ranks_end_within_the_lease_when_their_launcher_is_killed() -> Result<()> {
    let runs = Runs::new()?;
    let (mut launcher, run) = started(&runs, 100_000).await?;
    let pid = launcher.pid()?;
    let hub = Hub::start(runs.path())?;
    let mut session = hub.connect().await?;

    launcher.signal(Signal::SIGKILL)?;
    let killed = Instant::now();
    launcher.wait(SOON)?;
    until("the end of all ranks", Duration::from_secs(40), async || {
        let left = pids(&all_records(&run)?).iter().filter(|&&pid| is_there(pid)).count();
        Ok(if left == 0 { Attempt::Ready(()) } else { Attempt::NotYet(format!("{left} ranks")) })
    })
    .await?;
    ensure!(killed.elapsed() < Duration::from_secs(35), "it took {:?}", killed.elapsed());

    let records = all_records(&run)?;
    let done = steps(&records, 0).len();
    for rank in 0..RANKS {
        let (outcome, reason) =
            ended(&records, &log_of(rank)).with_context(|| format!("rank {rank} has no end"))?;
        ensure!(outcome == Outcome::Failed, "rank {rank} ended as {outcome:?}: {reason}");
        ensure!(reason.contains(&format!("the launcher (process {pid}) is gone")), "rank {rank}: {reason}");
        ensure!(steps(&records, rank).len() == done, "rank {rank} has not ended after step {done}");
    }
    let shown = listed(&mut session, |run| run.state != RunState::Running).await?;
    ensure!(shown.state == RunState::Failed, "it is listed as {:?}: {}", shown.state, shown.reason);
    ensure!(shown.reason.contains("is gone"), "it is listed as failed: {}", shown.reason);
    Ok(())
}

#[tokio::test]
async fn a_stop_ends_ranks_that_hang_without_a_launcher() -> Result<()> {
    let runs = Runs::new()?;
    // Steps of some seconds: all ranks are in the midst of one when they are stopped.
    let mut plan = four_ranks("fp32", 100_000);
    plan["training"]["global_batch_size"] = 600.into();
    let mut command = run_command(&plan, &runs)?;
    let mut launcher = Guarded::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let run = training(runs.path(), 1).await?;
    let ranks = pids(&all_records(&run)?);
    let hub = Hub::start(runs.path())?;
    let mut session = hub.connect().await?;
    // In this order: when the parent of stopped processes goes, the kernel sends them SIGHUP.
    launcher.signal(Signal::SIGKILL)?;
    launcher.wait(SOON)?;
    ranks.iter().try_for_each(|&pid| kill(pid, Signal::SIGSTOP))?;
    let shown = listed(&mut session, |run| !run.reason.is_empty()).await?;
    ensure!(shown.state == RunState::Running, "it is listed as {:?}: {}", shown.state, shown.reason);
    ensure!(shown.reason.contains("4 of its ranks are still there"), "it is listed: {}", shown.reason);
    session.send(&ToHub::Stop { run: shown.info.id.clone() }).await?;
    let shown = listed(&mut session, |run| run.state != RunState::Running).await?;
    ensure!(shown.state == RunState::Stopped, "it is listed as {:?}: {}", shown.state, shown.reason);
    ensure!(!ranks.iter().any(|&pid| is_there(pid)), "ranks are left");
    Ok(())
}

/// How many records of a log are missing, by what it says.
fn missing(records: &[(String, Record)], log: &str) -> u64 {
    let gaps = records.iter().filter(|(name, _)| name == log).filter_map(|(_, record)| match &record.event {
        Event::Gap(gap) => Some(gap.records),
        _ => None,
    });
    gaps.sum()
}

/// Every log has its end, and numbers that lack no more than it says.
fn check_logs(run: &Path, outcome: Outcome) -> Result<()> {
    let records = all_records(run)?;
    let mut logs: Vec<&str> = records.iter().map(|(log, _)| log.as_str()).collect();
    logs.dedup();
    ensure!(logs.len() == 5, "logs of four ranks and a launcher: {logs:?}");
    for log in logs {
        let (as_what, reason) = ended(&records, log).with_context(|| format!("{log} has no end"))?;
        ensure!(as_what == outcome, "{log} ended as {as_what:?}: {reason}");
        let numbers: Vec<u64> =
            records.iter().filter(|(name, _)| name == log).map(|(_, record)| record.seq).collect();
        let last = numbers.last().context("no record")? + 1;
        let missing = missing(&records, log);
        ensure!(
            last == numbers.len() as u64 + missing,
            "{log} says that {missing} are missing of {last}: {numbers:?}"
        );
    }
    ensure!((0..RANKS).all(|rank| missing(&records, &log_of(rank)) > 0), "nothing is missing");
    Ok(())
}

/// A run on a disk of its own, which is full after some steps.
async fn on_a_full_disk(steps: u64) -> Result<(SmallDisk, Guarded, PathBuf)> {
    let disk = SmallDisk::new(4096)?;
    let plan = disk.path().join("plan.json");
    std::fs::write(&plan, four_ranks("fp32", steps).to_string())?;
    let mut command = shardplan()?;
    command.arg("run").arg(plan).arg("--runs").arg(disk.path());
    let launcher = Guarded::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let run = training(disk.path(), 2).await?;
    disk.fill()?;
    Ok((disk, launcher, run))
}

#[tokio::test]
async fn a_run_goes_on_over_a_full_disk() -> Result<()> {
    let (disk, mut launcher, run) = on_a_full_disk(100_000).await?;
    until("word of the full disk", LONG, async || {
        let records = all_records(&run)?;
        let told = (0..RANKS).filter(|&rank| missing(&records, &log_of(rank)) > 0).count();
        Ok(if told == 4 { Attempt::Ready(()) } else { Attempt::NotYet(format!("{told} ranks told")) })
    })
    .await?;
    let before = steps(&all_records(&run)?, 2).len();
    disk.free()?;
    training(disk.path(), before + 2).await?;
    launcher.signal(Signal::SIGINT)?;
    launcher.wait(SOON)?;
    check_logs(&run, Outcome::Stopped)
}

#[tokio::test]
async fn the_end_is_recorded_on_a_disk_that_stays_full() -> Result<()> {
    let (_disk, mut launcher, run) = on_a_full_disk(150).await?;
    let status = launcher.wait(LONG)?;
    ensure!(status.success(), "the run ended with {status}");
    check_logs(&run, Outcome::Completed)
}
