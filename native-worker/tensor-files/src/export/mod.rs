//! A checkpoint as others read it: a Hugging Face model folder, or a distributed checkpoint of torch.

mod dcp;
mod elements;
mod hugging_face;

pub use dcp::{DcpExport, DcpExported, export_dcp};
pub use hugging_face::{Export, Exported, export};

use std::fmt;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, ensure};
use planner::Plan;
use planner::model::presets;
use planner::model::weights::map::{WeightMap, hf_tensors};
use planner::wire::{CheckpointIndex, ModelFile};
use serde_json::{Map, Value};

use crate::folder::config_of;

/// A model's config.json, and where the elements of its parameters are in the tensors that it has by that.
struct Named {
    config: Map<String, Value>,
    map: WeightMap,
}

/// Why the tensors of a plan's model have no names of a Hugging Face folder: nothing on this machine can change that.
#[derive(Debug)]
pub struct Unnamed(String);

impl fmt::Display for Unnamed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Unnamed {}

/// The plan of a checkpoint.
fn plan_of(index: &CheckpointIndex) -> anyhow::Result<Plan> {
    Plan::resolve(&index.plan).plan.context("the checkpoint's plan can't be read by this version")
}

/// The folder of weights that training began with.
fn source(plan: &Plan) -> Option<&Path> {
    plan.run.weights.as_deref().map(Path::new)
}

impl Named {
    /// Of the plan's model.
    ///
    /// # Errors
    /// When it has no config.json, or its tensors are not mapped.
    fn of(plan: &Plan) -> Result<Named, Unnamed> {
        let config = config(plan)?;
        let map =
            hf_tensors(&plan.model, &config, None).map_err(|finding| Unnamed(finding.message.clone()))?;
        Ok(Named { config, map })
    }
}

/// The config.json of the plan's model.
fn config(plan: &Plan) -> Result<Map<String, Value>, Unnamed> {
    if let Some(source) = source(plan)
        && let Ok(config) = config_of(source)
    {
        return Ok(config);
    }
    let file: &ModelFile = &plan.file.model;
    if file.num_layers.is_some() {
        return Err(Unnamed(
            "the plan gives the model another number of layers than its config.json says; train it by a config.json of its own"
                .to_owned(),
        ));
    }
    let of_preset = || {
        let id = file.preset.as_deref()?;
        presets().iter().find(|preset| preset.id == id)?.hf_config.clone()
    };
    file.hf_config.clone().or_else(of_preset).ok_or_else(|| {
        Unnamed(
            "the plan's model has no config.json, so there are no names to write it by; train a preset or a model by its config.json, or say --format dcp"
                .to_owned(),
        )
    })
}

/// Writes a folder whole or not at all: what `write` leaves in the folder that it is given gets the name `to` at the end.
///
/// # Errors
/// When `to` is there, `write` fails, or the disk refuses.
fn whole_or_not<T>(to: &Path, write: impl FnOnce(&Path) -> anyhow::Result<T>) -> anyhow::Result<T> {
    ensure!(!to.exists(), "{} is there already; name another folder", to.display());
    let parent = match to.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let staged = tempfile::Builder::new()
        .prefix(".export-")
        .tempdir_in(parent)
        .with_context(|| format!("writing beside {}", to.display()))?;
    let written = write(staged.path())?;
    File::open(staged.path())?.sync_all()?;
    std::fs::rename(staged.path(), to).with_context(|| format!("naming {}", to.display()))?;
    std::mem::forget(staged);
    Ok(written)
}
