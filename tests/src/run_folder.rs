//! Reading run folders, with planner's own decoder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use planner::wire::{Event, MeasuredMemory, Outcome, Record, Step, decode_record};

/// The only run in a folder of runs.
pub fn only_run(runs: &Path) -> Result<PathBuf> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(runs).with_context(|| format!("cannot read {}", runs.display()))? {
        let path = entry?.path();
        if path.join("run.json").is_file() {
            folders.push(path);
        }
    }
    match folders.as_slice() {
        [only] => Ok(only.clone()),
        other => bail!("expected one run in {}, found {other:?}", runs.display()),
    }
}

/// The complete records of one log. A last line without its newline is one being written.
pub fn records(log: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole
        .lines()
        .map(|line| decode_record(line).with_context(|| format!("{}: {line:?}", log.display())))
        .collect()
}

/// The records of all logs of a run, each with its log's name, in the order of the names.
pub fn all_records(run: &Path) -> Result<Vec<(String, Record)>> {
    let mut logs: Vec<PathBuf> = std::fs::read_dir(run)
        .with_context(|| format!("cannot read {}", run.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    let mut all = Vec::new();
    for log in logs {
        let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
        all.extend(records(&log)?.into_iter().map(|record| (name.clone(), record)));
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
    format!("rank-{rank:05}.log")
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
