//! Records what planner answers for two thousand plans, and compares two such records: `cargo xtask answers`.
//!
//! A change that is meant to change no answer is made between two records that are equal; of one that is, they say for
//! how many plans what became of which field.

mod compare;
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
    let into = into.context("say where the record goes: --into FILE")?;
    record::write(&into)?;
    match against {
        Some(before) => compare::compare(&before, &into),
        None => Ok(true),
    }
}
