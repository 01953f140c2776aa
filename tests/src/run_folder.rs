//! Reading run folders, by the reader that launcher and hub have.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use planner::wire::{Event, MeasuredMemory, Outcome, Record, RunInfo, Step};
use run_folder::{INFO, LogWriter, RunFolder, read_all};

/// The only run in a folder of runs.
pub fn only_run(runs: &Path) -> Result<PathBuf> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(runs).with_context(|| format!("cannot read {}", runs.display()))? {
        let path = entry?.path();
        if path.join(INFO).is_file() {
            folders.push(path);
        }
    }
    match folders.as_slice() {
        [only] => Ok(only.clone()),
        other => bail!("expected one run in {}, found {other:?}", runs.display()),
    }
}

/// Who started a run, when, with what.
pub fn info(run: &Path) -> Result<RunInfo> {
    RunFolder::of(run).info().with_context(|| format!("no {INFO} that can be read in {}", run.display()))
}

/// The complete records of one log, of which every line must be one. A last line without its newline is one being written.
pub fn records(log: &Path) -> Result<Vec<Record>> {
    ensure!(log.is_file(), "no log at {}", log.display());
    let all = read_all(log).with_context(|| format!("cannot read {}", log.display()))?;
    ensure!(all.unreadable == 0, "{} lines of {} are no records", all.unreadable, log.display());
    Ok(all.records)
}

/// The records of all logs of a run, each with its log's name, in the order of the names.
pub fn all_records(run: &Path) -> Result<Vec<(String, Record)>> {
    ensure!(run.is_dir(), "no folder at {}", run.display());
    let mut all = Vec::new();
    for log in RunFolder::of(run).logs() {
        all.extend(records(&run.join(&log))?.into_iter().map(|record| (log.clone(), record)));
    }
    Ok(all)
}

/// The steps of one rank, in order.
pub fn steps(records: &[(String, Record)], rank: u64) -> Vec<&Step> {
    let log = log_of(rank);
    records
        .iter()
        .filter(|(name, _)| *name == log)
        .filter_map(|(_, record)| match &record.event {
            Event::Step(step) => Some(step),
            _ => None,
        })
        .collect()
}

/// The static memory of one rank.
pub fn allocated(records: &[(String, Record)], rank: u64) -> Result<&MeasuredMemory> {
    let log = log_of(rank);
    records
        .iter()
        .filter(|(name, _)| *name == log)
        .find_map(|(_, record)| match &record.event {
            Event::Allocated(memory) => Some(memory),
            _ => None,
        })
        .with_context(|| format!("{log} has no record of what was allocated"))
}

/// How a log's writer ended, and why.
pub fn ended(records: &[(String, Record)], log: &str) -> Option<(Outcome, String)> {
    records.iter().filter(|(name, _)| name == log).find_map(|(_, record)| match &record.event {
        Event::Ended { outcome, reason } => Some((*outcome, reason.clone())),
        _ => None,
    })
}

/// Name of a rank's log.
pub fn log_of(rank: u64) -> String {
    LogWriter::Rank(rank).log()
}

/// Fails unless the loss is lower at the end than at the start: the mean of the last quarter of the steps against
/// the mean of the first quarter, because single steps see different data.
pub fn loss_falls(losses: &[f64]) -> Result<()> {
    let quarter = losses.len() / 4;
    ensure!(quarter > 0, "only {} steps: too few to see a trend", losses.len());
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (mean(&losses[..quarter]), mean(&losses[losses.len() - quarter..]));
    ensure!(last < first, "the loss did not fall: {first} at the start, {last} at the end ({losses:?})");
    Ok(())
}
