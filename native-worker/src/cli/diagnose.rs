//! `shardplan diagnose FILE...`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use diagnose::{Answer, Diagnosis, Evidence, Origin, Part, Verdict};
use planner::wire::RunState;
use run_folder::INFO;

use super::{estimate::resolved, run_logs, source};
use crate::report::text::{gib, one_line};
use crate::report::{self, Exit, Failure};

/// Say why a run ended, from its logs
///
/// FILE is a log of any size, the run folder of `shardplan run` or `shardplan wrap`, whose logs and plan are read, or - for
/// standard input; give all files of one run together (one for each rank, the batch job's output, the node's dmesg).
/// Nothing leaves this machine. Exit codes: 0 what ended the run was found, or its folder says that it is complete, 1
/// nothing was found, or it still runs.
#[derive(Debug, clap::Args)]
pub struct Diagnose {
    /// Logs of one run, or its run folder
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The run's plan, by default the run folder's: out-of-memory errors are set against its prediction
    #[arg(long, value_name = "PLAN")]
    plan: Option<PathBuf>,
}

impl Diagnose {
    /// Reads the logs and prints what ended the run; no when nothing was found.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let stdin = self.files.iter().chain(&self.plan).filter(|path| *path == Path::new("-")).count();
        if stdin > 1 {
            return Err(Failure::usage("standard input (-) can be read once only"));
        }
        let plan = match &self.plan {
            Some(path) => Some(resolved(&source::read(path)?)?),
            None => self.files.iter().find_map(|path| run_logs::plan(path)),
        };
        let mut diagnosis = Diagnosis::new(plan.as_ref());
        for path in &self.files {
            match run_logs::of(path)? {
                Some(folder) => run_logs::read(&folder, &mut diagnosis),
                None => read(path, &mut diagnosis)?,
            }
        }
        let answer = diagnosis.finish();
        if json {
            report::print_json(&answer)?;
        } else {
            report::print(&text(&answer))?;
        }
        Ok(if answer.found || is_complete(&answer) { Exit::Yes } else { Exit::No })
    }
}

/// Gives a file to the diagnosis, piece by piece.
fn read(path: &Path, diagnosis: &mut Diagnosis) -> anyhow::Result<()> {
    const PIECE: usize = 256 * 1024;
    let mut source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        let file = File::open(path)
            .map_err(|error| Failure::usage_of_file(path, &format!("the log can't be opened: {error}")))?;
        if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(Failure::usage(format!(
                "this is a folder, and no run's, which has a {INFO}; name the logs in it: {}",
                path.display()
            )));
        }
        Box::new(file)
    };
    diagnosis.file(&path.display().to_string());
    let mut buffer = vec![0; PIECE];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => diagnosis.feed(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Failure::environment(format!(
                    "the log can't be read: {error}: {}",
                    path.display()
                )));
            }
        }
    }
}

/// Whether the run's folder says that it came to its end.
fn is_complete(answer: &Answer) -> bool {
    answer.standing.as_ref().is_some_and(|standing| standing.state == RunState::Completed)
}

/// The answer for people.
fn text(answer: &Answer) -> String {
    let mut out = String::new();
    for verdict in answer.verdicts.iter().filter(|verdict| verdict.part == Part::Cause) {
        full(verdict, &mut out);
    }
    if let Some(end) = answer.exit.as_ref().filter(|_| answer.found) {
        let signal = end.signal.as_ref().map(|signal| format!(" ({signal})")).unwrap_or_default();
        let code = end.code.map_or_else(|| "unknown".to_owned(), |code| code.to_string());
        out.push_str(&format!(
            "first process to end: {}, exit code {code}{signal}, told by {}\n",
            one_line(&end.origin.in_words()),
            end.told_by
        ));
    }
    for (part, heading) in [(Part::Also, "also seen:"), (Part::Consequence, "what followed:")] {
        let of_part: Vec<&Verdict> = answer.verdicts.iter().filter(|verdict| verdict.part == part).collect();
        if !of_part.is_empty() {
            out.push_str(&format!("\n{heading}\n"));
            of_part.into_iter().for_each(|verdict| short(verdict, &mut out));
        }
    }
    if !answer.found {
        let word = match answer.standing.as_ref().map(|standing| standing.state) {
            Some(RunState::Completed) => "completed",
            Some(RunState::Running) => "still running",
            _ => "nothing found",
        };
        out.push_str(&format!("{word}\n"));
    }
    for note in &answer.notes {
        out.push_str(&format!("note: {}\n", one_line(note)));
    }
    out.push_str(&format!("looked at: {}\n", one_line(&answer.looked_at.in_words())));
    out
}

fn full(verdict: &Verdict, out: &mut String) {
    out.push_str(&format!("{}: {} ({})\n", verdict.cause, verdict.title, verdict.sure.name()));
    out.push_str(&format!("  {}\n", one_line(&verdict.meaning)));
    let ranks = match verdict.rank_count {
        0 | 1 => String::new(),
        count => format!("; {count} ranks report it"),
    };
    let time = verdict.time.as_ref().map(|time| format!(" at {time}")).unwrap_or_default();
    // What was done to the run as a whole is at no place.
    if verdict.culprit != Origin::default() || !verdict.evidence.is_empty() {
        out.push_str(&format!("  where: {}{time}{ranks}\n", one_line(&verdict.culprit.in_words())));
    }
    out.push_str(&format!("  why {}: {}\n", verdict.sure.name(), verdict.why));
    if let Some(memory) = &verdict.out_of_memory {
        let figures = [
            ("tried", memory.tried_bytes),
            ("of", memory.capacity_bytes),
            ("free", memory.free_bytes),
            ("in use", memory.in_use_bytes),
            ("allocated", memory.allocated_bytes),
            ("reserved", memory.reserved_bytes),
        ];
        let shown: Vec<String> = figures
            .iter()
            .filter_map(|(name, bytes)| bytes.map(|bytes| format!("{name} {}", gib(bytes))))
            .collect();
        out.push_str(&format!("  GiB: {}\n", shown.join(", ")));
    }
    if let Some(against) = &verdict.against_plan {
        out.push_str(&format!("  plan: {}\n", one_line(&against.said)));
    }
    verdict.evidence.iter().for_each(|line| evidence(line, out));
    for (number, step) in verdict.next.iter().enumerate() {
        out.push_str(&format!("  {}. {}\n", number + 1, one_line(step)));
    }
}

fn short(verdict: &Verdict, out: &mut String) {
    let times = if verdict.count == 1 { "once".to_owned() } else { format!("{} times", verdict.count) };
    out.push_str(&format!(
        "  {}: {} ({}), {times}, first {}\n",
        verdict.cause,
        verdict.title,
        verdict.sure.name(),
        one_line(&verdict.culprit.in_words())
    ));
    verdict.evidence.iter().take(1).for_each(|line| evidence(line, out));
}

fn evidence(line: &Evidence, out: &mut String) {
    out.push_str(&format!("    {}:{}: {}\n", one_line(&line.file), line.line, one_line(&line.text)));
}
