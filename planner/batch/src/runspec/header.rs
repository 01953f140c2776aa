//! A script's header, the PEP 723 block: its runspec, and the packages that it names.

use serde_json::Value as Json;
use toml::{Table, Value};

use super::block::{Block, script_block};
use super::document::{self, Fields};
use super::spec::{self, Runspec};
use super::stage::{Stage, stage_of};
use planner::finding::Finding;

/// What a script says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// How it is started; the format's defaults where it does not say.
    pub spec: Runspec,
    /// Whether there is a `[tool.runspec]` table.
    pub has_runspec: bool,
    /// The packages that it names; none where it names no list, be it an empty one.
    pub packages: Option<Packages>,
}

/// Packages that a header names, with the settings of `uv run --script` for them.
#[derive(Debug, Clone, PartialEq)]
pub struct Packages {
    /// Requirements, as they are written.
    pub dependencies: Vec<String>,
    /// Versions of Python.
    pub requires_python: Option<String>,
    /// Whether a table `[tool.uv]` says where packages come from, or with what settings.
    pub has_uv: bool,
    /// The same as a stage.
    pub stage: Stage,
    /// The block's TOML.
    pub text: String,
}

/// Reads the header of the script `text`; `path` is for messages. A script without a block has the defaults.
///
/// # Errors
/// A block that is not closed, TOML that can't be read (with the file's line), or a value of the wrong kind.
pub fn header(path: &str, text: &str) -> Result<Header, Box<Finding>> {
    let opens = text.lines().any(|line| line.trim_end() == "# /// script");
    let block = if opens { script_block(path, text)? } else { Block { toml: String::new(), first_line: 1 } };
    let document = document::parse(path, &block.toml, |at| block.file_line(at))?;
    let root = Fields::new(&document, "script");
    let tool = root.table("tool", "tool")?;
    let has_runspec = tool.get("runspec").and_then(Value::as_table).is_some_and(|table| !table.is_empty());
    let packages = match root.texts("dependencies")? {
        None => None,
        Some(dependencies) => Some(packages(dependencies, root, tool, block.toml.clone())?),
    };
    Ok(Header { spec: spec::read(tool.table("runspec", "runspec")?)?, has_runspec, packages })
}

impl Packages {
    /// No packages, for what is added to a script that names none.
    pub fn none() -> Packages {
        Packages {
            dependencies: Vec::new(),
            requires_python: None,
            has_uv: false,
            stage: Stage::empty(),
            text: String::new(),
        }
    }
}

fn packages(
    dependencies: Vec<String>,
    root: Fields<'_>,
    tool: Fields<'_>,
    text: String,
) -> Result<Packages, Box<Finding>> {
    let requires_python = root.text("requires-python")?;
    let mut project = Table::new();
    project.insert("name".to_owned(), "script".into());
    project.insert("version".to_owned(), "0.0.0".into());
    if let Some(python) = &requires_python {
        project.insert("requires-python".to_owned(), python.as_str().into());
    }
    let listed = dependencies.iter().map(|name| Value::String(name.clone())).collect();
    project.insert("dependencies".to_owned(), Value::Array(listed));
    let mut document = Table::new();
    document.insert("project".to_owned(), project.into());
    tool.table("uv", "tool.uv")?;
    let uv = tool.get("uv");
    if let Some(uv) = uv {
        let mut kept = Table::new();
        kept.insert("uv".to_owned(), uv.clone());
        document.insert("tool".to_owned(), kept.into());
    }
    let has_uv = uv.is_some();
    Ok(Packages { dependencies, requires_python, has_uv, stage: stage_of(document)?, text })
}

/// Reads the runspec of the script `text`, which must have one; `path` is for messages.
///
/// # Errors
/// As [`header`], and where there is no block, or no table in it.
pub fn parse(path: &str, text: &str) -> Result<Runspec, Box<Finding>> {
    script_block(path, text)?;
    let header = header(path, text)?;
    if header.has_runspec {
        return Ok(header.spec);
    }
    let message =
        format!("the PEP 723 block of this script has no [tool.runspec] table, or an empty one: {path}");
    Err(Box::new(
        Finding::error("runspec", Json::Null, message)
            .rule("the smallest header is [tool.runspec] with schema = \"1\""),
    ))
}
