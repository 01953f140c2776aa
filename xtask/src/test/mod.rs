//! `cargo xtask test`: everything that CI runs, two steps at a time, going on after a failure.
//!
//! The steps are in `steps`, what they count in `count`. A step that is one check (a build, a lint) counts as one.
//! The last line of stdout is `N passed, N failed`; the exit code is 0 when nothing failed.

mod changed;
mod count;
mod names;
mod passed;
mod steps;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::console;
use crate::place::Place;
use count::Count;
use passed::Passed;
pub use steps::Surroundings;
use steps::{Once, Step};

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only these steps
    #[arg(long, value_enum, num_args = 1.., value_name = "STEP")]
    only: Vec<Step>,
    /// Run also what has passed on this machine with the same files
    #[arg(long)]
    again: bool,
    /// Run nothing; write the names of all tests to docs/measurements/test-names.txt, to be compared with those of another commit
    #[arg(long, conflicts_with = "only")]
    list: bool,
}

struct Outcome {
    step: Step,
    count: Count,
    elapsed: Duration,
    /// Whether it passed before, with the same files, and was not run.
    before: bool,
}

/// Runs the steps.
pub fn run(place: &Place, arguments: &Arguments) -> Result<ExitCode> {
    if arguments.list {
        return names::write(place);
    }
    let all = <Step as clap::ValueEnum>::value_variants();
    let chosen: Vec<Step> = all
        .iter()
        .copied()
        .filter(|step| arguments.only.is_empty() || arguments.only.contains(step))
        .collect();
    let start = Instant::now();
    // Half of the time a step is a compiler on one core, or processes that wait for each other: two at a time.
    let once = Once::new(place);
    let waiting = Mutex::new(chosen.iter().copied().collect::<VecDeque<_>>());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let step = |step| outcome_or_known(&once, step, arguments.again);
    let work = || std::iter::from_fn(next).map(step).collect::<Vec<_>>();
    let mut outcomes = std::thread::scope(|scope| {
        let beside = scope.spawn(work);
        let mut outcomes = work();
        // Each step answers for its own panics.
        outcomes.extend(beside.join().unwrap_or_default());
        outcomes
    });
    outcomes.sort_by_key(|outcome| chosen.iter().position(|&step| step == outcome.step));
    Ok(summary(&outcomes, start.elapsed()))
}

/// Runs `cargo xtask check`: what can be said of a change within two minutes.
pub fn check(place: &Place) -> Result<ExitCode> {
    let changed = changed::changed(place)?;
    let start = Instant::now();
    let once = Once::new(place);
    let mut outcomes = vec![outcome(&once, Step::Format), outcome(&once, Step::Lint)];
    if changed.is_page {
        outcomes.push(outcome(&once, Step::LintWasm));
    }
    if changed.packages.is_empty() {
        console::result("No package with unit tests has changed");
    } else {
        outcomes.push(outcome_of(Step::Unit, || steps::unit_of(place, &changed.packages)));
    }
    Ok(summary(&outcomes, start.elapsed()))
}

/// Does a step and says how it ended.
fn outcome(once: &Once<'_>, step: Step) -> Outcome {
    outcome_of(step, || step.run(once))
}

fn outcome_of(step: Step, run: impl FnOnce() -> Result<Count> + std::panic::UnwindSafe) -> Outcome {
    console::result(format_args!("\n== {step}: {}", step.title()));
    let start = Instant::now();
    let ended = std::panic::catch_unwind(run).unwrap_or_else(|_| Err(anyhow!("it panicked")));
    let count = ended.unwrap_or_else(|error| {
        console::notice(format_args!("error in {step}: {error:#}"));
        Count::FAILED
    });
    let elapsed = start.elapsed();
    console::result(format_args!("== {step}: {count} in {}", console::duration(elapsed)));
    Outcome { step, count, elapsed, before: false }
}

/// Does a step, unless all of it has passed here with the files as they are and it need not run `again`, and says how it ended.
fn outcome_or_known(once: &Once<'_>, step: Step, again: bool) -> Outcome {
    let start = Instant::now();
    let Some(passed) = Passed::of(once.place, step) else { return outcome(once, step) };
    if let Some(count) = passed.known().filter(|_| !again) {
        console::result(format_args!("\n== {step}: {count} before, with the same files; --again runs them"));
        return Outcome { step, count, elapsed: start.elapsed(), before: true };
    }
    let outcome = outcome(once, step);
    if let Err(error) = passed.remember(once.place, step, outcome.count) {
        console::notice(format_args!("{step} will be run again: {error:#}"));
    }
    outcome
}

fn summary(outcomes: &[Outcome], elapsed: Duration) -> ExitCode {
    console::result("\n== summary");
    for Outcome { step, count, elapsed, before } in outcomes {
        let mark = match (count.failed, before) {
            (0, false) => "ok    ",
            (0, true) => "before",
            _ => "FAILED",
        };
        console::result(format_args!(
            "{mark}  {:<10}  {:<24}  {}",
            step.to_string(),
            count.to_string(),
            console::duration(*elapsed)
        ));
    }
    if !has_gpu() {
        console::result("No GPU here, so nothing was run on one");
    }
    let total: Count = outcomes.iter().map(|outcome| outcome.count).sum();
    console::result(format_args!("All steps took {}", console::duration(elapsed)));
    console::result(total);
    if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether an NVIDIA GPU is visible.
fn has_gpu() -> bool {
    std::path::Path::new("/dev/nvidia0").exists()
}
