//! A real Slurm of a login node and two compute nodes with two "GPUs" each, all on this machine.
//!
//! Each of the three has network, host name, processes and mounts of its own (Linux namespaces), and the nodes reach
//! one another over a bridge, so nothing works by sharing loopback. Files are shared, as on a cluster. munged,
//! slurmctld and two slurmd are Debian's; a plugin of ours stands in for pyxis. Nodes of the names `cloud8-N` and
//! `cloud4-N` with 8 and 4 GPUs are known to the controller alone and serve `sbatch --test-only`.
//!
//! The login node's process 1 ends with the test that started it, and with it everything in the cluster.

mod configuration;
mod namespaces;
mod stale;
pub mod stubs;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::unistd::Pid;

use crate::process::{Guarded, Lines};
use crate::programs::system_program;
use crate::wait::{Attempt, SOON, until};

/// Names of the compute nodes.
pub const NODES: [&str; 2] = ["gpu-01", "gpu-02"];
/// Their addresses, known to all nodes by name.
pub const ADDRESSES: [&str; 2] = ["10.77.0.11", "10.77.0.12"];
/// GPUs of a compute node.
pub const GPUS_PER_NODE: u64 = 2;
/// Nodes of each kind that exist for `--test-only` alone.
pub const CLOUD_NODES: u64 = 2048;
/// Partitions of one compute node each, for the components of a heterogeneous job.
pub const HALVES: [&str; 2] = ["left", "right"];
/// Partitions of both compute nodes: jobs of the second end those of the first, which are queued again.
pub const PREEMPTION: [&str; 2] = ["low", "high"];
/// The partition of all nodes that exist for `--test-only` alone.
pub const LARGE: &str = "large";
/// Nodes of each kind in the other partitions.
pub const SMALL_NODES: u64 = 128;
/// Those other partitions. `compute`, the default, has the compute nodes.
pub const PARTITIONS: [&str; 5] = ["main", "batch", "gpu", "interactive", "debug"];

const PREFIX: &str = "shardplan-slurm-";

/// A running Slurm. Dropped, it is gone with all that ran in it.
pub struct Slurm {
    control: Mutex<Control>,
    /// Process 1 of the login node, by its number here.
    login: Pid,
    folder: PathBuf,
}

/// The login node's input and output.
struct Control {
    process: Guarded,
    lines: Lines,
}

impl Slurm {
    /// The one that tests share: started by the first, gone with the test program.
    ///
    /// # Errors
    /// Always the first one's.
    pub fn shared() -> Result<&'static Slurm> {
        static SHARED: OnceLock<Result<Slurm, String>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| Slurm::start().map_err(|error| format!("{error:#}")));
        shared.as_ref().map_err(|said| anyhow!("Slurm did not start: {said}"))
    }

    /// Starts one, and waits until both nodes are idle.
    ///
    /// # Errors
    /// When something is missing, in one sentence, or does not start, with the daemons' logs.
    pub fn start() -> Result<Slurm> {
        ensure!(
            nix::unistd::geteuid().is_root(),
            "the Slurm tests give each node a network namespace of its own, which needs root: run them as root, such as in a container or a virtual machine"
        );
        let temporary = std::env::temp_dir();
        stale::clean(&temporary)?;
        let folder = stale::make(&temporary)?;
        let started = Slurm::start_in(&folder);
        if started.is_err() {
            // Otherwise the login node's last act.
            let _ = std::fs::remove_dir_all(&folder);
        }
        started
    }

    fn start_in(folder: &Path) -> Result<Slurm> {
        configuration::write(folder)?;
        let mut command = namespaces::login_node(folder)?;
        let log = std::fs::File::create(folder.join("log").join("login.out"))?;
        let (process, lines) = Guarded::with_input_and_lines(command.stderr(log))?;
        let failed = || logs(folder);
        lines.find("login node", SOON, |line| (line == "ready").then_some(())).with_context(failed)?;
        let login = namespaces::only_child(process.pid()?)?;
        let slurm =
            Slurm { control: Mutex::new(Control { process, lines }), login, folder: folder.to_owned() };
        for node in NODES {
            slurm.start_node(node).with_context(failed)?;
        }
        slurm.wait_until_idle(SOON).with_context(failed)?;
        Ok(slurm)
    }

    /// One of Slurm's commands (or another) on the login node, with a limit on its time.
    pub fn command(&self, name: &str) -> Result<Command> {
        let mut command = self.unlimited("timeout")?;
        command.arg(SOON.as_secs().to_string()).arg(system_program(name)?);
        Ok(command)
    }

    /// A program on the login node, as long as it likes.
    pub fn unlimited(&self, name: &str) -> Result<Command> {
        let mut command = namespaces::enter(self.login, &self.folder)?;
        command.arg(if name.contains('/') { PathBuf::from(name) } else { system_program(name)? });
        command.env("SLURM_CONF", self.folder.join("slurm.conf"));
        Ok(command)
    }

    /// Does something on a thread that is in the login node's network.
    ///
    /// # Errors
    /// The work's, or when the network can't be entered.
    pub fn in_its_network<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        namespaces::in_network_of(self.login, work)
    }

    /// A new folder on the filesystem that all nodes share.
    pub fn shared_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join("shared").join(name);
        std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }

    /// Submits a script from a folder, with more options and variables, and gives the job's number.
    pub fn submit_with(
        &self,
        script: &Path,
        folder: &Path,
        configure: impl FnOnce(&mut Command),
    ) -> Result<String> {
        let mut sbatch = self.command("sbatch")?;
        sbatch.arg("--parsable").arg(format!("--chdir={}", folder.display()));
        configure(&mut sbatch);
        Ok(succeeded(sbatch.arg(script))?.trim().to_owned())
    }

    /// Submits a script from a folder and gives the job's number.
    pub fn submit(&self, script: &Path, folder: &Path) -> Result<String> {
        self.submit_with(script, folder, |_| {})
    }

    /// What `scontrol show job` says of a job: the value of a field such as `JobState`.
    pub fn job_field(&self, job: &str, name: &str) -> Result<String> {
        let shown = succeeded(self.command("scontrol")?.args(["--oneliner", "show", "job", job]))?;
        field(&shown, name).with_context(|| format!("scontrol shows no {name} of job {job}: {shown}"))
    }

    /// Waits for a job's end and gives its state and exit code, such as `COMPLETED` and `0:0`.
    pub async fn finished(&self, job: &str, limit: Duration) -> Result<(String, String)> {
        let ended = until("a finished job", limit, async || {
            let shown = succeeded(self.command("scontrol")?.args(["--oneliner", "show", "job", job]))?;
            let state = field(&shown, "JobState").context("scontrol shows no JobState")?;
            let code = field(&shown, "ExitCode").context("scontrol shows no ExitCode")?;
            // Of all its states these are ends; others come and go, such as SIGNALING for a moment.
            Ok(match state.as_str() {
                "BOOT_FAIL" | "CANCELLED" | "COMPLETED" | "DEADLINE" | "FAILED" | "NODE_FAIL"
                | "OUT_OF_MEMORY" | "PREEMPTED" | "REVOKED" | "SPECIAL_EXIT" | "TIMEOUT" => {
                    Attempt::Ready((state, code))
                }
                _ => Attempt::NotYet(shown),
            })
        });
        ended.await.with_context(|| self.logs())
    }

    /// Starts a compute node that is down.
    pub fn start_node(&self, name: &str) -> Result<()> {
        let address = NODES.iter().zip(ADDRESSES).find(|(node, _)| **node == name);
        let (_, address) = address.with_context(|| format!("there is no node {name}"))?;
        self.order(&format!("start {name} {address}"))
    }

    /// Takes a compute node away: its network first, then everything on it at once.
    pub fn lose_node(&self, name: &str) -> Result<()> {
        self.order(&format!("lose {name}"))
    }

    fn order(&self, order: &str) -> Result<()> {
        let mut control =
            self.control.lock().map_err(|_| anyhow!("another test failed while giving orders"))?;
        control.process.say(order)?;
        control.lines.find(order, SOON, |line| (line == "done").then_some(()))
    }

    /// Waits until both compute nodes are up and free.
    pub fn wait_until_idle(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let mut sinfo = self.command("sinfo")?;
            let output =
                sinfo.args(["--noheader", "--Node", "--partition=compute", "--format=%N %T"]).output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let idle = text.lines().filter(|line| line.ends_with(" idle")).count();
            if idle == NODES.len() {
                return Ok(());
            }
            if start.elapsed() > limit {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                bail!("after {} s the nodes are not idle: {text}{said}", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the plugin that stands in for pyxis wrote down for a step of a job (`0`, `1`, `batch`): options by task.
    pub fn container_options(&self, job: &str, step: &str) -> Result<Vec<Vec<(String, String)>>> {
        let mut tasks = Vec::new();
        loop {
            let path = self.folder.join("records").join(format!("{job}.{step}.{}", tasks.len()));
            let Ok(text) = std::fs::read_to_string(&path) else { return Ok(tasks) };
            let pair =
                |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            tasks.push(text.lines().filter_map(pair).collect());
        }
    }

    /// A folder that stands for the files of an image: a step in a container has one of its own there on each node, which
    /// is empty at first and gone with the step.
    pub fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// What the daemons have logged last, for the error of a failed test.
    pub fn logs(&self) -> String {
        logs(&self.folder)
    }

    /// Where everything of this Slurm is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Process 1 of the login node, by its number on this machine.
    pub fn login(&self) -> Pid {
        self.login
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if let Ok(control) = self.control.get_mut() {
            control.process.close_input();
            // What does not end in time is killed when its guard is dropped.
            let _ = control.process.wait(Duration::from_secs(10));
        }
        // The login node has removed it, unless it was killed.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn logs(folder: &Path) -> String {
    let mut all = String::from("the daemons' logs");
    let entries = std::fs::read_dir(folder.join("log")).into_iter().flatten();
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let start = text.lines().count().saturating_sub(15);
        let _ = write!(all, "\n== {}", path.display());
        for line in text.lines().skip(start) {
            let _ = write!(all, "\n{line}");
        }
    }
    all
}

/// What a command printed to stdout, with everything in the error when it failed.
pub fn succeeded(command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } =
        command.output().with_context(|| format!("cannot start {command:?}"))?;
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    if !status.success() {
        bail!("{command:?} ended with {status}: {stdout}{}", String::from_utf8_lossy(&stderr));
    }
    Ok(stdout)
}

/// The value of `NAME=value` in a line of such.
fn field(line: &str, name: &str) -> Option<String> {
    let value = |word: &str| word.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
    line.split_whitespace().find_map(value)
}
