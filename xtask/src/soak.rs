//! `cargo xtask soak`: what takes longer than the test command has: fuzzing, killing ranks, large layouts, hostile values in scripts, trainings that are interrupted,
//! what measuring costs, which plans are chosen, whether transformers is as recorded, whether Trunk's page is ours, how far a calibration carries, and what the largest searches cost in the page.
//!
//! Each fuzz target starts from its corpus in the checkout and keeps what it finds in the cache, where the next soak goes
//! on. An input that crashes goes there too, and is named: moved into the corpus, the test command replays it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::console::{self, timed};
use crate::place::{Place, Target};
use crate::{process, tools};

mod calibration;
mod choose;
mod executor;
mod interruptions;
mod page;
mod search;
mod types;
mod values;

/// A part of a soak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Calibrate by probes of one rank and predict ten shapes that no probe has
    Calibration,
    /// Choose a plan for each preset in the page, on clusters of several sizes and GPUs
    Choices,
    /// Choose a plan for each preset by the command, on the same
    Choose,
    /// Fuzz what reads other people's input
    Fuzz,
    /// Interrupt trainings of every framework in every way, on a Slurm of two nodes
    Interruptions,
    /// Kill one of eight ranks at random moments
    Kills,
    /// Train layouts of eight processes
    Layouts,
    /// Run with and without measuring, in turn
    Measuring,
    /// Compare Trunk's page with ours, and test it and the one inside the program
    Page,
    /// Search the largest spaces in the page
    Search,
    /// Record every model type of transformers anew
    Types,
    /// Put hostile values into every field of a script
    Values,
    /// Let 2,048 ranks join, and one of them fail
    World,
}

/// The targets: programs of `tests/fuzz`, folders of `tests/corpus`.
const TARGETS: [&str; 6] = ["hf_config", "layout_string", "lint", "plan_file", "link", "diagnose"];
/// Seconds that one input may take.
const SLOWEST: u32 = 10;

/// Options of `cargo xtask soak`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// GPUs of the clusters that plans are chosen for
    #[arg(long, value_delimiter = ',', default_value = "h100-sxm,a100-80gb-sxm,h200,b200,mi300x")]
    gpus: Vec<String>,
    /// Nodes of the clusters that plans are chosen for
    #[arg(long, value_delimiter = ',', default_value = "1,8,32,256")]
    nodes: Vec<u64>,
    /// Kills of one of eight ranks
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    kills: u32,
    /// Random layouts of up to eight processes
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    layouts: u32,
    /// Pairs of runs with and without measuring
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Searches of each of the largest spaces
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    searches: u32,
    /// Random values for each field of a script
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    values: u32,
    /// Seed of whom to kill and when, and of random layouts
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Seconds for each fuzz target
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Fuzz targets to run, instead of all
    #[arg(long, value_delimiter = ',', value_parser = TARGETS)]
    target: Vec<String>,
}

/// Where one target's files are.
struct Folders {
    /// Seeds, in the checkout.
    seeds: PathBuf,
    /// What this and earlier soaks found.
    found: PathBuf,
    /// What crashed or took too long.
    crashes: PathBuf,
}

/// Runs `cargo xtask soak`.
pub fn run(place: &Place, arguments: &Arguments) -> Result<ExitCode> {
    let wanted = |part| arguments.only.is_none_or(|only| only == part);
    let killed = !wanted(Part::Kills) || executor::kill(place, arguments.kills, arguments.seed)?;
    let trained = !wanted(Part::Layouts) || executor::layouts(place, arguments.layouts, arguments.seed)?;
    let measured = !wanted(Part::Measuring) || executor::measure(place, arguments.pairs)?;
    let joined = !wanted(Part::World) || executor::world(place)?;
    let quoted = !wanted(Part::Values) || values::run(place, arguments.values)?;
    let recorded = !wanted(Part::Types) || types::run(place)?;
    let went_on = !wanted(Part::Interruptions) || interruptions::run(place)?;
    let made = !wanted(Part::Page) || page::run(place)?;
    let searched = !wanted(Part::Search) || search::run(place, arguments.searches)?;
    let chosen_in_page = !wanted(Part::Choices) || search::choices(place, &arguments.gpus, &arguments.nodes)?;
    let chosen = !wanted(Part::Choose) || choose::run(place, &arguments.gpus, &arguments.nodes)?;
    let fuzzed = !wanted(Part::Fuzz) || fuzz_all(place, arguments)?;
    if wanted(Part::Calibration) {
        calibration::run(place)?;
    }
    Ok(
        if [
            killed,
            trained,
            measured,
            joined,
            quoted,
            recorded,
            went_on,
            made,
            searched,
            chosen_in_page,
            chosen,
            fuzzed,
        ]
        .iter()
        .all(|well| *well)
        {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        },
    )
}

/// Runs the fuzz targets; whether nothing crashed.
fn fuzz_all(place: &Place, arguments: &Arguments) -> Result<bool> {
    let program = tools::fuzz_tools(place)?;
    let cargo_fuzz = |command: &str| {
        let mut cargo = Command::new(&program);
        // The environment of the cargo that started this names its own toolchain.
        cargo.args(["fuzz", command, "--fuzz-dir", "fuzz"]).env_remove("CARGO");
        cargo.env("RUSTUP_TOOLCHAIN", tools::NIGHTLY).current_dir(place.root.join("tests"));
        cargo.arg("--target-dir").arg(place.target(Target::Fuzz));
        // planner has no unsafe code: there is nothing for an address sanitizer to find.
        cargo.args(["--sanitizer", "none"]);
        cargo
    };
    timed("building the fuzz targets", || process::run(&mut cargo_fuzz("build")))?;
    let wanted: Vec<&str> = TARGETS
        .into_iter()
        .filter(|target| arguments.target.is_empty() || arguments.target.iter().any(|name| name == target))
        .collect();
    console::result(tools::nightly_version()?);
    console::result(format_args!(
        "{:<14} {:>12} {:>12} {:>8}",
        "target", "executions", "new entries", "crashes"
    ));
    let mut crashed = Vec::new();
    for target in wanted {
        let folders = folders(place, target)?;
        let before = (entries(&folders.found)?, entries(&folders.crashes)?);
        let what = format!("{target} for {} s", arguments.seconds);
        let log = timed(what, || fuzz(cargo_fuzz("run"), target, &folders, arguments.seconds))?;
        let new = entries(&folders.found)?.difference(&before.0).count();
        let crashes: Vec<PathBuf> =
            entries(&folders.crashes)?.difference(&before.1).map(|name| folders.crashes.join(name)).collect();
        let executions = log.executions.map_or_else(|| "-".to_owned(), |count| count.to_string());
        console::result(format_args!("{target:<14} {executions:>12} {new:>12} {:>8}", crashes.len()));
        if crashes.is_empty() && !log.succeeded {
            bail!("the fuzz target {target} ended early and left no crash: {}", log.end);
        }
        if !crashes.is_empty() {
            console::notice(&log.end);
        }
        crashed.extend(crashes);
    }
    for file in &crashed {
        console::notice(format_args!("crash: {}", file.display()));
    }
    Ok(crashed.is_empty())
}

/// What a fuzz target said.
struct Log {
    succeeded: bool,
    executions: Option<u64>,
    /// The last lines.
    end: String,
}

fn fuzz(mut cargo: Command, target: &str, folders: &Folders, seconds: u32) -> Result<Log> {
    let mut artifacts = OsString::from("-artifact_prefix=");
    artifacts.push(&folders.crashes);
    // libFuzzer puts the file's name right behind it.
    artifacts.push("/");
    cargo.arg(target).arg(&folders.found).arg(&folders.seeds).arg("--");
    cargo.arg(format!("-max_total_time={seconds}")).arg(format!("-timeout={SLOWEST}"));
    cargo.args(["-print_final_stats=1", "-verbosity=1"]).arg(artifacts);
    let output = cargo
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", process::shown(&cargo)))?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(Log { succeeded: output.status.success(), executions: executions(&said), end: end(&said) })
}

/// What libFuzzer counted, also when it ended at a crash.
fn executions(said: &str) -> Option<u64> {
    said.lines()
        .filter_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
        .find_map(|count| count.trim().parse().ok())
}

fn end(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

fn folders(place: &Place, target: &str) -> Result<Folders> {
    let cache = place.cache.join("fuzz");
    let folders = Folders {
        seeds: place.root.join("tests").join("corpus").join(target),
        found: cache.join("corpus").join(target),
        crashes: cache.join("crashes").join(target),
    };
    for folder in [&folders.found, &folders.crashes] {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    Ok(folders)
}

fn entries(folder: &Path) -> Result<HashSet<OsString>> {
    let read =
        || std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<_>>();
    read().with_context(|| format!("cannot read {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_a_corpus_and_a_program() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
        let mut corpora = entries(&tests.join("corpus")).unwrap();
        let manifest = std::fs::read_to_string(tests.join("fuzz/Cargo.toml")).unwrap();
        for target in TARGETS {
            assert!(corpora.remove(std::ffi::OsStr::new(target)), "{target} has no corpus");
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target} has no program");
        }
        assert!(corpora.is_empty(), "corpora without a target: {corpora:?}");
    }

    #[test]
    fn executions_are_read_from_the_statistics() {
        assert_eq!(executions("#8 DONE\nstat::number_of_executed_units: 1234\nstat::x: 5"), Some(1234));
        assert_eq!(executions("error: could not compile"), None);
    }
}
