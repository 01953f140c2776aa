//! What there is to say when a watched command has failed.

use std::process::ExitStatus;

use diagnose::{Answer, Diagnosis, Part};
use planner::Plan;
use planner::wire::PlanFile;

/// Why the command failed, from the last lines that it printed, oldest first; out-of-memory errors are set against the
/// plan.
pub fn diagnose(tail: &[String], plan: Option<&PlanFile>) -> Answer {
    let plan = plan.and_then(|plan| Plan::resolve(plan).plan);
    let mut diagnosis = Diagnosis::new(plan.as_ref());
    diagnosis.file("output");
    for line in tail {
        diagnosis.feed(line.as_bytes());
        diagnosis.feed(b"\n");
    }
    diagnosis.finish()
}

/// The reason of the run's last record.
pub fn reason(status: ExitStatus, tail: &[String], answer: Option<&Answer>) -> String {
    use std::os::unix::process::ExitStatusExt;
    let how = match (status.code(), status.signal()) {
        (Some(0), _) => return "The command ended with exit code 0".to_owned(),
        (Some(code), _) => format!("The command ended with exit code {code}"),
        (None, Some(signal)) => format!("The command was ended by signal {signal}"),
        (None, None) => "The command ended in an unknown way".to_owned(),
    };
    let cause = answer.and_then(|answer| answer.verdicts.iter().find(|verdict| verdict.part == Part::Cause));
    if let Some(cause) = cause {
        let next = cause.next.first().map_or(String::new(), |next| format!(". {next}"));
        return format!("{how}. {} ({}){next}", cause.title.trim_end_matches('.'), cause.sure.name());
    }
    let last: Vec<&str> =
        tail.iter().rev().map(|line| line.trim()).filter(|line| !line.is_empty()).take(3).collect();
    if last.is_empty() {
        return format!("{how}. It printed nothing");
    }
    format!("{how}. Its last lines: {}", last.into_iter().rev().collect::<Vec<_>>().join(" | "))
}
