//! `cargo xtask build`: the page, the worker and the executor, side by side in `target/shardplan`.
//!
//! In this order, because the worker carries the page in itself: the page into `dist/`, then `shardplan`, then `shardplan-rank`, which alone links libtorch. `shardplan` finds `shardplan-rank` beside itself.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::console::{self, timed};
use crate::fresh::Stamp;
use crate::place::{Place, Target};
use crate::process;
use crate::tools::{self, Torch};

/// What the page is made of.
const PAGE_INPUTS: [&str; 6] = ["web", "planner", "index.html", "Trunk.toml", "Cargo.toml", "Cargo.lock"];

/// What is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// To be there soon: what `run` takes, and `test` for the page. It computes and looks the same; the page is larger, searches
    /// take longer.
    Quick,
    /// To be small and fast, as it is given to others and measured.
    Full,
}

impl Build {
    /// The profile of all modules of the page, where `index.html` does not say it for each.
    fn page_profile(self) -> Option<&'static str> {
        (self == Build::Quick).then_some(QUICK_PAGE)
    }
}

/// The profile of `Cargo.toml` that makes a page soon.
const QUICK_PAGE: &str = "page-quick";

/// The planner and what stands on it compiled sooner: what a search asks a million times is worth minutes of optimizing, all
/// else is not.
const QUICK_PLANNER: [&str; 4] = [
    "profile.release.package.planner.opt-level=1",
    "profile.release.package.batch.opt-level=1",
    "profile.release.package.diagnose.opt-level=1",
    "profile.release.package.frameworks.opt-level=1",
];

/// The planner as it is, for who asks it once.
const PLAIN_PLANNER: &str = "profile.release.package.planner.opt-level=0";

/// Options of `cargo xtask build`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Build as `cargo xtask run` does: sooner, with a larger page and slower searches
    #[arg(long)]
    quick: bool,
}

/// Runs `cargo xtask build`.
pub fn run(place: &Place, arguments: &Arguments) -> Result<ExitCode> {
    everything(place, if arguments.quick { Build::Quick } else { Build::Full })?;
    console::result(place.programs().display());
    Ok(ExitCode::SUCCESS)
}

/// Builds all three.
pub fn everything(place: &Place, build: Build) -> Result<Torch> {
    page(place, build)?;
    worker(place, build)?;
    rank(place)
}

/// Builds the page into `dist/`, unless nothing that it is made of has changed since. A full one will do for a quick one; which it
/// is.
pub fn page(place: &Place, build: Build) -> Result<Build> {
    let stamp = |name: &str| Stamp::at(place.programs().join(name));
    let (full, quick) = (stamp(".page"), stamp(".page-quick"));
    let product = place.root.join("dist").join("index.html");
    let _lock = place.lock_target(Target::Wasm)?;
    let inputs = PAGE_INPUTS.map(|input| place.root.join(input));
    let is_fresh = |stamp: &Stamp| stamp.is_fresh(&product, &inputs);
    if is_fresh(&full) {
        return Ok(Build::Full);
    }
    if build == Build::Quick && is_fresh(&quick) {
        return Ok(Build::Quick);
    }
    tools::wasm_target(place)?;
    let stamp = if build == Build::Quick { quick } else { full };
    let started = SystemTime::now();
    timed("building the page", || modules(place, build).and_then(|()| assemble(place, build)))?;
    stamp.write(started, &product)?;
    Ok(build)
}

/// Fails where more is sent of the page in `dist/` than `web/size.toml` allows.
pub fn page_size(place: &Place, build: Build) -> Result<()> {
    let _lock = place.lock_target(Target::Wasm)?;
    let mut builder = page_builder(place);
    builder.arg("check").arg(&place.root).arg(place.root.join("dist")).args(build.page_profile());
    process::run(&mut builder)
}

/// Compiles the page's modules. The caller holds the lock of their folder.
fn modules(place: &Place, build: Build) -> Result<()> {
    let compile = |options: &[&str]| {
        let mut cargo = cargo(place, Target::Wasm);
        process::run(cargo.args(["build", "--target", tools::WASM, "--bins"]).args(options))
    };
    match build {
        Build::Quick => compile(&["--profile", QUICK_PAGE, "--package", "web", "--package", "searcher"]),
        // As `index.html` says it to Trunk.
        Build::Full => {
            compile(&["--profile", "web-release", "--package", "web"])?;
            compile(&["--profile", "searcher-release", "--package", "searcher"])
        }
    }
}

/// Makes the page of its modules. The caller holds the lock of their folder.
fn assemble(place: &Place, build: Build) -> Result<()> {
    let mut builder = page_builder(place);
    builder.arg("make").arg(&place.root).arg(place.target(Target::Wasm).join(tools::WASM));
    builder.arg(place.root.join("dist")).args(build.page_profile());
    process::run(&mut builder)
}

/// The program that makes pages, compiled where their modules are: the native folder may be another's for minutes.
fn page_builder(place: &Place) -> Command {
    let mut builder = cargo(place, Target::Wasm);
    builder.args(["run", "--quiet", "--package", "page-builder", "--"]);
    builder
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
pub fn worker(place: &Place, build: Build) -> Result<()> {
    shardplan(place, build, &["--features", "page"])
}

/// Builds `shardplan` for `serve --page`: sooner, and without waiting for the page.
pub fn hub(place: &Place) -> Result<()> {
    shardplan(place, Build::Quick, &[])
}

fn shardplan(place: &Place, build: Build, options: &[&str]) -> Result<()> {
    let _lock = place.lock_target(Target::Native)?;
    timed("building shardplan", || {
        let mut cargo = cargo(place, Target::Native);
        if build == Build::Quick {
            cargo.args(QUICK_PLANNER.iter().flat_map(|setting| ["--config", *setting]));
        }
        process::run(cargo.args(["build", "--release", "--package", "shardplan"]).args(options))?;
        publish(place, Target::Native, "release", "shardplan")
    })
}

/// Puts the `shardplan` that cargo made for its tests where the programs are. The caller holds the lock of its folder.
pub fn publish_tested_worker(place: &Place) -> Result<()> {
    publish(place, Target::Native, "debug", "shardplan")
}

/// Builds `shardplan-rank` against pip's torch.
pub fn rank(place: &Place) -> Result<Torch> {
    let torch = rank_tools(place)?;
    let _lock = place.lock_target(Target::Rank)?;
    timed("building shardplan-rank", || {
        process::run(cargo_with(place, &torch).args(["build", "--release", "--package", "shardplan-rank"]))?;
        publish(place, Target::Rank, "release", "shardplan-rank")
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
    // What was tested is what is built, everywhere: a lock file that does not fit the manifests is `cargo update`'s to mend.
    cargo.arg("--locked");
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

/// cargo for what links libtorch: always this environment and these settings, so that torch-sys is compiled once.
pub fn cargo_with(place: &Place, torch: &Torch) -> Command {
    let mut cargo = cargo(place, Target::Rank);
    // A rank asks the planner once, so optimizing that takes longer than it gains.
    cargo.args(["--config", PLAIN_PLANNER]);
    cargo.env("LIBTORCH", &torch.home).env("LD_LIBRARY_PATH", torch.libraries());
    cargo
}

/// Puts a built program into `target/shardplan`. By a rename, because an older one may be running.
fn publish(place: &Place, target: Target, profile: &str, program: &str) -> Result<()> {
    let built = place.target(target).join(profile).join(program);
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
