//! The steps of `cargo xtask test`, in the order in which they are begun: neighbours build in folders of their own, and the tests
//! of the executor, which compute, run beside those of the whole, which wait.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow};

use super::count::Count;
use crate::place::{Place, Target};
use crate::tools::{self, Package, Torch};
use crate::{build, process};

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Step {
    /// Formatting
    Format,
    /// Lints of what builds with Rust alone
    Lint,
    /// Lints of what the browser runs
    LintWasm,
    /// Tests of what builds with Rust alone
    Unit,
    /// The page builds
    Page,
    /// Lints of what links libtorch
    LintRank,
    /// Tests of the executor
    Rank,
    /// What tests the whole builds
    Worker,
    /// Whole-system tests: browser, worker, Slurm
    System,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = clap::ValueEnum::to_possible_value(self);
        formatter.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

impl Step {
    /// What it does, in a few words.
    pub const fn title(self) -> &'static str {
        match self {
            Step::Format => "cargo fmt",
            Step::Lint => {
                "clippy of planner and what stands on it, run-folder, tensor-files, token-files, shardplan, xtask, system-tests"
            }
            Step::LintWasm => "clippy of web and planner for wasm32, and of page-builder",
            Step::LintRank => "clippy of shardplan-rank",
            Step::Unit => "cargo test, with doc tests",
            Step::Rank => "tests of shardplan-rank on libtorch",
            Step::Page => "the page, and tests of page-builder",
            Step::Worker => "compiling whole-system tests",
            Step::System => "browser, worker, Slurm",
        }
    }

    /// Does it.
    pub fn run(self, once: &Once<'_>) -> Result<Count> {
        let place = once.place;
        match self {
            Step::Format => {
                tools::components(place)?;
                let mut cargo = Command::new("cargo");
                // The names of the files will do: `cargo fmt` shows the rest.
                check(
                    cargo
                        .args(["fmt", "--all", "--check", "--", "--files-with-diff"])
                        .current_dir(&place.root),
                )
                .context("these files are not formatted: run `cargo fmt`")
            }
            Step::Lint => {
                let packages = [
                    "planner",
                    "batch",
                    "diagnose",
                    "evidence",
                    "frameworks",
                    "run-folder",
                    "tensor-files",
                    "token-files",
                    "shardplan",
                    "xtask",
                    "system-tests",
                ];
                lint(
                    place,
                    Target::Native,
                    build::cargo(place, Target::Native),
                    &packages,
                    &["--all-targets"],
                )
            }
            Step::LintWasm => {
                tools::wasm_target(place)?;
                let cargo = build::cargo(place, Target::Wasm);
                let builder = build::cargo(place, Target::Wasm);
                let options = ["--target", tools::WASM];
                let page = lint(
                    place,
                    Target::Wasm,
                    cargo,
                    &["web", "searcher", "planner", "batch", "diagnose", "frameworks"],
                    &options,
                )?;
                // With the page, as it is built there: beside the others it would compile what they share a second time.
                let builder = lint(place, Target::Wasm, builder, &["page-builder"], &["--all-targets"])?;
                Ok([page, builder].into_iter().sum())
            }
            Step::LintRank => {
                let torch = build::rank_tools(place)?;
                let cargo = build::cargo_with(place, &torch);
                // In release, like everything that links libtorch: the C++ of torch-sys is then compiled once.
                lint(place, Target::Rank, cargo, &["shardplan-rank"], &["--all-targets", "--release"])
            }
            Step::Unit => {
                let _lock = place.lock_target(Target::Native)?;
                test(unit(place).arg("--no-fail-fast"))
            }
            Step::Rank => {
                let torch = once.executor()?;
                tools::transformers(place, &torch)?;
                let _lock = place.lock_target(Target::Rank)?;
                let mut cargo = build::cargo_with(place, &torch);
                test(cargo.args(["test", "--no-fail-fast", "--release", "--package", "shardplan-rank"]))
            }
            Step::Page => {
                let built = build::page(place, build::Build::Quick)?;
                let within = build::page_size(place, built).map(|()| Count::PASSED);
                let _lock = place.lock_target(Target::Wasm)?;
                let mut builder = build::cargo(place, Target::Wasm);
                let tests = test(builder.args(["test", "--package", "page-builder"]))?;
                Ok([Count::PASSED, within?, tests].into_iter().sum())
            }
            Step::Worker => once.worker(),
            Step::System => system(once),
        }
    }
}

/// What several steps need and one of them builds: the first that asks for it, while the others wait.
pub struct Once<'a> {
    /// Where.
    pub place: &'a Place,
    executor: Mutex<Option<Torch>>,
    worker: Mutex<Option<Count>>,
}

impl<'a> Once<'a> {
    /// Nothing is built yet.
    pub const fn new(place: &'a Place) -> Once<'a> {
        Once { place, executor: Mutex::new(None), worker: Mutex::new(None) }
    }

    /// The executor, put where the programs are; its tests hold the lock of its folder for as long as they run.
    fn executor(&self) -> Result<Torch> {
        known_or(&self.executor, || build::rank(self.place))
    }

    /// The worker and the whole-system tests.
    fn worker(&self) -> Result<Count> {
        let place = self.place;
        known_or(&self.worker, || {
            // Compiling it as it is released takes as long as all of its tests, and tests nothing more.
            let _lock = place.lock_target(Target::Native)?;
            process::run(unit(place).arg("--no-run"))?;
            build::publish_tested_worker(place)?;
            // Beside what may still run, instead of after it.
            process::run(system_tests(place).arg("--no-run"))?;
            let own = test(system_tests(place).arg("--lib"))?;
            Ok([Count::PASSED, own].into_iter().sum())
        })
    }
}

/// What is known, or is found now and then known.
fn known_or<T: Clone>(known: &Mutex<Option<T>>, find: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &*known {
        return Ok(known.clone());
    }
    Ok(known.insert(find()?).clone())
}

/// The unit tests of some packages, without what stands in their documents: for these the package is compiled once more.
pub fn unit_of(place: &Place, packages: &[&str]) -> Result<Count> {
    let _lock = place.lock_target(Target::Native)?;
    let mut cargo = build::cargo(place, Target::Native);
    cargo.args(["test", "--no-fail-fast", "--tests"]);
    for package in packages {
        cargo.args(["--package", package]);
    }
    test(&mut cargo)
}

/// The tests of what builds with Rust alone: those of the default members, and the page's own, which run without a browser.
fn unit(place: &Place) -> Command {
    let mut cargo = build::cargo(place, Target::Native);
    cargo.arg("test");
    let packages = [
        "planner",
        "batch",
        "diagnose",
        "evidence",
        "frameworks",
        "run-folder",
        "tensor-files",
        "token-files",
        "shardplan",
        "xtask",
        "web",
    ];
    for package in packages {
        cargo.args(["--package", package]);
    }
    cargo
}

/// The whole-system tests.
fn system_tests(place: &Place) -> Command {
    let mut cargo = build::cargo(place, Target::Native);
    cargo.args(["test", "--package", "system-tests"]);
    cargo
}

/// A command that is one check.
fn check(command: &mut Command) -> Result<Count> {
    process::run(command).map(|()| Count::PASSED)
}

/// A command that runs tests.
fn test(command: &mut Command) -> Result<Count> {
    let mut count = Count::default();
    let succeeded = process::watch(command, |line| count.see(line))?;
    Ok(count.of_command(succeeded))
}

fn lint(
    place: &Place,
    target: Target,
    mut cargo: Command,
    packages: &[&str],
    options: &[&str],
) -> Result<Count> {
    tools::components(place)?;
    let _lock = place.lock_target(target)?;
    cargo.arg("clippy").args(options);
    for package in packages {
        cargo.args(["--package", package]);
    }
    check(cargo.args(["--", "--deny", "warnings"]))
}

/// The streams of the whole-system tests, which run side by side: the folders of `tests/tests`.
fn streams(place: &Place) -> Result<Vec<String>> {
    let folder = place.root.join("tests").join("tests");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut streams: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().join("main.rs").is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    streams.sort();
    Ok(streams)
}

/// The whole-system tests. They run against the page and the executor as `cargo xtask run` builds them, and the worker of
/// `Step::Worker`.
fn system(once: &Once<'_>) -> Result<Count> {
    let place = once.place;
    let browser = [Package::CHROMIUM, Package::CHROMEDRIVER];
    let slurm = [
        Package::SLURM,
        Package::MUNGE,
        Package::SLURM_HEADERS,
        Package::PMIX,
        Package::IPROUTE,
        Package::COMPILER,
        Package::SHELLCHECK,
    ];
    tools::packages(place, &[&browser[..], &slurm[..]].concat())?;
    build::page(place, build::Build::Quick)?;
    once.worker()?;
    let surroundings = Surroundings::with(place, once.executor()?)?;
    let page = place.root.join("dist");
    let _lock = place.lock_target(Target::Native)?;
    let streams = streams(place)?;
    let tests = |stream: &str| surroundings.test(place, stream, Some(&page), &[]);
    std::thread::scope(|scope| {
        let running: Vec<_> = streams.iter().map(|stream| scope.spawn(|| tests(stream))).collect();
        let ended = running.into_iter().map(|stream| {
            stream.join().map_err(|_| anyhow!("a thread of the whole-system tests panicked"))?
        });
        ended.sum()
    })
}

/// What whole-system tests need besides page and worker.
pub struct Surroundings {
    torch: Torch,
    uv: PathBuf,
}

impl Surroundings {
    /// Builds the executor, and makes sure of the rest.
    pub fn find(place: &Place) -> Result<Surroundings> {
        Surroundings::with(place, build::rank(place)?)
    }

    /// With an executor that is built.
    fn with(place: &Place, torch: Torch) -> Result<Surroundings> {
        let uv = tools::uv(place, &torch)?;
        Ok(Surroundings { torch, uv })
    }

    /// Runs a stream, or the tests of it whose names have a part, against the page of a folder or the one in the program.
    pub fn test(&self, place: &Place, stream: &str, page: Option<&Path>, parts: &[&str]) -> Result<Count> {
        let mut cargo = system_tests(place);
        // One at a time in a stream: each starts a browser, or four ranks, and waits for them with limits.
        cargo.args(["--no-fail-fast", "--test", stream, "--", "--test-threads=1"]).args(parts);
        // Errors there tell their story themselves.
        cargo.env("RUST_BACKTRACE", "0").env("SHARDPLAN_BIN_DIR", place.programs());
        cargo.env("SHARDPLAN_TORCH", &self.torch.python).env("SHARDPLAN_UV", &self.uv);
        match page {
            Some(page) => cargo.env("SHARDPLAN_PAGE", page),
            None => cargo.env_remove("SHARDPLAN_PAGE"),
        };
        test(&mut cargo)
    }
}
