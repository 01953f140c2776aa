//! Which packages a change is in.

use std::process::Command;

use anyhow::Result;

use crate::place::Place;
use crate::process;

/// Folders of the packages whose unit tests need nothing but Rust; of two that hold a file the deeper one counts.
const PACKAGES: [(&str, &str); 14] = [
    ("planner/", "planner"),
    ("planner/batch/", "batch"),
    ("planner/diagnose/", "diagnose"),
    ("planner/evidence/", "evidence"),
    ("planner/frameworks/", "frameworks"),
    ("native-worker/", "shardplan"),
    ("native-worker/run-folder/", "run-folder"),
    ("native-worker/tensor-files/", "tensor-files"),
    ("native-worker/token-files/", "token-files"),
    ("native-worker/rank/", ""),
    ("web/", "web"),
    ("web/searcher/", ""),
    ("xtask/", "xtask"),
    ("xtask/page/", ""),
];

/// What has changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Changed {
    /// Packages with unit tests.
    pub packages: Vec<&'static str>,
    /// Whether something that only the browser runs is among it.
    pub is_page: bool,
}

/// What differs from the last commit, or, where nothing does, what that commit changed.
pub fn changed(place: &Place) -> Result<Changed> {
    let git =
        |arguments: &[&str]| process::read(Command::new("git").args(arguments).current_dir(&place.root));
    let mut files = git(&["diff", "--name-only", "HEAD"])?;
    files += "\n";
    files += &git(&["ls-files", "--others", "--exclude-standard"])?;
    if files.trim().is_empty() {
        files = git(&["diff-tree", "--no-commit-id", "--name-only", "-r", "HEAD"])?;
    }
    Ok(of(&files))
}

fn of(files: &str) -> Changed {
    let deepest = |file: &str| {
        let holds = PACKAGES.iter().filter(|(folder, _)| file.starts_with(folder));
        holds.max_by_key(|(folder, _)| folder.len()).map(|(_, package)| *package)
    };
    let mut packages: Vec<&str> =
        files.lines().filter_map(deepest).filter(|package| !package.is_empty()).collect();
    packages.sort_unstable();
    packages.dedup();
    Changed { packages, is_page: files.lines().any(|file| file.starts_with("web/")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_folder_counts() {
        let found =
            of("planner/src/lib.rs\nnative-worker/run-folder/src/log.rs\nREADME.md\nplanner/Cargo.toml\n");
        assert_eq!(found, Changed { packages: vec!["planner", "run-folder"], is_page: false });
        assert_eq!(of("web/searcher/src/main.rs"), Changed { packages: vec![], is_page: true });
        assert_eq!(of(""), Changed { packages: vec![], is_page: false });
    }
}
