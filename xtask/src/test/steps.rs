//! The steps of `cargo xtask test`, in their order: cheap ones first, those that need the most installed last.

use std::fmt;
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use super::count::Count;
use crate::lock::Lock;
use crate::place::{Place, Target};
use crate::tools::{self, Package};
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
    /// Lints of what links libtorch
    LintRank,
    /// Tests of what builds with Rust alone
    Unit,
    /// Tests of the executor
    Rank,
    /// The page builds
    Page,
    /// The worker and the executor build
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
            Step::Lint => "clippy of planner, shardplan, xtask, system-tests",
            Step::LintWasm => "clippy of web and planner for wasm32",
            Step::LintRank => "clippy of shardplan-rank",
            Step::Unit => "cargo test, with doc tests",
            Step::Rank => "tests of shardplan-rank on libtorch",
            Step::Page => "the page, by Trunk",
            Step::Worker => "shardplan and shardplan-rank",
            Step::System => "browser, worker, Slurm",
        }
    }

    /// Does it.
    pub fn run(self, place: &Place) -> Result<Count> {
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
                let packages = ["planner", "shardplan", "xtask", "system-tests"];
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
                lint(place, Target::Wasm, cargo, &["web", "searcher", "planner"], &["--target", tools::WASM])
            }
            Step::LintRank => {
                let torch = build::rank_tools(place)?;
                let cargo = build::cargo_with(place, &torch);
                // In release, like everything that links libtorch: the C++ of torch-sys is then compiled once.
                lint(place, Target::Rank, cargo, &["shardplan-rank"], &["--all-targets", "--release"])
            }
            Step::Unit => {
                let _lock = Lock::acquire(&place.target_lock(Target::Native))?;
                // The default members, and the page's own tests, which run without a browser.
                let mut cargo = build::cargo(place, Target::Native);
                cargo.args(["test", "--no-fail-fast"]);
                for package in ["planner", "shardplan", "xtask", "web"] {
                    cargo.args(["--package", package]);
                }
                test(&mut cargo)
            }
            Step::Rank => {
                let torch = build::rank_tools(place)?;
                tools::transformers(place, &torch)?;
                let _lock = Lock::acquire(&place.target_lock(Target::Rank))?;
                let mut cargo = build::cargo_with(place, &torch);
                test(cargo.args(["test", "--no-fail-fast", "--release", "--package", "shardplan-rank"]))
            }
            Step::Page => build::page(place).map(|()| Count::PASSED),
            Step::Worker => {
                build::worker(place)?;
                build::rank(place).map(|_| Count::PASSED)
            }
            Step::System => system(place),
        }
    }
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
    let _lock = Lock::acquire(&place.target_lock(target))?;
    cargo.arg("clippy").args(options);
    for package in packages {
        cargo.args(["--package", package]);
    }
    check(cargo.args(["--", "--deny", "warnings"]))
}

/// Tests that wait most of their time, because Slurm looks at its jobs now and then.
const SLURM: &[&str] = &["slurm::"];
/// Those of the others that start processes of Python, bash or the executor, and no browser: about half of the time.
const PROCESSES: &[&str] = &["fsdp::", "launch::", "memory::", "scripts::"];

/// The whole-system tests, in three streams side by side. They run against the programs as `cargo xtask run` builds them.
fn system(place: &Place) -> Result<Count> {
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
    let torch = build::everything(place)?;
    let uv = tools::uv(place, &torch)?;
    let _lock = Lock::acquire(&place.target_lock(Target::Native))?;
    process::run(build::cargo(place, Target::Native).args([
        "test",
        "--no-run",
        "--package",
        "system-tests",
    ]))?;
    let tests = |names: &[&str]| {
        let mut cargo = build::cargo(place, Target::Native);
        cargo.args(["test", "--no-fail-fast", "--package", "system-tests"]);
        // One at a time in a stream: each starts a browser, or four ranks, and waits for them with limits.
        cargo.args(["--", "--test-threads=1"]).args(names);
        // Errors there tell their story themselves.
        cargo.env("RUST_BACKTRACE", "0").env("SHARDPLAN_BIN_DIR", place.programs());
        cargo.env("SHARDPLAN_TORCH", &torch.python).env("SHARDPLAN_UV", &uv);
        test(&mut cargo)
    };
    let skipped = [SLURM, PROCESSES].concat();
    let rest: Vec<&str> = skipped.iter().flat_map(|name| ["--skip", name]).collect();
    let streams = [SLURM, PROCESSES, &rest];
    std::thread::scope(|scope| {
        let running = streams.map(|names| scope.spawn(|| tests(names)));
        let ended = running.map(|stream| {
            stream.join().map_err(|_| anyhow!("a thread of the whole-system tests panicked"))?
        });
        ended.into_iter().sum()
    })
}
