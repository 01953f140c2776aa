//! Starting the rank processes of a run on this machine, and hearing what they print and how they end.

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::ground::Put;
use crate::probe::library_path;

/// The longest line that is kept of a rank's output, in bytes.
pub const MAX_LINE_BYTES: usize = 4096;

/// What a rank's process does.
#[derive(Debug)]
pub enum RankEvent {
    /// It printed a line.
    Line {
        /// The rank.
        rank: u64,
        /// `stdout` or `stderr`.
        stream: &'static str,
        /// The line, cut.
        text: String,
    },
    /// It ended.
    Exited {
        /// The rank.
        rank: u64,
        /// How.
        status: ExitStatus,
    },
}

/// Where a rank is started that is on another machine, by srun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnNode {
    /// The node's name.
    pub node: String,
    /// The rank's number among those of the node.
    pub local_rank: u64,
    /// How many those are.
    pub local_size: u64,
    /// `CUDA_VISIBLE_DEVICES` there, where some GPUs are left out.
    pub gpus: Option<String>,
}

/// How a step of one rank is started: on a node whose other steps have the same cores, memory and GPUs, and each its own.
const SRUN: [&str; 8] = [
    "--overlap",
    "--nodes=1",
    "--ntasks=1",
    "--ntasks-per-node=1",
    "--mem=0",
    "--cpu-bind=none",
    "--mpi=none",
    "--wait=0",
];

/// What is needed to start the ranks of a run.
#[derive(Debug, Clone)]
pub struct RankCommand {
    /// `shardplan-rank`.
    pub binary: PathBuf,
    /// Folder of libtorch.
    pub torch_lib: PathBuf,
    /// The run's folder.
    pub folder: PathBuf,
    /// Ranks in all, those of failed GPUs too.
    pub world_size: u64,
    /// Those that are started: all but what a plan with failed GPUs leaves out.
    pub ranks: Vec<u64>,
    /// Ranks that share a GPU.
    pub ranks_per_gpu: u64,
    /// Whether the plan is for the CPU, whatever GPUs there are.
    pub on_cpu: bool,
    /// Where.
    pub put: Put,
    /// Which start of the run this is, from 1.
    pub attempt: u64,
    /// Checkpoints to go on from, if the run has none of its own.
    pub resume: Option<PathBuf>,
    /// Whether the ranks save when they are stopped.
    pub saves: bool,
}

impl RankCommand {
    fn command(&self, rank: u64) -> Command {
        let place = self.ranks.iter().position(|started| *started == rank).unwrap_or(0);
        let on = self.put.on_nodes.get(place);
        let (local_rank, local_size) =
            on.map_or((place as u64, self.ranks.len() as u64), |on| (on.local_rank, on.local_size));
        let mut libraries = OsString::from("LD_LIBRARY_PATH=");
        libraries.push(library_path(&self.torch_lib));
        let mut command = match on {
            None => Command::new(&self.binary),
            Some(on) => {
                let mut command = Command::new("srun");
                command.args(SRUN).arg(format!("--nodelist={}", on.node)).arg("env").arg(libraries);
                // Slurm sets its own for the step.
                command.args(on.gpus.as_ref().map(|gpus| format!("CUDA_VISIBLE_DEVICES={gpus}")));
                command.arg(&self.binary);
                command
            }
        };
        command
            .arg("--plan")
            .arg(self.folder.join(run_folder::PLAN))
            .arg("--run-dir")
            .arg(&self.folder)
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", local_rank.to_string())
            .env("WORLD_SIZE", self.world_size.to_string())
            .env("LOCAL_WORLD_SIZE", local_size.to_string())
            .env("MASTER_ADDR", &self.put.address)
            .env("MASTER_PORT", self.put.port.to_string())
            .arg("--launcher")
            .arg(std::process::id().to_string())
            // Nothing is ever written to it: its end tells the rank that the launcher is gone, however that went.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that Ctrl-C reaches the launcher alone, which then stops the ranks in order.
            .process_group(0);
        if on.is_none() {
            command.env("LD_LIBRARY_PATH", library_path(&self.torch_lib));
        }
        if self.attempt > 1 {
            command.env("TORCHELASTIC_RESTART_COUNT", (self.attempt - 1).to_string());
        }
        if let Some(resume) = &self.resume {
            command.arg("--resume").arg(resume);
        }
        if let Some(gpus) = &self.put.gpus {
            command.env("CUDA_VISIBLE_DEVICES", gpus);
        }
        if self.on_cpu {
            command.args(["--device", "cpu"]);
        } else if self.ranks_per_gpu > 1 {
            command.arg("--ranks-per-gpu").arg(self.ranks_per_gpu.to_string());
        }
        if std::env::var_os("OMP_NUM_THREADS").is_none() {
            let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
            command.env("OMP_NUM_THREADS", (cores / local_size.max(1)).max(1).to_string());
        }
        command
    }

    /// Starts one rank; its events go to `events`. Returns its process number.
    ///
    /// # Errors
    /// When the process can't be started.
    pub fn start(&self, rank: u64, events: mpsc::Sender<RankEvent>) -> anyhow::Result<u32> {
        let mut child = self
            .command(rank)
            .spawn()
            .with_context(|| format!("rank {rank} can't be started: {}", self.binary.display()))?;
        let pid = child.id().context("a process that was just started has no number")?;
        let readers = [
            child.stdout.take().map(|pipe| tokio::spawn(read_lines(rank, "stdout", pipe, events.clone()))),
            child.stderr.take().map(|pipe| tokio::spawn(read_lines(rank, "stderr", pipe, events.clone()))),
        ];
        tokio::spawn(wait(rank, child, readers.into_iter().flatten().collect(), events));
        Ok(pid)
    }
}

/// Sends `signal` to a rank's process group. One that has ended is no error.
pub fn signal_rank(pid: u32, signal: Signal) {
    if let Ok(group) = i32::try_from(pid) {
        let _ = killpg(Pid::from_raw(group), signal);
    }
}

/// Ports that the kernel gives to nobody who asks for any, unless it was set otherwise: those begin at 32768.
const APART: std::ops::Range<u16> = 20_000..32_768;

/// A port that is free now, and that stays free until rank 0 listens on it: not one of those that the kernel gives to whoever asks
/// for any, as every rank does. Where all of them are taken, any.
///
/// # Errors
/// When there is none.
pub fn free_port() -> anyhow::Result<u16> {
    // Launchers that start side by side begin at other places.
    let began = RandomState::new().build_hasher().finish() % APART.len() as u64;
    let of = |number: u64| APART.start + ((began + number) % APART.len() as u64) as u16;
    let listens = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    if let Some(port) = (0..1000).map(of).find(listens) {
        return Ok(port);
    }
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("no port of 127.0.0.1 is free")?;
    Ok(listener.local_addr().context("no port of 127.0.0.1 is free")?.port())
}

async fn wait(
    rank: u64,
    mut child: Child,
    readers: Vec<tokio::task::JoinHandle<()>>,
    events: mpsc::Sender<RankEvent>,
) {
    // Waiting would close it.
    let lease = child.stdin.take();
    let status = loop {
        if let Ok(status) = child.wait().await {
            break status;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    drop(lease);
    // What it printed last comes first. A grandchild may hold the pipe open, so this wait is bounded.
    for reader in readers {
        let mut reader = reader;
        if tokio::time::timeout(Duration::from_millis(500), &mut reader).await.is_err() {
            reader.abort();
        }
    }
    let _ = events.send(RankEvent::Exited { rank, status }).await;
}

async fn read_lines(
    rank: u64,
    stream: &'static str,
    mut pipe: impl AsyncRead + Unpin,
    events: mpsc::Sender<RankEvent>,
) {
    let mut lines = LineCutter::default();
    let mut buffer = [0u8; 8192];
    loop {
        let count = pipe.read(&mut buffer).await.unwrap_or(0);
        let finished =
            if count == 0 { lines.finish().into_iter().collect() } else { lines.push(&buffer[..count]) };
        for text in finished {
            if events.send(RankEvent::Line { rank, stream, text }).await.is_err() {
                return;
            }
        }
        if count == 0 {
            return;
        }
    }
}

/// Cuts a byte stream into lines of bounded length.
#[derive(Debug, Default)]
struct LineCutter {
    line: Vec<u8>,
}

impl LineCutter {
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut finished = Vec::new();
        for &byte in bytes {
            if byte == b'\n' {
                finished.push(text_of(&std::mem::take(&mut self.line)));
            } else if self.line.len() < MAX_LINE_BYTES {
                self.line.push(byte);
            }
        }
        finished
    }

    fn finish(&mut self) -> Option<String> {
        (!self.line.is_empty()).then(|| text_of(&std::mem::take(&mut self.line)))
    }
}

fn text_of(line: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(line).trim_end_matches('\r').to_owned();
    // Replacing a broken character by U+FFFD may have made it longer.
    while text.len() > MAX_LINE_BYTES {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_and_bounded() {
        let mut lines = LineCutter::default();
        assert_eq!(lines.push(b"one\ntw"), ["one"]);
        assert_eq!(lines.push(b"o\r\n\n"), ["two", ""]);
        assert!(lines.push(&vec![b'x'; 1 << 20]).is_empty());
        assert_eq!(lines.push(b"\nlast")[0].len(), MAX_LINE_BYTES);
        assert_eq!(lines.finish().as_deref(), Some("last"));
        assert_eq!(lines.finish(), None);
        assert!(text_of(&[0xff; MAX_LINE_BYTES]).len() <= MAX_LINE_BYTES);
    }
}
