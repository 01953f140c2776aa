//! `shardplan export RUN --to FOLDER`.

use std::path::PathBuf;

use serde_json::json;
use tensor_files::CheckpointReader;

use super::{Exit, Failure, exit, say};
use crate::run::Origin;

/// Write a run's newest checkpoint as a Hugging Face model folder, which transformers loads
#[derive(Debug, clap::Args)]
pub struct Export {
    /// The run, by its id or folder, or a folder of checkpoints, or one checkpoint
    run: PathBuf,
    /// The folder to write; it must not be there yet
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Type of the weights
    #[arg(long, default_value = "bf16", value_parser = ["bf16", "fp16", "fp32", "fp64"])]
    dtype: String,
    /// Folder of run folders
    #[arg(long, value_name = "DIR", default_value = "runs", env = "SHARDPLAN_RUNS", hide_env_values = true)]
    runs: PathBuf,
}

impl Export {
    /// Writes the folder.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let (checkpoint, index) = Origin::find(&self.runs, &self.run)?.newest_whole()?;
        let (path, step) = (checkpoint.path.clone(), checkpoint.step);
        let failed = |error: anyhow::Error| Failure::environment(format!("{error:#}"));
        let reader = CheckpointReader::open(checkpoint, index).map_err(failed)?;
        let dtype = match self.dtype.as_str() {
            "fp16" => "F16",
            "fp32" => "F32",
            "fp64" => "F64",
            _ => "BF16",
        };
        let wanted = tensor_files::Export { to: &self.to, dtype, file_bytes: None };
        let exported = tensor_files::export(reader, &wanted).map_err(failed)?;
        say(&format!(
            "step {step} of {}: {} tensors, {:.3} GB in {} files",
            path.display(),
            exported.tensors,
            exported.bytes as f64 / 1e9,
            exported.files
        ));
        if json {
            exit::print_json(&json!({
                "version": planner::wire::VERSION,
                "folder": self.to,
                "checkpoint": path,
                "step": step,
                "dtype": self.dtype,
                "tensors": exported.tensors,
                "bytes": exported.bytes,
                "files": exported.files,
            }))?;
        } else {
            exit::print(&format!("{}\n", self.to.display()))?;
        }
        Ok(Exit::Yes)
    }
}
