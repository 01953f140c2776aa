//! `shardplan export RUN --to FOLDER`.

use std::path::PathBuf;

use planner::Finding;
use planner::units::{Bytes, counted};
use serde_json::{Value, json};
use tensor_files::{CheckpointReader, DcpExport, Unnamed};

use crate::report::{self, Exit, Failure, notice};
use crate::run::Origin;

/// Write a run's newest checkpoint for others: as a Hugging Face model folder, or as torch's distributed checkpoint
///
/// `hf` is what transformers loads: the weights. `dcp` is what torch.distributed.checkpoint loads: weights as the optimizer
/// keeps them (`model.NAME`), its moments (`optim.state.NAME.exp_avg` and so on), `step` and `samples`, all in the types that
/// the checkpoint has. Names are those of the Hugging Face folder, or of the plan's parameters where the model has no such.
/// Megatron-Core's `torch_dist` is not written; Megatron Bridge makes it of an `hf` folder.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// The run, by its id or folder, or a folder of checkpoints, or one checkpoint
    run: PathBuf,
    /// The folder to write; it must not be there yet
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// What is written: hf (a Hugging Face model folder) or dcp (a distributed checkpoint of torch)
    #[arg(long, value_parser = format_of, default_value = "hf")]
    format: Format,
    /// Type of the weights of a Hugging Face folder [default: bf16]
    #[arg(long, value_parser = ["bf16", "fp16", "fp32", "fp64"])]
    dtype: Option<String>,
    /// Folder of run folders
    #[arg(long, value_name = "DIR", default_value = "runs", env = "SHARDPLAN_RUNS", hide_env_values = true)]
    runs: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// A Hugging Face model folder
    Hf,
    /// A distributed checkpoint of torch
    Dcp,
}

/// The format that somebody means.
fn format_of(text: &str) -> Result<Format, String> {
    match text {
        "hf" => Ok(Format::Hf),
        "dcp" => Ok(Format::Dcp),
        "torch_dist" | "torch-dist" | "megatron" => Err("Megatron-Core's own format is not written, as nothing here could show that its loader \
             reads it. Write --format hf, which Megatron Bridge imports and saves as torch_dist; moments of the optimizer are in \
             --format dcp"
            .to_owned()),
        _ => Err("say hf or dcp".to_owned()),
    }
}

impl Export {
    /// Writes the folder.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        if self.format == Format::Dcp && self.dtype.is_some() {
            return Err(Failure::usage(
                "--dtype is the type of a Hugging Face folder's weights; --format dcp keeps the types that the checkpoint has",
            ));
        }
        let (checkpoint, index) = Origin::find(&self.runs, &self.run)?.newest_whole()?;
        let (path, step) = (checkpoint.path.clone(), checkpoint.step);
        let failed = |error: anyhow::Error| match error.downcast_ref::<Unnamed>() {
            Some(unnamed) => Failure::finding(Finding::error("model", Value::Null, unnamed.to_string())),
            None => Failure::environment(format!("{error:#}")),
        };
        let reader = CheckpointReader::open(checkpoint, index).map_err(failed)?;
        if let Some(folder) = self.to.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|error| {
                Failure::environment(format!("this folder can't be made: {error}: {}", folder.display()))
            })?;
        }
        let (tensors, bytes, files, more) = match self.format {
            Format::Hf => self.hugging_face(reader),
            Format::Dcp => self.dcp(reader),
        }
        .map_err(failed)?;
        notice(&format!(
            "step {step} of {}: {}, {} in {}",
            path.display(),
            counted(tensors, "tensor"),
            Bytes(bytes).in_words_by_1000(),
            counted(files, "file"),
        ));
        if json {
            let mut answer = json!({
                "version": planner::wire::VERSION,
                "folder": self.to.display().to_string(),
                "checkpoint": path.display().to_string(),
                "step": step,
                "tensors": tensors,
                "bytes": bytes,
                "files": files,
            });
            if let Some(answer) = answer.as_object_mut() {
                answer.insert(more.0.to_owned(), more.1.into());
            }
            report::print_json(&answer)?;
        } else {
            report::print(&format!("{}\n", self.to.display()))?;
        }
        Ok(Exit::Yes)
    }

    fn hugging_face(&self, reader: CheckpointReader) -> anyhow::Result<Written> {
        let name = self.dtype.as_deref().unwrap_or("bf16");
        let dtype = match name {
            "fp16" => "F16",
            "fp32" => "F32",
            "fp64" => "F64",
            _ => "BF16",
        };
        let wanted = tensor_files::Export { to: &self.to, dtype, file_bytes: None };
        let exported = tensor_files::export(reader, &wanted)?;
        Ok((exported.tensors, exported.bytes, exported.files, ("dtype", name.to_owned())))
    }

    fn dcp(&self, reader: CheckpointReader) -> anyhow::Result<Written> {
        let wanted = DcpExport { to: &self.to, part_bytes: None, file_bytes: None };
        let exported = tensor_files::export_dcp(reader, &wanted)?;
        let names = match exported.own_names {
            Some(reason) => {
                notice(&format!("tensors have the names of the plan's parameters: {reason}"));
                "plan"
            }
            None => "hugging_face",
        };
        Ok((exported.tensors, exported.bytes, exported.files, ("names", names.to_owned())))
    }
}

/// Tensors, bytes and files that were written, and what else is said of them.
type Written = (u64, u64, u64, (&'static str, String));
