//! cargo-fuzz and the nightly Rust that its targets need.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::wasm::install;
use crate::console::timed;
use crate::lock::Lock;
use crate::place::Place;
use crate::process;

const CARGO_FUZZ_VERSION: &str = "0.13.1";
/// The toolchain of the fuzz targets. It comes from rustup, whose programs choose it by `RUSTUP_TOOLCHAIN`.
pub const NIGHTLY: &str = "nightly";

/// Makes sure of both, and gives the path of the program `cargo-fuzz`.
pub fn fuzz_tools(place: &Place) -> Result<PathBuf> {
    nightly(place)?;
    install(place, "cargo-fuzz", "cargo-fuzz", CARGO_FUZZ_VERSION, &[])
}

/// The version of the nightly compiler.
pub fn nightly_version() -> Result<String> {
    process::read(Command::new("rustup").args(["run", NIGHTLY, "rustc", "--version"]))
}

fn nightly(place: &Place) -> Result<()> {
    if !process::is_installed("rustup") {
        bail!(
            "fuzzing needs a nightly Rust, and there is no rustup to add it: install Rust from https://rustup.rs"
        );
    }
    if nightly_version().is_ok() {
        return Ok(());
    }
    let _lock = Lock::acquire(&place.lock_file("rustup"))?;
    if nightly_version().is_ok() {
        return Ok(());
    }
    timed("installing a nightly Rust", || {
        process::run(Command::new("rustup").args(["toolchain", "install", NIGHTLY, "--profile", "minimal"]))
    })
    .context("fuzzing needs a nightly Rust; try it by hand: rustup toolchain install nightly")
}
