//! `shardplan doctor`.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Exit, exit};
use crate::probe::{self, Torch};

/// Say what this machine has and lacks: rank binary, torch, GPUs, driver, Slurm
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// Folder of run folders
    #[arg(long, value_name = "DIR", default_value = "runs", env = "SHARDPLAN_RUNS", hide_env_values = true)]
    runs: PathBuf,
    /// The rank binary; by default the one beside this program, or on PATH
    #[arg(long, value_name = "FILE", env = "SHARDPLAN_RANK", hide_env_values = true)]
    rank_binary: Option<PathBuf>,
    /// A Python that has torch 2.11; by default the one that `cargo xtask` installed, or python3
    #[arg(long, value_name = "PYTHON", env = "SHARDPLAN_TORCH", hide_env_values = true)]
    torch: Option<PathBuf>,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    /// What was found, or what is wrong and what to do.
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// There and right.
    Ok,
    /// Not there, and not needed to run on this machine.
    Absent,
    /// Needed, and missing or wrong.
    Missing,
}

fn ok(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, state: State::Ok, detail: detail.into() }
}

fn absent(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, state: State::Absent, detail: detail.into() }
}

fn missing(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, state: State::Missing, detail: detail.into() }
}

impl Doctor {
    /// Looks at everything and prints it; "missing" when something needed is.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let torch = probe::find_torch(self.torch.as_deref());
        let rank = probe::find_rank(self.rank_binary.as_deref(), torch.as_ref().ok());
        let checks = [
            python(),
            match &torch {
                Ok(torch) => ok("torch", describe(torch)),
                Err(sentence) => missing("torch", sentence),
            },
            match rank {
                Ok(rank) => ok("rank", format!("{} ({})", rank.about, rank.path.display())),
                Err(sentence) => missing("rank", sentence),
            },
            gpus(),
            driver(torch.ok().as_ref()),
            slurm(),
            runs_folder(&self.runs),
        ];
        let needed_is_missing = checks.iter().any(|check| check.state == State::Missing);
        if json {
            exit::print_json(&serde_json::json!({"version": planner::wire::VERSION, "checks": checks}))?;
        } else {
            let line = |check: &Check| {
                let state = match check.state {
                    State::Ok => "ok",
                    State::Absent => "absent",
                    State::Missing => "missing",
                };
                format!("{state:<8} {:<8} {}\n", check.name, super::text::one_line(&check.detail))
            };
            exit::print(&checks.iter().map(line).collect::<String>())?;
        }
        Ok(if needed_is_missing { Exit::Missing } else { Exit::Yes })
    }
}

fn describe(torch: &Torch) -> String {
    let cuda = torch.cuda.as_ref().map_or("no CUDA".to_owned(), |cuda| format!("CUDA {cuda}"));
    format!("{} with {cuda} ({})", torch.version, torch.python.display())
}

fn python() -> Check {
    let Some(python) = probe::program("python3") else {
        return absent(
            "python",
            "there is no python3 on PATH; torch is found through one, or name it with --torch",
        );
    };
    match probe::python_version(&python) {
        Some(version) => ok("python", format!("{version} ({})", python.display())),
        None => absent("python", format!("this python3 does not say its version: {}", python.display())),
    }
}

fn gpus() -> Check {
    match (probe::gpu_names(), probe::gpu_count()) {
        (names, _) if !names.is_empty() => ok("gpu", names.join("; ")),
        (_, 0) => absent("gpu", "no NVIDIA GPU is visible, so ranks run on the CPU"),
        (_, count) => ok("gpu", format!("{count}, though nvidia-smi does not list them")),
    }
}

fn driver(torch: Option<&Torch>) -> Check {
    let Some(version) = probe::driver_version() else {
        return absent("driver", "no NVIDIA driver is loaded");
    };
    let major: Option<u32> = version.split('.').next().and_then(|major| major.parse().ok());
    match (torch.and_then(Torch::needed_driver), major) {
        (Some(needed), Some(major)) if major < needed => missing(
            "driver",
            format!(
                "{version} is older than {needed}, which the CUDA of this torch needs; update the driver, or name a \
                 Python with a torch 2.11 for an older CUDA with --torch PYTHON"
            ),
        ),
        _ => ok("driver", version),
    }
}

fn slurm() -> Check {
    let found: Vec<&str> = ["sbatch", "srun", "scancel", "squeue"]
        .into_iter()
        .filter(|name| probe::program(name).is_some())
        .collect();
    match found.len() {
        4 => ok("slurm", "sbatch, srun, scancel and squeue are on PATH"),
        0 => absent("slurm", "no Slurm on this machine; scripts can be written all the same"),
        _ => absent("slurm", format!("only {} on PATH", found.join(", "))),
    }
}

fn runs_folder(runs: &Path) -> Check {
    let shown = runs.canonicalize().unwrap_or_else(|_| runs.to_owned());
    // The nearest folder that exists decides; asking must not leave a folder behind.
    let existing = runs.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
    match tempfile::tempfile_in(existing) {
        Ok(_) => ok("runs", format!("{} can be written", shown.display())),
        Err(error) => missing(
            "runs",
            format!("{} can't be written ({error}); name another with --runs", shown.display()),
        ),
    }
}
