//! Getting into the namespaces of the test cluster, and making those of its login node.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sched::{CloneFlags, setns};
use nix::unistd::Pid;

use crate::programs::system_program;
use crate::wait::SOON;

/// The command that makes the login node.
pub fn login_node(folder: &Path) -> Result<Command> {
    let mut command = Command::new(system_program("unshare")?);
    command.args(["--net", "--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join("slurm").join("login.sh");
    command.arg(system_program("bash")?).arg(script).arg(folder);
    // Debian keeps daemons and `ip` where a user's PATH may not look.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin"));
    Ok(command)
}

/// The start of a command on a node whose process 1 has this number here. It runs in `folder`.
pub fn enter(init: Pid, folder: &Path) -> Result<Command> {
    let mut command = Command::new(system_program("nsenter")?);
    command.args(["--net", "--uts", "--pid", "--mount", "--target"]).arg(init.to_string());
    // Entering mounts leads to their root, so the folder is entered afterwards.
    command.arg("--").arg(system_program("env")?).arg(format!("--chdir={}", folder.display()));
    command.stdin(std::process::Stdio::null());
    Ok(command)
}

/// Does something on a thread of its own in the network of a process.
pub fn in_network_of<T: Send>(init: Pid, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let path = format!("/proc/{init}/ns/net");
    let network = File::open(&path).with_context(|| format!("the cluster is gone: no {path}"))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Only this thread changes its network.
            setns(network, CloneFlags::CLONE_NEWNET).context("the cluster's network can't be entered")?;
            work()
        });
        thread.join().map_err(|_| anyhow!("the thread in the cluster's network panicked"))?
    })
}

/// The only child of a process.
pub fn only_child(parent: Pid) -> Result<Pid> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let start = Instant::now();
    loop {
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        if let Some(Ok(child)) = text.split_whitespace().next().map(str::parse) {
            return Ok(Pid::from_raw(child));
        }
        if start.elapsed() > SOON {
            bail!("process {parent} has no child after {} s", SOON.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
