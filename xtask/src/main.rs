//! All automation of this repository, as `cargo xtask COMMAND`. Nothing here is needed to use a built `shardplan`.
//!
//! `run` builds the page and the hub, starts the hub, and builds the executor meanwhile. `test` is everything that CI runs.
//! `build` is the first half of `run`. `dev` serves the page and rebuilds it on every change. `accuracy` and `bench`
//! measure. `soak` looks for trouble for longer than `test` can. `gpu-bundle` packs what a GPU machine needs.
//!
//! What a step needs and the machine lacks is installed first: Rust's wasm target, torch in
//! a virtual environment, Debian's Chromium and Slurm. Everything that can live outside the system goes into one
//! cache folder (see `place`), so a second checkout starts warm.

mod build;
mod bundle;
mod console;
mod dev;
mod fresh;
mod lock;
mod measure;
mod picture;
mod place;
mod process;
mod run;
mod soak;
mod test;
mod tools;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use place::Place;

/// Builds, runs and tests Shardplan
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the page and the hub, start the hub here, print its URL; what runs need is built meanwhile
    Run(run::Arguments),
    /// Make what runs need beside a hub that is there already: what `run` starts
    #[command(hide = true)]
    Prepare,
    /// Run everything that CI runs
    Test(test::Arguments),
    /// Check a change: formatting, lints, unit tests of the packages that it is in
    Check,
    /// Build the page, the worker and the executor into target/shardplan
    Build(build::Arguments),
    /// Serve the page alone and rebuild it on every change
    Dev(dev::Arguments),
    /// Score predictions against published measurements
    Accuracy(measure::Accuracy),
    /// Fit the time model's constants to published measurements
    Fit(measure::Fit),
    /// Compare what planner answers for 2,000 plans with what is recorded of it
    Answers(measure::Answers),
    /// Time the core (criterion)
    Bench,
    /// Take README's pictures of the page
    Picture,
    /// Fuzz what reads other people's input, and kill ranks
    Soak(soak::Arguments),
    /// Pack programs and scripts for a GPU machine without Rust or network
    GpuBundle,
}

fn main() -> ExitCode {
    match dispatch(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            console::notice(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<ExitCode> {
    let place = Place::find()?;
    match command {
        Command::Run(arguments) => run::run(&place, &arguments),
        Command::Prepare => run::prepare(&place),
        Command::Test(arguments) => test::run(&place, &arguments),
        Command::Check => test::check(&place),
        Command::Build(arguments) => build::run(&place, &arguments),
        Command::Dev(arguments) => dev::run(&place, &arguments),
        Command::Accuracy(arguments) => measure::accuracy(&place, &arguments),
        Command::Fit(arguments) => measure::fit(&place, &arguments),
        Command::Answers(arguments) => measure::answers(&place, &arguments),
        Command::Bench => measure::bench(&place),
        Command::Picture => picture::run(&place),
        Command::Soak(arguments) => soak::run(&place, &arguments),
        Command::GpuBundle => bundle::run(&place),
    }
}
