//! Says what planner answers for two thousand plans, and how that differs from before: `cargo xtask answers`.
//!
//! A change that is meant to change no answer leaves the committed digests as they are; of one that is, two records in full
//! say for how many plans what became of which field.

mod answer;
mod compare;
mod digest;
mod draw;
mod record;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

fn main() -> ExitCode {
    match run() {
        Ok(equal) => ExitCode::from(u8::from(!equal)),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool> {
    let (mut into, mut against) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut path =
            || arguments.next().map(PathBuf::from).with_context(|| format!("{argument} needs a file"));
        match argument.as_str() {
            "--into" => into = Some(path()?),
            "--against" => against = Some(path()?),
            other => bail!("`{other}` is not an option; there are --into FILE and --against FILE"),
        }
    }
    let all = digest::all();
    match (into, against) {
        (Some(into), against) => {
            record::write(&into, &digest::of_plans(&all, |_, answers| answers.to_string()))?;
            against.map_or(Ok(true), |before| compare::compare(&before, &into))
        }
        (None, Some(_)) => bail!("--against needs --into FILE: two records are compared"),
        (None, None) => Ok(record::hold(&digest::of_plans(&all, digest::line))),
    }
}
