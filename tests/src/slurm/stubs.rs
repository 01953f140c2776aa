//! Stand-ins for `uv`, `python`, `numactl` and `apptainer` on the compute nodes, and what they have written down.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The stand-ins of one job, in a folder that the nodes see.
pub struct Stubs {
    programs: PathBuf,
    records: PathBuf,
}

/// One call of a stand-in.
#[derive(Debug, Clone)]
pub struct Call {
    /// `uv`, `python`, `numactl` or `apptainer`.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The folder that it was called in.
    pub folder: String,
    /// The node.
    pub host: String,
    /// Its environment.
    pub environment: BTreeMap<String, String>,
}

impl Stubs {
    /// Puts them into a folder.
    pub fn new(folder: &Path) -> Result<Stubs> {
        let stubs = Stubs { programs: folder.join("stubs"), records: folder.join("calls") };
        std::fs::create_dir(&stubs.programs)?;
        std::fs::create_dir(&stubs.records)?;
        let program = stubs.programs.join("stub.sh");
        std::fs::write(&program, include_str!("stub.sh"))?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        for name in ["uv", "python", "numactl", "apptainer"] {
            symlink(&program, stubs.programs.join(name))?;
        }
        Ok(stubs)
    }

    /// Makes a job that a command submits find them.
    pub fn on_path_of(&self, sbatch: &mut Command) {
        let path = std::env::var("PATH").unwrap_or_default();
        sbatch.env("PATH", format!("{}:{path}", self.programs.display())).env("STUB_RECORDS", &self.records);
    }

    /// All calls, in the order of their times.
    pub fn calls(&self) -> Result<Vec<Call>> {
        let mut names: Vec<String> = std::fs::read_dir(&self.records)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            // One that is being written is no call yet.
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        names.iter().map(|name| read(&self.records.join(name))).collect()
    }
}

impl Call {
    /// A variable; empty where it is not set.
    pub fn variable(&self, name: &str) -> &str {
        self.environment.get(name).map_or("", String::as_str)
    }
}

fn read(path: &Path) -> Result<Call> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut call = Call {
        program: String::new(),
        arguments: Vec::new(),
        folder: String::new(),
        host: String::new(),
        environment: BTreeMap::new(),
    };
    for field in text.split_terminator('\0') {
        let (name, value) = field.split_once('=').with_context(|| format!("{field:?} has no ="))?;
        let value = value.to_owned();
        match name {
            "program" => call.program = value,
            "folder" => call.folder = value,
            "host" => call.host = value,
            "argument" => call.arguments.push(value),
            other => {
                let variable =
                    other.strip_prefix("env:").with_context(|| format!("no field is {other:?}"))?;
                call.environment.insert(variable.to_owned(), value);
            }
        }
    }
    Ok(call)
}
