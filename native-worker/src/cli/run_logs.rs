//! The logs of a run folder as text for the diagnosis: what `shardplan run` and `shardplan wrap` recorded.

use std::collections::BTreeMap;
use std::path::Path;

use diagnose::{Diagnosis, Standing};
use frameworks::logs::split_rank;
use planner::run::{RankEnd, culprit};
use planner::wire::{Event, Exited, Outcome};
use planner::{Plan, Severity};
use run_folder::{INFO, LogWriter, RunFolder, each};

use crate::hub;
use crate::report::text::one_line;
use crate::report::{Failure, notice};

/// The run folder at `path`; none where that is something else.
///
/// # Errors
/// When it is a run's and another's, or has no logs yet.
pub fn of(path: &Path) -> anyhow::Result<Option<RunFolder>> {
    if !path.join(INFO).exists() {
        return Ok(None);
    }
    let folder = RunFolder::of(path);
    if let Some(why) = folder.refusal() {
        return Err(Failure::environment(format!("this run folder is not read: {why}")));
    }
    if folder.logs().is_empty() {
        return Err(Failure::usage(format!(
            "this run folder has no logs (rank-N.log, launcher-HOST.log): {}; copy the whole folder, or name a log of the \
             training",
            path.display()
        )));
    }
    Ok(Some(folder))
}

/// The plan of the run folder at `path`, where that is one and has one that is valid. Of one that is not, says so: nothing is set
/// against its prediction.
pub fn plan(path: &Path) -> Option<Plan> {
    let folder = of(path).ok()??;
    let plan = folder.plan_path();
    let left_out = |why: &str| notice(&format!("{} is left out: {}", plan.display(), one_line(why)));
    let Some(file) = folder.plan() else {
        if plan.exists() {
            left_out("it is no plan file");
        }
        return None;
    };
    let resolved = Plan::resolve(&file);
    if resolved.plan.is_none() {
        let first = resolved.findings.iter().find(|finding| finding.severity == Severity::Error);
        let why = first.map(|finding| format!("{}: {}", finding.field, finding.message));
        left_out(&why.unwrap_or_else(|| "it is not valid".to_owned()));
    }
    resolved.plan
}

/// How the run of a folder stands.
fn standing(folder: &RunFolder, is_watched: bool) -> Option<Standing> {
    let (state, reason) = hub::standing(folder)?;
    Some(Standing { state, reason, is_watched })
}

/// The newest part of a log: a run goes on in its folder, after a failure or when it is resumed.
#[derive(Default)]
struct Part {
    /// Records before it.
    after: u64,
    /// The attempt that its rank joined last; none in a log of a launcher or of a watched command.
    attempt: Option<u64>,
    /// How processes ended in it.
    ends: Vec<RankEnd>,
}

impl Part {
    /// Of the log at `path`.
    fn newest(path: &Path) -> Part {
        let (mut part, mut number, mut has_ended) = (Part::default(), 0, false);
        each(path, |record| {
            let joined = match &record.event {
                Event::Joined(joined) => Some(joined.attempt),
                _ => None,
            };
            let is_next = joined.is_some_and(|attempt| part.attempt.is_some_and(|known| attempt > known));
            if has_ended || is_next || matches!(record.event, Event::Recovering(_)) {
                part.after = number;
                part.ends.clear();
            }
            if let Event::Exited(exit) = &record.event {
                part.ends.push(RankEnd { unix_ms: record.unix_ms, exit: exit.clone() });
            }
            part.attempt = joined.or(part.attempt);
            has_ended = matches!(record.event, Event::Ended { .. });
            number += 1;
        });
        part
    }
}

/// Gives the newest part of the logs to the diagnosis, each as a file with a line for each record: what was printed, and how processes ended.
pub fn read(folder: &RunFolder, diagnosis: &mut Diagnosis) {
    let source = folder.info().and_then(|info| info.source);
    // One process that watches a whole command knows no ranks but those that lines name.
    let knows_ranks = source.as_ref().is_none_or(|source| source.writers > 1);
    let logs: Vec<(String, Part)> = folder
        .logs()
        .into_iter()
        .map(|log| {
            let part = Part::newest(&folder.path().join(&log));
            (log, part)
        })
        .collect();
    if let Some(standing) = standing(folder, source.is_some()) {
        diagnosis.stands(standing);
    }
    // Who is to blame is said by the same rule as when the run ended.
    let first = culprit(logs.iter().flat_map(|(_, part)| &part.ends)).filter(|_| source.is_none());
    let first = first.map(|end| end.exit.clone());
    let newest = logs.iter().filter_map(|(_, part)| part.attempt).max();
    // A rank that is in no part but earlier ones is not silent in the newest.
    for (log, part) in logs.into_iter().filter(|(_, part)| part.attempt.is_none_or(|of| Some(of) == newest)) {
        let path = folder.path().join(&log);
        diagnosis.file(&path.display().to_string());
        // What was looked at is the log, and not the lines that are made of it.
        if let Ok(known) = path.metadata() {
            diagnosis.size(known.len());
        }
        let of_rank = LogWriter::of(&log).and_then(LogWriter::rank).filter(|_| source.is_none());
        let mut last_lines = BTreeMap::new();
        let mut number = 0_u64;
        each(&path, |record| {
            number += 1;
            let line = match record.event {
                _ if number <= part.after => String::new(),
                Event::Output { rank, text, .. } => {
                    let line = marked(rank, &text, knows_ranks);
                    last_lines.insert(rank, text);
                    line
                }
                Event::Exited(exit) => {
                    // Lines that were not recorded one by one: there were too many, or the disk was full.
                    if exit.last_lines.last() != last_lines.get(&exit.rank) {
                        for text in &exit.last_lines {
                            diagnosis.feed(format!("{}\n", marked(exit.rank, text, knows_ranks)).as_bytes());
                        }
                    }
                    // Of the worker's lines the last one says why it ended; others are remarks.
                    let word =
                        exit.last_lines.last().filter(|text| text.starts_with(planner::wire::WORKER_SAYS));
                    if let Some(text) = word.filter(|_| exit.failed() && !exit.told_to_end) {
                        let line = marked(exit.rank, &diagnose::last_word(text), knows_ranks);
                        diagnosis.feed(format!("{line}\n").as_bytes());
                    }
                    let line = end(&exit, knows_ranks);
                    match first.as_ref() == Some(&exit) {
                        true => diagnose::first_end(&line),
                        false => line,
                    }
                }
                // A rank's own account; a watcher's is made of the lines above.
                Event::Ended { outcome: Outcome::Failed | Outcome::Stopped, reason } => {
                    of_rank.map_or(String::new(), |rank| marked(rank, &reason, true))
                }
                _ => String::new(),
            };
            diagnosis.feed(format!("{}\n", line.replace(['\n', '\r'], " ")).as_bytes());
        });
    }
}

/// A line with the rank that printed it, where that is known and the line does not say it.
fn marked(rank: u64, text: &str, knows_ranks: bool) -> String {
    match split_rank(text).0 {
        None if knows_ranks => format!("[rank{rank}]: {text}"),
        _ => text.to_owned(),
    }
}

/// How a process ended, as `shardplan run` says it, or of a command that is watched as a whole; nothing of one that ended well, or because
/// it was told to.
fn end(exit: &Exited, knows_ranks: bool) -> String {
    match (exit.failed() && !exit.told_to_end, knows_ranks) {
        (false, _) => String::new(),
        (true, true) => format!("Rank {} {}", exit.rank, exit.how()),
        (true, false) => format!("The command {}", exit.how()),
    }
}
