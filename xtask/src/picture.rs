//! `cargo xtask picture`: the page as README shows it, light and dark.

use std::process::ExitCode;

use anyhow::Result;

use crate::place::{Place, Target};
use crate::tools::{self, Package};
use crate::{build, process};

/// Takes the pictures into `docs/pictures`.
pub fn run(place: &Place) -> Result<ExitCode> {
    tools::packages(place, &[Package::CHROMIUM, Package::CHROMEDRIVER])?;
    build::page(place, build::Build::Quick)?;
    build::hub(place)?;
    let mut cargo = build::cargo(place, Target::Native);
    cargo.args(["run", "--quiet", "--package", "system-tests", "--bin", "picture"]);
    cargo.env("SHARDPLAN_BIN_DIR", place.programs()).env("SHARDPLAN_PAGE", place.root.join("dist"));
    process::run(&mut cargo)?;
    Ok(ExitCode::SUCCESS)
}
