//! The names of all tests, as they stand in the sources, so that a commit shows which came, went or moved.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::place::Place;
use crate::{console, process};

/// Where they are written, from the root.
const LIST: &str = "docs/measurements/test-names.txt";

/// Writes the list: a line for each test, with its file. Files that git ignores or does not know are left out.
pub fn write(place: &Place) -> Result<ExitCode> {
    let files = process::read(Command::new("git").args(["ls-files", "*.rs"]).current_dir(&place.root))?;
    let mut lines = String::new();
    let mut count = 0;
    for file in files.lines() {
        let path = place.root.join(file);
        // What git knows and is not there was removed, and is not committed yet.
        if !path.exists() {
            continue;
        }
        let source =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for name in names(&source) {
            lines += &format!("{file}: {name}\n");
            count += 1;
        }
    }
    let path = place.root.join(LIST);
    std::fs::write(&path, lines).with_context(|| format!("cannot write {}", path.display()))?;
    console::result(format_args!("{count} tests in {LIST}"));
    Ok(ExitCode::SUCCESS)
}

/// Functions below `#[test]` or `#[tokio::test]`.
fn names(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim_start) {
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let function = line.trim_start_matches("async ").strip_prefix("fn ");
        if let Some((name, _)) = function.and_then(|rest| rest.split_once('(')) {
            found.extend(is_test.then_some(name));
            is_test = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_with_the_attribute_are_tests() {
        let source = "#[test]\n#[ignore]\nfn one() {}\nfn helper() {}\n  #[tokio::test(flavor = \"x\")]\n  async fn two() {}\n\
                      proptest! {\n    #[test]\n    fn three(\n        value in 0..3,\n    ) {}\n}\nfn last(x: u8) {}";
        assert_eq!(names(source), ["one", "two", "three"]);
    }
}
