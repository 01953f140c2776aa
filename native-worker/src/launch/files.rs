//! Finding and reading the files of a start: script, stage, repository, profiles, configuration.

use std::io::Read;
use std::path::{Path, PathBuf};

use batch::runspec::{Stage, read_stage};
use planner::Finding;

use crate::report::Failure;

/// The largest file that is read whole, in bytes: locks of large projects have some megabytes.
const MAX_BYTES: u64 = 32 * 1024 * 1024;
/// Names a file with profiles, before any that is found by its place.
const PROFILES: &str = "NEMOTRON_ENV_FILE";

/// A script and the stage that it belongs to.
#[derive(Debug)]
pub struct Located {
    /// The script, from the root.
    pub script: PathBuf,
    /// The folder of the stage, from the root.
    pub folder: PathBuf,
    /// What its `pyproject.toml` says; none where there is none.
    pub stage: Option<Stage>,
    /// Whether a person named the stage, and it was not found above the script.
    pub is_named: bool,
}

/// A text file, bounded.
///
/// # Errors
/// A sentence for a file that can't be read, is too large, or is not UTF-8.
pub fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let file =
        std::fs::File::open(path).map_err(|error| format!("this file can't be opened ({error}): {shown}"))?;
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("this file can't be read ({error}): {shown}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("this file has more than {MAX_BYTES} bytes: {shown}"));
    }
    String::from_utf8(bytes).map_err(|_| format!("this file is not UTF-8 text: {shown}"))
}

/// As [`read`], with a failure of the command line.
pub fn read_named(path: &Path) -> anyhow::Result<String> {
    read(path).map_err(Failure::usage)
}

/// A path as text, which arguments and messages need.
pub fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::usage(format!("this path is not UTF-8: {}", path.display())))
}

/// Finds the script that `target` names: a file, from here or else from the stage that was named; or a stage's folder,
/// whose `pyproject.toml` names it.
pub fn locate(target: &Path, named_stage: Option<&Path>) -> anyhow::Result<Located> {
    let here = absolute(target)?;
    if here.is_dir() {
        return entry_point(here);
    }
    let named = named_stage.map(absolute).transpose()?;
    let script = if here.is_file() {
        here
    } else {
        // Sub-folders of the name are kept: scripts/train.py is not train.py.
        let in_stage = named.as_ref().filter(|_| target.is_relative()).map(|stage| stage.join(target));
        match in_stage.filter(|path| path.is_file()) {
            Some(path) => path,
            None => return Err(Failure::usage(format!("there is no script {}", here.display()))),
        }
    };
    let folder = named.unwrap_or_else(|| {
        let mut above = script.ancestors().skip(1);
        let parent = above.clone().next().unwrap_or(Path::new("/")).to_owned();
        above.find(|folder| folder.join("pyproject.toml").is_file()).map_or(parent, Path::to_owned)
    });
    let stage = stage(&folder)?;
    Ok(Located { script, folder, stage, is_named: named_stage.is_some() })
}

fn entry_point(folder: PathBuf) -> anyhow::Result<Located> {
    let path = folder.join("pyproject.toml");
    let shown = folder.display();
    let refuse =
        |field: &str, value: &str, message: String| Failure::finding(Finding::error(field, value, message));
    let Some(stage) = stage(&folder)? else {
        return Err(refuse(
            "stage",
            "",
            format!("this folder has no pyproject.toml, so it is no stage; name a script instead: {shown}"),
        ));
    };
    let Some(entry) = &stage.entry_point else {
        let message = format!("no [tool.nemotron] entry-point names this stage's script: {}", path.display());
        return Err(refuse("tool.nemotron.entry-point", "", message));
    };
    let script = folder.join(entry);
    if !script.is_file() {
        let message = format!("entry-point {entry:?} is not there: {}", script.display());
        return Err(refuse("tool.nemotron.entry-point", entry, message));
    }
    Ok(Located { script, folder, stage: Some(stage), is_named: true })
}

fn stage(folder: &Path) -> anyhow::Result<Option<Stage>> {
    let path = folder.join("pyproject.toml");
    if !path.is_file() {
        return Ok(None);
    }
    let content = read_named(&path)?;
    Ok(Some(read_stage(&text(&path)?, &content).map_err(|finding| Failure::finding(*finding))?))
}

/// Refuses what Python does not run: by its name, or by the program that its first line names.
pub fn check_python(path: &Path, content: &str) -> anyhow::Result<()> {
    let first = content.lines().next().unwrap_or_default();
    let by_line =
        first.strip_prefix("#!").map(|program| program.contains("python") || program.contains("uv"));
    let by_name = path.extension().map(|ending| ending == "py" || ending == "pyw");
    if by_line.or(by_name).unwrap_or(true) {
        return Ok(());
    }
    let message = format!(
        "launch starts Python scripts, and this is none by its name or first line; run it as it is, or watch it with \
         `shardplan wrap -- COMMAND`: {}",
        path.display()
    );
    Err(Failure::finding(Finding::error("script", text(path)?, message)))
}

/// The repository around a stage: the nearest folder above it that is a Python project of its own.
pub fn repository(stage: &Path) -> Option<PathBuf> {
    let is_project = |folder: &&Path| {
        let content = read(&folder.join("pyproject.toml")).unwrap_or_default();
        // A workspace's root without a [project] can't be installed.
        content.lines().any(|line| line.trim() == "[project]")
    };
    stage.ancestors().skip(1).find(is_project).map(Path::to_owned)
}

/// The file with profiles: the one that `NEMOTRON_ENV_FILE` names, or the nearest `env.toml` from here upwards, not
/// beyond the first folder with a `pyproject.toml`.
pub fn profiles() -> anyhow::Result<Option<PathBuf>> {
    if let Some(named) = std::env::var_os(PROFILES).filter(|value| !value.is_empty()) {
        let path = PathBuf::from(named);
        // As Python's expanduser: a shell expands it only where it stands unquoted.
        let path = match (path.strip_prefix("~"), std::env::var_os("HOME")) {
            (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
            _ => path,
        };
        return Ok(Some(path));
    }
    for folder in absolute(Path::new("."))?.ancestors() {
        let file = folder.join("env.toml");
        if file.is_file() {
            return Ok(Some(file));
        }
        if folder.join("pyproject.toml").is_file() {
            break;
        }
    }
    Ok(None)
}

/// Names of the files in a folder; none where it can't be read.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// A path from the root, without `.` and `..`; links stay as they are named.
pub fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    use std::path::Component;
    let whole = std::path::absolute(path)
        .map_err(|error| Failure::environment(format!("the current folder can't be found: {error}")))?;
    let mut clean = PathBuf::new();
    for component in whole.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    Ok(clean)
}
