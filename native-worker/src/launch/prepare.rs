//! Preparing an environment once, however many starts want it at the same time.
//!
//! uv does not guard an environment that several starts fill at once. So one takes a lock and prepares, and leaves a
//! marker; the others wait for the lock and find the marker. The preparing programs inherit the lock: when this one is
//! killed, no other start meets them halfway.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use batch::runspec::{Invocation, shell_line};
use sha2::{Digest, Sha256};

use super::environment;
use crate::probe;
use crate::report::{Failure, notice};

/// What is to be there before a start.
#[derive(Debug, Clone)]
pub struct Preparation {
    /// What must happen, in order, with what to say when it fails.
    pub steps: Vec<(Invocation, &'static str)>,
    /// Folder of the environment that they make.
    pub environment: PathBuf,
    /// A folder that is emptied before the first step, and files that are written into it.
    pub fresh: Option<(PathBuf, Vec<(PathBuf, String)>)>,
    /// Files that are written after the last step.
    pub afterwards: Vec<(PathBuf, String)>,
    /// Names what is prepared: its lock and its marker.
    pub key: String,
    /// What it was made of: the marker holds it, and other content is prepared anew.
    pub content: String,
}

/// A name for everything that an environment is made of.
pub fn key(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    hex::encode(&digest.finalize()[..8])
}

/// The folder of prepared environments, with their locks and markers.
pub fn folder() -> anyhow::Result<PathBuf> {
    let cache = probe::cache_folder().ok_or_else(|| {
        Failure::environment("there is no folder for prepared environments: set SHARDPLAN_CACHE or HOME")
    })?;
    Ok(cache.join("launch"))
}

/// Prepares, unless the same was prepared before. Several processes, on several nodes that share the folder too, take
/// turns.
///
/// # Errors
/// When the folder can't be used, or a step fails.
pub fn prepare(preparation: &Preparation) -> anyhow::Result<()> {
    let folder = folder()?;
    let failed = |what: &str, error: std::io::Error, path: &Path| {
        Failure::environment(format!(
            "{what} ({error}); name a folder that can be with SHARDPLAN_CACHE: {}",
            path.display()
        ))
    };
    std::fs::create_dir_all(&folder).map_err(|error| failed("this folder can't be made", error, &folder))?;
    let lock_path = folder.join(format!("{}.lock", preparation.key));
    let marker = folder.join(format!("{}.ready", preparation.key));
    let lock =
        File::create(&lock_path).map_err(|error| failed("this lock can't be made", error, &lock_path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            notice("waiting for another start that prepares this environment");
            lock.lock().map_err(|error| failed("this lock can't be waited for", error, &lock_path))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(failed("files of this filesystem can't be locked", error, &lock_path));
        }
    }
    let made_of = super::files::read(&marker).unwrap_or_default();
    if made_of == preparation.content && preparation.environment.is_dir() {
        return Ok(());
    }
    // The environment is not ready from here on, whatever was said before.
    match std::fs::remove_file(&marker) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed("this marker can't be removed", error, &marker));
        }
        _ => {}
    }
    if let Some((fresh, files)) = &preparation.fresh {
        match std::fs::remove_dir_all(fresh) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("an unfinished environment can't be removed", error, fresh));
            }
            _ => {}
        }
        write(files)?;
    }
    for (step, failure) in &preparation.steps {
        run(step, failure, &lock)?;
    }
    write(&preparation.afterwards)?;
    std::fs::write(&marker, &preparation.content)
        .map_err(|error| failed("this marker can't be written", error, &marker))
}

fn write(files: &[(PathBuf, String)]) -> anyhow::Result<()> {
    for (path, content) in files {
        let parent = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(parent).and_then(|()| std::fs::write(path, content)).map_err(|error| {
            Failure::environment(format!("this file can't be written ({error}): {}", path.display()))
        })?;
    }
    Ok(())
}

/// Runs one step. Its standard input is the lock's file, which is empty: so the step holds the lock as long as it
/// lives.
fn run(step: &Invocation, failure: &str, lock: &File) -> anyhow::Result<()> {
    notice(&format!("+ {}", shell_line(&step.command)));
    let program = step.command.first().map_or("", String::as_str);
    let held = lock
        .try_clone()
        .map_err(|error| Failure::environment(format!("a file can't be opened twice: {error}")))?;
    let mut command = environment::command(step);
    // Standard output belongs to the script alone.
    command.stdin(Stdio::from(held)).stdout(Stdio::from(std::io::stderr()));
    let status = command
        .status()
        .map_err(|error| Failure::environment(format!("{program} can't be started: {error}")))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::finding(planner::Finding::error(
        "environment",
        shell_line(&step.command),
        format!("{failure} ({status}); what it printed stands above"),
    )))
}
