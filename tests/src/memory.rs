//! Memory of processes, as Linux counts it.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

/// Bytes that each process below `root` has in memory of its own, its program's files not among them, whose command line holds
/// `wanted`.
///
/// # Errors
/// Where there is no /proc.
pub fn resident_below(root: u32, wanted: &str) -> Result<Vec<u64>> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("cannot list processes")?.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // One that ended meanwhile has no status any more.
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let parent = field(&status, "PPid:").unwrap_or(0);
        let command = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let bytes: u64 =
            ["RssAnon:", "RssShmem:"].map(|name| field(&status, name).unwrap_or(0) * 1024).iter().sum();
        parents.insert(process, (parent as u32, bytes, command.contains(wanted)));
    }
    let is_below = |mut process: u32| {
        // Parents are older than their children, so this ends.
        while let Some((parent, ..)) = parents.get(&process) {
            if *parent == root {
                return true;
            }
            process = *parent;
        }
        false
    };
    let found = parents.iter().filter(|(process, (.., wanted))| *wanted && is_below(**process));
    Ok(found.map(|(_, (_, bytes, _))| *bytes).collect())
}

/// The number behind a name of a process's status.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
