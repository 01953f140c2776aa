//! A rank's life: read the plan, join the world, allocate, step, end.

mod join;
mod preflight;
mod steps;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use anyhow::anyhow;
use planner::run::said_by;
use planner::wire::Outcome;
use run_folder::Checkpoints;

use crate::arguments::Arguments;
use crate::{lease, log};
use join::{joined, last_resort};
use preflight::{Ready, preflight, read_plan};

/// Whether a run could go on by a plan: ranks run it, and what the run has saved is of its model.
///
/// # Errors
/// With a sentence where it could not.
pub fn check(arguments: &Arguments) -> anyhow::Result<()> {
    let reading = read_plan(&arguments.plan)?;
    match Checkpoints::of_run(&arguments.run_dir).refusal(reading.kept()) {
        Some(why) => Err(anyhow!(why)),
        None => Ok(()),
    }
}

/// Runs a rank to its end.
///
/// # Errors
/// With one sentence that says what failed.
pub fn run(arguments: &Arguments, cuda: Result<(), String>) -> anyhow::Result<()> {
    // What is said may go to a file, as the log does.
    run_folder::survive_size_limits();
    let Some(Ready { environment, reading, device }) = preflight(arguments, cuda)? else { return Ok(()) };
    let log = Arc::new(log::open(&arguments.run_dir, environment.rank)?);
    if let Some(launcher) = arguments.launcher {
        let last_resort = last_resort(&log);
        lease::watch(launcher, arguments.lease, move |reason| last_resort(reason))?;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| joined(arguments, &environment, &reading, device, &log)))
        .unwrap_or_else(|panic| Err(anyhow!("a bug in shardplan-rank: {}", said(panic.as_ref()))));
    match outcome {
        Ok((Outcome::Failed, reason)) => {
            log::end(&log, Outcome::Failed, &reason);
            Err(anyhow!(reason))
        }
        Ok((outcome, reason)) => {
            log::end(&log, outcome, &reason);
            Ok(())
        }
        Err(error) => {
            // What fails when the launcher is gone fails because of that: the ranks end one after the other.
            if let Some(gone) = lease::gone().map(lease::sentence) {
                let reason = format!("{gone}; then {error:#}");
                log::end(&log, Outcome::Failed, &reason);
                return Err(anyhow!(reason));
            }
            // Its own log has the sentence that the others have heard.
            log::end(&log, Outcome::Failed, &said_by(environment.rank as u64, &format!("{error:#}")));
            Err(error)
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}
