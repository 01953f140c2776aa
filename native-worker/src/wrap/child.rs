//! Starting a command as a shell would, and ending as it ended.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{PipeReader, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal, raise};

/// Name of the command that turns into the watched command.
pub const BECOME: &str = "wrap-become";

/// Exit code of a shell for a command that it does not find.
const NOT_FOUND: i32 = 127;
/// Exit code of a shell for a file that it can't execute.
const NOT_EXECUTABLE: i32 = 126;

/// A command that was started, and the ends of its output.
pub struct Started {
    /// The process.
    pub child: Child,
    /// Its standard output; standard error too where both go to the same place.
    pub out: PipeReader,
    /// Its standard error, where that goes elsewhere.
    pub error: Option<PipeReader>,
}

/// Why a command could not be started.
pub struct NotStarted {
    /// The exit code that a shell gives.
    pub code: i32,
    /// What to say.
    pub message: String,
}

/// Starts a command in this process's group, with its standard input, and with pipes for its output: one for both where
/// both go to the same file, so that what it prints stays in order.
///
/// A process inherits which signals are blocked, and the command must not have ours. To unblock them here for the moment
/// of the start would let a signal end this process, which the command would outlive; so a step of our own program
/// unblocks them, and then turns into the command.
///
/// # Errors
/// When there is no such command or it can't be executed.
pub fn start(words: &[OsString], newly_blocked: &[Signal]) -> Result<Started, NotStarted> {
    let program = words
        .first()
        .ok_or_else(|| NotStarted { code: 2, message: "there is no command after --".to_owned() })?;
    let failed = |error: std::io::Error| not_started(program, &error);
    let (out, out_writer) = pipe().map_err(failed)?;
    let (error, error_writer) = if same_file() {
        (None, out_writer.try_clone().map_err(failed)?)
    } else {
        let (reader, writer) = pipe().map_err(failed)?;
        (Some(reader), writer)
    };
    let (mut refusal, refuses) = pipe().map_err(failed)?;
    fcntl(&refuses, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|error| failed(error.into()))?;
    let unblock: Vec<String> = newly_blocked.iter().map(|signal| (*signal as i32).to_string()).collect();
    let child = Command::new("/proc/self/exe")
        .arg(BECOME)
        .arg(refuses.as_raw_fd().to_string())
        .arg(unblock.join(","))
        .args(words)
        .stdout(out_writer)
        .stderr(error_writer)
        .spawn();
    drop(refuses);
    let mut child = child.map_err(failed)?;
    // Nothing comes, and the pipe ends, when the command has taken the step's place.
    let mut said = String::new();
    refusal.read_to_string(&mut said).map_err(failed)?;
    if let Ok(number) = said.parse() {
        let _ = child.wait();
        return Err(failed(std::io::Error::from_raw_os_error(number)));
    }
    Ok(Started { child, out, error })
}

/// The step between: unblocks what was blocked for us and turns into the command. Where it can't, it says the system's
/// number for why.
pub fn turn_into_command() -> ExitCode {
    let mut words = std::env::args_os().skip(2);
    let (Some(refuses), Some(unblock)) = (words.next(), words.next()) else { return ExitCode::FAILURE };
    let Some(program) = words.next() else { return ExitCode::FAILURE };
    let arguments: Vec<OsString> = words.collect();
    let refuses = refuses.to_string_lossy().parse::<i32>().ok().and_then(for_us_alone);
    for number in unblock.to_string_lossy().split(',') {
        if let Some(signal) = number.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok()) {
            let _ = SigSet::from(signal).thread_unblock();
        }
    }
    let mut error = Command::new(&program).args(&arguments).exec();
    if error.raw_os_error() == Some(nix::libc::ENOEXEC) {
        // A script without a `#!` line is the shell's.
        error = Command::new("/bin/sh").arg(&program).args(&arguments).exec();
    }
    if let (Some(mut refuses), Some(number)) = (refuses, error.raw_os_error()) {
        let _ = write!(refuses, "{number}");
    }
    ExitCode::FAILURE
}

/// The end of a pipe that we inherited, as one that the command does not inherit.
fn for_us_alone(descriptor: i32) -> Option<File> {
    let file = File::options().write(true).open(format!("/proc/self/fd/{descriptor}")).ok();
    let _ = nix::unistd::close(descriptor);
    file
}

/// Whether standard output and standard error are the same file, terminal or pipe.
fn same_file() -> bool {
    let file = |fd: &dyn std::os::fd::AsFd| {
        nix::sys::stat::fstat(fd.as_fd()).ok().map(|stat| (stat.st_dev, stat.st_ino, stat.st_rdev))
    };
    match (file(&std::io::stdout()), file(&std::io::stderr())) {
        (Some(out), Some(error)) => out == error,
        _ => false,
    }
}

fn not_started(program: &OsStr, error: &std::io::Error) -> NotStarted {
    let name = program.to_string_lossy();
    match error.kind() {
        std::io::ErrorKind::NotFound if !Path::new(program).exists() => {
            NotStarted { code: NOT_FOUND, message: format!("{name}: command not found") }
        }
        std::io::ErrorKind::NotFound => NotStarted {
            code: NOT_EXECUTABLE,
            message: format!("{name}: the interpreter that its first line names is not there"),
        },
        _ => NotStarted { code: NOT_EXECUTABLE, message: format!("{name}: can't be executed: {error}") },
    }
}

/// Ends this process as the command ended: with its exit code, or by the signal that ended it.
pub fn end_like(status: ExitStatus) -> ! {
    if let Some(code) = status.code() {
        std::process::exit(code);
    }
    let number = status.signal().unwrap_or(nix::libc::SIGKILL);
    // The command has left a core file, if one is wanted.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    if let Ok(signal) = Signal::try_from(number) {
        let mut set = SigSet::empty();
        set.add(signal);
        let _ = set.thread_unblock();
        // The first of some signals only takes away the runtime's own handler.
        for _ in 0..2 {
            let _ = raise(signal);
        }
    }
    // Signals that this process ignores or has no name for end a shell that takes its place.
    let _ =
        Command::new("/bin/sh").args(["-c", &format!("kill -{number} $$")]).stdin(Stdio::inherit()).exec();
    std::process::exit(128 + number)
}
