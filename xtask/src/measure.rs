//! `cargo xtask accuracy` and `cargo xtask bench`: what is measured, not tested.

use std::process::ExitCode;

use anyhow::Result;

use crate::place::{Place, Target};
use crate::{build, process};

/// Options of `cargo xtask accuracy`.
#[derive(clap::Args)]
pub struct Accuracy {
    /// Folder of evidence files, instead of those that are part of the project
    #[arg(long)]
    evidence: Option<std::path::PathBuf>,
    /// Look up published layouts among all plans of a search for their model and cluster, instead
    #[arg(long)]
    search: bool,
    /// Print JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Scores planner's predictions against published measurements.
pub fn accuracy(place: &Place, arguments: &Accuracy) -> Result<ExitCode> {
    let mut cargo = build::cargo(place, Target::Native);
    cargo.args(["run", "--quiet", "--package", "system-tests", "--bin", "accuracy"]);
    // Some hundred million plans.
    cargo.args(arguments.search.then_some("--release")).arg("--");
    cargo.args(arguments.search.then_some("--search"));
    if let Some(folder) = &arguments.evidence {
        // The program runs in the checkout; a path that was meant from elsewhere still holds.
        cargo.arg("--evidence").arg(std::path::absolute(folder)?);
    }
    if arguments.json {
        cargo.arg("--json");
    }
    process::run(&mut cargo)?;
    Ok(ExitCode::SUCCESS)
}

/// Options of `cargo xtask answers`.
#[derive(clap::Args)]
pub struct Answers {
    /// Write a record in full, a line for each plan, instead of comparing with the committed digests
    #[arg(long)]
    into: Option<std::path::PathBuf>,
    /// A record made before, by this command on other sources, to compare with
    #[arg(long, requires = "into")]
    against: Option<std::path::PathBuf>,
}

/// Compares what planner answers for many plans with its digests or with a record made before; fails when it differs.
pub fn answers(place: &Place, arguments: &Answers) -> Result<ExitCode> {
    let mut cargo = build::cargo(place, Target::Native);
    cargo.args(["run", "--quiet", "--release", "--package", "system-tests", "--bin", "answers", "--"]);
    // The program runs in the checkout; a path that was meant from elsewhere still holds.
    for (option, path) in [("--into", &arguments.into), ("--against", &arguments.against)] {
        if let Some(path) = path {
            cargo.arg(option).arg(std::path::absolute(path)?);
        }
    }
    process::run(&mut cargo)?;
    Ok(ExitCode::SUCCESS)
}

/// Options of `cargo xtask fit`.
#[derive(clap::Args)]
pub struct Fit {
    /// Folder of evidence files, instead of those that are part of the project
    #[arg(long)]
    evidence: Option<std::path::PathBuf>,
    /// Print every row with its errors and what its step is spent on
    #[arg(long)]
    rows: bool,
    /// Write the constants into planner's data files
    #[arg(long)]
    write: bool,
    /// Write what was fitted with sources, families and GPUs left out, and the likely ranges that follow, and no constant that ships
    #[arg(long)]
    unseen: bool,
}

/// Fits the constants of the time model, prints them and how well they do on rows that they have and have not seen.
pub fn fit(place: &Place, arguments: &Fit) -> Result<ExitCode> {
    let mut cargo = build::cargo(place, Target::Native);
    cargo.args(["run", "--quiet", "--release", "--package", "system-tests", "--bin", "fit", "--"]);
    if let Some(folder) = &arguments.evidence {
        cargo.arg("--evidence").arg(std::path::absolute(folder)?);
    }
    cargo.args(arguments.rows.then_some("--rows")).args(arguments.write.then_some("--write"));
    cargo.args(arguments.unseen.then_some("--unseen"));
    process::run(&mut cargo)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the benchmarks of the core.
pub fn bench(place: &Place) -> Result<ExitCode> {
    process::run(build::cargo(place, Target::Native).args(["bench", "--package", "system-tests"]))?;
    Ok(ExitCode::SUCCESS)
}
