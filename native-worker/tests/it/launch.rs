//! `shardplan launch`, with a uv and a Python that say what they were given.

use std::process::{Command, Stdio};

use crate::support::{Answer, Workshop, wait_for};

/// A uv that tells its arguments and what it sees of the environment.
const UV: &str = r#"#!/bin/bash
echo "uv $*"
echo "VIRTUAL_ENV=$VIRTUAL_ENV PYTHONPATH=$PYTHONPATH A=$A UV_PROJECT_ENVIRONMENT=$UV_PROJECT_ENVIRONMENT"
case "$1" in
  venv) mkdir -p "${@: -1}/bin"; cp "$FAKE_PYTHON" "${@: -1}/bin/python" ;;
  sync) [ -z "$FAKE_SYNC" ] || eval "$FAKE_SYNC" ;;
  pip) [ -z "$FAKE_PIP" ] || exit 5 ;;
esac
[ "$1" != run ] || eval "${FAKE_RUN:-exit 0}"
"#;

/// A Python that answers what it has, and else tells its arguments. `TORCH` is what it says of torch; importing works
/// where it is not null.
const PYTHON: &str = r#"#!/bin/bash
case "$2" in
  *json.dumps*) printf '{"executable": "%s", "version": "3.12.1", "packages": ["/opt/site-packages"], "torch": %s, "torch_cuda": "12.9", "torchvision": %s}\n' "$0" "${TORCH:-null}" "${VISION:-null}" ;;
  *"import torch"*) [ "${TORCH:-null}" != null ] ;;
  *) echo "python $*"; [ -z "$FAKE_PYTHON_RC" ] || exit "$FAKE_PYTHON_RC" ;;
esac
"#;

pub const HEADER: &str = "[tool.runspec]\nname = \"t\"\n[tool.runspec.resources]\ngpus_per_node = 2";

pub struct Bench(pub Workshop);

impl Bench {
    /// A repository with a stage, whose script has this header.
    pub fn new(header: &str) -> Self {
        let shop = Workshop::new();
        shop.program("bin/uv", UV);
        shop.program("bin/python3", PYTHON);
        shop.write("repo/pyproject.toml", "[project]\nname = \"repo\"\n");
        shop.write(
            "repo/stage/pyproject.toml",
            "[project]\nname = \"stage\"\n[tool.nemotron]\nentry-point = \"train.py\"\n",
        );
        let bench = Bench(shop);
        bench.script("repo/stage/train.py", header);
        bench
    }

    pub fn script(&self, path: &str, header: &str) {
        let lines: String = header.lines().map(|line| format!("# {line}\n")).collect();
        self.0.write(path, &format!("# /// script\n{lines}# ///\nprint('x')\n"));
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.shardplan();
        command.arg("launch").args(arguments);
        for name in ["LOCAL_RANK", "SLURM_PROCID", "NEMOTRON_ENV_FILE", "OMP_NUM_THREADS", "PYTHONPATH"] {
            command.env_remove(name);
        }
        command
            .env("VIRTUAL_ENV", "/somewhere/else")
            .env("FAKE_PYTHON", self.0.path("bin/python3"))
            .env("SHARDPLAN_CACHE", self.0.path("cache"))
            .env("SHARDPLAN_GPU_RECORDING", self.0.write("gpus.json", "{}"))
            .env("UV_CUDA_DRIVER_VERSION", "580.65.06");
        command
    }

    pub fn ask(&self, arguments: &[&str]) -> Answer {
        Answer::of(self.command(arguments).output().expect("shardplan runs"))
    }

    /// The answer with the folder's name taken out, as text.
    pub fn said(&self, text: &str) -> String {
        let folder = self.0.path("x");
        let folder = folder.parent().expect("a folder").display().to_string();
        text.replace(&folder, "DIR")
    }

    #[track_caller]
    pub fn refused(&self, arguments: &[&str], code: i32, expected: &str) {
        let answer = self.ask(arguments);
        assert_eq!(answer.code, Some(code), "{answer:?}");
        let said = self.said(&answer.stderr);
        assert!(said.contains(expected), "{expected:?} is not in {said:?}");
        assert_eq!(answer.stdout, "");
    }
}

#[test]
fn a_stage_runs_under_uv() {
    let bench = Bench::new(HEADER);
    let answer =
        bench.ask(&["repo/stage/train.py", "--env", "A=1", "--with", "rich", "--", "lr=1", "--flag"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    insta::assert_snapshot!(bench.said(&answer.stdout), @r"
    uv run --with DIR/repo --with rich --project DIR/repo/stage -m torch.distributed.run --nproc_per_node=2 DIR/repo/stage/train.py lr=1 --flag
    VIRTUAL_ENV= PYTHONPATH= A=1 UV_PROJECT_ENVIRONMENT=
    ");
    let expected =
        "+ DIR/bin/uv run --with DIR/repo --with rich --project DIR/repo/stage -m torch.distributed.run";
    assert!(bench.said(&answer.stderr).contains(expected), "{answer:?}");
}

#[test]
fn a_folder_names_its_script_and_the_repository_may_come_by_its_path() {
    let bench = Bench::new("[tool.runspec]\nrun.launch = \"direct\"");
    let answer = bench.ask(&["repo/stage", "--source-path"]);
    insta::assert_snapshot!(bench.said(&answer.stdout), @r"
    uv run --project DIR/repo/stage python DIR/repo/stage/train.py
    VIRTUAL_ENV= PYTHONPATH=DIR/repo/src A= UV_PROJECT_ENVIRONMENT=
    ");
}

#[test]
fn a_dry_run_says_all_and_starts_nothing() {
    let bench = Bench::new(&format!("{HEADER}\n[tool.runspec.env]\nWANDB_API_KEY = \"abc\"\nA = \"b c\""));
    let answer =
        bench.ask(&["repo/stage", "--dry-run", "--source-path", "--", "--token", "hf_abcdefghijklmnop"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    insta::assert_snapshot!(bench.said(&answer.stdout), @r#"env -u VIRTUAL_ENV 'A=b c' 'WANDB_API_KEY=<SECRET>' PYTHONPATH=DIR/repo/src"${PYTHONPATH:+:$PYTHONPATH}" DIR/bin/uv run --project DIR/repo/stage -m torch.distributed.run --nproc_per_node=2 DIR/repo/stage/train.py --token '<SECRET>'"#);
    let answer = bench.ask(&["repo/stage", "--dry-run", "--json", "--", "--token", "hf_abcdefghijklmnop"]);
    assert!(!answer.stdout.contains("hf_abc") && !answer.stdout.contains("\"abc\""), "{answer:?}");
    insta::assert_snapshot!("launch_dry_run", bench.said(&answer.stdout));
}

#[test]
fn the_build_of_torch_is_chosen_for_the_driver() {
    let bench = Bench::new("[tool.runspec]\nrun.launch = \"direct\"");
    let extras = "[project]\nname = \"stage\"\n[project.optional-dependencies]\ncu126 = []\ncu130 = []\n";
    bench.0.write("repo/stage/pyproject.toml", extras);
    let run = |driver: &str, arguments: &[&str]| {
        let arguments: Vec<&str> = ["repo/stage/train.py"].iter().chain(arguments).copied().collect();
        let mut command = bench.command(&arguments);
        let answer =
            Answer::of(command.env("UV_CUDA_DRIVER_VERSION", driver).output().expect("shardplan runs"));
        let extra =
            answer.stdout.split("--extra ").nth(1).and_then(|rest| rest.split(' ').next()).map(str::to_owned);
        (extra, answer)
    };
    let (extra, answer) = run("580.65.06", &[]);
    assert_eq!(extra.as_deref(), Some("cu130"));
    assert!(
        answer.stderr.contains("info: extra = \"cu130\": extra cu130 fits driver 580.65.6"),
        "{answer:?}"
    );
    assert_eq!(run("550.54", &[]).0.as_deref(), Some("cu126"));
    assert_eq!(run("580", &["--extra", "cu126"]).0.as_deref(), Some("cu126"));
    assert_eq!(run("580", &["--capability", "7.0"]).0.as_deref(), Some("cu126"));
    let (extra, answer) = run("470.1", &[]);
    assert_eq!((extra, answer.code), (None, Some(0)));
    assert!(answer.stderr.contains("warning: driver = \"470.1\": driver 470.1 is too old"), "{answer:?}");
    let (_, answer) = run("abc", &[]);
    assert_eq!(answer.code, Some(1));
    assert!(answer.stderr.contains("UV_CUDA_DRIVER_VERSION is \"abc\""), "{answer:?}");
}

#[test]
fn the_switch_of_an_export_brings_its_extra() {
    let bench =
        Bench::new("[tool.runspec]\nrun.launch = \"direct\"\n[tool.runspec.config]\ndefault = \"base\"");
    let extras = "[project]\nname = \"stage\"\n[project.optional-dependencies]\ntensorrt = []\n";
    bench.0.write("repo/stage/pyproject.toml", extras);
    bench.0.write("repo/stage/config/base.yaml", "export_to_trt: false\n");
    bench.0.write("repo/stage/config/trt.yaml", "export_to_trt: true\n");
    let first =
        |arguments: &[&str]| bench.said(bench.ask(arguments).stdout.lines().next().unwrap_or_default());
    let start = "uv run --with DIR/repo --project DIR/repo/stage";
    let script = "python DIR/repo/stage/train.py --config DIR/repo/stage/config";
    assert_eq!(first(&["repo/stage/train.py"]), format!("{start} {script}/base.yaml"));
    let with_trt = format!("{start} --extra tensorrt {script}/trt.yaml");
    assert_eq!(first(&["repo/stage/train.py", "--config", "trt"]), with_trt);
    assert_eq!(
        first(&["repo/stage/train.py", "--", "export_to_trt=true"]),
        format!("{start} --extra tensorrt {script}/base.yaml export_to_trt=true")
    );
    bench.refused(
        &["repo/stage/train.py", "--config", "tr"],
        1,
        "there is no configuration tr; in DIR/repo/stage/config there are: base, trt",
    );
}

#[test]
fn the_torch_of_a_container_is_used() {
    let bench = Bench::new(HEADER);
    let run = || {
        let mut command = bench.command(&["repo/stage", "--extra", "x", "--", "a=b"]);
        command.env("TORCH", "\"2.10.0+cu129\"").env("FAKE_PYTHON_RC", "7");
        Answer::of(command.output().expect("shardplan runs"))
    };
    let answer = run();
    // The name of a prepared environment is a digest of what it is made of.
    let digest = |text: &str| {
        let text = bench.said(text);
        let name =
            text.split("launch/").nth(1).and_then(|rest| rest.get(..16)).unwrap_or_default().to_owned();
        if name.is_empty() { text } else { text.replace(&name, "DIGEST") }
    };
    assert_eq!(answer.code, Some(7), "{answer:?}");
    insta::assert_snapshot!(digest(&answer.stdout), @"python -m torch.distributed.run --nproc_per_node=2 DIR/repo/stage/train.py a=b");
    let steps: Vec<String> =
        digest(&answer.stderr).lines().filter(|line| line.starts_with('+')).map(str::to_owned).collect();
    insta::assert_snapshot!(steps.join("\n"), @r"
    + DIR/bin/uv venv --python DIR/bin/python3 --system-site-packages --seed DIR/cache/launch/DIGEST/venv
    + DIR/bin/uv sync --active --project DIR/cache/launch/DIGEST/project --extra x
    + DIR/bin/uv pip install --no-deps DIR/repo
    + DIR/cache/launch/DIGEST/venv/bin/python -m torch.distributed.run --nproc_per_node=2 DIR/repo/stage/train.py a=b
    ");
    let again = run();
    assert!(!again.stderr.contains("uv sync"), "what is ready is not made again: {again:?}");
    bench.0.write("repo/module.py", "x = 1\n");
    let changed = run();
    assert!(!changed.stderr.contains("uv sync") && changed.stderr.contains("uv pip install"), "{changed:?}");
}

#[test]
fn what_fails_while_a_container_is_prepared_is_one_line() {
    let bench = Bench::new(HEADER);
    let fail = |variable: &str, value: &str| {
        let mut command = bench.command(&["repo/stage"]);
        command.env("TORCH", "\"2.10.0\"").env(variable, value);
        Answer::of(command.output().expect("shardplan runs"))
    };
    for (variable, value, expected) in [
        ("FAKE_SYNC", "exit 4", "uv could not install the stage's packages (exit status: 4)"),
        ("FAKE_PIP", "1", "uv could not install the repository (exit status: 5)"),
        (
            "VISION",
            "\"0.25.0+cu130\"",
            "torchvision 0.25.0+cu130 is built for CUDA 13 and torch 2.10.0 for CUDA 12",
        ),
    ] {
        let answer = fail(variable, value);
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(answer.stderr.contains(expected), "{answer:?}");
        assert_eq!(answer.stdout, "");
    }
    bench.0.program("bin/uv", "#!/bin/sh\nexit 3\n");
    bench.0.write(
        "repo/stage/pyproject.toml",
        "[project]\nname = \"other\"\n[tool.nemotron]\nentry-point = \"train.py\"\n",
    );
    let answer = fail("X", "");
    assert!(answer.stderr.contains("uv could not make the environment (exit status: 3)"), "{answer:?}");
}

#[test]
fn several_starts_prepare_once() {
    let bench = Bench::new("[tool.runspec]\nrun.launch = \"direct\"");
    let log = bench.0.path("synced");
    let start = || {
        let mut command = bench.command(&["repo/stage"]);
        let sync = format!(
            "mkdir -p '{}'; sleep 0.2; echo synced >> '{}'",
            bench.0.path("repo/stage/.venv").display(),
            log.display()
        );
        command.env("LOCAL_RANK", "0").env("FAKE_SYNC", sync).stdin(Stdio::null());
        command.spawn().expect("shardplan runs")
    };
    let children: Vec<_> = (0..6).map(|_| start()).collect();
    for child in children {
        let answer = Answer::of(child.wait_with_output().expect("an end"));
        assert_eq!(answer.code, Some(0), "{answer:?}");
        assert!(answer.stdout.contains("--no-sync"), "{answer:?}");
    }
    assert_eq!(std::fs::read_to_string(&log).expect("a log"), "synced\n");
    bench.0.write("repo/stage/uv.lock", "version = 1\n");
    assert!(start().wait().expect("an end").success());
    assert_eq!(
        std::fs::read_to_string(&log).expect("a log"),
        "synced\nsynced\n",
        "a changed lock is synced anew"
    );
}

#[test]
fn a_preparation_that_was_killed_is_done_again_and_never_twice_at_once() {
    let bench = Bench::new("[tool.runspec]\nrun.launch = \"direct\"");
    let (begun, end) = (bench.0.path("begun"), bench.0.path("end"));
    let sync = format!(
        "mkdir -p '{}'; echo begun >> '{}'; while [ ! -e '{}' ]; do sleep 0.02; done; echo ended >> '{}'",
        bench.0.path("repo/stage/.venv").display(),
        begun.display(),
        end.display(),
        begun.display()
    );
    let start = || {
        let mut command = bench.command(&["repo/stage", "--prepare", "always"]);
        command.env("FAKE_SYNC", &sync).spawn().expect("shardplan runs")
    };
    let mut first = start();
    wait_for("the first preparation", || begun.exists().then_some(()));
    first.kill().expect("a kill");
    first.wait().expect("an end");
    // uv lives on without its parent, and still holds the lock.
    let second = start();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(std::fs::read_to_string(&begun).expect("a log"), "begun\n");
    std::fs::write(&end, "").expect("a file");
    let answer = Answer::of(second.wait_with_output().expect("an end"));
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(std::fs::read_to_string(&begun).expect("a log"), "begun\nended\nbegun\nended\n");
}

#[test]
fn exit_status_signals_and_streams_are_the_programs_own() {
    let bench = Bench::new("[tool.runspec]\nrun.launch = \"direct\"");
    let run = |script: &str| {
        let mut command = bench.command(&["repo/stage"]);
        Answer::of(command.env("FAKE_RUN", script).output().expect("shardplan runs"))
    };
    assert_eq!(run("exit 42").code, Some(42));
    assert_eq!(run("kill -9 $$").code, None, "killed by a signal, as its parent sees");
    let mut command = bench.command(&["repo/stage"]);
    let mut child = command
        .env("FAKE_RUN", "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.02; done")
        .spawn()
        .expect("shardplan runs");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("a pipe")));
    let mut next = || lines.next().expect("a line").expect("text");
    while next() != "ready" {}
    // This process became uv: the signal needs nobody to pass it on.
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill runs");
    assert!(kill.success());
    assert_eq!(next(), "got it");
    assert_eq!(child.wait().expect("an end").code(), Some(9));
}

#[test]
fn startup_commands_come_first_and_the_first_failure_ends_it() {
    let bench = Bench::new("[tool.runspec]\nrun.launch = \"direct\"");
    bench.0.write(
        "env.toml",
        "[base]\nstartup_commands = [\"export A=startup\", \"echo one\"]\n[here]\nextends = \"base\"\n\
         [broken]\nstartup_commands = [\"echo one\", \"exit 6\", \"echo never\"]\n[wrong]\nstartup_commands = \"ls\"\n\
         [a]\nextends = \"a\"\n[slurm]\nexecutor = \"slurm\"\n[lsf]\nexecutor = \"lsf\"\n",
    );
    let answer = bench.ask(&["repo/stage", "--profile", "here"]);
    assert!(answer.stdout.starts_with("one\nuv run ") && answer.stdout.contains(" A=startup "), "{answer:?}");
    let answer = bench.ask(&["repo/stage", "--profile", "broken"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(6), "one\n"), "{answer:?}");
    bench.refused(&["repo/stage", "--profile", "wrong"], 1, "it must be a list of strings");
    bench.refused(
        &["repo/stage", "--profile", "a"],
        1,
        "in a circle, a -> a; it has: a, base, broken, here, lsf, slurm, wrong",
    );
    bench.refused(&["repo/stage", "--profile", "hree"], 1, "there is no profile hree; it has: a, base");
    bench.refused(
        &["repo/stage", "--profile", "lsf"],
        1,
        "must be one of: local, docker, slurm, dgxcloud, lepton",
    );
    bench.refused(&["repo/stage", "--profile", "slurm"], 1, "this profile's executor is slurm");
}

#[test]
fn profiles_are_searched_upwards_to_the_first_project() {
    let bench = Bench::new("[tool.runspec]\nrun.launch = \"direct\"");
    bench.0.write("env.toml", "[x]\nenv_vars = {A = \"above\"}\n");
    let from = |folder: &str, file: Option<&str>| {
        let mut command = bench.command(&["--profile", "x"]);
        command.arg(bench.0.path("repo/stage")).current_dir(bench.0.path(folder));
        if let Some(file) = file {
            command.env("NEMOTRON_ENV_FILE", bench.0.path(file));
        }
        Answer::of(command.output().expect("shardplan runs"))
    };
    std::fs::create_dir(bench.0.path("sub")).expect("a folder");
    assert!(from("sub", None).stdout.contains(" A=above "));
    let stopped = from("repo/stage", None);
    assert_eq!(stopped.code, Some(2), "the stage's pyproject.toml ends the search: {stopped:?}");
    bench.0.write("other.toml", "[x]\nenv_vars = {A = \"named\"}\n");
    assert!(from("sub", Some("other.toml")).stdout.contains(" A=named "));
    assert_eq!(from("sub", Some("nowhere.toml")).code, Some(2));
}

/// Starts with a Python that has a torch.
pub fn with_torch(bench: &Bench, arguments: &[&str]) -> Answer {
    let mut command = bench.command(arguments);
    Answer::of(command.env("TORCH", "\"2.10.0\"").output().expect("shardplan runs"))
}

#[test]
fn without_a_stage_python_runs_the_script() {
    let bench = Bench::new(HEADER);
    bench.script("alone.py", HEADER);
    let answer = with_torch(&bench, &["alone.py", "--", "x"]);
    let start =
        |count: &str| format!("python -m torch.distributed.run --nproc_per_node={count} DIR/alone.py");
    // The number that the header says, and a word on what there is.
    assert_eq!(bench.said(&answer.stdout), start("2") + " x\n");
    assert!(
        answer.stderr.contains("for 2 GPUs a node, and no GPU is visible here: 2 processes are started"),
        "{answer:?}"
    );
    let answer = with_torch(&bench, &["alone.py", "--nproc", "cpu"]);
    assert_eq!(bench.said(&answer.stdout), start("cpu") + "\n");
    bench.refused(&["alone.py", "--extra", "x"], 1, "there is no pyproject.toml that declares it");
    bench.refused(&["alone.py"], 3, "torchrun is part of torch, and this Python has none");
    bench.refused(
        &["alone.py", "--torch", "python", "--with", "x"],
        1,
        "--torch python nothing is installed",
    );
}

#[test]
fn a_script_without_a_runspec_runs_under_torchrun_and_says_so() {
    let bench = Bench::new(HEADER);
    bench.0.write("plain.py", "print(1)\n");
    let answer = with_torch(&bench, &["plain.py", "--", "x"]);
    let torchrun = "python -m torch.distributed.run --nproc_per_node=1 DIR/plain.py x\n";
    assert_eq!(bench.said(&answer.stdout), torchrun);
    assert!(
        answer.stderr.contains("has no [tool.runspec], or an empty one, so torchrun starts it, one process"),
        "{answer:?}"
    );
    assert!(
        answer.stderr.contains("no GPU is visible here: one process is started on the CPU"),
        "{answer:?}"
    );
    let answer = bench.ask(&["plain.py", "--launch", "direct"]);
    assert_eq!(
        (bench.said(&answer.stdout).as_str(), answer.stderr.lines().count()),
        ("python DIR/plain.py\n", 1)
    );
    let answer = with_torch(&bench, &["plain.py", "--nproc", "3"]);
    assert!(answer.stdout.contains("--nproc_per_node=3") && !answer.stderr.contains("warning"), "{answer:?}");
    bench.0.write("job.sh", "echo hi\n");
    bench.refused(&["job.sh"], 1, "launch starts Python scripts");
}

#[test]
fn a_relative_script_keeps_its_folders_in_the_stage() {
    let bench = Bench::new(HEADER);
    bench.script("repo/stage/scripts/train.py", "[tool.runspec]\nrun.launch = \"direct\"");
    let answer = bench.ask(&["scripts/train.py", "--stage", "repo/stage"]);
    assert!(bench.said(&answer.stdout).contains("python DIR/repo/stage/scripts/train.py\n"), "{answer:?}");
}

#[test]
fn what_is_not_there() {
    let bench = Bench::new(HEADER);
    bench.refused(&["nowhere.py"], 2, "there is no script DIR/nowhere.py");
    bench.0.write("open.py", "# /// script\n# x = 1\n");
    bench.refused(&["open.py"], 1, "is not closed");
    bench.0.write("list.py", "# /// script\n# dependencies = \"numpy\"\n# ///\n");
    bench.refused(&["list.py"], 1, "script.dependencies is \"numpy\"");
    bench.0.write("torn.py", "# /// script\n# [tool\n# ///\n");
    bench.refused(&["torn.py"], 1, "at line 2");
    bench.script("mpi.py", "[tool.runspec]\nrun.launch = \"mpi\"");
    bench.refused(
        &["mpi.py"],
        1,
        "runspec.run.launch is \"mpi\", and must be one of: torchrun, ray, direct, python",
    );
    bench.script("ray.py", "[tool.runspec]\nrun.launch = \"ray\"");
    bench.refused(&["ray.py"], 1, "this script's launch is ray");
    bench.script("away.py", "[tool.runspec]\nrun.launch = \"direct\"\nrun.workdir = \"nowhere\"");
    bench.refused(&["away.py"], 1, "runspec.run.workdir is not a folder here: DIR/nowhere");
    std::fs::create_dir(bench.0.path("empty")).expect("a folder");
    bench.refused(&["empty"], 1, "this folder has no pyproject.toml");
    bench.0.write("unset/pyproject.toml", "[project]\nname = \"u\"\n");
    bench.refused(&["unset"], 1, "no [tool.nemotron] entry-point");
    bench.0.write("gone/pyproject.toml", "[tool.nemotron]\nentry-point = \"x.py\"\n");
    bench.refused(&["gone"], 1, "entry-point \"x.py\" is not there: DIR/gone/x.py");
    bench.refused(&["repo/stage", "--nproc", "many"], 1, "the number of processes is \"many\"");
    bench.refused(&["repo/stage", "--env", "A"], 2, "--env takes NAME=VALUE");
    bench.refused(&["repo/stage", "--capability", "hopper"], 2, "must be such as 9.0");
    bench.refused(&["repo/stage", "--uv", "nowhere"], 2, "there is no uv at nowhere");
    std::fs::write(bench.0.path("binary.py"), [0xff, 0x00]).expect("a file");
    bench.refused(&["binary.py"], 2, "this file is not UTF-8 text");
}

#[test]
fn without_uv_there_is_a_way_out() {
    let bench = Bench::new(HEADER);
    std::fs::remove_file(bench.0.path("bin/uv")).expect("a removal");
    let run = |torch: &str| {
        let mut command = bench.command(&["repo/stage"]);
        let path = format!("{}:/usr/bin:/bin", bench.0.path("bin").display());
        command.env("PATH", path).env("HOME", bench.0.path("home")).env("TORCH", torch);
        Answer::of(command.output().expect("shardplan runs"))
    };
    let answer = run("null");
    assert_eq!(answer.code, Some(3), "{answer:?}");
    assert!(
        answer.stderr.contains("uv is not on PATH") && answer.stderr.contains("pip install uv"),
        "{answer:?}"
    );
    // On a container's torch pip brings it; this fake pip brings nothing.
    let answer = run("\"2.10.0\"");
    assert!(bench.said(&answer.stderr).contains("-m pip install --target DIR/cache/launch/"), "{answer:?}");
    let mut command = bench.command(&["repo/stage"]);
    let path = format!("{}:/usr/bin:/bin", bench.0.path("bin").display());
    command
        .env("PATH", path)
        .env("HOME", bench.0.path("home"))
        .env("TORCH", "\"2.10.0\"")
        .env("FAKE_PYTHON_RC", "8");
    let answer = Answer::of(command.output().expect("shardplan runs"));
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(
        answer.stderr.contains("uv is not there and pip could not install it (exit status: 8)"),
        "{answer:?}"
    );
}

#[test]
fn a_lock_with_two_cudas_is_seen_before_the_run() {
    let bench = Bench::new(HEADER);
    let package =
        |name: &str, version: &str| format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n");
    bench.0.write(
        "repo/stage/uv.lock",
        &(package("torch", "2.10.0+cu129") + &package("torchvision", "0.25.0+cu130")),
    );
    bench.refused(
        &["repo/stage"],
        1,
        "torchvision 0.25.0+cu130 is built for CUDA 13 and torch 2.10.0+cu129 for CUDA 12",
    );
}
