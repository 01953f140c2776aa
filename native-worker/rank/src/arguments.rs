//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};

/// What `--help` prints.
pub const USAGE: &str = "\
shardplan-rank: one rank of a Shardplan run

Usage: shardplan-rank --plan PLAN.json --run-dir DIR [options]

  --plan FILE        the plan, the same on every rank
  --run-dir DIR      the run folder; this rank appends to rank-NNNNN.log in it
  --device DEVICE    cpu or cuda; by default cuda where a GPU is visible
  --ranks-per-gpu N  ranks that share a GPU; 1
  --collectives C    host or nccl; by default nccl on GPUs, which ranks must have one each of, and host on CPUs
  --timeout-s N      seconds that a rank waits for another; 300
  --launcher PID     the process at the other end of standard input; when that ends, so does this rank, after its step
  --lease-s N        seconds that it may go on then, to end its step; 30
  --resume DIR       go on from the newest whole checkpoint in DIR, or the one that it is, unless the run folder has its own
  --dump DIR         write gradients and weights of every step, for tests
  --batch FILE       instead of --plan and --run-dir, many of them, for tests: lines of plan, run folder and, if wanted,
                     dump folder, with tabs between, run one after the other as they come; prints a line after each
  --unmeasured on    count no memory and no phases, to see what counting costs
  --check-kernels    compare fused kernels with single operations on this machine's device, print JSON; 1 when one is off
  --version          print versions of shardplan-rank and libtorch
  --help             print this

RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, or Slurm's own variables, say which rank this is.
";

/// The device asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU where one is visible.
    Automatic,
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
    /// To run the lines of a file one after the other, each with these arguments besides.
    Batch(Arguments, PathBuf),
    /// To compare kernels with single operations.
    CheckKernels,
    /// The usage.
    Help,
    /// The versions.
    Version,
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// When one is unknown, malformed or missing.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> anyhow::Result<Request> {
    let (mut plan, mut run_dir, mut dump, mut batch, mut resume) = (None, None, None, None, None);
    let (mut nccl_library, mut ranks_per_gpu, mut unmeasured) = (None, 1, false);
    let mut device = DeviceChoice::Automatic;
    let mut collectives = CollectivesChoice::Automatic;
    let mut timeout = Duration::from_secs(300);
    let (mut launcher, mut lease) = (None, run_folder::LEASE);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(Request::Help),
            "--version" | "-V" => return Ok(Request::Version),
            "--check-kernels" => return Ok(Request::CheckKernels),
            "--plan" | "--run-dir" | "--device" | "--ranks-per-gpu" | "--collectives" | "--nccl-library"
            | "--timeout-s" | "--launcher" | "--lease-s" | "--dump" | "--resume" | "--batch"
            | "--unmeasured" => {}
            _ => bail!("unknown argument {name:?}; see shardplan-rank --help"),
        }
        let value = inline.or_else(|| arguments.next()).with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--plan" => plan = Some(PathBuf::from(value)),
            "--run-dir" => run_dir = Some(PathBuf::from(value)),
            "--dump" => dump = Some(PathBuf::from(value)),
            "--resume" => resume = Some(PathBuf::from(value)),
            "--unmeasured" => unmeasured = value == "on",
            "--batch" => batch = Some(PathBuf::from(value)),
            "--ranks-per-gpu" => {
                ranks_per_gpu =
                    value.parse().ok().filter(|ranks| (1..=64).contains(ranks)).with_context(|| {
                        format!("--ranks-per-gpu is {value:?}; it must be a number from 1 to 64")
                    })?;
            }
            "--nccl-library" => nccl_library = Some(PathBuf::from(value)),
            "--collectives" => {
                collectives = match value.as_str() {
                    "host" => CollectivesChoice::Host,
                    "nccl" => CollectivesChoice::Nccl,
                    _ => bail!("--collectives is {value:?}; it must be host or nccl"),
                };
            }
            "--device" => {
                device = match value.as_str() {
                    "cpu" => DeviceChoice::Cpu,
                    "cuda" => DeviceChoice::Cuda,
                    _ => bail!("--device is {value:?}; it must be cpu or cuda"),
                };
            }
            "--launcher" => {
                let pid = value.parse::<u32>().ok().filter(|&pid| pid > 0);
                launcher = Some(pid.with_context(|| {
                    format!("--launcher is {value:?}; it must be the number of a process")
                })?);
            }
            "--lease-s" => lease = seconds("--lease-s", &value)?,
            _ => timeout = seconds("--timeout-s", &value)?,
        }
    }
    let paths = if batch.is_some() { Some(PathBuf::new()) } else { None };
    let plan = plan.or(paths.clone()).context("--plan is missing; see shardplan-rank --help")?;
    let run_dir = run_dir.or(paths).context("--run-dir is missing; see shardplan-rank --help")?;
    let one = Arguments {
        plan,
        run_dir,
        device,
        ranks_per_gpu,
        collectives,
        nccl_library,
        timeout,
        launcher,
        lease,
        unmeasured,
        resume,
        dump,
    };
    Ok(match batch {
        Some(file) => Request::Batch(one, file),
        None => Request::Run(one),
    })
}

fn seconds(name: &str, value: &str) -> anyhow::Result<Duration> {
    let seconds: Option<f64> = value.parse().ok().filter(|seconds| (0.1..=1e6).contains(seconds));
    let seconds = seconds.with_context(|| {
        format!("{name} is {value:?}; it must be a number of seconds from 0.1 to 1000000")
    })?;
    Ok(Duration::from_secs_f64(seconds))
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
        assert_eq!(parsed("--plan x --help").unwrap(), Request::Help);
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
            ("--rank 3", "unknown argument \"--rank\""),
            ("--device tpu", "--device is \"tpu\""),
            ("--ranks-per-gpu 0", "--ranks-per-gpu is \"0\""),
            ("--collectives mpi", "--collectives is \"mpi\""),
            ("--timeout-s soon", "--timeout-s is \"soon\""),
            ("--timeout-s 0", "--timeout-s is \"0\""),
            ("--lease-s never", "--lease-s is \"never\""),
            ("--launcher 0", "--launcher is \"0\""),
        ] {
            let error = parsed(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
