//! `cargo xtask dev`: the page alone, served by Trunk and rebuilt on every change. It plans; it has no worker.

use std::process::ExitCode;

use anyhow::Result;

use crate::place::Place;
use crate::{build, process, tools};

/// Options of `cargo xtask dev`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Port to serve on
    #[arg(long, default_value_t = 8080)]
    port: u16,
}

/// Runs it until it is interrupted. Its pages go to a folder of their own: `dist/` is what `shardplan` embeds.
pub fn run(place: &Place, arguments: &Arguments) -> Result<ExitCode> {
    tools::wasm_target(place)?;
    let mut trunk = build::trunk(place, "serve")?;
    let dist = place.root.join("target").join("dev-dist");
    process::run(trunk.arg("--dist").arg(dist).args(["--port", &arguments.port.to_string()]))?;
    Ok(ExitCode::SUCCESS)
}
