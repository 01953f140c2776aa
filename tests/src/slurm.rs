//! A real Slurm of two nodes with two "GPUs" each, all on this machine, in a folder of its own.
//!
//! munged with a socket of its own, slurmctld, and two slurmd on ports of their own. The GPUs are plain files, so
//! that Slurm counts and assigns them. A node's name must be one that the ranks can resolve, so the nodes are named
//! by addresses of the loopback network. Nothing outside the folder is read or changed.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::process::Guarded;
use crate::programs::system_program;
use crate::wait::{Attempt, until};

/// Names of the nodes; also addresses at which their ranks are reached.
pub const NODES: [&str; 2] = ["127.0.0.1", "127.0.0.2"];
/// GPUs of a node.
pub const GPUS_PER_NODE: u64 = 2;

const START_LIMIT: Duration = Duration::from_secs(30);
const COMMAND_LIMIT: &str = "30";

/// A running Slurm. Dropped, its daemons are gone.
pub struct Slurm {
    // In this order they are dropped: nodes, controller, munge, then the folder.
    nodes: Vec<Guarded>,
    controller: Option<Guarded>,
    _munge: Guarded,
    folder: TempDir,
}

impl Slurm {
    /// Starts one, and waits until both nodes are idle.
    pub async fn start() -> Result<Slurm> {
        let folder = tempfile::Builder::new().prefix("shardplan-slurm-").tempdir()?;
        let path = folder.path();
        for name in ["state", "log"] {
            std::fs::create_dir(path.join(name))?;
        }
        let munge = start_munge(path)?;
        write_configuration(path)?;
        let controller = daemon(path, "slurmctld", &["-D", "-i"])?;
        let mut nodes = Vec::new();
        for node in NODES {
            nodes.push(daemon(path, "slurmd", &["-D", "-N", node])?);
        }
        let slurm = Slurm { nodes, controller: Some(controller), _munge: munge, folder };
        slurm.wait_until_idle().await.with_context(|| slurm.logs())?;
        Ok(slurm)
    }

    /// One of Slurm's commands, asking this Slurm, with a limit on its time.
    pub fn command(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(system_program("timeout")?);
        command.arg(COMMAND_LIMIT).arg(system_program(name)?);
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf")).stdin(Stdio::null());
        Ok(command)
    }

    /// Submits a script from a folder and gives the job's number.
    pub fn submit(&self, script: &Path, folder: &Path) -> Result<String> {
        let output = succeeded(self.command("sbatch")?.arg("--parsable").arg(script).current_dir(folder))?;
        Ok(output.trim().to_owned())
    }

    /// Waits for a job's end and gives its state and exit code, such as `COMPLETED` and `0:0`.
    pub async fn finished(&self, job: &str, limit: Duration) -> Result<(String, String)> {
        let ended = until("a finished job", limit, async || {
            let shown = succeeded(self.command("scontrol")?.args(["--oneliner", "show", "job", job]))?;
            let state = field(&shown, "JobState").context("scontrol shows no JobState")?;
            let code = field(&shown, "ExitCode").context("scontrol shows no ExitCode")?;
            Ok(match state.as_str() {
                "PENDING" | "CONFIGURING" | "RUNNING" | "COMPLETING" => Attempt::NotYet(shown),
                _ => Attempt::Ready((state, code)),
            })
        });
        ended.await.with_context(|| self.logs())
    }

    /// What the daemons have logged last, for the error of a failed test.
    pub fn logs(&self) -> String {
        let mut all = String::from("the daemons' logs");
        let entries = std::fs::read_dir(self.folder.path().join("log")).into_iter().flatten();
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

    async fn wait_until_idle(&self) -> Result<()> {
        until("two idle nodes", START_LIMIT, async || {
            let output = self.command("sinfo")?.args(["--noheader", "--Node", "--format=%N %T"]).output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let idle = text.lines().filter(|line| line.ends_with(" idle")).count();
            let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
            Ok(if idle == NODES.len() { Attempt::Ready(()) } else { Attempt::NotYet(said) })
        })
        .await
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // Job steps have process groups and sessions of their own, so the controller is asked to end them first.
        if let Ok(mut scancel) = self.command("scancel") {
            let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
            let _ = scancel.args(["--signal=KILL", "--full"]).arg(format!("--user={user}")).output();
        }
        for daemon in self.nodes.iter_mut().chain(&mut self.controller) {
            // A daemon that does not end in time is killed when its guard is dropped.
            if daemon.signal(Signal::SIGTERM).is_ok() {
                let _ = daemon.wait(Duration::from_secs(5));
            }
        }
    }
}

fn start_munge(path: &Path) -> Result<Guarded> {
    let key = path.join("munge.key");
    // munged's own tool makes the key readable for its owner alone, which munged insists on.
    let made =
        Command::new(system_program("mungekey")?).arg("--create").arg("--keyfile").arg(&key).output()?;
    ensure!(made.status.success(), "mungekey failed: {}", String::from_utf8_lossy(&made.stderr));
    let mut command = Command::new(system_program("munged")?);
    // --force, because the folder for temporary files may be writable by others.
    command.args(["--foreground", "--force"]);
    for (option, name) in [
        ("key-file", "munge.key"),
        ("socket", "munge.socket"),
        ("pid-file", "munged.pid"),
        ("seed-file", "munged.seed"),
        ("log-file", "log/munged.log"),
    ] {
        command.arg(format!("--{option}={}", path.join(name).display()));
    }
    let log = std::fs::File::create(path.join("log").join("munged.out"))?;
    Guarded::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log))
}

fn daemon(path: &Path, name: &str, arguments: &[&str]) -> Result<Guarded> {
    let mut command = Command::new(system_program(name)?);
    command.args(arguments).env("SLURM_CONF", path.join("slurm.conf"));
    // It logs to the file that the configuration names; what it prints besides is the same.
    Guarded::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
}

fn write_configuration(path: &Path) -> Result<()> {
    let user = read_line(Command::new("id").arg("-un"))?;
    let host = read_line(&mut Command::new("hostname"))?;
    let [controller_port, first_port, second_port] = free_ports()?;
    let folder = path.display();
    let mut text = format!(
        "ClusterName=shardplan\n\
         SlurmctldHost={host}(127.0.0.1)\n\
         SlurmctldPort={controller_port}\n\
         SlurmUser={user}\n\
         SlurmdUser={user}\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={folder}/munge.socket\n\
         CredType=cred/munge\n\
         StateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/spool-%n\n\
         SlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/slurmd-%n.pid\n\
         SlurmctldLogFile={folder}/log/slurmctld.log\n\
         SlurmdLogFile={folder}/log/slurmd-%n.log\n\
         PlugStackConfig={folder}/plugstack.conf\n\
         SlurmdParameters=config_overrides\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         SwitchType=switch/none\n\
         MpiDefault=none\n\
         ReturnToService=2\n\
         KillWait=5\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\n\
         GresTypes=gpu\n\
         AccountingStorageType=accounting_storage/none\n\
         JobAcctGatherType=jobacct_gather/none\n"
    );
    let mut gpus = String::new();
    for (node, port) in NODES.iter().zip([first_port, second_port]) {
        let _ = writeln!(
            text,
            "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=16 RealMemory=4000 Gres=gpu:{GPUS_PER_NODE}"
        );
        for gpu in 0..GPUS_PER_NODE {
            let file = path.join(format!("gpu{gpu}"));
            std::fs::write(&file, "")?;
            let _ = writeln!(gpus, "NodeName={node} Name=gpu File={}", file.display());
        }
    }
    text.push_str("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n");
    std::fs::write(path.join("slurm.conf"), text)?;
    std::fs::write(path.join("gres.conf"), gpus)?;
    std::fs::write(path.join("plugstack.conf"), "")?;
    Ok(())
}

/// Ports that were free a moment ago.
fn free_ports() -> Result<[u16; 3]> {
    let listeners = [0; 3].map(|_| TcpListener::bind("127.0.0.1:0"));
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(ports)
}

fn read_line(command: &mut Command) -> Result<String> {
    Ok(succeeded(command)?.trim().to_owned())
}

fn succeeded(command: &mut Command) -> Result<String> {
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
