//! Causal language model types against transformers itself: what planner's test compares with is still what transformers
//! makes of them. A few in the test command; `SHARDPLAN_TYPES=all` has them all, as `cargo xtask soak` does.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use system_tests::programs::{expect_code, torch_python};

/// One of each kind: dense, experts beside pairs of layers, convolutions, names of their own, a layer unlike the others,
/// windows.
const FEW: &[&str] = &["llama", "longcat_flash", "lfm3", "cpmant", "modernbert-decoder", "gemma3_text"];

#[test]
fn transformers_still_makes_types_as_recorded() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let recorded = root.join("planner/tests/data/causal_types.json");
    let recorded =
        std::fs::read_to_string(&recorded).with_context(|| format!("cannot read {}", recorded.display()))?;
    let all = std::env::var("SHARDPLAN_TYPES").is_ok_and(|wanted| wanted == "all");
    let mut command = Command::new(torch_python()?);
    command.arg(root.join("tests/python/causal_types.py")).stdin(Stdio::null());
    if !all {
        command.args(FEW);
    }
    let output = expect_code(&mut command, 0)?;
    let now = String::from_utf8(output.stdout).context("the script printed something else than text")?;
    let known: Vec<&str> = recorded.lines().map(line).collect();
    let rows: Vec<&str> = now.lines().map(line).collect();
    assert_eq!(rows.len(), if all { known.len() } else { FEW.len() + 2 });
    for row in rows {
        let start: String = row.chars().take(60).collect();
        assert!(known.contains(&row), "this row is another than was recorded: {start}");
    }
    Ok(())
}

/// A row, whichever comes after it; of a type that can't be made not what Python says of that, which differs.
fn line(row: &str) -> &str {
    let row = row.trim_end_matches(',');
    row.split_once("\"error\":").map_or(row, |(before, _)| before)
}
