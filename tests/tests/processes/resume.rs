//! `shardplan run --resume`: a run goes on in its own folder, by the command or by the hub, and a new run from its checkpoints.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use planner::wire::{Event, Outcome, Resumed, RunState, ToHub, ToPage};
use serde_json::{Value, json};
use system_tests::hub::Hub;
use system_tests::plans::four_ranks;
use system_tests::process::Guarded;
use system_tests::programs::{expect_code, shardplan};
use system_tests::run_folder::{all_records, ended, info, log_of, only_run, records, steps};
use system_tests::runs::Runs;
use system_tests::wait::LONG;

use crate::worker::{run_command, training};

fn saving(steps: u64) -> Value {
    let mut plan = four_ranks("fp32", steps);
    plan["run"]["checkpoint"] = json!({"save": true});
    plan
}

fn resumed(run: &Path) -> Result<Vec<Resumed>> {
    let of = |event| if let Event::Resumed(resumed) = event { Some(resumed) } else { None };
    Ok(records(&run.join(log_of(0)))?.into_iter().filter_map(|record| of(record.event)).collect())
}

/// A run that was interrupted; its last step.
async fn interrupted(runs: &Runs) -> Result<(std::path::PathBuf, u64)> {
    let mut command = run_command(&saving(100_000), runs)?;
    let mut launcher = Guarded::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let run = training(runs.path(), 3).await?;
    launcher.signal(Signal::SIGINT)?;
    launcher.wait(LONG)?;
    let records = all_records(&run)?;
    let last = steps(&records, 0).last().context("no step")?.step;
    let (outcome, reason) = ended(&records, &log_of(0)).context("no end")?;
    ensure!(outcome == Outcome::Stopped && reason.contains(&format!("step {last} is saved")), "{reason}");
    Ok((run, last))
}

#[tokio::test]
async fn a_run_goes_on_in_its_folder_and_others_from_it() -> Result<()> {
    let runs = Runs::new()?;
    let (run, last) = interrupted(&runs).await?;
    let id = run.file_name().context("no name")?.to_string_lossy().into_owned();

    // Its own plan, but for the number of steps, and another layout: a run of its own.
    let mut other = saving(last + 2);
    other["layout"] = json!({"pp": 2});
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), other.to_string())?;
    let elsewhere = Runs::new()?;
    let mut command = shardplan()?;
    command.arg("run").arg(file.path()).arg("--resume").arg(&run).arg("--runs").arg(elsewhere.path());
    expect_code(&mut command, 0)?;
    let new = only_run(elsewhere.path())?;
    ensure!(resumed(&new)?.first().map(|resumed| resumed.step) == Some(last), "{:?}", resumed(&new)?);
    let records = all_records(&new)?;
    ensure!(
        steps(&records, 0).iter().map(|step| step.step).collect::<Vec<_>>() == [last + 1, last + 2],
        "not the steps that were left"
    );
    ensure!(info(&new)?.attempts == 1 && info(&run)?.attempts == 1, "one is the other's attempt");

    // By itself, until it is stopped; meanwhile nobody else can.
    let mut command = shardplan()?;
    command.args(["run", "--resume", &id, "--runs"]).arg(runs.path());
    let before = steps(&all_records(&run)?, 0).len();
    let mut launcher = Guarded::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    training(runs.path(), before + 2).await?;
    let mut second = shardplan()?;
    second.args(["run", "--resume", &id, "--runs"]).arg(runs.path());
    let refused = expect_code(&mut second, 3)?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(said.contains("is still trained"), "{said}");
    launcher.signal(Signal::SIGTERM)?;
    launcher.wait(LONG)?;
    ensure!(only_run(runs.path())? == run && info(&run)?.attempts == 2, "{:?}", info(&run)?);
    ensure!(resumed(&run)?.first().map(|resumed| resumed.step) == Some(last), "{:?}", resumed(&run)?);
    Ok(())
}

#[tokio::test]
async fn the_hub_goes_on_with_a_run() -> Result<()> {
    let runs = Runs::new()?;
    let (run, last) = interrupted(&runs).await?;
    let id = run.file_name().context("no name")?.to_string_lossy().into_owned();
    let hub = Hub::start(runs.path())?;
    let mut session = hub.connect().await?;
    session.send(&ToHub::ListRuns).await?;
    loop {
        if let ToPage::Runs { runs } = session.next().await? {
            ensure!(runs.len() == 1 && runs[0].state == RunState::Stopped, "{runs:?}");
            ensure!(runs[0].checkpoint == Some(last), "{:?}", runs[0].checkpoint);
            break;
        }
    }
    session.send(&ToHub::Resume { run: id.clone() }).await?;
    loop {
        match session.next().await? {
            ToPage::Started { run } if run == id => break,
            ToPage::Error { message } => bail!("{message}"),
            _ => {}
        }
    }
    training(runs.path(), last as usize + 2).await?;
    session.send(&ToHub::Stop { run: id.clone() }).await?;
    loop {
        match session.next().await? {
            // What was told between the second start and its first record is still of the first stop.
            ToPage::Runs { runs }
                if runs[0].state == RunState::Stopped && runs[0].checkpoint > Some(last) =>
            {
                ensure!(runs[0].info.attempts == 2, "{:?}", runs[0].info);
                return Ok(());
            }
            ToPage::Error { message } => bail!("{message}"),
            _ => {}
        }
    }
}
