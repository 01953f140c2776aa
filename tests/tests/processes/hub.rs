//! The hub over a run: killed and started again it shows everything, and it refuses whom it should.

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use planner::wire::{self, Event, GoingOn, LogRecord, Outcome, ToHub, ToPage};
use run_folder::LogWriter;
use system_tests::hub::Hub;
use system_tests::plans::{four_ranks, plan};
use system_tests::programs::{expect_code, shardplan};
use system_tests::run_folder::all_records;
use system_tests::runs::Runs;
use system_tests::wait::SOON;

const STEPS: u64 = 60;

#[tokio::test]
async fn a_hub_killed_and_restarted_shows_the_whole_run() -> Result<()> {
    let runs = Runs::new()?;
    let mut first = Hub::start(runs.path())?;
    let mut session = first.connect().await?;
    session
        .send(&ToHub::Start { plan: Box::new(plan(&four_ranks("fp32", STEPS))?), going_on: GoingOn::STOP })
        .await?;
    let run = loop {
        match session.next().await? {
            ToPage::Started { run } => break run,
            ToPage::Error { message } => anyhow::bail!("the hub said: {message}"),
            _ => {}
        }
    };
    session.records_until(&run, |records, _| steps_of(records, 0) >= 3).await?;
    first.process.signal(Signal::SIGKILL)?;
    first.process.wait(SOON)?;

    let second = Hub::start(runs.path())?;
    let mut session = second.connect().await?;
    let shown = session
        .records_until(&run, |records, _| {
            records.iter().any(|record| {
                LogWriter::of(&record.log).is_some_and(LogWriter::is_launcher)
                    && matches!(record.record.event, Event::Ended { .. })
            })
        })
        .await?;
    let end = shown.iter().rev().find_map(|record| match &record.record.event {
        Event::Ended { outcome, reason }
            if LogWriter::of(&record.log).is_some_and(LogWriter::is_launcher) =>
        {
            Some((*outcome, reason.clone()))
        }
        _ => None,
    });
    ensure!(
        end.as_ref().is_some_and(|(outcome, _)| *outcome == Outcome::Completed),
        "the run ended as {end:?}"
    );

    // Rank 0 is never thinned: all its steps are there, those from before the kill and those after.
    ensure!(steps_of(&shown, 0) == STEPS, "{} steps of rank 0 are shown", steps_of(&shown, 0));
    // And the record on disk is whole, for every rank.
    let recorded = all_records(&runs.path().join(&run))?;
    for rank in 0..4 {
        let steps = system_tests::run_folder::steps(&recorded, rank).len() as u64;
        ensure!(steps == STEPS, "rank {rank} has recorded {steps} steps");
    }
    Ok(())
}

fn steps_of(records: &[LogRecord], rank: u64) -> u64 {
    let log = system_tests::run_folder::log_of(rank);
    let is_step = |record: &&LogRecord| record.log == log && matches!(record.record.event, Event::Step(_));
    records.iter().filter(is_step).count() as u64
}

#[tokio::test]
async fn a_wrong_token_opens_nothing() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    for token in ["", "wrong", &"0".repeat(hub.token()?.len())] {
        let mut session = hub.connect_raw(None).await?;
        session.send(&ToHub::Hello { token: token.to_owned(), version: wire::VERSION }).await?;
        while let Some(text) = session.next_text().await? {
            let said: ToPage = serde_json::from_str(&text)?;
            ensure!(matches!(said, ToPage::Error { .. }), "with the token {token:?} the hub said {text}");
        }
    }
    hub.connect().await.context("the right token is refused after wrong ones")?;
    Ok(())
}

#[tokio::test]
async fn a_foreign_origin_is_refused() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    for origin in ["https://example.com", "http://localhost:1", "null"] {
        ensure!(hub.connect_raw(Some(origin)).await.is_err(), "the hub took a websocket from {origin}");
    }
    Ok(())
}

#[tokio::test]
async fn a_huge_frame_ends_its_session_alone() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let mut session = hub.connect().await?;
    // The hub may close before all of it is sent.
    let _ = session.send_text("x".repeat(100 * 1024 * 1024)).await;
    while let Ok(Some(text)) = session.next_text().await {
        let said: ToPage = serde_json::from_str(&text)?;
        ensure!(!matches!(said, ToPage::Started { .. }), "the hub said {text}");
    }
    hub.connect().await.context("the hub is gone after a huge frame")?;
    Ok(())
}

#[tokio::test]
async fn a_port_in_use_is_named() -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    let runs = Runs::new()?;
    let output = expect_code(shardplan()?.args(["serve", "--port", &port, "--runs"]).arg(runs.path()), 3)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains(&port) && said.contains("--port"), "it said: {said}");
    Ok(())
}
