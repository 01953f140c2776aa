//! The last line of a Python traceback.

/// Names that tell of another process's failure, or only end this one.
const WRAPPERS: [&str; 11] = [
    "ChildFailedError",
    "CalledProcessError",
    "SystemExit",
    "SignalException",
    "ProcessRaisedException",
    "ProcessExitedException",
    "CancelledError",
    "GracefulExitException",
    "ActorDiedError",
    "RayActorError",
    "WorkerCrashedError",
];

/// An exception as Python prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exception<'a> {
    /// Its class without modules.
    pub(super) name: &'a str,
    /// What it says.
    pub(super) text: &'a str,
}

impl Exception<'_> {
    /// Whether it only passes another failure on.
    pub(super) fn is_wrapper(&self) -> bool {
        WRAPPERS.contains(&self.name) || self.text.starts_with("Caught ")
    }
}

/// Reads a message that is the last line of a traceback: `module.NameError: text`.
pub(super) fn read(message: &str) -> Option<Exception<'_>> {
    let length = message
        .bytes()
        .take(120)
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
        .count();
    let (path, mut rest) = message.split_at(length);
    let mut name = path.rsplit('.').next()?;
    if name == "RayTaskError"
        && let Some((inner, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'))
    {
        (name, rest) = (inner, after);
    }
    let is_class = name.starts_with(|letter: char| letter.is_ascii_uppercase() || letter == '_');
    let ends_so = [
        "Error",
        "Exception",
        "Interrupt",
        "StopIteration",
        "SystemExit",
        "Timeout",
        "Refused",
        "NotFound",
        "ExitException",
    ]
    .iter()
    .any(|ending| name.ends_with(ending));
    // `Error:` alone is any program's word.
    if !is_class || !ends_so || matches!(name, "Error" | "Exception" | "Timeout") && path == name {
        return None;
    }
    match rest.strip_prefix(':') {
        Some(text) => Some(Exception { name, text: text.trim() }),
        None if rest.trim().is_empty() => Some(Exception { name, text: "" }),
        None => None,
    }
}

/// Whether the line is a line of code that a traceback shows, whose words are not what happened.
pub(super) fn is_code(message: &str) -> bool {
    [
        "raise ",
        "if ",
        "elif ",
        "except ",
        "return ",
        "logger.",
        "logging.",
        "print(",
        "warnings.warn",
        "self.",
        "torch._C.",
        "frame #",
        "+ ",
    ]
    .iter()
    .any(|start| message.starts_with(start))
}

/// Whether the line is a remark of a library that goes on.
pub(super) fn is_remark(line: &str) -> bool {
    [
        "UserWarning",
        "FutureWarning",
        "DeprecationWarning",
        "RuntimeWarning",
        "AllocatorConfig",
        "NCCL INFO",
        // slurmstepd takes /tmp instead, whatever the reason.
        "error: Unable to create TMPDIR",
    ]
    .iter()
    .any(|word| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn last_lines_are_told_from_others() {
        let name = |line| read(line).map(|exception| exception.name);
        assert_eq!(name("ValueError: x"), Some("ValueError"));
        assert_eq!(name("torch.cuda.OutOfMemoryError: CUDA"), Some("OutOfMemoryError"));
        assert_eq!(name("AssertionError"), Some("AssertionError"));
        assert_eq!(name("KeyboardInterrupt"), Some("KeyboardInterrupt"));
        assert_eq!(name("ray.exceptions.RayTaskError(KeyError): ray::f()"), Some("KeyError"));
        for no in [
            "Error: x",
            "An Error: x",
            "error: x",
            "ValueError is raised",
            "Warning: x",
            "",
            "x.y: z",
            "Timeout: 3",
        ] {
            assert_eq!(name(no), None, "{no}");
        }
    }
}
