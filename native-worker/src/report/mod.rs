//! What is told to people: a command's answer, its end with an exit code, errors that carry one, lines on the way.

use std::fmt;
use std::io::Write;
use std::path::Path;

use planner::Finding;
use serde_json::Value;

pub mod text;

/// How a command ended, when it could do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The answer is yes: code 0.
    Yes,
    /// The answer is no: code 1.
    No,
    /// Something of the environment is missing: code 3.
    Missing,
}

impl Exit {
    /// The process's exit code.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Yes => 0,
            Exit::No => 1,
            Exit::Missing => 3,
        }
    }
}

/// Why a command could not do its work.
#[derive(Debug)]
pub enum Failure {
    /// The input was read and is wrong: code 1, with the findings as the answer.
    Findings(Vec<Finding>),
    /// The command line itself is wrong: code 2.
    Usage(Box<Finding>),
    /// Something of the environment is missing or in the way: code 3.
    Environment(Box<Finding>),
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Findings(findings) => {
                let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
                formatter.write_str(&messages.join("; "))
            }
            Failure::Usage(finding) | Failure::Environment(finding) => formatter.write_str(&finding.message),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// An environment failure.
    pub fn environment(message: impl Into<String>) -> anyhow::Error {
        let finding = Finding::error("", Value::Null, message);
        Failure::Environment(Box::new(
            finding.rule("exit code 3: something of the environment is missing or in the way"),
        ))
        .into()
    }

    /// A failure of the command line.
    pub fn usage(message: impl Into<String>) -> anyhow::Error {
        let message = message.into();
        // What is said of an option begins with it.
        let option =
            message.split([' ', ':']).next().filter(|word| word.starts_with("--")).unwrap_or_default();
        let option = option.to_owned();
        Failure::usage_of(&option, Value::Null, message)
    }

    /// A failure of the command line: this file is not what it should be.
    pub fn usage_of_file(path: &Path, message: &str) -> anyhow::Error {
        let path = path.display().to_string();
        let message = format!("{message}: {path}");
        Failure::usage_of("", path, message)
    }

    /// What is wrong with a file or folder that the command line names and that is read: of the command line where nothing is there,
    /// else of the environment.
    pub fn of_named(path: &Path, message: impl Into<String>) -> anyhow::Error {
        match path.exists() {
            true => Failure::environment(message),
            false => Failure::usage(message),
        }
    }

    /// A failure of the command line: this argument has this value.
    pub fn usage_of(argument: &str, value: impl Into<Value>, message: impl Into<String>) -> anyhow::Error {
        Failure::wrong(Finding::error(argument, value, message)).into()
    }

    /// A failure of the command line, as it is told.
    pub fn wrong(finding: Finding) -> Failure {
        Failure::Usage(Box::new(finding.rule("exit code 2: the command line is wrong")))
    }

    /// Wrong input.
    pub fn finding(finding: Finding) -> anyhow::Error {
        Failure::Findings(vec![finding]).into()
    }
}

/// Writes data to standard output. A reader that has gone away is not an error.
///
/// # Errors
/// When standard output can't be written for another reason.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_by(|out| out.write_all(text.as_bytes()))
}

/// Writes to standard output what `write` writes, as it comes: an answer that is too long to be made first.
///
/// # Errors
/// As [`print`].
pub fn print_by(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> anyhow::Result<()> {
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    match write(&mut stdout).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::environment(format!("standard output can't be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a value as indented JSON with a newline.
///
/// # Errors
/// As [`print`].
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Writes a path as JSON: one that is no UTF-8, which a JSON text can't have, as people are shown it.
///
/// # Errors
/// As the serializer.
pub fn path<S: serde::Serializer>(path: &std::path::Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// Writes a path that may be missing as [`path`] does.
///
/// # Errors
/// As the serializer.
pub fn maybe_path<S: serde::Serializer>(
    path: &Option<std::path::PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serializer.collect_str(&path.display()),
        None => serializer.serialize_none(),
    }
}

/// Writes paths as [`path`] does.
///
/// # Errors
/// As the serializer.
pub fn paths<S: serde::Serializer>(paths: &[std::path::PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.display().to_string()))
}

/// Prints findings as the JSON of a command that could not do its work.
///
/// # Errors
/// As [`print`].
pub fn print_findings(findings: &[Finding]) -> anyhow::Result<()> {
    print_json(&planner::wire::unanswered(findings))
}

/// Writes a line to standard error; nobody listening is not an error.
pub fn notice(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
