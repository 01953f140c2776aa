//! A folder of runs that leaves no process behind.

use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::wire::Event;
use tempfile::TempDir;

use crate::run_folder;

/// A folder of runs. Runs outlive their hub and their launcher's caller on purpose, so whatever a failed test has
/// left running is killed when this is dropped.
pub struct Runs {
    folder: TempDir,
    path: PathBuf,
}

impl Runs {
    /// An empty one.
    pub fn new() -> Result<Runs> {
        let folder = tempfile::Builder::new().prefix("shardplan-runs-").tempdir()?;
        let path = folder.path().join("runs");
        std::fs::create_dir(&path)?;
        Ok(Runs { folder, path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file beside the runs, for a plan or a script, that goes with them.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        for run in std::fs::read_dir(self.path()).into_iter().flatten().flatten() {
            for pid in processes_of(&run.path()) {
                kill_ours(pid);
            }
        }
    }
}

/// Process numbers that a run's files name: its launcher first, so that it does not report on the others.
fn processes_of(run: &Path) -> Vec<u32> {
    let launcher = run_folder::info(run).ok().and_then(|info| info.launcher);
    let records = run_folder::all_records(run).unwrap_or_default();
    let started = records.iter().filter_map(|(_, record)| match record.event {
        Event::Started { pid, .. } => Some(pid),
        _ => None,
    });
    launcher.map(|process| process.pid).into_iter().chain(started).collect()
}

/// Kills a process if it is still one of ours: its number may have gone to another since.
fn kill_ours(pid: u32) {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if String::from_utf8_lossy(&command).contains("shardplan")
        && let Ok(pid) = i32::try_from(pid)
    {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}
