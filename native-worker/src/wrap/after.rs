//! What there is to say when a watched command has failed.

use std::process::ExitStatus;

/// The reason of the run's last record. `tail` are the last lines that the command printed, oldest first.
pub fn reason(status: ExitStatus, tail: &[String]) -> String {
    use std::os::unix::process::ExitStatusExt;
    let how = match (status.code(), status.signal()) {
        (Some(0), _) => return "The command ended with exit code 0".to_owned(),
        (Some(code), _) => format!("The command ended with exit code {code}"),
        (None, Some(signal)) => format!("The command was ended by signal {signal}"),
        (None, None) => "The command ended in an unknown way".to_owned(),
    };
    let last: Vec<&str> =
        tail.iter().rev().map(|line| line.trim()).filter(|line| !line.is_empty()).take(3).collect();
    if last.is_empty() {
        return format!("{how}. It printed nothing");
    }
    format!("{how}. Its last lines: {}", last.into_iter().rev().collect::<Vec<_>>().join(" | "))
}
