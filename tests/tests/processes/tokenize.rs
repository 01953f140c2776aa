//! `shardplan tokenize` against Python's `tokenizers`, and the worker on what it writes; what is written, and checkpoints that are
//! exported, on a disk that is too small.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use serde_json::json;
use system_tests::plans::four_ranks;
use system_tests::programs::{expect_code, shardplan, torch_python};
use system_tests::run_folder::{all_records, only_run, steps};
use system_tests::runs::Runs;
use system_tests::small_disk::SmallDisk;

use crate::worker::run_command;

/// What Python makes in this folder: the kinds of tokenizers.
fn made(folder: &Path) -> Result<Vec<String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/tokenizers_expected.py");
    let mut command = Command::new(torch_python()?);
    let output = expect_code(command.arg(script).arg(folder).stdin(Stdio::null()), 0)?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Makes tokens of the text there.
fn tokenize(folder: &Path, kind: &str, to: &Path) -> Result<Command> {
    let mut command = shardplan()?;
    command.arg("tokenize").arg(folder.join("text.jsonl")).arg("--to").arg(to);
    command.arg("--tokenizer").arg(folder.join(format!("{kind}.json")));
    if kind == "pieces" {
        command.arg("--special-tokens");
    }
    Ok(command)
}

#[test]
fn tokens_are_those_of_python_and_are_trained_on() -> Result<()> {
    let runs = Runs::new()?;
    let folder = runs.beside("text");
    std::fs::create_dir(&folder)?;
    for kind in made(&folder)? {
        let to = folder.join(&kind);
        expect_code(&mut tokenize(&folder, &kind, &to)?, 0)?;
        let expected = std::fs::read(to.with_extension("tokens"))?;
        let expected: Vec<Vec<u16>> = serde_json::from_slice(&expected)?;
        let all: Vec<u8> = expected.iter().flatten().copied().flat_map(u16::to_le_bytes).collect();
        ensure!(std::fs::read(to.with_extension("bin"))? == all, "{kind}: other tokens than Python's");
        let index = std::fs::read(to.with_extension("idx"))?;
        let documents = expected.iter().filter(|tokens| !tokens.is_empty());
        let lengths: Vec<u8> = documents.flat_map(|tokens| (tokens.len() as i32).to_le_bytes()).collect();
        ensure!(index[34..].starts_with(&lengths), "{kind}: other documents than Python's");
    }

    let mut plan = four_ranks("fp32", 3);
    plan["model"] = json!({"architecture": {
        "num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 96, "vocab_size": 500,
        "attention": {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8}
    }});
    plan["run"]["data"] = json!({"kind": "megatron", "path": folder.join("bytes")});
    plan["run"]["checkpoint"] = json!({"save": true});
    expect_code(&mut run_command(&plan, &runs)?, 0)?;
    let run = only_run(runs.path())?;
    let losses: Vec<f64> = steps(&all_records(&run)?, 0).iter().map(|step| step.loss).collect();
    // Of 500 words nothing is known yet.
    ensure!(losses.len() == 3 && (losses[0] - 500_f64.ln()).abs() < 0.5, "{losses:?}");

    full_disk(&folder, &run)
}

/// Neither tokens nor a checkpoint are half there.
fn full_disk(folder: &Path, run: &Path) -> Result<()> {
    let disk = SmallDisk::new(64)?;
    let mut export = shardplan()?;
    export.args(["export", "--format", "dcp"]).arg(run).arg("--to").arg(disk.path().join("dcp"));
    for mut command in [export, tokenize(folder, "bytes", &disk.path().join("data"))?] {
        let output = expect_code(&mut command, 3)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(said.contains("No space left on device"), "{said}");
        ensure!(said.contains("error: writing "), "{said}");
        let left: Vec<_> = std::fs::read_dir(disk.path())?.flatten().map(|entry| entry.path()).collect();
        ensure!(left.is_empty(), "{left:?}");
    }
    Ok(())
}
