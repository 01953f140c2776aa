//! Reading a plan file, from a path or standard input, with every size bounded.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use planner::{Finding, wire::PlanFile};

use super::Failure;

/// The largest plan file or config.json that is read. A real one is some tens of kilobytes.
pub const MAX_INPUT_BYTES: u64 = 16 * 1024 * 1024;

/// Reads and parses the plan file at `path` (`-` is standard input), and replaces `hf_config_path` by the file's
/// content.
///
/// # Errors
/// When it can't be read, is too large, or is not a plan.
pub fn read_plan(path: &Path) -> anyhow::Result<PlanFile> {
    let text = if path == Path::new("-") {
        read_bounded(std::io::stdin().lock(), "", "standard input")?
    } else {
        let file = File::open(path).map_err(|error| {
            Failure::usage(format!("the plan file can't be opened: {error}: {}", path.display()))
        })?;
        refuse_folder(&file, path)?;
        refuse_large(file_size(&file), "", "the plan file")?;
        read_bounded(file, "", "the plan file")?
    };
    let mut plan = planner::parse_plan(&text).map_err(Failure::Findings)?;
    if let Some(config) = plan.model.hf_config_path.take() {
        plan.model.hf_config = Some(read_config(&config, path)?);
    }
    Ok(plan)
}

/// The config.json that a plan names. A relative path is taken from the plan's folder.
fn read_config(config: &str, plan: &Path) -> anyhow::Result<serde_json::Map<String, serde_json::Value>> {
    const FIELD: &str = "model.hf_config_path";
    let base = if plan == Path::new("-") { None } else { plan.parent() };
    let path = base.map_or_else(|| PathBuf::from(config), |folder| folder.join(config));
    let file = File::open(&path).map_err(|error| {
        Failure::finding(
            Finding::error(
                FIELD,
                config,
                format!("this config.json can't be opened ({error}): {}", path.display()),
            )
            .rule("a relative path is taken from the plan file's folder"),
        )
    })?;
    refuse_large(file_size(&file), FIELD, "the config.json")?;
    let text = read_bounded(file, FIELD, "the config.json")?;
    match serde_json::from_str(&text) {
        Ok(serde_json::Value::Object(object)) => Ok(object),
        Ok(_) => Err(Failure::finding(Finding::error(
            FIELD,
            config,
            "this file is JSON, but not an object such as a Hugging Face config.json",
        ))),
        Err(error) => {
            Err(Failure::finding(Finding::error(FIELD, config, format!("this file is not JSON: {error}"))))
        }
    }
}

fn file_size(file: &File) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.len())
}

fn refuse_folder(file: &File, path: &Path) -> anyhow::Result<()> {
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(Failure::usage(format!("this is a folder, not a plan file: {}", path.display())));
    }
    Ok(())
}

fn refuse_large(size: u64, field: &str, what: &str) -> anyhow::Result<()> {
    if size <= MAX_INPUT_BYTES {
        return Ok(());
    }
    Err(Failure::finding(Finding::error(
        field,
        size,
        format!(
            "{what} has {size} bytes, and at most {MAX_INPUT_BYTES} (16 MiB) are read; a config.json holds settings \
             only, so check that this is not a file of weights or a tokenizer"
        ),
    )))
}

fn read_bounded(reader: impl Read, field: &str, what: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    reader
        .take(MAX_INPUT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::environment(format!("{what} can't be read: {error}")))?;
    refuse_large(bytes.len() as u64, field, what)?;
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Failure::finding(Finding::error(field, place, format!("{what} is not UTF-8 text (byte {place})")))
    })
}
