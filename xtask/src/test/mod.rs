//! `cargo xtask test`: everything that CI runs, in order, going on after a failure.
//!
//! The steps are in `steps`, what they count in `count`. A step that is one check (a build, a lint) counts as one.
//! The last line of stdout is `N passed, N failed`; the exit code is 0 when nothing failed.

mod count;
mod steps;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::console;
use crate::place::Place;
use count::Count;
use steps::Step;

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only these steps, in the order of the full run
    #[arg(long, value_enum, num_args = 1.., value_name = "STEP")]
    only: Vec<Step>,
}

struct Outcome {
    step: Step,
    count: Count,
    elapsed: Duration,
}

/// Runs the steps.
pub fn run(place: &Place, arguments: &Arguments) -> Result<ExitCode> {
    let all = <Step as clap::ValueEnum>::value_variants();
    let chosen: Vec<Step> = all
        .iter()
        .copied()
        .filter(|step| arguments.only.is_empty() || arguments.only.contains(step))
        .collect();
    let start = Instant::now();
    let outcomes = std::thread::scope(|scope| {
        // Optimizing the page takes one core minutes, so it is built beside the executor's tests, which wait for each other.
        let mut page = None;
        let mut outcomes = Vec::new();
        for (index, &step) in chosen.iter().enumerate() {
            console::result(format_args!("\n== {}/{} {step}: {}", index + 1, chosen.len(), step.title()));
            let step_start = Instant::now();
            if step == Step::Rank && chosen.contains(&Step::Page) {
                page = Some(scope.spawn(|| Step::Page.run(place)));
            }
            let begun = if step == Step::Page { page.take() } else { None };
            let ended = match begun {
                Some(page) => {
                    page.join().unwrap_or_else(|_| Err(anyhow!("the thread that builds the page panicked")))
                }
                None => step.run(place),
            };
            let count = ended.unwrap_or_else(|error| {
                console::say(format_args!("error: {error:#}"));
                Count::FAILED
            });
            let elapsed = step_start.elapsed();
            console::result(format_args!("== {step}: {count} in {}", console::duration(elapsed)));
            outcomes.push(Outcome { step, count, elapsed });
        }
        outcomes
    });
    Ok(summary(&outcomes, start.elapsed()))
}

fn summary(outcomes: &[Outcome], elapsed: Duration) -> ExitCode {
    console::result("\n== summary");
    for Outcome { step, count, elapsed } in outcomes {
        let mark = if count.failed == 0 { "ok    " } else { "FAILED" };
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
