//! The run folder: its name, its files, and how they are written so that a reader never sees half of one.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use planner::Plan;
use planner::run::{LogWriter, RankRecord, RunRecord};
use planner::wire::{LogRecord, PlanFile, RunInfo};

use crate::{each, own};

/// Name of the file that says who started a run, when, with what. A folder with one is a run's.
pub const INFO: &str = "run.json";

/// Name of the plan's file.
pub const PLAN: &str = "plan.json";

/// Of a watched command: what it measured against the plan ([`RunFolder::write_of`]).
pub const COMPARISON: &str = "comparison";

/// Of a watched command that failed: why.
pub const DIAGNOSIS: &str = "diagnosis";

/// Name of the file by which somebody asks something of those who run.
const CONTROL: &str = "control";

/// The word in it that asks for an end at the next step.
const STOP: &str = "stop";

/// The word in it that asks to return to the whole plan, as lost GPUs are back.
const WHOLE_AGAIN: &str = "whole";

/// What is read of it; a longer one says something else.
const MAX_CONTROL_BYTES: u64 = 64;

/// The plan that was asked for, in the folder of a run that goes on with another.
const WHOLE: &str = "plan-whole.json";

/// The largest `run.json` or `plan.json` that is read.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// A run's folder.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The folder of run `id` under `runs`; none when `id` can't be a run's name.
    pub fn at(runs: &Path, id: &str) -> Option<Self> {
        is_id(id).then(|| RunFolder { path: runs.join(id) })
    }

    /// The folder of a run that is known to be one.
    pub fn of(path: &Path) -> Self {
        RunFolder { path: path.to_owned() }
    }

    /// Makes the folder of a new run.
    ///
    /// # Errors
    /// When it exists or can't be made.
    pub fn create(runs: &Path, id: &str) -> anyhow::Result<Self> {
        anyhow::ensure!(is_id(id), "a run's id has letters, digits, `.`, `_` and `-` only: {id:?}");
        std::fs::create_dir_all(runs)
            .with_context(|| format!("the runs folder can't be made: {}", runs.display()))?;
        let path = runs.join(id);
        own::make(&path).with_context(|| format!("the run folder can't be made: {}", path.display()))?;
        let path = path.canonicalize().unwrap_or(path);
        Ok(RunFolder { path })
    }

    /// The folder of a run that several processes record: the first makes it.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn join(runs: &Path, id: &str) -> anyhow::Result<Self> {
        anyhow::ensure!(is_id(id), "a run's id has letters, digits, `.`, `_` and `-` only: {id:?}");
        let path = runs.join(id);
        std::fs::create_dir_all(runs)
            .with_context(|| format!("the runs folder can't be made: {}", runs.display()))?;
        match own::make(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => own::check(&path),
            made => made,
        }
        .with_context(|| format!("the run folder can't be made: {}", path.display()))?;
        let path = path.canonicalize().unwrap_or(path);
        Ok(RunFolder { path })
    }

    /// Why this folder is not read, if it is not: it is another's or leads elsewhere, or its description does.
    pub fn refusal(&self) -> Option<String> {
        let opened = [INFO, PLAN].map(|name| own::open(&self.path.join(name)).map(drop));
        let mut checks = std::iter::once(own::check(&self.path)).chain(opened);
        let refused =
            checks.find_map(|check| check.err().filter(|error| error.kind() != std::io::ErrorKind::NotFound));
        refused.map(|error| error.to_string())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The plan's file.
    pub fn plan_path(&self) -> PathBuf {
        self.path.join(PLAN)
    }

    /// The plan; none while it is not there.
    pub fn plan(&self) -> Option<PlanFile> {
        serde_json::from_str(&own_text(&self.plan_path(), MAX_FILE_BYTES)?).ok()
    }

    /// The log of the run's first rank, which says what is said once: rank 0's, unless the worker's plan leaves that out.
    pub fn first_log(&self) -> String {
        let plan = self.plan().and_then(|file| Plan::resolve(&file).plan);
        let left_out = plan.filter(|plan| plan.is_computed_by_the_worker() && plan.nonuniform.is_some());
        let first = left_out.and_then(|plan| plan.active_ranks().first().copied()).unwrap_or(0);
        LogWriter::Rank(first).log()
    }

    /// Writes the plan.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write_plan(&self, plan: &PlanFile) -> anyhow::Result<()> {
        self.write(PLAN, &(serde_json::to_string_pretty(plan)? + "\n"))
    }

    /// Writes the plan that is asked for. Where an earlier attempt has left it with less, that one is no longer what the run
    /// goes back to.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn begin_plan(&self, plan: &PlanFile) -> anyhow::Result<()> {
        if self.path.join(WHOLE).exists() {
            self.write(WHOLE, &(serde_json::to_string_pretty(plan)? + "\n"))?;
        }
        self.write_plan(plan)
    }

    /// The plan that was asked for, where a failure had the run go on with another; none where none has.
    pub fn whole_plan(&self) -> Option<PlanFile> {
        serde_json::from_str(&own_text(&self.path.join(WHOLE), MAX_FILE_BYTES)?).ok()
    }

    /// Writes the plan that an attempt after a failure has, beside the one that was asked for.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn write_plan_after_failure(
        &self,
        attempt: u64,
        plan: &PlanFile,
        whole: &PlanFile,
    ) -> anyhow::Result<()> {
        self.write(WHOLE, &(serde_json::to_string_pretty(whole)? + "\n"))?;
        self.write(&format!("plan-attempt-{attempt}.json"), &(serde_json::to_string_pretty(plan)? + "\n"))?;
        self.write_plan(plan)
    }

    /// The file that says who started it.
    pub fn info_path(&self) -> PathBuf {
        self.path.join(INFO)
    }

    /// Who started it, when, with what; none while it is not there.
    pub fn info(&self) -> Option<RunInfo> {
        serde_json::from_str(&own_text(&self.info_path(), MAX_FILE_BYTES)?).ok()
    }

    /// Writes `run.json`.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write_info(&self, info: &RunInfo) -> anyhow::Result<()> {
        self.write(INFO, &(serde_json::to_string_pretty(info)? + "\n"))
    }

    /// Writes what the process of this number, one of those that a command has on several nodes, says of `what`.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write_of(&self, what: &str, writer: u64, text: &str) -> anyhow::Result<()> {
        match writer {
            0 => self.write(&format!("{what}.json"), text),
            writer => self.write(&format!("{what}-{writer}.json"), text),
        }
    }

    /// Asks the ranks to stop at the next step.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn ask_to_stop(&self) -> anyhow::Result<()> {
        self.write(CONTROL, &format!("{STOP}\n"))
    }

    /// Asks the launcher to return to the whole plan.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn ask_for_whole(&self) -> anyhow::Result<()> {
        self.write(CONTROL, &format!("{WHOLE_AGAIN}\n"))
    }

    /// Takes back a stop that was asked of an earlier start.
    ///
    /// # Errors
    /// When the file can't be removed.
    pub fn allow(&self) -> anyhow::Result<()> {
        let path = self.path.join(CONTROL);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("this file can't be removed: {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Whether somebody asked the ranks to stop.
    pub fn stop_asked(&self) -> bool {
        self.control_says(STOP)
    }

    /// Whether somebody asked to return to the whole plan.
    pub fn whole_asked(&self) -> bool {
        self.control_says(WHOLE_AGAIN)
    }

    /// What is asked for that nobody knows: neither of the words that are.
    pub fn unknown_asked(&self) -> Option<String> {
        let text = own_text(&self.path.join(CONTROL), MAX_CONTROL_BYTES)?;
        let word = text.trim();
        (!word.is_empty() && !Self::ASKED.contains(&word)).then(|| word.to_owned())
    }

    /// The words that [`RunFolder::path`]'s `control` may have.
    pub const ASKED: [&str; 2] = [STOP, WHOLE_AGAIN];

    fn control_says(&self, word: &str) -> bool {
        own_text(&self.path.join(CONTROL), MAX_CONTROL_BYTES).is_some_and(|text| text.trim() == word)
    }

    /// File names of the logs, sorted.
    pub fn logs(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| LogWriter::of(name).is_some())
            .collect();
        names.sort();
        names
    }

    /// Where the log of this writer is.
    pub fn log(&self, writer: LogWriter<'_>) -> PathBuf {
        self.path.join(writer.log())
    }

    /// What the log of a rank tells of it now.
    pub fn rank(&self, rank: u64) -> RankRecord {
        let mut known = RankRecord::default();
        each(&self.log(LogWriter::Rank(rank)), |record| known.take(record.unix_ms, record.event));
        known
    }

    /// What all logs tell of the run now.
    pub fn record(&self) -> RunRecord {
        self.record_of(&self.logs())
    }

    /// What these logs tell of the run now.
    pub fn record_of(&self, logs: &[String]) -> RunRecord {
        let mut run = RunRecord::default();
        for log in logs {
            each(&self.path.join(log), |record| {
                run.add(vec![LogRecord { log: log.clone(), record }], true, 0)
            });
        }
        run
    }

    /// Where launchers' logs are, sorted.
    pub fn launcher_logs(&self) -> Vec<PathBuf> {
        let of_launcher = |log: &String| LogWriter::of(log).is_some_and(LogWriter::is_launcher);
        self.logs().into_iter().filter(of_launcher).map(|log| self.path.join(log)).collect()
    }

    /// Writes a file of this folder, so that a reader never sees half of it.
    ///
    /// # Errors
    /// When it can't be written.
    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path.join(name);
        own::replace(&path, text).with_context(|| format!("this file can't be written: {}", path.display()))
    }
}

/// The text of a file of ours that has no more bytes than that.
fn own_text(path: &Path, most: u64) -> Option<String> {
    let bytes = read_bounded(own::open(path).ok()?, most).ok()??;
    String::from_utf8(bytes).ok()
}

/// Everything that a reader gives; none where that is more than `most` bytes, of which no more are kept.
///
/// # Errors
/// When it can't be read.
pub fn read_bounded(reader: impl Read, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    reader.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// Whether `id` can be the name of a run's folder, and nothing but.
pub fn is_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && !id.starts_with('.')
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Whether `job` can be the number of a Slurm job, and nothing else.
pub fn is_job_id(job: &str) -> bool {
    (1..=32).contains(&job.len()) && job.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_was_said() {
        assert_eq!(read_bounded(&b"four"[..], 4).expect("read"), Some(b"four".to_vec()));
        assert_eq!(read_bounded(&b"five!"[..], 4).expect("read"), None);
        assert_eq!(read_bounded(std::io::repeat(0), 1 << 16).expect("read"), None);
        assert_eq!(read_bounded(&b""[..], 0).expect("read"), Some(Vec::new()));
    }

    #[test]
    fn ids_never_leave_the_runs_folder() {
        for id in ["..", ".hidden", "a/b", "", "a\0b", "a b", "../x", &"x".repeat(200)] {
            assert!(!is_id(id), "{id:?}");
        }
    }

    #[test]
    fn numbers_of_jobs() {
        for good in ["1", "42", "42_7"] {
            assert!(is_job_id(good), "{good}");
        }
        for bad in ["", "-1", "42;rm", "all", "--user=root", &"1".repeat(33)] {
            assert!(!is_job_id(bad), "{bad}");
        }
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let runs = tempfile::tempdir().expect("a folder");
        let folder = RunFolder::create(runs.path(), "one").expect("a run folder");
        assert!(!folder.stop_asked());
        folder.ask_to_stop().expect("written");
        folder.ask_to_stop().expect("written again");
        assert!(folder.stop_asked());
        let names: Vec<_> = std::fs::read_dir(folder.path()).expect("listed").flatten().collect();
        assert_eq!(names.len(), 1);
        assert!(RunFolder::create(runs.path(), "one").is_err());
    }

    #[test]
    fn only_the_word_itself_asks_for_something() {
        let runs = tempfile::tempdir().expect("a folder");
        let folder = RunFolder::create(runs.path(), "one").expect("a run folder");
        let long = format!("stop{}", " ".repeat(100));
        for (text, stop, whole) in [
            ("stop", true, false),
            (" stop\n", true, false),
            ("whole\n", false, true),
            ("", false, false),
            ("go on", false, false),
            (&long, false, false),
        ] {
            std::fs::write(folder.path().join(CONTROL), text).expect("written");
            assert_eq!((folder.stop_asked(), folder.whole_asked()), (stop, whole), "{text:?}");
        }
        folder.allow().expect("taken back");
        folder.allow().expect("nothing to take back");
        assert!(!folder.stop_asked() && !folder.whole_asked());
    }

    #[test]
    fn logs_are_those_of_ranks_and_launchers() {
        let runs = tempfile::tempdir().expect("a folder");
        let folder = RunFolder::create(runs.path(), "one").expect("a run folder");
        for name in
            ["rank-00001.log", "launcher-x.log", "rank-00000.log", "train.log", "rank-00000.log.gz", INFO]
        {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        assert_eq!(folder.logs(), ["launcher-x.log", "rank-00000.log", "rank-00001.log"]);
        assert_eq!(folder.launcher_logs(), [folder.path().join("launcher-x.log")]);
    }

    #[test]
    fn a_run_is_its_owners_alone_and_what_is_not_its_own_is_not_read() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let runs = tempfile::tempdir().expect("a folder");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
        for folder in [RunFolder::create(runs.path(), "one"), RunFolder::join(runs.path(), "two")] {
            let folder = folder.expect("a run folder");
            folder.ask_to_stop().expect("written");
            assert_eq!((mode(folder.path()), mode(&folder.path().join(CONTROL))), (0o700, 0o600));
            assert_eq!(folder.refusal(), None);
        }
        assert!(RunFolder::join(runs.path(), "one").is_ok());
        symlink(runs.path().join("one"), runs.path().join("link")).expect("a link");
        assert!(RunFolder::join(runs.path(), "link").is_err());
        let link = RunFolder::at(runs.path(), "link").expect("a name");
        assert!(link.refusal().expect("refused").contains("symbolic link"));
        assert!(!link.stop_asked());
        let one = RunFolder::at(runs.path(), "one").expect("a name");
        nix::unistd::mkfifo(&one.path().join("run.json"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert!(one.refusal().expect("refused").contains("run.json is a named pipe"));
        assert!(one.info().is_none());
    }
}
