//! `shardplan run PLAN`.

use std::path::PathBuf;

use planner::wire::Outcome;

use super::source::Source;
use super::{Exit, Failure, exit, say};
use crate::run::{Programs, Request, run};

/// Run a plan on this machine: one process per rank, recorded in a run folder
#[derive(Debug, clap::Args)]
pub struct Run {
    #[command(flatten)]
    source: Source,
    /// Folder of run folders
    #[arg(long, value_name = "DIR", default_value = "runs", env = "SHARDPLAN_RUNS", hide_env_values = true)]
    runs: PathBuf,
    /// Ranks that may share a GPU, where there is one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    ranks_per_gpu: u64,
    /// The rank binary; by default the one beside this program, or on PATH
    #[arg(long, value_name = "FILE", env = "SHARDPLAN_RANK", hide_env_values = true)]
    rank_binary: Option<PathBuf>,
    /// A Python that has torch 2.11; by default the one that `cargo xtask` installed, or python3
    #[arg(long, value_name = "PYTHON", env = "SHARDPLAN_TORCH", hide_env_values = true)]
    torch: Option<PathBuf>,
    /// The run's id, chosen by the hub
    #[arg(long, hide = true)]
    id: Option<String>,
    /// Leave the caller's session, so that the run outlives it
    #[arg(long, hide = true)]
    detached: bool,
}

impl Run {
    /// Runs the plan and waits for its end.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        if self.detached {
            // Fails only for a group leader, which a process that the hub has just started is not.
            let _ = nix::unistd::setsid();
        }
        if let Some(id) = &self.id
            && !crate::run::folder::is_id(id)
        {
            return Err(Failure::usage(format!("--id {id:?}: letters, digits, `.`, `_` and `-` only")));
        }
        let programs = Programs::new(self.rank_binary, self.torch);
        let request = Request {
            plan: self.source.plan()?.file,
            runs: self.runs,
            id: self.id,
            ranks_per_gpu: self.ranks_per_gpu,
        };
        let finished = run(request, &programs)?;
        say(&finished.reason);
        if let Some(missing) = &finished.missing {
            say(&format!("of the logs of this run, {}", missing.sentence()));
        }
        if json {
            exit::print_json(&serde_json::json!({
                "version": planner::wire::VERSION,
                "run": finished.id,
                "folder": finished.folder,
                "outcome": finished.outcome,
                "reason": finished.reason,
                "missing": finished.missing,
                "compared_with": finished.compared,
                "figures": finished.figures,
            }))?;
        } else {
            exit::print(&format!("{}\n", finished.folder.display()))?;
        }
        Ok(if finished.outcome == Outcome::Completed { Exit::Yes } else { Exit::No })
    }
}
