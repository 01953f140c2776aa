//! The table `[tool.runspec]`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::document::Fields;
use crate::shell::is_variable;
use planner::finding::Finding;

/// How a script is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Launch {
    /// By `python -m torch.distributed.run`, one process per GPU.
    Torchrun,
    /// By Ray, on a cluster that Ray manages.
    Ray,
    /// By Python, one process.
    Direct,
}

/// Names of [`Launch`] in a header. `python` is another name of `direct`.
const LAUNCHES: [&str; 4] = ["torchrun", "ray", "direct", "python"];

/// GPUs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Gpus {
    /// That many.
    Count(u64),
    /// All that are there, written `gpu`.
    All(AllGpus),
}

/// The word `gpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AllGpus {
    /// All that are there.
    Gpu,
}

impl Gpus {
    /// All that are there.
    pub const ALL: Gpus = Gpus::All(AllGpus::Gpu);
}

/// How configuration files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfigFormat {
    /// YAML with OmegaConf's references.
    Omegaconf,
    /// YAML.
    Yaml,
    /// JSON.
    Json,
}

/// What a script says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Runspec {
    /// Version of the header's format.
    pub schema: String,
    /// Where the header's format is described.
    pub docs: String,
    /// Such as `embed/finetune`.
    pub name: String,
    /// Container image that it was made for.
    pub image: Option<String>,
    /// What a person should know of its installation. It is not run.
    pub setup: String,
    /// How it is started.
    pub launch: Launch,
    /// A command that replaces the one made here; `{script}` and `{config}` stand for the two paths.
    pub cmd: Option<String>,
    /// Folder that it is run in.
    pub workdir: Option<String>,
    /// Folder of its configuration files, from the script's folder.
    pub config_dir: String,
    /// Name of the configuration that is used when none is named.
    pub config_default: String,
    /// How they are written.
    pub config_format: ConfigFormat,
    /// Whether the header says anything of configuration: a script without may take none.
    pub has_config: bool,
    /// Nodes.
    pub nodes: u64,
    /// GPUs of each.
    pub gpus_per_node: Gpus,
    /// Whether the header says how many, or eight are the format's default.
    #[serde(skip)]
    pub says_gpus: bool,
    /// Variables of its environment.
    pub env: BTreeMap<String, String>,
}

/// The most nodes and GPUs of a node that are taken for meant.
pub(super) const MAX_NODES: u64 = 100_000;
pub(super) const MAX_GPUS: u64 = 1024;
/// GPUs of a node where a header says none.
pub const USUAL_GPUS: u64 = 8;

/// The runspec in a table `[tool.runspec]`. Unknown keys are ignored, so that headers can be newer than this program.
///
/// # Errors
/// A value of the wrong kind.
pub(super) fn read(spec: Fields<'_>) -> Result<Runspec, Box<Finding>> {
    let run = spec.table("run", "runspec.run")?;
    let config = spec.table("config", "runspec.config")?;
    let resources = spec.table("resources", "runspec.resources")?;
    let text_or = |fields: Fields<'_>, key: &str, default: &str| -> Result<String, Box<Finding>> {
        Ok(fields.text(key)?.unwrap_or_else(|| default.to_owned()))
    };
    let gpus_per_node = gpus(resources, "gpus_per_node")?;
    Ok(Runspec {
        schema: spec.loose_text("schema")?.unwrap_or_else(|| "1".to_owned()),
        docs: text_or(spec, "docs", "")?,
        name: text_or(spec, "name", "")?,
        image: spec.text("image")?,
        setup: text_or(spec, "setup", "")?.trim().to_owned(),
        launch: launch(run)?,
        cmd: run.text("cmd")?,
        workdir: run.text("workdir")?,
        config_dir: text_or(config, "dir", "./config")?,
        config_default: text_or(config, "default", "default")?,
        config_format: format(config)?,
        has_config: spec.get("config").is_some(),
        nodes: resources.number("nodes", 1, MAX_NODES)?.unwrap_or(1),
        gpus_per_node: gpus_per_node.unwrap_or(Gpus::Count(USUAL_GPUS)),
        says_gpus: gpus_per_node.is_some(),
        env: variables(spec, "env")?,
    })
}

fn launch(run: Fields<'_>) -> Result<Launch, Box<Finding>> {
    match run.text("launch")?.as_deref() {
        None | Some("torchrun") => Ok(Launch::Torchrun),
        Some("ray") => Ok(Launch::Ray),
        Some("direct" | "python") => Ok(Launch::Direct),
        Some(other) => Err(run.unknown_word("launch", other, &LAUNCHES)),
    }
}

fn format(config: Fields<'_>) -> Result<ConfigFormat, Box<Finding>> {
    match config.text("format")?.as_deref() {
        None | Some("omegaconf") => Ok(ConfigFormat::Omegaconf),
        Some("yaml") => Ok(ConfigFormat::Yaml),
        Some("json") => Ok(ConfigFormat::Json),
        Some(other) => Err(config.unknown_word("format", other, &["omegaconf", "yaml", "json"])),
    }
}

/// A number of GPUs, or the word `gpu`.
pub(super) fn gpus(fields: Fields<'_>, key: &str) -> Result<Option<Gpus>, Box<Finding>> {
    match fields.get(key) {
        Some(toml::Value::String(word)) if word == "gpu" => Ok(Some(Gpus::ALL)),
        Some(value @ toml::Value::String(_)) => {
            Err(fields.wrong(key, value, &format!("a whole number from 0 to {MAX_GPUS}, or \"gpu\" for all")))
        }
        _ => Ok(fields.number(key, 0, MAX_GPUS)?.map(Gpus::Count)),
    }
}

/// A table of variables whose names a shell takes.
pub(super) fn variables(fields: Fields<'_>, key: &str) -> Result<BTreeMap<String, String>, Box<Finding>> {
    let variables = fields.strings(key)?;
    for (name, value) in &variables {
        if !is_variable(name) || value.contains('\0') {
            return Err(Box::new(Finding::error(
                key,
                name.as_str(),
                "the name of a variable has letters, digits and _ and begins with no digit, and its value has no \
                 zero byte",
            )));
        }
    }
    Ok(variables)
}
