//! Starting other programs: with their output shown, read, or kept for the case that they fail.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::console;

/// How often a silent program is said to be still at work.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// The command line as a person would type it.
pub fn shown(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        let _ = write!(line, " {}", argument.to_string_lossy());
    }
    line
}

/// Runs a program with its output shown, and with a line now and then while it is at work.
pub fn run(command: &mut Command) -> Result<()> {
    let line = shown(command);
    let status = with_heartbeat(|| {
        command.stdin(Stdio::null()).status().with_context(|| format!("cannot start `{line}`"))
    })?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Runs a program, shows what it prints to stdout line by line, and hands each line to `see`. True when it succeeded.
pub fn watch(command: &mut Command, mut see: impl FnMut(&str)) -> Result<bool> {
    let line = shown(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{line}`"))?;
    let stdout = child.stdout.take().context("no pipe from the program's stdout")?;
    for text in BufReader::new(stdout).split(b'\n') {
        let text = text.with_context(|| format!("cannot read what `{line}` prints"))?;
        let text = String::from_utf8_lossy(&text);
        console::result(&text);
        see(&text);
    }
    Ok(child.wait().with_context(|| format!("cannot wait for `{line}`"))?.success())
}

/// What a program prints to stdout, trimmed. Fails when it can't be started or fails.
pub fn read(command: &mut Command) -> Result<String> {
    let line = shown(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// True when the program can be started and succeeds. Prints nothing.
pub fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// True when a program of this name is on the PATH, or in the folders where Debian keeps system programs, which a
/// user's PATH often leaves out.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin"].map(Path::new);
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
        || system.iter().any(|folder| folder.join(program).is_file())
}

/// A PATH with more folders in front.
pub fn path_with<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = folders.into_iter().map(Path::to_owned).chain(std::env::split_paths(OsStr::new(&path)));
    std::env::join_paths(all).context("a tool's folder has a colon in its name")
}

fn with_heartbeat<T>(work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let (finished, signal) = sync_channel::<()>(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while signal.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                console::notice(format_args!("    at work for {}", console::duration(start.elapsed())));
            }
        });
        let outcome = work();
        drop(finished);
        outcome
    })
}
