//! Python, uv, torch, our executor, Slurm, and the limits of a process.

use super::{Check, absent, doubtful, missing, ok};
use crate::probe::Torch;
use crate::probe::facts::{Facts, SLURM};

/// Python and uv.
pub fn python(facts: &Facts, checks: &mut Vec<Check>) {
    checks.push(match &facts.python {
        None => absent(
            "python",
            "there is no python3 on PATH",
            "install Python 3, or name one that has torch with --torch",
        ),
        Some(Err(sentence)) => doubtful("python", sentence, "mend it, or put another python3 first on PATH"),
        Some(Ok(python)) => {
            let torch = python
                .torch
                .as_ref()
                .map_or("without torch".to_owned(), |torch| format!("with torch {torch}"));
            ok("python", format!("{} {torch} ({})", python.version, python.executable.display()))
        }
    });
    if let Some(Ok(python)) = &facts.python
        && let (Some(torch), Some(vision)) = (&python.torch, &python.torchvision)
        && let Some(finding) = batch::runspec::mismatch(torch, python.torch_cuda.as_deref(), vision)
    {
        checks.push(doubtful("python", finding.message, "install torch and torchvision from one index"));
    }
    checks.push(match &facts.uv {
        Some(version) => ok("uv", version),
        None => {
            absent("uv", "uv is not on PATH, so `shardplan launch` can't make environments", "pip install uv")
        }
    });
}

/// The torch of our executor.
pub fn torch(facts: &Facts, checks: &mut Vec<Check>) {
    checks.extend(facts.torch.as_ref().map(|torch| match torch {
        Ok(torch) => ok("torch", describe(torch)),
        Err(sentence) => missing("torch", sentence),
    }));
}

fn describe(torch: &Torch) -> String {
    let cuda = torch.cuda.as_ref().map_or("no CUDA".to_owned(), |cuda| format!("CUDA {cuda}"));
    format!("{} with {cuda} ({})", torch.version, torch.python.display())
}

/// Our executor.
pub fn rank(facts: &Facts, checks: &mut Vec<Check>) {
    checks.extend(facts.rank.as_ref().map(|rank| match rank {
        Ok(rank) => ok("rank", format!("{} ({})", rank.about, rank.path.display())),
        Err(sentence) => missing("rank", sentence),
    }));
}

/// Slurm and its containers.
pub fn slurm(facts: &Facts, checks: &mut Vec<Check>) {
    let found = &facts.slurm;
    if found.is_empty() {
        checks.push(absent("slurm", "no Slurm on this machine; scripts can be written all the same", ""));
        return;
    }
    if found.len() < SLURM.len() {
        let lacking: Vec<&str> = SLURM.into_iter().filter(|name| !found.contains(name)).collect();
        checks.push(doubtful(
            "slurm",
            format!("{} on PATH, and not {}", found.join(", "), lacking.join(", ")),
            "put the folder of Slurm's programs on PATH",
        ));
    }
    checks.push(match &facts.controller {
        Some(Ok(answer)) => ok("slurm", answer.lines().next().unwrap_or("the controller answers")),
        Some(Err(words)) => doubtful(
            "slurm",
            format!("the controller does not answer ({words})"),
            "try again in a minute; if it stays so, ask who runs the cluster",
        ),
        None => ok("slurm", format!("{} on PATH", found.join(", "))),
    });
    match facts.pyxis {
        Some(true) if !facts.enroot && facts.variables.contains_key("SLURM_JOB_ID") => checks.push(doubtful(
            "pyxis",
            "srun knows --container-image, and enroot, which pyxis starts containers with, is not on this node",
            "have enroot installed on the nodes",
        )),
        Some(true) => checks.push(ok("pyxis", "srun knows --container-image")),
        Some(false) => checks.push(absent(
            "pyxis",
            "srun does not know --container-image",
            "write scripts without `image`, or have pyxis and enroot installed",
        )),
        None => {}
    }
}

/// The least `/dev/shm` in which NCCL and data loaders of one node do not run out, in bytes.
const SHARED_MEMORY: u64 = 1 << 30;
/// The least number of open files for data loaders and rendezvous of many ranks.
const OPEN_FILES: u64 = 4096;

/// Limits of a process.
pub fn limits(facts: &Facts, checks: &mut Vec<Check>) {
    let mut wrong = false;
    if let Some(bytes) = facts.shared_memory.filter(|bytes| *bytes < SHARED_MEMORY) {
        wrong = true;
        checks.push(doubtful(
            "limits",
            format!("/dev/shm holds {} MiB, and NCCL and data loaders of one node share it", bytes >> 20),
            "start the container with --shm-size=16g or --ipc=host",
        ));
    }
    if let Some(files) = facts.open_files.filter(|files| *files < OPEN_FILES) {
        wrong = true;
        checks.push(doubtful(
            "limits",
            format!("a process may open {files} files"),
            "raise it with `ulimit -n 65536`, in the batch script too",
        ));
    }
    let locked =
        facts.locked_memory.filter(|_| facts.ports.iter().any(super::super::fabric::Port::is_active));
    if let Some(bytes) = locked {
        wrong = true;
        checks.push(doubtful(
            "limits",
            format!(
                "a process may lock {} KiB of memory, and RDMA needs all that it registers locked",
                bytes >> 10
            ),
            "have `memlock unlimited` set in limits.conf and LimitMEMLOCK=infinity for slurmd",
        ));
    }
    if !wrong {
        checks.push(ok("limits", "open files, locked memory and /dev/shm are as training wants them"));
    }
}
