//! `shardplan launch` with a real uv and a real torchrun, several processes each, on the CPU.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use system_tests::programs::{expect_code, shardplan, torch_python};

/// The script of these tests.
fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python/launch_train.py")
}

fn uv() -> Result<PathBuf> {
    let uv = std::env::var_os("SHARDPLAN_UV").context("SHARDPLAN_UV is not set: run cargo xtask test")?;
    Ok(PathBuf::from(uv))
}

/// `shardplan launch` with the Python that has torch, and a cache of its own.
fn launch(cache: &Path) -> Result<Command> {
    let mut command = shardplan()?;
    command.arg("launch").arg("--python").arg(torch_python()?);
    command.arg("--uv").arg(uv()?).env("SHARDPLAN_CACHE", cache).env("UV_PYTHON_DOWNLOADS", "never");
    for name in ["LOCAL_RANK", "SLURM_PROCID", "NEMOTRON_ENV_FILE", "OMP_NUM_THREADS"] {
        command.env_remove(name);
    }
    Ok(command)
}

/// The lines of standard output, in order of ranks.
fn lines(output: &std::process::Output) -> Result<Vec<String>> {
    let text = String::from_utf8(output.stdout.clone()).context("not text")?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    Ok(lines)
}

#[test]
fn several_processes_of_torchrun_meet() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = launch(folder.path())?;
    command.arg(script()).args(["--nproc", "3", "--", "end", "lr=1e-5"]);
    let output = expect_code(&mut command, 0)?;
    let expected: Vec<String> = (0..3).map(|rank| format!("rank {rank} of 3: 6 end lr=1e-5")).collect();
    ensure!(lines(&output)? == expected, "{output:?}");
    Ok(())
}

#[test]
fn a_rank_that_fails_fails_the_launch() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = launch(folder.path())?;
    command.arg(script()).args(["--nproc", "2", "--", "fail"]);
    // torchrun's own exit code; that of the rank stands in its report.
    let output = expect_code(&mut command, 1)?;
    let report = String::from_utf8_lossy(&output.stderr);
    ensure!(report.contains("exitcode  : 17"), "{report}");
    Ok(())
}

#[test]
fn a_signal_reaches_torchrun_and_its_ranks() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = launch(folder.path())?;
    command.arg(script()).args(["--nproc", "2", "--", "wait"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("shardplan does not start")?;
    let mut ranks = BufReader::new(child.stdout.take().context("no pipe")?).lines();
    for _ in 0..2 {
        ranks.next().context("a rank has not begun")??;
    }
    let launched = Pid::from_raw(i32::try_from(child.id())?);
    kill(launched, Signal::SIGTERM)?;
    // torchrun raises an exception from its handler, wherever it is: one in `Popen.poll` leaves a lock behind, on which it
    // then waits for ranks that have ended. Further signals get it out.
    let (ended, waiting) = mpsc::sync_channel::<()>(1);
    std::thread::spawn(move || {
        while waiting.recv_timeout(Duration::from_secs(10)) == Err(RecvTimeoutError::Timeout) {
            let _ = kill(launched, Signal::SIGTERM);
        }
    });
    // Standard output ends when the last process that holds it has: no rank is left.
    ensure!(ranks.next().is_none(), "a rank went on");
    let output = child.wait_with_output()?;
    drop(ended);
    let report = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && report.contains("got signal: 15"), "{} {report}", output.status);
    Ok(())
}

/// A script of these lines.
fn written(folder: &Path, name: &str, lines: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, lines)?;
    Ok(path)
}

/// What strangers bring: a script that knows nothing of headers, and meets the others by what torch chooses.
const PLAIN: &str = "import torch.distributed as dist\ndist.init_process_group()\n\
                     print(f'{dist.get_rank()} of {dist.get_world_size()} by gloo {dist.is_gloo_available()}\\n', end='')\n\
                     dist.barrier()\ndist.destroy_process_group()\n";

#[test]
fn a_script_without_a_header_runs_under_torchrun() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = written(folder.path(), "plain.py", PLAIN)?;
    let output = expect_code(launch(folder.path())?.arg(&script).args(["--nproc", "2"]), 0)?;
    ensure!(lines(&output)? == ["0 of 2 by gloo True", "1 of 2 by gloo True"], "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        said.contains("has no [tool.runspec], or an empty one, so torchrun starts it, 2 processes"),
        "{said}"
    );
    let script = written(folder.path(), "alone.py", "import sys\nprint(len(sys.argv))\nsys.exit(5)\n")?;
    expect_code(launch(folder.path())?.arg(&script).args(["--launch", "direct", "--", "a", "b"]), 5)?;
    Ok(())
}

#[test]
fn packages_of_a_header_are_there_beside_the_torch_that_is_here() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let body = "import os, idna, torch\nprint(f\"{os.environ['RANK']} {idna.__version__} {torch.__version__.split('+')[0]}\\n\", end='')\n";
    let header = "# /// script\n# dependencies = [\"idna==3.7\"]\n# [tool.runspec.resources]\n# gpus_per_node = 2\n# ///\n";
    let script = written(folder.path(), "own.py", &format!("{header}{body}"))?;
    let output = expect_code(launch(folder.path())?.arg(&script), 0)?;
    ensure!(lines(&output)? == ["0 3.7 2.11.0", "1 3.7 2.11.0"], "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Where there are GPUs the numbers may differ; what is started is said.
    ensure!(
        said.contains("for 2 GPUs a node, and no GPU is visible here: 2 processes are started"),
        "{said}"
    );
    Ok(())
}

#[test]
fn a_header_that_wants_no_torch_has_an_environment_of_its_own() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let header = "# /// script\n# requires-python = \">=3.10\"\n# dependencies = [\"idna==3.6\"]\n# [tool.runspec]\n# run.launch = \"direct\"\n# ///\n";
    let body = "import sys, idna\ntry:\n    import torch\n    sys.exit(4)\nexcept ImportError:\n    print(idna.__version__, *sys.argv[1:])\n";
    let script = written(folder.path(), "own.py", &format!("{header}{body}"))?;
    let mut command = launch(folder.path())?;
    command.arg(&script).args(["--torch", "stage", "--", "x y"]);
    let output = expect_code(&mut command, 0)?;
    ensure!(lines(&output)? == ["3.6 x y"], "{output:?}");
    // A lock beside the script is what is installed.
    let made = Command::new(uv()?)
        .args(["lock", "--script"])
        .arg(&script)
        .env("UV_PYTHON", torch_python()?)
        .output()?;
    ensure!(made.status.success(), "{made:?}");
    let mut command = launch(folder.path())?;
    command.arg(&script).args(["--torch", "stage", "--", "again"]);
    let output = expect_code(&mut command, 0)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(lines(&output)? == ["3.6 again"] && said.contains("uv sync --active --script"), "{said}");
    Ok(())
}

/// A repository with a package of ours and a stage with the script; the stage wants a torch.
fn repository(folder: &Path) -> Result<PathBuf> {
    let stage = folder.join("repository/stage");
    std::fs::create_dir_all(folder.join("repository/src/ours"))?;
    std::fs::create_dir_all(&stage)?;
    std::fs::write(folder.join("repository/src/ours/__init__.py"), "NAME = \"ours\"\n")?;
    std::fs::write(
        folder.join("repository/pyproject.toml"),
        "[project]\nname = \"ours\"\nversion = \"0.1\"\n[build-system]\nrequires = [\"uv_build\"]\nbuild-backend = \"uv_build\"\n",
    )?;
    std::fs::write(
        stage.join("pyproject.toml"),
        "[project]\nname = \"stage\"\nversion = \"0.1\"\nrequires-python = \">=3.10\"\ndependencies = [\"torch>=2.10\"]\n\
         [tool.nemotron]\nentry-point = \"train.py\"\n",
    )?;
    std::fs::copy(script(), stage.join("train.py"))?;
    Ok(stage)
}

#[test]
fn a_stage_runs_on_the_torch_that_is_there() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let stage = repository(folder.path())?;
    let mut command = launch(folder.path())?;
    command.arg(&stage).args(["--source-path", "--", "import"]);
    let output = expect_code(&mut command, 0)?;
    let found = lines(&output)?;
    ensure!(found.len() == 4, "{found:?}");
    for rank in 0..2 {
        ensure!(found.contains(&format!("rank {rank} of 2: 3 import")), "{found:?}");
        let start = format!("rank {rank}: ours in {}", folder.path().join("launch").display());
        ensure!(found.iter().any(|line| line.starts_with(&start)), "{found:?}");
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(said.contains("uv sync --active") && !said.contains("+ torch=="), "{said}");
    // What was prepared is taken again.
    let mut command = launch(folder.path())?;
    command.arg(&stage).args(["--source-path", "--", "import"]);
    let again = expect_code(&mut command, 0)?;
    ensure!(!String::from_utf8_lossy(&again.stderr).contains("uv sync"), "{again:?}");
    Ok(())
}

#[test]
fn uv_makes_a_stages_environment_once_for_several_starts() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let stage = folder.path().join("stage");
    std::fs::create_dir_all(&stage)?;
    std::fs::write(
        stage.join("pyproject.toml"),
        "[project]\nname = \"stage\"\nversion = \"0.1\"\nrequires-python = \">=3.10\"\n",
    )?;
    std::fs::write(
        stage.join("direct.py"),
        "# /// script\n# [tool.runspec]\n# run.launch = \"direct\"\n# ///\nimport sys\n\
         print(sys.prefix, *sys.argv[1:])\nsys.exit(23)\n",
    )?;
    let start = |rank: &str| -> Result<std::process::Child> {
        let mut command = launch(folder.path())?;
        command.arg(stage.join("direct.py")).args(["--torch", "stage", "--", "a b", "c=d"]);
        command.env("LOCAL_RANK", rank).env("UV_PYTHON", torch_python()?);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("shardplan does not start")
    };
    let children = ["0", "1", "2"].map(start);
    let expected =
        format!("{} a b c=d\n", stage.join(".venv").canonicalize().unwrap_or(stage.join(".venv")).display());
    let mut syncs = 0;
    for child in children {
        let output = child?.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(23), "{} {said}", output.status);
        ensure!(String::from_utf8_lossy(&output.stdout) == expected, "{output:?}");
        syncs += said.matches("uv sync").count();
    }
    ensure!(syncs == 1, "{syncs} starts prepared the environment");
    Ok(())
}
