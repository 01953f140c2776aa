//! `shardplan run` and the ranks that it starts, on this machine's CPU.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::Plan;
use planner::wire::{Event, Outcome, PlanFile, Record};
use run_folder::LogWriter;
use serde_json::Value;
use system_tests::plans::{four_ranks, plan};
use system_tests::process::Guarded;
use system_tests::programs::{expect_code, shardplan, system_program};
use system_tests::run_folder::{all_records, allocated, ended, loss_falls, only_run, steps};
use system_tests::runs::Runs;
use system_tests::wait::{Attempt, LONG, SOON, until};

const RANKS: u64 = 4;

#[tokio::test]
async fn four_ranks_train_in_bf16() -> Result<()> {
    trains("bf16")
}

#[tokio::test]
async fn four_ranks_train_in_fp32() -> Result<()> {
    trains("fp32")
}

/// Every step is done, the loss falls, and the static bytes are the predicted ones.
fn trains(dtype: &str) -> Result<()> {
    let runs = Runs::new()?;
    let value = four_ranks(dtype, 20);
    expect_code(run_command(&value, &runs)?.args(["--json"]), 0)?;
    let records = all_records(&only_run(runs.path())?)?;
    for rank in 0..RANKS {
        let steps = steps(&records, rank);
        let numbers: Vec<u64> = steps.iter().map(|step| step.step).collect();
        ensure!(numbers == (1..=20).collect::<Vec<u64>>(), "rank {rank} did the steps {numbers:?}");
        loss_falls(&steps.iter().map(|step| step.loss).collect::<Vec<f64>>())?;
    }
    measured_as_predicted(&plan(&value)?, &records)
}

/// Compares what each rank measured with the prediction, in bytes, without any tolerance.
fn measured_as_predicted(file: &PlanFile, records: &[(String, Record)]) -> Result<()> {
    let plan = Plan::resolve(file).plan.context("the plan has errors")?;
    let memory = planner::estimate(&plan.executed()).memory.context("no memory is predicted")?;
    let mut predicted: Vec<[u64; 3]> = Vec::new();
    for class in &memory.rank_classes {
        let bytes = [class.weights_bytes, class.gradients_bytes, class.optimizer_bytes];
        let measured = static_bytes(records, class.example_rank)?;
        assert_eq!(measured, bytes, "weights, gradients, optimizer of rank {}", class.example_rank);
        predicted.extend((0..class.count).map(|_| bytes));
    }
    // A class speaks for all its ranks, so the ranks' figures are the classes', each as often as it counts.
    let mut measured = (0..RANKS).map(|rank| static_bytes(records, rank)).collect::<Result<Vec<_>>>()?;
    predicted.sort_unstable();
    measured.sort_unstable();
    assert_eq!(measured, predicted, "weights, gradients, optimizer of all ranks");
    Ok(())
}

fn static_bytes(records: &[(String, Record)], rank: u64) -> Result<[u64; 3]> {
    let memory = allocated(records, rank)?;
    Ok([memory.weights_bytes, memory.gradients_bytes, memory.optimizer_bytes])
}

#[tokio::test]
async fn a_killed_rank_ends_the_run_and_is_named() -> Result<()> {
    let runs = Runs::new()?;
    let error_file = tempfile::NamedTempFile::new()?;
    let mut command = run_command(&four_ranks("fp32", 100_000), &runs)?;
    let mut launcher =
        Guarded::start(command.stderr(error_file.reopen()?).stdout(std::process::Stdio::null()))?;
    let run = training(runs.path(), 2).await?;
    let victim = pid_of(&all_records(&run)?, 2).context("rank 2 was never started")?;

    kill(victim, Signal::SIGKILL)?;
    let killed = Instant::now();
    let status = launcher.wait(SOON)?;
    let took = killed.elapsed();

    ensure!(took < Duration::from_secs(10), "the run ended only {took:?} after the kill");
    ensure!(status.code() == Some(1), "the exit code is {status}");
    let said = std::fs::read_to_string(error_file.path())?;
    ensure!(
        said.to_lowercase().contains("rank 2 ") && said.contains("SIGKILL"),
        "neither rank nor signal is named: {said}"
    );
    let records = all_records(&run)?;
    let exits: Vec<_> = records
        .iter()
        .filter_map(|(_, record)| match &record.event {
            Event::Exited(exit) => Some((exit.rank, exit.signal)),
            _ => None,
        })
        .collect();
    ensure!(exits.len() == 4 && exits.contains(&(2, Some(9))), "the ranks' ends are recorded as {exits:?}");
    let (outcome, reason) = launcher_end(&records).context("the launcher has recorded no end")?;
    ensure!(
        outcome == Outcome::Failed && reason.to_lowercase().contains("rank 2 "),
        "it is recorded as {outcome:?}: {reason}"
    );
    Ok(())
}

#[tokio::test]
async fn an_interrupt_stops_the_run_in_order() -> Result<()> {
    let runs = Runs::new()?;
    let mut command = run_command(&four_ranks("fp32", 100_000), &runs)?;
    let mut launcher =
        Guarded::start(command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()))?;
    let run = training(runs.path(), 2).await?;
    launcher.signal(Signal::SIGINT)?;
    let status = launcher.wait(SOON)?;
    ensure!(status.code() == Some(1), "the exit code is {status}");
    let records = all_records(&run)?;
    for rank in 0..RANKS {
        let log = system_tests::run_folder::log_of(rank);
        let (outcome, reason) = ended(&records, &log).with_context(|| format!("{log} has no end"))?;
        ensure!(outcome == Outcome::Stopped, "rank {rank} ended as {outcome:?}: {reason}");
    }
    ensure!(launcher_end(&records).is_some_and(|(outcome, _)| outcome == Outcome::Stopped));
    Ok(())
}

#[tokio::test]
async fn without_torch_the_way_to_it_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let python = python_without_torch(folder.path())?;
    let runs = Runs::new()?;
    let output = expect_code(run_command(&four_ranks("fp32", 1), &runs)?.arg("--torch").arg(&python), 3)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains("has no torch") && said.contains("--torch"), "it said: {said}");
    ensure!(std::fs::read_dir(runs.path())?.next().is_none(), "it left a run behind");
    Ok(())
}

#[tokio::test]
async fn another_torch_is_named_with_its_version() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let python = python_without_torch(folder.path())?;
    let packages = Command::new(&python)
        .args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
        .output()?;
    let torch = PathBuf::from(String::from_utf8(packages.stdout)?.trim()).join("torch");
    std::fs::create_dir_all(torch.join("lib"))?;
    std::fs::write(torch.join("__init__.py"), "")?;
    std::fs::write(torch.join("version.py"), "__version__ = '2.5.1+cpu'\ncuda = None\n")?;
    let runs = Runs::new()?;
    let output = expect_code(run_command(&four_ranks("fp32", 1), &runs)?.arg("--torch").arg(&python), 3)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains("2.5.1") && said.contains("2.11"), "it said: {said}");
    Ok(())
}

/// A Python of its own, with nothing installed.
fn python_without_torch(folder: &Path) -> Result<PathBuf> {
    let environment = folder.join("environment");
    expect_code(
        Command::new(system_program("python3")?).args(["-m", "venv", "--without-pip"]).arg(&environment),
        0,
    )?;
    Ok(environment.join("bin").join("python"))
}

/// `shardplan run` of a plan.
pub fn run_command(plan: &Value, runs: &Runs) -> Result<Command> {
    let file = runs.beside("plan.json");
    std::fs::write(&file, plan.to_string())?;
    let mut command = shardplan()?;
    command.arg("run").arg(file).arg("--runs").arg(runs.path());
    Ok(command)
}

/// Waits until rank 2 of the only run has done some steps, and gives the run's folder.
pub async fn training(runs: &Path, wanted: usize) -> Result<PathBuf> {
    until("training", LONG, async || {
        let Ok(run) = only_run(runs) else { return Ok(Attempt::NotYet("no run".to_owned())) };
        let done = all_records(&run).map(|records| steps(&records, 2).len()).unwrap_or(0);
        Ok(if done >= wanted { Attempt::Ready(run) } else { Attempt::NotYet(format!("{done} steps")) })
    })
    .await
}

fn pid_of(records: &[(String, Record)], wanted: u64) -> Option<Pid> {
    records.iter().find_map(|(_, record)| match record.event {
        Event::Started { rank, pid } if rank == wanted => Some(Pid::from_raw(i32::try_from(pid).ok()?)),
        _ => None,
    })
}

fn launcher_end(records: &[(String, Record)]) -> Option<(Outcome, String)> {
    let (log, _) = records.iter().find(|(log, _)| LogWriter::of(log).is_some_and(LogWriter::is_launcher))?;
    ended(records, log)
}
