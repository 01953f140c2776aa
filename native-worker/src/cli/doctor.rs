//! `shardplan doctor`.

use std::path::PathBuf;

use planner::finding::Severity;

use crate::probe::{self, Check, State};
use crate::report::{self, Exit, text};

/// Say what this machine has and lacks, and what to do: torch, GPUs, driver, network, Slurm, folders
///
/// It exits with 0 when this machine can run plans, and with 3 when something that this needs is missing or wrong.
/// Doubtful matters, such as a cache on the wrong filesystem, do not change that.
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

impl Doctor {
    /// Looks at everything and prints it; "missing" when something needed is.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let facts = probe::facts(&self.runs, self.rank_binary.as_deref(), self.torch.as_deref());
        let checks = probe::checks(&facts);
        if json {
            report::print_json(&serde_json::json!({
                "version": planner::wire::VERSION,
                "gpu": probe::catalogue_gpu(),
                "gpus": probe::machine().gpu_kinds,
                "checks": checks,
            }))?;
        } else {
            report::print(&checks.iter().map(lines).collect::<String>())?;
        }
        let in_the_way = checks.iter().any(|check| check.severity == Severity::Error);
        Ok(if in_the_way { Exit::Missing } else { Exit::Yes })
    }
}

fn lines(check: &Check) -> String {
    let state = match check.state {
        State::Ok => "ok",
        State::Absent => "absent",
        State::Doubtful => "doubtful",
        State::Missing => "missing",
    };
    let fix = check
        .fix
        .as_ref()
        .map_or_else(String::new, |fix| format!("{:<18} to do: {}\n", "", text::one_line(fix)));
    format!("{state:<8} {:<9} {}\n{fix}", check.name, text::one_line(&check.detail))
}
