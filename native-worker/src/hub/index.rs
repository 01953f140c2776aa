//! The list of runs, looked up on disk again and again. Nothing is remembered that a fresh hub would not find.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use planner::run::{Evidence, state};
use planner::wire::{Event, MAX_RECORD_BYTES, Outcome, PlanFile, RunInfo, RunState, RunSummary};
use run_folder::{Checkpoints, INFO, LogReader, LogWriter, RunFolder, is_id, is_job_id};
use tokio::sync::watch;
use tracing::warn;

use super::slurm;
use crate::probe;
use crate::process::{Liveness, liveness};
use crate::run::holding;

/// Runs that are listed; older ones stay on disk.
const MAX_RUNS: usize = 300;
/// How often the folder is looked at.
const EVERY: Duration = Duration::from_millis(400);
/// How often Slurm is asked about a job.
const ASK_SLURM_EVERY: Duration = Duration::from_secs(5);
/// Folders of which it is said why they are left out; a shared folder may hold any number of others' runs.
const MAX_REFUSALS: usize = 20;
/// Where a log's last record is looked for: it may be as long as a record can be.
const END_BYTES: u64 = MAX_RECORD_BYTES as u64 + 1;

/// Starts looking. Ends when nobody listens any more.
pub fn start(runs: PathBuf, sender: watch::Sender<Arc<Vec<RunSummary>>>) {
    let mut index = Index { runs, known: HashMap::new(), refused: HashSet::new() };
    // A first look at once, so that the first page sees the runs.
    let _ = sender.send(Arc::new(index.look()));
    std::thread::spawn(move || {
        while !sender.is_closed() {
            std::thread::sleep(EVERY);
            let found = index.look();
            sender.send_if_modified(|runs| {
                let changed = **runs != found;
                if changed {
                    *runs = Arc::new(found);
                }
                changed
            });
        }
    });
}

/// How the run in a folder stands, and why; none where the folder has no description of one.
pub fn standing(folder: &RunFolder) -> Option<(RunState, String)> {
    let mut known = Known::new(folder.info()?, None, PlanFile::default());
    let evidence = known.evidence(folder);
    Some(state(&known.info, &evidence))
}

struct Index {
    runs: PathBuf,
    known: HashMap<String, Known>,
    /// Folders that were left out, and said to be.
    refused: HashSet<String>,
}

/// What need not be read again of a run.
struct Known {
    info: RunInfo,
    /// When `run.json` was written: another attempt of a Slurm job writes it anew.
    written: Option<SystemTime>,
    plan: PlanFile,
    /// Sizes of logs when their ends were read, and what stood there.
    ends: HashMap<String, (u64, Option<(Outcome, String)>)>,
    slurm: Option<(Instant, Option<bool>)>,
    /// The launcher is gone, and so are all of its ranks.
    deserted: bool,
}

impl Index {
    fn look(&mut self) -> Vec<RunSummary> {
        let Ok(entries) = std::fs::read_dir(&self.runs) else { return Vec::new() };
        let mut ids: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|id| is_id(id))
            .collect();
        // Ids begin with the time.
        ids.sort_unstable_by(|a, b| b.cmp(a));
        // What others have put there takes no run's place.
        let ids: Vec<String> = ids.into_iter().filter(|id| self.is_ours(id)).take(MAX_RUNS).collect();
        self.known.retain(|id, _| ids.binary_search_by(|known| id.as_str().cmp(known)).is_ok());
        ids.iter().filter_map(|id| self.summary(id)).collect()
    }

    /// Whether this may be a run of ours; says why not, once.
    fn is_ours(&mut self, id: &str) -> bool {
        let Some(folder) = RunFolder::at(&self.runs, id) else { return false };
        let refusal = match run_folder::check(folder.path()) {
            Ok(()) if self.known.contains_key(id) => None,
            Ok(()) => folder.refusal(),
            // Files beside the runs are nobody's business.
            Err(_) if folder.path().is_file() => return false,
            Err(error) => Some(error.to_string()),
        };
        let Some(refusal) = refusal else { return true };
        if self.refused.len() < MAX_REFUSALS && self.refused.insert(id.to_owned()) {
            warn!("a run is left out: {refusal}");
        }
        false
    }

    fn summary(&mut self, id: &str) -> Option<RunSummary> {
        let folder = RunFolder::at(&self.runs, id)?;
        let written = written(&folder, INFO);
        if self.known.get(id).is_none_or(|known| known.written != written) {
            let info = folder.info()?;
            // A run that was only watched may have no plan.
            let plan = match (folder.plan(), &info.source) {
                (Some(plan), _) => plan,
                (None, Some(_)) => PlanFile::default(),
                (None, None) => return None,
            };
            // A folder that was renamed or copied is another run.
            let info = RunInfo { id: id.to_owned(), ..info };
            self.known.insert(id.to_owned(), Known::new(info, written, plan));
        }
        let known = self.known.get_mut(id)?;
        let evidence = known.evidence(&folder);
        let (state, reason) = state(&known.info, &evidence);
        let newest = || Some(Checkpoints::of_run(folder.path()).all().first()?.step);
        let checkpoint = if state == RunState::Running { None } else { newest() };
        Some(RunSummary { info: known.info.clone(), plan: known.plan.clone(), state, reason, checkpoint })
    }
}

impl Known {
    fn new(info: RunInfo, written: Option<SystemTime>, plan: PlanFile) -> Known {
        Known { info, written, plan, ends: HashMap::new(), slurm: None, deserted: false }
    }

    fn evidence(&mut self, folder: &RunFolder) -> Evidence {
        let logs = folder.logs();
        let mut evidence = Evidence {
            ends: self.launcher_ends(folder, &logs),
            starter_lives: None,
            orphans: 0,
            stop_asked: false,
            silence: Duration::ZERO,
        };
        if !evidence.ends.is_empty() {
            return evidence;
        }
        evidence.silence = silence(folder, &logs);
        evidence.stop_asked = folder.stop_asked();
        evidence.starter_lives = self.starter_lives();
        if evidence.starter_lives == Some(true) && self.info.launcher.is_some() {
            return evidence;
        }
        let gone = self.info.launcher.as_ref().filter(|_| evidence.starter_lives == Some(false));
        if let Some(launcher) = gone
            && self.info.source.is_none()
            && !self.deserted
        {
            // Before their ends are read: of those that are not there any more, the end is.
            evidence.orphans = holding::orphans(folder, launcher).len();
            // Nobody is there who would start another.
            self.deserted = evidence.orphans == 0;
        }
        // Listed again, as a log may have begun since.
        let logs = folder.logs();
        evidence
            .ends
            .extend(logs.iter().filter_map(|log| Some((log.clone(), self.end(folder.path(), log)?))));
        evidence
    }

    fn launcher_ends(&mut self, folder: &RunFolder, logs: &[String]) -> BTreeMap<String, (Outcome, String)> {
        logs.iter()
            .filter(|log| LogWriter::of(log).is_some_and(LogWriter::is_launcher))
            .filter_map(|log| Some((log.clone(), self.end(folder.path(), log)?)))
            .collect()
    }

    fn starter_lives(&mut self) -> Option<bool> {
        if let Some(launcher) = &self.info.launcher {
            return match liveness(launcher, &self.info.host) {
                Liveness::Alive => Some(true),
                Liveness::Gone => Some(false),
                Liveness::Elsewhere => None,
            };
        }
        let job = self.info.slurm_job.as_deref()?;
        if let Some((asked, answer)) = self.slurm
            && asked.elapsed() < ASK_SLURM_EVERY
        {
            return answer;
        }
        let answer = if slurm::is_of_this_cluster(&self.info) { slurm_job_lives(job) } else { None };
        self.slurm = Some((Instant::now(), answer));
        answer
    }

    /// How a log ended, read anew only when it has grown.
    fn end(&mut self, folder: &Path, log: &str) -> Option<(Outcome, String)> {
        let path = folder.join(log);
        let size = std::fs::symlink_metadata(&path).ok()?.len();
        if let Some((known, end)) = self.ends.get(log)
            && *known == size
        {
            return end.clone();
        }
        let end = last_record(path).and_then(|event| match event {
            Event::Ended { outcome, reason } => Some((outcome, reason)),
            _ => None,
        });
        self.ends.insert(log.to_owned(), (size, end.clone()));
        end
    }
}

/// The last whole record of a log.
fn last_record(path: PathBuf) -> Option<Event> {
    let mut reader = LogReader::near_end(path, END_BYTES);
    reader.read().ok()?.records.pop().map(|record| record.event)
}

fn written(folder: &RunFolder, name: &str) -> Option<SystemTime> {
    std::fs::symlink_metadata(folder.path().join(name)).and_then(|meta| meta.modified()).ok()
}

fn silence(folder: &RunFolder, logs: &[String]) -> Duration {
    let last = logs.iter().map(String::as_str).chain([INFO]).filter_map(|name| written(folder, name)).max();
    last.and_then(|last| SystemTime::now().duration_since(last).ok()).unwrap_or_default()
}

/// Whether Slurm still has a job; none without Slurm.
fn slurm_job_lives(job: &str) -> Option<bool> {
    if !is_job_id(job) {
        return None;
    }
    let squeue = probe::program("squeue")?;
    let configure = |command: &mut std::process::Command| {
        command.args(["--noheader", "--format=%T", "--jobs", job]);
    };
    let output = probe::ask(&squeue, configure, Duration::from_secs(5)).ok()?;
    if output.status.success() {
        return Some(!output.stdout.trim_ascii().is_empty());
    }
    // Slurm forgets jobs some minutes after their end.
    String::from_utf8_lossy(&output.stderr).contains("Invalid job id").then_some(false)
}
