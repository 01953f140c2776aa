//! Trunk and wasm-bindgen's program, for `cargo xtask dev`: compiled once from source into the cache. Building a page needs
//! neither (`xtask/page`).
//!
//! Trunk would fetch wasm-bindgen itself, but only from GitHub, which not every machine reaches. wasm-bindgen's
//! program and library must be of the very same version, so the lock file says which.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::console::timed;
use crate::lock::Lock;
use crate::place::{Place, Target};
use crate::process;

/// Newer ones want a newer Rust than 1.95.
const TRUNK_VERSION: &str = "0.21.14";

/// Tools run for seconds and are compiled once: their own release profiles (whole-program optimization, one unit) would take
/// longer than all that they are used for.
const QUICK_PROFILE: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_STRIP", "none"),
];

/// Where the programs that build the page are.
pub struct WasmTools {
    /// The program `trunk`.
    pub trunk: PathBuf,
    /// The folder of the program `wasm-bindgen`.
    pub bindgen_folder: PathBuf,
}

/// Makes sure of both.
pub fn wasm_tools(place: &Place) -> Result<WasmTools> {
    // Trunk's default features ask for a system OpenSSL; with rustls it compiles anywhere.
    let trunk =
        install(place, "trunk", "trunk", TRUNK_VERSION, &["--no-default-features", "--features", "rustls"])?;
    let lock_file = place.root.join("Cargo.lock");
    let lock_text = std::fs::read_to_string(&lock_file)
        .with_context(|| format!("cannot read {}", lock_file.display()))?;
    let version = locked_version(&lock_text, "wasm-bindgen")
        .with_context(|| format!("{} has no package wasm-bindgen", lock_file.display()))?;
    let bindgen = install(place, "wasm-bindgen-cli", "wasm-bindgen", version, &[])?;
    let bindgen_folder = bindgen.parent().map(Path::to_owned).context("wasm-bindgen has no folder")?;
    Ok(WasmTools { trunk, bindgen_folder })
}

/// Installs a program of a crate into a folder of its own, named by its version, and gives its path.
pub(super) fn install(
    place: &Place,
    package: &str,
    program: &str,
    version: &str,
    options: &[&str],
) -> Result<PathBuf> {
    let folder = place.cache.join("tools").join(format!("{package}-{version}"));
    let path = folder.join("bin").join(program);
    // cargo puts the finished program there in one rename, so what is there is whole.
    if path.is_file() {
        return Ok(path);
    }
    let _lock = Lock::acquire(&place.lock_file(package))?;
    if path.is_file() {
        return Ok(path);
    }
    timed(format_args!("compiling {package} {version} (once, some minutes)"), || {
        process::run(
            Command::new("cargo")
                .args(["install", "--locked", &format!("{package}@{version}")])
                .args(options)
                .arg("--root")
                .arg(&folder)
                .current_dir(&place.cache)
                .envs(QUICK_PROFILE)
                .env("CARGO_TARGET_DIR", place.target(Target::Tools)),
        )
    })
    .with_context(|| format!("{package} {version} could not be installed"))?;
    Ok(path)
}

/// The version of a package in the text of a Cargo.lock.
fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines.next()?;
    lines.next()?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_says_the_version() {
        let lock = "[[package]]\nname = \"wasm-bindgen-macro\"\nversion = \"9.9.9\"\n\n\
                    [[package]]\nname = \"wasm-bindgen\"\nversion = \"0.2.126\"\n";
        assert_eq!(locked_version(lock, "wasm-bindgen"), Some("0.2.126"));
        assert_eq!(locked_version(lock, "wasm"), None);
    }
}
