//! The files of weights in a model's folder, held against its config.json: what does not match is said before the plan.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use planner::Finding;
use planner::finding::Severity;
use planner::model::{self, HEADER_LENGTH, WeightFiles};
use serde_json::{Map, Value};

use super::input;
use crate::report::notice;

const INDEX: &str = "model.safetensors.index.json";

/// Most files of weights of which a folder's headers are read.
const MOST_FILES: usize = 1024;

/// Says what of the tensors in `folder` does not match the model of its config.json. Headers alone are read, of whatever
/// size the files are; a folder without weights says nothing.
pub fn compare(folder: &Path, config: &Map<String, Value>) {
    let Some(architecture) = model::import_hf(config).architecture else { return };
    match read(folder) {
        Ok(None) => {}
        Ok(Some(weights)) => {
            for finding in model::compare_weights(config, &architecture, &weights) {
                let kind = if finding.severity == Severity::Info { "weights" } else { "weights differ" };
                notice(&format!("{kind}: {}", finding.message));
            }
        }
        Err(message) => notice(&format!("weights: {message}")),
    }
}

/// What a folder's index and headers notice; none without either.
fn read(folder: &Path) -> Result<Option<WeightFiles>, String> {
    let index = folder.join(INDEX);
    let mut found = None;
    if index.is_file() {
        let object = input::read_json(&index).map_err(|error| format!("{error:#}"))?;
        found = Some(model::read_index(&object).map_err(|finding| at(&finding, &index))?);
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(|error| format!("the folder can't be listed: {error}: {}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|name| name == "safetensors"))
        .take(MOST_FILES)
        .collect();
    // One file of all, as some publish beside the parts, has every tensor a second time.
    let parts = files.iter().any(|path| name_of(path).contains("-of-"));
    files.retain(|path| !parts || name_of(path).contains("-of-"));
    files.sort();
    for path in files {
        let weights = header(&path)?;
        found = Some(found.unwrap_or_default().with(weights));
    }
    Ok(found)
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn at(finding: &Finding, path: &Path) -> String {
    format!("{}: {}", finding.message, path.display())
}

/// The header of one file.
fn header(path: &Path) -> Result<WeightFiles, String> {
    let failed = |error: std::io::Error| format!("this file can't be read: {error}: {}", path.display());
    let mut file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let mut first = [0; HEADER_LENGTH as usize];
    file.read_exact(&mut first).map_err(failed)?;
    let length = model::header_bytes(first).map_err(|finding| at(&finding, path))?;
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text).map_err(failed)?;
    let behind = size.saturating_sub(HEADER_LENGTH + length);
    model::read_header(&text, Some(behind)).map_err(|finding| at(&finding, path))
}
