//! The run folder: its name, its files, and how they are written so that a reader never sees half of one.

use std::path::{Path, PathBuf};

use anyhow::Context;
use planner::Plan;
use planner::wire::{PlanFile, RunInfo, Runtime};

pub use run_folder::unix_ms;

/// The word in the `control` file that asks for an end at the next step.
pub const STOP: &str = "stop";

/// The word in the `control` file that asks to return to the whole plan, as lost GPUs are back.
pub const WHOLE_AGAIN: &str = "whole";

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

    /// Makes the folder of a new run.
    ///
    /// # Errors
    /// When it exists or can't be made.
    pub fn create(runs: &Path, id: &str) -> anyhow::Result<Self> {
        anyhow::ensure!(is_id(id), "a run's id has letters, digits, `.`, `_` and `-` only: {id:?}");
        std::fs::create_dir_all(runs)
            .with_context(|| format!("the runs folder can't be made: {}", runs.display()))?;
        let path = runs.join(id);
        run_folder::make(&path)
            .with_context(|| format!("the run folder can't be made: {}", path.display()))?;
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
        match run_folder::make(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => run_folder::check(&path),
            made => made,
        }
        .with_context(|| format!("the run folder can't be made: {}", path.display()))?;
        let path = path.canonicalize().unwrap_or(path);
        Ok(RunFolder { path })
    }

    /// Why this folder is not read, if it is not: it is another's or leads elsewhere, or its description does.
    pub fn refusal(&self) -> Option<String> {
        let opened = ["run.json", "plan.json"].map(|name| run_folder::open(&self.path.join(name)).map(drop));
        let mut checks = std::iter::once(run_folder::check(&self.path)).chain(opened);
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
        self.path.join("plan.json")
    }

    /// The plan; none while it is not there.
    pub fn plan(&self) -> Option<PlanFile> {
        serde_json::from_str(&read_bounded(&self.plan_path())?).ok()
    }

    /// The log of the run's first rank, which says what is said once: rank 0's, unless the worker's plan leaves that out.
    pub fn first_log(&self) -> String {
        let plan = self.plan().and_then(|file| Plan::resolve(&file).plan);
        let left_out = plan.filter(|plan| plan.runtime == Runtime::Native && plan.nonuniform.is_some());
        let first = left_out.and_then(|plan| plan.active_ranks().first().copied()).unwrap_or(0);
        format!("rank-{first:05}.log")
    }

    /// Writes the plan.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write_plan(&self, plan: &PlanFile) -> anyhow::Result<()> {
        self.write("plan.json", &(serde_json::to_string_pretty(plan)? + "\n"))
    }

    /// The plan that was asked for, where a failure had the run go on with another; none where none has.
    pub fn whole_plan(&self) -> Option<PlanFile> {
        serde_json::from_str(&read_bounded(&self.path.join(WHOLE))?).ok()
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

    /// Who started it, when, with what; none while it is not there.
    pub fn info(&self) -> Option<RunInfo> {
        serde_json::from_str(&read_bounded(&self.path.join("run.json"))?).ok()
    }

    /// Writes `run.json`.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write_info(&self, info: &RunInfo) -> anyhow::Result<()> {
        self.write("run.json", &(serde_json::to_string_pretty(info)? + "\n"))
    }

    /// Asks the ranks to stop at the next step.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn ask_to_stop(&self) -> anyhow::Result<()> {
        self.write("control", &format!("{STOP}\n"))
    }

    /// Asks the launcher to return to the whole plan.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn ask_for_whole(&self) -> anyhow::Result<()> {
        self.write("control", &format!("{WHOLE_AGAIN}\n"))
    }

    /// Takes back a stop that was asked of an earlier start.
    ///
    /// # Errors
    /// When the file can't be removed.
    pub fn allow(&self) -> anyhow::Result<()> {
        let path = self.path.join("control");
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

    fn control_says(&self, word: &str) -> bool {
        use std::io::Read;
        let Ok(file) = run_folder::open(&self.path.join("control")) else { return false };
        let mut text = String::new();
        file.take(64).read_to_string(&mut text).is_ok() && text.trim() == word
    }

    /// File names of the logs, sorted.
    pub fn logs(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| {
                name.ends_with(".log") && (name.starts_with("rank-") || name.starts_with("launcher-"))
            })
            .collect();
        names.sort();
        names
    }

    /// Writes a file of this folder, so that a reader never sees half of it.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path.join(name);
        run_folder::replace(&path, text)
            .with_context(|| format!("this file can't be written: {}", path.display()))
    }
}

fn read_bounded(path: &Path) -> Option<String> {
    use std::io::Read;
    let file = run_folder::open(path).ok()?;
    if file.metadata().ok()?.len() > MAX_FILE_BYTES {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
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

/// A new run's id: the time in UTC, so that names sort by start, and something random.
///
/// # Errors
/// When the system gives no random bytes.
pub fn new_id() -> anyhow::Result<String> {
    let mut random = [0u8; 3];
    getrandom::fill(&mut random).context("the system gives no random bytes")?;
    let now = jiff::Timestamp::now();
    Ok(format!(
        "{}-{:03}-{}",
        now.strftime("%Y%m%dT%H%M%SZ"),
        now.as_millisecond().rem_euclid(1000),
        hex::encode(random)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_never_leave_the_runs_folder() {
        for id in ["..", ".hidden", "a/b", "", "a\0b", "a b", "../x", &"x".repeat(200)] {
            assert!(!is_id(id), "{id:?}");
        }
        assert!(is_id(&new_id().expect("an id")));
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
    fn a_run_is_its_owners_alone_and_what_is_not_its_own_is_not_read() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let runs = tempfile::tempdir().expect("a folder");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
        for folder in [RunFolder::create(runs.path(), "one"), RunFolder::join(runs.path(), "two")] {
            let folder = folder.expect("a run folder");
            folder.ask_to_stop().expect("written");
            assert_eq!((mode(folder.path()), mode(&folder.path().join("control"))), (0o700, 0o600));
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
