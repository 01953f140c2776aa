//! `cargo xtask build`: the page, the worker and the executor, side by side in `target/shardplan`.
//!
//! In this order, because the worker carries the page in itself: the page by Trunk into `dist/`, then `shardplan`,
//! then `shardplan-rank`, which alone links libtorch. `shardplan` finds `shardplan-rank` beside itself.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::console::{self, timed};
use crate::fresh::Stamp;
use crate::lock::Lock;
use crate::place::{Place, Target};
use crate::process;
use crate::tools::{self, Torch};

/// What the page is made of.
const PAGE_INPUTS: [&str; 6] = ["web", "planner", "index.html", "Trunk.toml", "Cargo.toml", "Cargo.lock"];

/// Options of `cargo xtask build`.
#[derive(clap::Args)]
pub struct Arguments {}

/// Runs `cargo xtask build`.
pub fn run(place: &Place, _arguments: &Arguments) -> Result<ExitCode> {
    everything(place)?;
    console::result(place.programs().display());
    Ok(ExitCode::SUCCESS)
}

/// Builds all three.
pub fn everything(place: &Place) -> Result<Torch> {
    page(place)?;
    worker(place)?;
    rank(place)
}

/// Builds the page into `dist/`, unless nothing that it is made of has changed since.
pub fn page(place: &Place) -> Result<()> {
    let stamp = Stamp::at(place.programs().join(".page"));
    let product = place.root.join("dist").join("index.html");
    let _lock = Lock::acquire(&place.target_lock(Target::Wasm))?;
    if stamp.is_fresh(&product, &PAGE_INPUTS.map(|input| place.root.join(input))) {
        return Ok(());
    }
    tools::wasm_target(place)?;
    let mut trunk = trunk(place, "build")?;
    let started = SystemTime::now();
    timed("building the page", || {
        // Trunk hands its --offline on to cargo, so what the page depends on must have been fetched before.
        process::run(cargo(place, Target::Wasm).args(["fetch", "--quiet", "--target", tools::WASM]))?;
        process::run(trunk.arg("--release"))
    })?;
    stamp.write(started, &product)
}

/// Trunk with its surroundings, for a command that builds.
pub fn trunk(place: &Place, command: &str) -> Result<Command> {
    let tools = tools::wasm_tools(place)?;
    let mut trunk = Command::new(&tools.trunk);
    trunk
        .args([command, "--offline"])
        .current_dir(&place.root)
        .env("PATH", process::path_with([tools.bindgen_folder.as_path()])?)
        .env("CARGO_TARGET_DIR", place.target(Target::Wasm))
        // Trunk tells its progress on stdout, which is for what was asked of xtask: the hub's URL.
        .stdout(std::io::stderr())
        // Trunk reads these as its own options and refuses values such as 1.
        .env_remove("NO_COLOR")
        // The stack of Trunk's own code says nothing about a page that does not build.
        .env_remove("RUST_BACKTRACE");
    Ok(trunk)
}

/// Builds `shardplan`, with the page of `dist/` in it.
pub fn worker(place: &Place) -> Result<()> {
    let _lock = Lock::acquire(&place.target_lock(Target::Native))?;
    timed("building shardplan", || {
        process::run(cargo(place, Target::Native).args(["build", "--release", "--package", "shardplan"]))?;
        publish(place, Target::Native, "shardplan")
    })
}

/// Builds `shardplan-rank` against pip's torch.
pub fn rank(place: &Place) -> Result<Torch> {
    let torch = rank_tools(place)?;
    let _lock = Lock::acquire(&place.target_lock(Target::Rank))?;
    timed("building shardplan-rank", || {
        process::run(cargo_with(place, &torch).args(["build", "--release", "--package", "shardplan-rank"]))?;
        publish(place, Target::Rank, "shardplan-rank")
    })?;
    Ok(torch)
}

/// What building the executor needs.
pub fn rank_tools(place: &Place) -> Result<Torch> {
    tools::packages(place, &[tools::Package::COMPILER])?;
    tools::torch(place)
}

/// cargo in this checkout, with a target folder of the cache. The caller holds that folder's lock.
pub fn cargo(place: &Place, target: Target) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&place.root).env("CARGO_TARGET_DIR", place.target(target));
    if std::env::var_os("CI").is_some() {
        // A lock file that does not fit the manifests is a fault there, and a convenience elsewhere.
        cargo.arg("--locked");
    }
    // Set by cargo for this very program; a cargo started from it must find its own.
    for variable in ["LD_LIBRARY_PATH", "CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH"] {
        cargo.env_remove(variable);
    }
    // What a user may have set for a torch of theirs would rebuild everything at each change.
    for variable in
        ["LIBTORCH", "LIBTORCH_INCLUDE", "LIBTORCH_LIB", "LIBTORCH_USE_PYTORCH", "LIBTORCH_STATIC"]
    {
        cargo.env_remove(variable);
    }
    cargo
}

/// cargo for what links libtorch: always this environment, so that torch-sys is compiled once.
pub fn cargo_with(place: &Place, torch: &Torch) -> Command {
    let mut cargo = cargo(place, Target::Rank);
    cargo.env("LIBTORCH", &torch.home).env("LD_LIBRARY_PATH", torch.libraries());
    cargo
}

/// Puts a built program into `target/shardplan`. By a rename, because an older one may be running.
fn publish(place: &Place, target: Target, program: &str) -> Result<()> {
    let built = place.target(target).join("release").join(program);
    let folder = place.programs();
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let fresh = folder.join(format!(".{program}.{}", std::process::id()));
    copy(&built, &fresh)?;
    let path = folder.join(program);
    std::fs::rename(&fresh, &path).with_context(|| format!("cannot put {} in place", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}
