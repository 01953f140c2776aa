//! `shardplan wrap -- COMMAND`.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{input, source};
use crate::report::{self, Exit, Failure, text};
use crate::wrap::{self, ReportAs, Request};

/// Run any training command, recorded in a run folder beside its prediction
///
/// The command runs as it would alone: its input, its output byte for byte, signals and exit status. Its iterations are
/// read from what it prints. The plan is a file, or is recovered from the command line or configuration of a Megatron-LM,
/// torchtitan or Automodel job. Under srun or torchrun, wrap each task or the launcher; what is printed to a pipe comes in
/// blocks unless the command flushes (python -u).
#[derive(Debug, clap::Args)]
pub struct Wrap {
    /// Plan file to compare with
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Folder of run folders
    #[arg(long, value_name = "DIR", default_value = "runs", env = "SHARDPLAN_RUNS", hide_env_values = true)]
    runs: PathBuf,
    /// The run's id; several processes with the same one write into one folder
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// This process alone watches the run: the others of srun or torchrun do not
    #[arg(long)]
    alone: bool,
    /// GPU for a recovered plan; by default the one of this machine
    #[arg(long, value_name = "ID")]
    gpu: Option<String>,
    /// Seconds between samples of GPUs and host
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Print the comparison to standard error at the end; with --json as JSON
    #[arg(long)]
    report: bool,
    /// Print the plan that would be compared with, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.1..=3600.0).contains(&value) => Ok(value),
        _ => Err("a number of seconds from 0.1 to 3600".to_owned()),
    }
}

impl Wrap {
    /// Runs the command and ends as it does; returns only where nothing is to be run.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        if let Some(id) = &self.id
            && !run_folder::is_id(id)
        {
            return Err(Failure::usage(format!("--id {id:?}: letters, digits, `.`, `_` and `-` only")));
        }
        let gpu = self.gpu.as_deref().map(input::gpu_id).transpose()?;
        let request = Request {
            words: self.command,
            plan: self.plan,
            read_plan: source::read,
            runs: self.runs,
            id: self.id,
            alone: self.alone,
            gpu,
            interval: self.interval,
            report: self.report.then_some(if json { ReportAs::Json } else { ReportAs::Table }),
        };
        if self.dry_run {
            return show(&request, json);
        }
        wrap::run(request)
    }
}

fn show(request: &Request, json: bool) -> anyhow::Result<Exit> {
    let (plan, source) = wrap::recovered(request);
    if json {
        report::print_json(
            &serde_json::json!({"version": planner::wire::VERSION, "source": source, "plan": plan}),
        )?;
    } else {
        source.remarks.iter().for_each(|remark| report::notice(&text::one_line(remark)));
        if let Some(plan) = &plan {
            report::print_json(plan)?;
        }
    }
    Ok(if plan.is_some() { Exit::Yes } else { Exit::No })
}
