//! A stage: a folder with a script and a `pyproject.toml` of its own.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::document::{self, Fields};
use planner::finding::Finding;

/// Packages that a container brings itself, unless a stage lists others.
pub const DEFAULT_EXCLUDED: [&str; 7] =
    ["torch", "torchvision", "flash-attn", "triton", "pyarrow", "scipy", "opencv-python-headless"];

/// What a stage's `pyproject.toml` says.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Names of its optional dependencies, as uv compares them.
    pub extras: BTreeSet<String>,
    /// Its script, from `[tool.nemotron] entry-point`.
    pub entry_point: Option<String>,
    /// Packages that are not installed where a container's torch is used.
    pub excluded: Vec<String>,
    /// The index that torch is pinned to on Linux, such as `pytorch-cu129`.
    pub torch_index: Option<String>,
    /// The index that torchvision is pinned to on Linux.
    pub torchvision_index: Option<String>,
    pub(super) document: Table,
}

impl Stage {
    /// A stage that says nothing.
    pub(super) fn empty() -> Stage {
        Stage {
            extras: BTreeSet::new(),
            entry_point: None,
            excluded: DEFAULT_EXCLUDED.map(str::to_owned).to_vec(),
            torch_index: None,
            torchvision_index: None,
            document: Table::new(),
        }
    }

    /// Its requirements, as they are written.
    pub fn dependencies(&self) -> Vec<String> {
        let listed = self.project().and_then(|project| project.get("dependencies"));
        let items = listed.and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Versions of Python that it wants.
    pub fn requires_python(&self) -> Option<&str> {
        self.project()?.get("requires-python")?.as_str()
    }

    fn project(&self) -> Option<&Table> {
        self.document.get("project")?.as_table()
    }
}

/// Reads the `pyproject.toml` at `path` with content `text`.
///
/// # Errors
/// When it is not TOML or a value that is used is of the wrong kind.
pub fn read_stage(path: &str, text: &str) -> Result<Stage, Box<Finding>> {
    stage_of(document::parse_file(path, text)?)
}

/// The stage that a project's table describes.
pub(super) fn stage_of(document: Table) -> Result<Stage, Box<Finding>> {
    let root = Fields::new(&document, "pyproject");
    let optional =
        root.table("project", "project")?.table("optional-dependencies", "project.optional-dependencies")?;
    let declared = root.table("project", "project")?.get("optional-dependencies").and_then(Value::as_table);
    for name in declared.into_iter().flat_map(Table::keys) {
        optional.texts(name)?;
    }
    let extras = declared.into_iter().flat_map(Table::keys).map(|name| normalized(name)).collect();
    let tool = root.table("tool", "tool")?;
    let nemotron = tool.table("nemotron", "tool.nemotron")?;
    let sources = tool.table("uv", "tool.uv")?.table("sources", "tool.uv.sources")?;
    Ok(Stage {
        extras,
        entry_point: nemotron.text("entry-point")?,
        excluded: nemotron
            .texts("container-exclude-dependencies")?
            .unwrap_or_else(|| DEFAULT_EXCLUDED.map(str::to_owned).to_vec()),
        torch_index: pinned(sources.get("torch")),
        torchvision_index: pinned(sources.get("torchvision")),
        document,
    })
}

/// The index of a source that holds on Linux: a table, or the first such of a list.
fn pinned(source: Option<&Value>) -> Option<String> {
    let holds = |table: &Table| {
        let marker = table.get("marker").and_then(Value::as_str).unwrap_or_default().replace('"', "'");
        // An extra's index holds only with that extra, which is chosen elsewhere.
        !table.contains_key("extra")
            && (marker.is_empty()
                || marker.contains("== 'linux'")
                || (marker.contains("!= 'darwin'") && !marker.contains("!= 'linux'")))
    };
    let index = |table: &Table| table.get("index").and_then(Value::as_str).map(str::to_owned);
    match source? {
        Value::Table(table) if holds(table) => index(table),
        Value::Array(items) => {
            items.iter().filter_map(Value::as_table).filter(|table| holds(table)).find_map(index)
        }
        _ => None,
    }
}

/// A name as Python packaging compares names (PEP 503 and 685).
pub(super) fn normalized(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '-' | '_' | '.' if out.ends_with('-') => {}
            '-' | '_' | '.' => out.push('-'),
            other => out.extend(other.to_lowercase()),
        }
    }
    out
}

/// Settings of a script that need an extra of its stage: TensorRT is installed only for an export that makes its
/// engine (Nemotron's embed export).
const SWITCHES: [(&str, &str); 1] = [("export_to_trt", "tensorrt")];

/// Extras of the stage that the run's settings ask for: `name=true` among the script's arguments, or else
/// `name: true` at the top of its configuration.
pub fn switched_extras(stage: &Stage, passthrough: &[String], config: &str) -> Vec<String> {
    let is_true =
        |value: &str| matches!(value.trim().to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on");
    let asked = |name: &str| {
        let mut argument = None;
        for (at, word) in passthrough.iter().enumerate() {
            let word = word.trim_start_matches(['-', '+']);
            match word.split_once('=') {
                Some((key, value)) if key == name => argument = Some(is_true(value)),
                None if word == name => {
                    argument = Some(
                        passthrough.get(at + 1).is_none_or(|next| next.starts_with('-') || is_true(next)),
                    );
                }
                _ => {}
            }
        }
        argument.unwrap_or_else(|| {
            config.lines().any(|line| {
                let line = line.trim_end().trim_end_matches(',');
                let key = line.trim_start_matches([' ', '"']);
                // Deeper keys of the same name belong to somebody else; JSON indents all of them.
                let top = !line.starts_with([' ', '\t']) || line.trim_start().starts_with('"');
                top && key.split_once(':').is_some_and(|(key, value)| {
                    key.trim_end_matches('"') == name && is_true(value.split('#').next().unwrap_or(""))
                })
            })
        })
    };
    SWITCHES
        .iter()
        .filter(|(name, extra)| stage.extras.contains(*extra) && asked(name))
        .map(|(_, extra)| (*extra).to_owned())
        .collect()
}
