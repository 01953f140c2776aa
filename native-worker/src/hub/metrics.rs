//! `/metrics`: what Prometheus reads. No run is named, so nothing here grows without bound.

use std::fmt::Write;

use planner::run::{FIGURES, RankRecord};
use planner::wire::{RunState, Step};
use run_folder::{LogReader, RunFolder};

use super::{Hub, MAX_PAGES};

const STATES: [(RunState, &str); 5] = [
    (RunState::Running, "running"),
    (RunState::Completed, "completed"),
    (RunState::Stopped, "stopped"),
    (RunState::Failed, "failed"),
    (RunState::Lost, "lost"),
];

/// The page of metrics.
pub fn render(hub: &Hub) -> String {
    let runs = hub.runs.borrow().clone();
    let mut out = String::new();
    let mut gauge = |name: &str, help: &str, lines: &[(String, f64)]| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in lines {
            let _ = writeln!(out, "{name}{labels} {value}");
        }
    };
    gauge(
        "shardplan_build_info",
        "Version of this hub.",
        &[(format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1.0)],
    );
    let counts = STATES.map(|(state, name)| {
        (format!("{{state=\"{name}\"}}"), runs.iter().filter(|run| run.state == state).count() as f64)
    });
    gauge("shardplan_runs", "Runs in the runs folder by state.", &counts);
    gauge(
        "shardplan_connections",
        "Pages that are connected.",
        &[(String::new(), (MAX_PAGES - hub.pages.available_permits()) as f64)],
    );
    let running = runs.iter().find(|run| run.state == RunState::Running);
    if let Some(step) = running.and_then(|run| last_step(RunFolder::at(&hub.settings.runs, &run.info.id)?)) {
        let one = |value| [(String::new(), value)];
        gauge("shardplan_step", "Last step of the newest running run.", &one(step.step as f64));
        for figure in &FIGURES {
            if let Some(value) = (figure.of_step)(&step) {
                let help = format!("{} at the last step of the newest running run.", figure.quantity);
                gauge(&format!("shardplan_{}", figure.key), &help, &one(value));
            }
        }
    }
    out
}

fn last_step(folder: RunFolder) -> Option<Step> {
    let mut reader = LogReader::near_end(folder.path().join(folder.first_log()), 64 * 1024);
    let mut rank = RankRecord::default();
    reader.read().ok()?.records.into_iter().for_each(|record| rank.take(record.unix_ms, record.event));
    rank.last_step
}
