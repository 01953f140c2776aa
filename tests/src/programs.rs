//! Where the built programs and their surroundings are.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// A built program, `shardplan` or `shardplan-rank`.
pub fn program(name: &str) -> Result<PathBuf> {
    let folder = std::env::var_os("SHARDPLAN_BIN_DIR")
        .context("SHARDPLAN_BIN_DIR is not set: run cargo xtask test")?;
    let path = PathBuf::from(folder).join(name);
    ensure!(path.is_file(), "{} is not there: run cargo xtask test", path.display());
    Ok(path)
}

/// The Python whose torch the ranks run on.
pub fn torch_python() -> Result<PathBuf> {
    let python =
        std::env::var_os("SHARDPLAN_TORCH").context("SHARDPLAN_TORCH is not set: run cargo xtask test")?;
    Ok(PathBuf::from(python))
}

/// `shardplan` with no input.
pub fn shardplan() -> Result<Command> {
    let mut command = Command::new(program("shardplan")?);
    command.stdin(Stdio::null());
    Ok(command)
}

/// What a command printed and how it ended, with both in the error when the exit code is another than expected.
pub fn expect_code(command: &mut Command, code: i32) -> Result<Output> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if output.status.code() != Some(code) {
        bail!(
            "{command:?} ended with {} instead of {code}\nstdout: {}\nstderr: {}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(output)
}

/// A program of the system: on the PATH, or where Debian keeps what a user's PATH leaves out.
pub fn system_program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into(), "/usr/bin".into()])
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .with_context(|| format!("the program {name} is not installed: run cargo xtask test"))
}

/// A folder for what people look at after the tests, such as screenshots.
pub fn look_folder(name: &str) -> Result<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join("target").join(name);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))
}
