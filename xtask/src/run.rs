//! `cargo xtask run`: builds everything, then becomes `shardplan serve`, which prints the URL to open.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Result, anyhow};

use crate::build;
use crate::place::Place;

/// Options of `cargo xtask run`.
#[derive(clap::Args)]
pub struct Arguments {
    /// More options for `shardplan serve`, such as `--port 8001`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    serve: Vec<String>,
}

/// Runs it. Returns only when it could not start.
pub fn run(place: &Place, arguments: &Arguments) -> Result<ExitCode> {
    let torch = build::everything(place, build::Build::Quick)?;
    let program = place.programs().join("shardplan");
    let mut serve = Command::new(&program);
    serve.arg("serve").current_dir(&place.root).env("SHARDPLAN_TORCH", &torch.python);
    if !arguments.serve.iter().any(|argument| argument.starts_with("--runs")) {
        serve.args(["--runs", "runs"]);
    }
    let error = serve.args(&arguments.serve).exec();
    Err(anyhow!("cannot start {}: {error}", program.display()))
}
