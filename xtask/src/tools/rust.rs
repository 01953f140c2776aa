//! Parts of the Rust toolchain: the wasm target, rustfmt, clippy. A minimal rustup installation has none of them, and
//! automatic installation can be switched off, so they are asked for by name.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::console::timed;
use crate::lock::Lock;
use crate::place::Place;
use crate::process;

/// The target of the page.
pub const WASM: &str = "wasm32-unknown-unknown";

/// Makes sure that rustc can compile for wasm.
pub fn wasm_target(place: &Place) -> Result<()> {
    if has_wasm() {
        return Ok(());
    }
    let _lock = Lock::acquire(&place.lock_file("rustup"))?;
    if has_wasm() {
        return Ok(());
    }
    need_rustup(&format!("the target {WASM}"))?;
    timed(format_args!("installing Rust's target {WASM}"), || {
        process::run(Command::new("rustup").args(["target", "add", WASM]))
    })
}

/// Makes sure of rustfmt and clippy.
pub fn components(place: &Place) -> Result<()> {
    for (component, command) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        let there = || process::succeeds(Command::new("cargo").args([command, "--version"]));
        if there() {
            continue;
        }
        let _lock = Lock::acquire(&place.lock_file("rustup"))?;
        if there() {
            continue;
        }
        need_rustup(component)?;
        timed(format_args!("installing {component}"), || {
            process::run(Command::new("rustup").args(["component", "add", component]))
        })?;
    }
    Ok(())
}

fn has_wasm() -> bool {
    process::read(Command::new("rustc").args(["--print", "target-libdir", "--target", WASM]))
        .is_ok_and(|folder| Path::new(&folder).is_dir())
}

fn need_rustup(what: &str) -> Result<()> {
    if !process::is_installed("rustup") {
        bail!("this Rust lacks {what} and there is no rustup to add it: install Rust from https://rustup.rs");
    }
    Ok(())
}
