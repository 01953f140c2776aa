//! Reading a plan file, from a path or standard input, with every size bounded.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use planner::cluster::{Meant, gpu, gpus, meant_gpu};
use planner::json::without_mark;
use planner::{Finding, wire::PlanFile};
use run_folder::read_bounded;

use crate::report::Failure;

/// The largest plan file or config.json that is read. A real one is some tens of kilobytes.
pub const MAX_INPUT_BYTES: u64 = 16 * 1024 * 1024;

/// The id of a GPU by any of the names that a plan file takes.
///
/// # Errors
/// When it is none of the catalogue.
pub fn gpu_id(name: &str) -> anyhow::Result<String> {
    if let Some(gpu) = gpu(name) {
        return Ok(gpu.id.to_owned());
    }
    match meant_gpu(name) {
        Some(Meant::Gpu { id, .. }) => Ok(id.to_owned()),
        Some(Meant::Says(sentence)) => Err(Failure::usage(format!("--gpu {name:?}: {sentence}"))),
        None => {
            let known: Vec<&str> = gpus().iter().map(|gpu| gpu.id).collect();
            Err(Failure::usage(format!(
                "--gpu {name:?} is not in the catalogue; there are {}",
                known.join(", ")
            )))
        }
    }
}

/// Reads and parses the plan file at `path` (`-` is standard input), and replaces `hf_config_path` by the file's
/// content.
///
/// # Errors
/// When it can't be read, is too large, or is not a plan.
pub fn read_plan(path: &Path) -> anyhow::Result<PlanFile> {
    let text = if path == Path::new("-") {
        text(std::io::stdin().lock(), "", "standard input")?
    } else {
        let file = File::open(path).map_err(|error| {
            Failure::usage_of_file(path, &format!("the plan file can't be opened: {error}"))
        })?;
        refuse_folder(&file, path, "a plan file")?;
        refuse_large(file_size(&file), "", "the plan file")?;
        text(file, "", "the plan file")?
    };
    let mut plan = planner::parse_plan(&text).map_err(Failure::Findings)?;
    if let Some(named) = plan.model.hf_config_path.take() {
        let what = "a Hugging Face config.json";
        plan.model.hf_config = Some(read_object("model.hf_config_path", &named, path, what)?);
    }
    if let Some(named) = plan.layout.tp_plan_path.take() {
        if plan.layout.tp_plan.is_some() {
            return Err(Failure::finding(Finding::error(
                "layout.tp_plan_path",
                named,
                "give layout.tp_plan or layout.tp_plan_path, not both",
            )));
        }
        let what = "a tensor-parallel plan, a map from module pattern to style";
        plan.layout.tp_plan = Some(read_object("layout.tp_plan_path", &named, path, what)?.into());
    }
    Ok(plan)
}

/// The text of a file, at most so large as a plan may be; `what` says what it should be.
///
/// # Errors
/// When it can't be read, or is too large.
pub fn read_text(path: &Path, what: &str) -> anyhow::Result<String> {
    let file = File::open(path)
        .map_err(|error| Failure::usage_of_file(path, &format!("{what} can't be opened: {error}")))?;
    refuse_folder(&file, path, what)?;
    let named = format!("{what} {}", path.display());
    refuse_large(file_size(&file), "", &named)?;
    text(file, "", &named)
}

/// The JSON object in a file.
///
/// # Errors
/// When it can't be read, is too large, or is none.
pub fn read_json(path: &Path) -> anyhow::Result<serde_json::Map<String, serde_json::Value>> {
    let text = read_text(path, "the config.json")?;
    if text.trim().is_empty() {
        let message = format!(
            "this file is empty, and should be a JSON object, such as a config.json: {}",
            path.display()
        );
        return Err(Failure::usage(message));
    }
    serde_json::from_str(&text)
        .map_err(|error| Failure::usage_of_file(path, &format!("this is not a JSON object: {error}")))
}

/// Reads the calibration profile at `path`.
///
/// # Errors
/// When it can't be read, is too large, or is not a profile.
pub fn read_calibration(path: &Path) -> anyhow::Result<planner::wire::CalibrationFile> {
    let file = File::open(path)
        .map_err(|error| Failure::usage_of_file(path, &format!("the profile can't be opened: {error}")))?;
    refuse_folder(&file, path, "a calibration profile")?;
    refuse_large(file_size(&file), "software.calibration", "the profile")?;
    let text = text(file, "software.calibration", "the profile")?;
    planner::calibration::parse(&text).map_err(|finding| Failure::finding(*finding))
}

/// The JSON object in the file that a plan names in `field`; `what` says what it should be. A relative path is taken
/// from the plan's folder.
fn read_object(
    field: &str,
    named: &str,
    plan: &Path,
    what: &str,
) -> anyhow::Result<serde_json::Map<String, serde_json::Value>> {
    let base = if plan == Path::new("-") { None } else { plan.parent() };
    let path = base.map_or_else(|| PathBuf::from(named), |folder| folder.join(named));
    let file = File::open(&path).map_err(|error| {
        Failure::finding(
            Finding::error(field, named, format!("this file can't be opened ({error}): {}", path.display()))
                .rule("a relative path is taken from the plan file's folder"),
        )
    })?;
    refuse_large(file_size(&file), field, "the file")?;
    let text = text(file, field, "the file")?;
    if text.trim().is_empty() {
        let message = format!("this file is empty; it should be {what}: {}", path.display());
        return Err(Failure::finding(Finding::error(field, named, message)));
    }
    match serde_json::from_str(&text) {
        Ok(serde_json::Value::Object(object)) => Ok(object),
        Ok(_) => Err(Failure::finding(Finding::error(
            field,
            named,
            format!("this file is JSON, but not an object; it should be {what}"),
        ))),
        Err(error) => {
            Err(Failure::finding(Finding::error(field, named, format!("this file is not JSON: {error}"))))
        }
    }
}

fn file_size(file: &File) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.len())
}

fn refuse_folder(file: &File, path: &Path, what: &str) -> anyhow::Result<()> {
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(Failure::usage_of_file(path, &format!("this is a folder, not {what}")));
    }
    Ok(())
}

fn refuse_large(size: u64, field: &str, what: &str) -> anyhow::Result<()> {
    if size <= MAX_INPUT_BYTES { Ok(()) } else { Err(too_large(size, field, what)) }
}

fn too_large(size: u64, field: &str, what: &str) -> anyhow::Error {
    Failure::finding(Finding::error(
        field,
        size,
        format!(
            "{what} has {size} bytes, and at most {MAX_INPUT_BYTES} (16 MiB) are read: it holds settings alone, so check \
             that this is not a file of weights or a tokenizer"
        ),
    ))
}

/// A text that is not too large; what is wrong with it is said of `what`, and of `field` of a plan file.
fn text(reader: impl Read, field: &str, what: &str) -> anyhow::Result<String> {
    let bytes = read_bounded(reader, MAX_INPUT_BYTES)
        .map_err(|error| Failure::environment(format!("{what} can't be read: {error}")))?;
    let Some(bytes) = bytes else { return Err(too_large(MAX_INPUT_BYTES + 1, field, what)) };
    let text = String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Failure::finding(Finding::error(field, place, format!("{what} is not UTF-8 text (byte {place})")))
    })?;
    Ok(without_mark(&text).to_owned())
}
