//! Folders of clusters: named by the test that made them, and removed when that is gone without having done so.
//!
//! Processes and networks need no cleaner: the kernel ends them with the login node, which ends with its test.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::PREFIX;

/// Makes the folder of a new cluster: `shardplan-slurm-PID-RANDOM`.
pub fn make(parent: &Path) -> Result<PathBuf> {
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent)?;
    // The login node removes it as its last act, for a test program that shares one never drops it.
    Ok(folder.keep())
}

/// Removes folders of tests that are gone.
pub fn clean(parent: &Path) -> Result<()> {
    let entries = std::fs::read_dir(parent).with_context(|| format!("cannot read {}", parent.display()))?;
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        if maker(&path).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Its login node may be removing it at this moment.
            let _ = std::fs::remove_dir_all(&path);
        }
    }
    Ok(())
}

/// The process that made a folder, by the folder's name.
fn maker(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    name.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_tests_that_are_gone_are_removed_and_no_others() {
        let parent = tempfile::tempdir().unwrap();
        let own = make(parent.path()).unwrap();
        // No process has so large a number: the kernel's limit is 2^22.
        let gone = parent.path().join(format!("{PREFIX}4194305-abc"));
        let other = parent.path().join("shardplan-slurmX-4194305-abc");
        for folder in [&gone, &other] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("slurm.conf"), "").unwrap();
        }
        clean(parent.path()).unwrap();
        assert_eq!((own.exists(), gone.exists(), other.exists()), (true, false, true));
    }
}
