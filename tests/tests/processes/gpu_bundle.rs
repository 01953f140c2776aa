//! What `cargo xtask gpu-bundle` packs, carried out on a CPU: one step that fails or hangs ends no other and is not hidden.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use system_tests::process::Guarded;
use system_tests::programs::{expect_code, program, torch_python};
use system_tests::wait::{Attempt, SOON, until};
use tempfile::TempDir;

/// A bundle whose executor does `on_check` where its kernels are to be checked, and small plans of few steps.
fn bundle(on_check: &str) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../xtask/bundle");
    std::fs::create_dir(at("bin"))?;
    std::fs::create_dir(at("plans"))?;
    for name in ["run.sh", "steps.py", "summary.py", "baseline.py"] {
        std::fs::copy(source.join(name), at(name)).with_context(|| name.to_owned())?;
    }
    for entry in std::fs::read_dir(source.join("plans"))? {
        let entry = entry?;
        let mut plan: Value = serde_json::from_slice(&std::fs::read(entry.path())?)?;
        if plan["cluster"]["gpu"] == "cpu" {
            plan["run"]["steps"] = 3.into();
        }
        std::fs::write(at("plans").join(entry.file_name()), plan.to_string())?;
    }
    symlink(program("shardplan")?.canonicalize()?, at("bin/shardplan"))?;
    let rank = program("shardplan-rank")?.canonicalize()?;
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in --check-kernels) {on_check} ;; esac\nexec '{}' \"$@\"\n",
        rank.display()
    );
    std::fs::write(at("bin/shardplan-rank"), script)?;
    std::fs::set_permissions(at("bin/shardplan-rank"), std::fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// A library of the executor's tests in NCCL's place, which has its functions on host memory.
fn fake_nccl(folder: &Path) -> Result<PathBuf> {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../native-worker/rank/tests/fake_nccl/fake_nccl.c");
    let library = folder.join("libfake_nccl.so");
    let mut compiler = Command::new("cc");
    expect_code(compiler.args(["-shared", "-fPIC", "-O1", "-pthread", "-o"]).args([&library, &source]), 0)?;
    Ok(library)
}

fn run(bundle: &TempDir, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new("bash");
    command.arg(bundle.path().join("run.sh")).args(arguments).stdin(Stdio::null());
    // Ranks and torch share few cores here, and the small models gain nothing by threads.
    command.env("PYTHON", torch_python()?).env("OMP_NUM_THREADS", "1");
    command.env_remove("OUT").env_remove("BUDGET").env_remove("LIMIT");
    Ok(command)
}

/// State, last lines and seconds of each step, by its name.
fn steps(bundle: &TempDir) -> Result<Vec<(String, Value)>> {
    let text = std::fs::read_to_string(bundle.path().join("results/steps.json"))?;
    let all: Value = serde_json::from_str(&text)?;
    let steps = all["steps"].as_array().context("no steps")?;
    Ok(steps
        .iter()
        .map(|step| (step["name"].as_str().unwrap_or_default().to_owned(), step.clone()))
        .collect())
}

fn summary(bundle: &TempDir) -> Result<String> {
    Ok(std::fs::read_to_string(bundle.path().join("results/summary.txt"))?)
}

#[test]
fn a_failing_step_ends_no_other_and_is_not_hidden() -> Result<()> {
    let bundle = bundle("echo 'no kernel image is available' >&2; exit 7")?;
    let nccl = fake_nccl(bundle.path())?;
    let run = |arguments: &[&str]| -> Result<Command> {
        let mut command = run(&bundle, arguments)?;
        command.env("NCCL_LIBRARY", &nccl);
        Ok(command)
    };
    // What torch compiles takes longer than all the rest.
    let listed = expect_code(run(&["--small", "--list"])?.stderr(Stdio::piped()), 0)?;
    let listed = String::from_utf8(listed.stdout)?;
    let named: Vec<&str> = listed.lines().filter(|name| !name.starts_with("c")).collect();
    ensure!(named.len() >= 7 && named[..2] == ["doctor", "kernels"], "{named:?}");
    let arguments = [&["--small"], &named[..]].concat();
    let output = expect_code(&mut run(&arguments)?, 1)?;
    let (steps, summary) = (steps(&bundle)?, summary(&bundle)?);
    let names: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
    ensure!(names == named, "{names:?}");
    for (name, step) in &steps {
        let expected = if name == "kernels" { "failed" } else { "passed" };
        ensure!(step["state"] == expected && step["seconds"].as_f64() > Some(0.0), "{name}: {step}");
    }
    ensure!(steps[1].1["exit"] == 7, "{:?}", steps[1]);
    ensure!(summary == String::from_utf8(output.stdout)?, "what is printed is what is on disk: {summary}");
    let expected = [
        "NOT all steps passed: 1 failed, ",
        "kernels                failed",
        "exit status 7",
        "| no kernel image is available",
        "to run these again: ./run.sh kernels\n",
        "shardplan small-one: 3 steps, ",
        "weights         measured",
        "+0.00%",
        "PyTorch 2.11",
        "NCCL 2.28.0 (revokes) in a world of one on Cpu: 127 as expected, 0 not",
        "verify: completed, static bytes equal on every rank",
    ];
    for part in expected {
        ensure!(summary.contains(part), "{part:?} is not in {summary}");
    }
    Ok(())
}

#[test]
fn a_hanging_step_is_ended_and_the_budget_is_kept() -> Result<()> {
    let bundle = bundle("echo 'compiling kernels'; exec sleep 1000")?;
    let mut limited = run(&bundle, &["--small", "kernels", "estimate-small-one"])?;
    expect_code(limited.env("LIMIT", "5"), 1)?;
    let found = steps(&bundle)?;
    ensure!(found[0].1["state"] == "over its limit", "{found:?}");
    ensure!(found[0].1["last_lines"][0] == "compiling kernels", "{found:?}");
    ensure!(found[1].1["state"] == "passed", "{found:?}");
    // What an earlier call has found stays; what the budget does not reach is said to be not reached.
    let mut poor = run(&bundle, &["--small", "kernels", "doctor"])?;
    expect_code(poor.env("BUDGET", "1"), 1)?;
    let found = steps(&bundle)?;
    let state = |wanted: &str| found.iter().find(|(name, _)| name == wanted).map(|(_, step)| &step["state"]);
    for (name, expected) in
        [("kernels", "over its limit"), ("estimate-small-one", "passed"), ("doctor", "not reached")]
    {
        ensure!(state(name) == Some(&expected.into()), "{name}: {found:?}");
    }
    ensure!(summary(&bundle)?.contains("doctor                 not reached"), "{}", summary(&bundle)?);
    Ok(())
}

#[tokio::test]
async fn what_was_done_outlives_a_kill() -> Result<()> {
    for (signal, state) in [(Signal::SIGKILL, "running"), (Signal::SIGTERM, "interrupted")] {
        let bundle = bundle("exec sleep 1000")?;
        let mut running = Guarded::start(&mut run(&bundle, &["--small", "doctor", "kernels"])?)?;
        until("checking kernels", SOON, async || {
            // The last that is written when a step begins.
            let found = summary(&bundle).unwrap_or_default();
            let begun = found.contains("kernels                running");
            Ok(if begun { Attempt::Ready(()) } else { Attempt::NotYet(found) })
        })
        .await?;
        running.signal(signal)?;
        running.wait(Duration::from_secs(30))?;
        let found = steps(&bundle)?;
        ensure!(found.iter().any(|(name, step)| name == "doctor" && step["state"] == "passed"), "{found:?}");
        let summary = summary(&bundle)?;
        ensure!(summary.contains(&format!("kernels                {state}")), "{summary}");
        let doctor = std::fs::read(bundle.path().join("results/doctor.json"))?;
        ensure!(serde_json::from_slice::<Value>(&doctor)?["checks"].is_array());
    }
    Ok(())
}
