//! Shards of FSDP2 against torch itself: the figures that planner's test compares with are still what torch does.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use system_tests::programs::{expect_code, torch_python};

#[test]
fn torch_still_cuts_parameters_as_recorded() -> Result<()> {
    check("fsdp_shards.py", "planner/tests/data/torch_fsdp_shards.json")
}

#[test]
fn torch_still_fills_memory_as_recorded() -> Result<()> {
    check("fsdp_tracker.py", "planner/tests/data/torch_fsdp_tracker.json")
}

#[test]
fn transformers_still_has_the_plans_as_recorded() -> Result<()> {
    check("tp_plans.py", "planner/src/shard/data/transformers_tp_plans.json")
}

#[test]
fn transformers_still_names_parameters_as_recorded() -> Result<()> {
    check("hf_names.py", "planner/tests/data/transformers_names.json")
}

/// What a script prints is what was recorded.
fn check(script: &str, recorded: &str) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let recorded = root.join(recorded);
    let recorded =
        std::fs::read_to_string(&recorded).with_context(|| format!("cannot read {}", recorded.display()))?;
    let mut command = Command::new(torch_python()?);
    command.arg(root.join("tests/python").join(script)).stdin(Stdio::null());
    same(&mut command, &recorded)
}

/// What a command prints is what was recorded.
pub fn same(command: &mut Command, recorded: &str) -> Result<()> {
    let output = expect_code(command, 0)?;
    let now = String::from_utf8(output.stdout).context("the script printed something else than text")?;
    for (number, (recorded, now)) in recorded.lines().zip(now.lines()).enumerate() {
        assert_eq!(recorded, now, "line {} of the recorded figures", number + 1);
    }
    assert_eq!(recorded.len(), now.len(), "the recorded figures have other lines besides");
    Ok(())
}
