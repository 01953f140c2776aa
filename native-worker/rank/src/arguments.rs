//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};

/// The command line as it is typed.
#[derive(Debug, Parser)]
#[command(
    name = "shardplan-rank",
    version,
    about = "shardplan-rank: one rank of a Shardplan run",
    override_usage = "shardplan-rank --plan PLAN.json --run-dir DIR [options]",
    after_help = "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, or Slurm's own variables, say which rank this is.",
    args_override_self = true,
    disable_help_flag = true,
    disable_version_flag = true,
    allow_negative_numbers = true
)]
struct Typed {
    /// the plan, the same on every rank
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// the run folder; this rank appends to rank-NNNNN.log in it
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// cpu or cuda; by default cpu for a plan of CPU processes, and cuda for any other
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    device: Option<DeviceChoice>,
    /// ranks that share a GPU; 1
    #[arg(long, value_name = "N", default_value = "1", hide_default_value = true, value_parser = ranks)]
    ranks_per_gpu: usize,
    /// host or nccl; by default nccl on GPUs, which ranks must have one each of, and host on CPUs
    #[arg(long, value_name = "C", value_parser = collectives)]
    collectives: Option<CollectivesChoice>,
    /// the library to take for NCCL, for tests
    #[arg(long, value_name = "FILE", hide = true)]
    nccl_library: Option<PathBuf>,
    /// seconds that a rank waits for another; 300
    #[arg(long, value_name = "N", default_value = "300", hide_default_value = true, value_parser = seconds)]
    timeout_s: Duration,
    /// the process at the other end of standard input; when that ends, so does this rank, after its step
    #[arg(long, value_name = "PID", value_parser = process)]
    launcher: Option<u32>,
    /// seconds that it may go on then, to end its step; 30
    #[arg(long, value_name = "N", value_parser = seconds)]
    lease_s: Option<Duration>,
    /// go on from the newest whole checkpoint in DIR, or the one that it is, unless the run folder has its own
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// write gradients and weights of every step, for tests
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,
    /// instead of --plan and --run-dir, many of them, for tests: lines of plan, run folder and, if wanted,
    /// dump folder, with tabs between, run one after the other as they come; prints a line after each
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    batch: Option<PathBuf>,
    /// count no memory and no phases, to see what counting costs
    #[arg(long, value_name = "on")]
    unmeasured: Option<String>,
    /// say whether the run could go on by the plan: it can be run, and what is saved is of its model; starts nothing
    #[arg(long)]
    check: bool,
    /// compare fused kernels with single operations on this machine's device, print JSON; 1 when one is off
    #[arg(long)]
    check_kernels: bool,
    /// have NCCL do in a world of one what ranks ask of it, on this machine's GPU, print JSON; 1 when something is off
    #[arg(long)]
    check_nccl: bool,
    /// print versions of shardplan-rank and libtorch
    #[arg(long, short = 'V', action = ArgAction::Version)]
    version: (),
    /// print this
    #[arg(long, short, action = ArgAction::Help)]
    help: (),
}

/// The device asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// What the plan is of: GPUs, or CPU processes.
    ByPlan,
    /// The CPU.
    Cpu,
    /// A GPU.
    Cuda,
}

/// The collectives asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectivesChoice {
    /// NCCL on GPUs, host memory on CPUs or where ranks are told to share GPUs.
    Automatic,
    /// Over TCP, through host memory.
    Host,
    /// NCCL.
    Nccl,
}

/// Arguments of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// The plan file.
    pub plan: PathBuf,
    /// The run folder.
    pub run_dir: PathBuf,
    /// The device.
    pub device: DeviceChoice,
    /// Ranks that share a GPU.
    pub ranks_per_gpu: usize,
    /// The collectives.
    pub collectives: CollectivesChoice,
    /// The library to take for NCCL, for tests.
    pub nccl_library: Option<PathBuf>,
    /// How long a rank waits for another.
    pub timeout: Duration,
    /// The process that holds the other end of standard input, and with which this rank ends.
    pub launcher: Option<u32>,
    /// How long the rank may go on when that is gone.
    pub lease: Duration,
    /// Whether memory and phases are not counted.
    pub unmeasured: bool,
    /// Where to go on from, if the run folder has no checkpoint.
    pub resume: Option<PathBuf>,
    /// Where to write gradients and weights of every step.
    pub dump: Option<PathBuf>,
}

impl Arguments {
    /// The same with the plan, run folder and dump folder of a line of a batch file.
    ///
    /// # Errors
    /// When the line is not two or three paths.
    pub fn of_line(&self, line: &str) -> anyhow::Result<Arguments> {
        let mut paths = line.split('\t').map(PathBuf::from);
        let (Some(plan), Some(run_dir), dump, None) =
            (paths.next(), paths.next(), paths.next(), paths.next())
        else {
            bail!("--batch: {line:?} is not a plan, a run folder and a dump folder");
        };
        Ok(Arguments { plan, run_dir, dump, ..self.clone() })
    }
}

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// To run.
    Run(Arguments),
    /// To say whether a run could go on by a plan.
    Check(Arguments),
    /// To run the lines of a file one after the other, each with these arguments besides.
    Batch(Arguments, PathBuf),
    /// To compare kernels with single operations.
    CheckKernels,
    /// To have NCCL, or this library in its place, do in a world of one what ranks ask of it.
    CheckNccl(Option<PathBuf>),
    /// To print this, which says what can be asked for.
    Help(String),
    /// The versions.
    Version,
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// When one is unknown, malformed or missing.
pub fn parse(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> anyhow::Result<Request> {
    let words = arguments.into_iter().map(Into::into);
    let command = Typed::command().no_binary_name(true);
    let typed = match command.try_get_matches_from(words).and_then(|found| Typed::from_arg_matches(&found)) {
        Ok(typed) => typed,
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp => return Ok(Request::Help(error.to_string())),
            ErrorKind::DisplayVersion => return Ok(Request::Version),
            _ => return Err(in_words(&error)),
        },
    };
    if typed.check_kernels {
        return Ok(Request::CheckKernels);
    }
    if typed.check_nccl {
        return Ok(Request::CheckNccl(typed.nccl_library));
    }
    let paths = typed.batch.as_ref().map(|_| PathBuf::new());
    let one = Arguments {
        plan: typed.plan.or(paths.clone()).context("--plan is missing; see shardplan-rank --help")?,
        run_dir: typed.run_dir.or(paths).context("--run-dir is missing; see shardplan-rank --help")?,
        device: typed.device.unwrap_or(DeviceChoice::ByPlan),
        ranks_per_gpu: typed.ranks_per_gpu,
        collectives: typed.collectives.unwrap_or(CollectivesChoice::Automatic),
        nccl_library: typed.nccl_library,
        timeout: typed.timeout_s,
        launcher: typed.launcher,
        lease: typed.lease_s.unwrap_or(run_folder::LEASE),
        unmeasured: typed.unmeasured.is_some_and(|word| word == "on"),
        resume: typed.resume,
        dump: typed.dump,
    };
    Ok(match typed.batch {
        Some(file) => Request::Batch(one, file),
        None if typed.check => Request::Check(one),
        None => Request::Run(one),
    })
}

/// What is wrong with the command line, in one line, as all errors of a rank are said.
fn in_words(error: &clap::Error) -> anyhow::Error {
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    // `--plan <FILE>`, or a word as it was typed.
    let argument = said(ContextKind::InvalidArg);
    let name = argument.split(' ').next().unwrap_or_default();
    let value = said(ContextKind::InvalidValue);
    match (error.kind(), std::error::Error::source(error)) {
        (ErrorKind::UnknownArgument, _) => {
            anyhow!("unknown argument {argument:?}; see shardplan-rank --help")
        }
        (ErrorKind::InvalidValue, _) if value.is_empty() => anyhow!("{name} needs a value"),
        (ErrorKind::ValueValidation, Some(what)) => anyhow!("{name} is {value:?}; it {what}"),
        // clap's own sentence, without the usage below it.
        _ => {
            let text = error.to_string();
            let sentence = text.lines().next().unwrap_or_default();
            anyhow!("{}; see shardplan-rank --help", sentence.trim_start_matches("error: "))
        }
    }
}

fn device(text: &str) -> Result<DeviceChoice, &'static str> {
    match text {
        "cpu" => Ok(DeviceChoice::Cpu),
        "cuda" => Ok(DeviceChoice::Cuda),
        _ => Err("must be cpu or cuda"),
    }
}

fn collectives(text: &str) -> Result<CollectivesChoice, &'static str> {
    match text {
        "host" => Ok(CollectivesChoice::Host),
        "nccl" => Ok(CollectivesChoice::Nccl),
        _ => Err("must be host or nccl"),
    }
}

fn ranks(text: &str) -> Result<usize, &'static str> {
    let ranks = text.parse().ok().filter(|ranks| (1..=64).contains(ranks));
    ranks.ok_or("must be a number from 1 to 64")
}

fn process(text: &str) -> Result<u32, &'static str> {
    text.parse().ok().filter(|&pid| pid > 0).ok_or("must be the number of a process")
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (0.1..=1e6).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or("must be a number of seconds from 0.1 to 1000000")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> anyhow::Result<Request> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_in_both_forms() {
        let Request::Run(run) =
            parsed("--plan p.json --run-dir=runs/1 --device cpu --timeout-s 2.5").unwrap()
        else {
            panic!("not a run")
        };
        assert_eq!(
            (run.plan.clone(), run.run_dir.clone()),
            (PathBuf::from("p.json"), PathBuf::from("runs/1"))
        );
        assert_eq!((run.device, run.timeout), (DeviceChoice::Cpu, Duration::from_millis(2500)));
        assert_eq!((run.launcher, run.lease), (None, run_folder::LEASE));
        let Request::Run(run) = parsed("--plan p --run-dir r --launcher 7 --lease-s 1").unwrap() else {
            panic!("not a run")
        };
        assert_eq!((run.launcher, run.lease), (Some(7), Duration::from_secs(1)));
        let Request::Help(text) = parsed("--plan x --help").unwrap() else { panic!("not the help") };
        for option in [
            "Usage: shardplan-rank --plan PLAN.json --run-dir DIR [options]",
            "--lease-s <N>",
            "seconds that",
        ] {
            assert!(text.contains(option), "{text}");
        }
        assert!(!text.contains("nccl-library"), "{text}");
        assert_eq!(parsed("-V").unwrap(), Request::Version);
        assert_eq!(parsed("--check-kernels --device cpu").unwrap(), Request::CheckKernels);
        assert!(
            matches!(parsed("--check --plan p --run-dir r").unwrap(), Request::Check(one) if one.plan.ends_with("p"))
        );
        assert_eq!(parsed("--check-nccl").unwrap(), Request::CheckNccl(None));
        let library = Some(PathBuf::from("l.so"));
        assert_eq!(parsed("--check-nccl --nccl-library l.so").unwrap(), Request::CheckNccl(library));
        // The last word on a matter holds: a script may add to what it was given.
        let Request::Run(run) = parsed("--plan a --plan b --run-dir r --unmeasured on").unwrap() else {
            panic!("not a run")
        };
        assert_eq!((run.plan, run.unmeasured), (PathBuf::from("b"), true));
        let Request::Batch(all, file) = parsed("--batch lines --device cpu").unwrap() else {
            panic!("not a batch")
        };
        assert_eq!(file, PathBuf::from("lines"));
        let one = all.of_line("p.json\truns/1").unwrap();
        assert_eq!((one.run_dir, one.dump), (PathBuf::from("runs/1"), None));
        assert_eq!(all.of_line("p\tr\td").unwrap().dump, Some(PathBuf::from("d")));
        assert!(all.of_line("p").is_err() && all.of_line("p\tr\td\tx").is_err());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, expected) in [
            ("--plan p", "--run-dir is missing"),
            ("--run-dir r", "--plan is missing"),
            ("--plan", "--plan needs a value"),
            ("--plan= --run-dir r", "--plan needs a value"),
            ("--plan --run-dir r", "--plan needs a value"),
            ("--rank 3", "unknown argument \"--rank\"; see shardplan-rank --help"),
            ("--rank=3", "unknown argument \"--rank\"; see shardplan-rank --help"),
            ("plan.json", "unknown argument \"plan.json\""),
            (
                "--check-kernels=on",
                "unexpected value 'on' for '--check-kernels' found; no more were expected; see shardplan-rank --help",
            ),
            ("--device tpu", "--device is \"tpu\"; it must be cpu or cuda"),
            ("--ranks-per-gpu 0", "--ranks-per-gpu is \"0\""),
            ("--collectives mpi", "--collectives is \"mpi\""),
            ("--timeout-s soon", "--timeout-s is \"soon\""),
            ("--timeout-s 0", "--timeout-s is \"0\""),
            ("--lease-s never", "--lease-s is \"never\""),
            ("--launcher 0", "--launcher is \"0\""),
        ] {
            let error = parsed(line).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
    }
}
