//! `shardplan lint FILE`.

use std::io::Read;
use std::path::{Path, PathBuf};

use batch::lint::{self, MAX_SCRIPT_BYTES};

use crate::report::{self, Exit, Failure};

/// Look for what is wrong with a batch script for Slurm, before it is submitted
///
/// Nothing is run. Each finding names its line, why it matters and what to do; docs/lint.md lists the rules. Exits 1 when
/// there are errors or warnings.
#[derive(Debug, clap::Args)]
pub struct Lint {
    /// Batch script, or - for standard input
    file: PathBuf,
}

impl Lint {
    /// Prints the findings; no when an error or a warning is among them.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let report = lint::lint(&read(&self.file)?);
        if json {
            report::print_json(&report)?;
        } else {
            let name = if self.file == Path::new("-") {
                "standard input".into()
            } else {
                self.file.to_string_lossy()
            };
            report::print(&lint::readable(&report, &name))?;
        }
        Ok(if report.is_clean() { Exit::Yes } else { Exit::No })
    }
}

/// The bytes of a script, and one more than the longest that is looked at, so that a longer one is told.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path == Path::new("-") {
        return bounded(std::io::stdin().lock(), "standard input");
    }
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::usage_of_file(path, &format!("the script can't be opened: {error}")))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(Failure::usage(format!("this is a folder, not a script: {}", path.display())));
    }
    bounded(file, "the script")
}

fn bounded(reader: impl Read, what: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader
        .take(MAX_SCRIPT_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::environment(format!("{what} can't be read: {error}")))?;
    Ok(bytes)
}
