//! Every script that planner writes: read by bash and shellcheck, and run with programs that only record.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use planner::launch::{Body, Container, Environment, Mode, ScriptOptions, Site, script};
use planner::{Plan, parse_plan};
use system_tests::programs::system_program;
use system_tests::scripts::{Written, combinations, salloc_steps};

fn all() -> Result<Vec<Written>> {
    let mut all = combinations()?;
    ensure!(all.len() >= 200, "{} combinations are fewer than 200", all.len());
    all.extend(salloc_steps()?);
    Ok(all)
}

#[test]
fn bash_and_shellcheck_read_every_script() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut paths = Vec::new();
    for (index, written) in all()?.iter().enumerate() {
        let path = folder.path().join(format!("{index:03} {}.sh", written.name.replace('/', "-")));
        std::fs::write(&path, &written.script)?;
        let output = Command::new("bash").arg("-n").arg(&path).output()?;
        ensure!(output.status.success(), "{}: {}", written.name, String::from_utf8_lossy(&output.stderr));
        // Neighbours differ in the mode or the body alone; shellcheck, which takes its time, reads every second.
        if index % 2 == 0 {
            paths.push(path);
        }
    }
    let output = Command::new(system_program("shellcheck")?)
        .args(["--shell=bash", "--format=gcc"])
        .args(&paths)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && said.is_empty(), "{}", said.chars().take(8000).collect::<String>());
    Ok(())
}

#[test]
fn our_own_linter_finds_nothing_in_any_script() -> Result<()> {
    let mut found: Vec<String> = Vec::new();
    for written in all()? {
        let report = planner::lint::lint(written.script.as_bytes());
        if !report.is_clean() {
            let said = report.findings.iter().filter(|finding| finding.severity != planner::Severity::Info);
            found.extend(
                said.map(|one| format!("{}:{}: {} {}", written.name, one.line, one.rule, one.message)),
            );
        }
    }
    ensure!(found.is_empty(), "{} findings: {:#?}", found.len(), found.get(..found.len().min(40)));
    Ok(())
}

#[test]
fn the_same_scripts_come_each_time() -> Result<()> {
    for (one, other) in all()?.into_iter().zip(all()?) {
        ensure!(one.script == other.script, "{}", one.name);
    }
    Ok(())
}

/// A folder with programs that record what they are given, in place of Slurm's, uv and Python.
struct Stage {
    folder: tempfile::TempDir,
}

/// Records its name and arguments, one to a line.
const RECORD: &str = "{ printf 'CALL %s\\n' \"${0##*/}\"; for word in \"$@\"; do printf 'ARG %q\\n' \"$word\"; done; } >> \"$STAGE/calls\"\n";

/// Finds the command among srun's options and runs it, once, as task 0.
const SRUN: &str = "while [ $# -gt 0 ]; do case \"$1\" in -N) shift 2 ;; -*) shift ;; *) break ;; esac; done\n\
    export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1\n\
    [ $# -eq 0 ] || \"$@\"\n";

impl Stage {
    fn new() -> Result<Stage> {
        let stage = Stage { folder: tempfile::Builder::new().prefix("shardplan-scripts-").tempdir()? };
        let programs = stage.path("bin");
        for folder in [&programs, &stage.path("shared"), &stage.path("work")] {
            std::fs::create_dir(folder)?;
        }
        let exits = |name: &str| format!("exit \"${{{name}:-0}}\"\n");
        let after = |option: &str| {
            format!(
                "while [ $# -gt 0 ] && [ \"$1\" != {option} ]; do shift; done\n[ $# -le 1 ] || {{ shift; \"$@\"; }}\n"
            )
        };
        for (name, body) in [
            ("srun", SRUN.to_owned()),
            ("uv", format!("if [ \"$1\" = sync ]; then {}fi\n{}", exits("SYNC_EXIT"), after("--no-sync"))),
            ("python", exits("PYTHON_EXIT")),
            ("scontrol", "echo node1\n".to_owned()),
            ("numactl", "while [ \"${1#-}\" != \"$1\" ]; do shift; done\n\"$@\"\n".to_owned()),
            (
                "apptainer",
                "while [ $# -gt 0 ] && [ \"$1\" != bash ] && [ \"$1\" != env ]; do shift; done\n\"$@\"\n"
                    .to_owned(),
            ),
            ("module", String::new()),
            ("salloc", String::new()),
            ("train", String::new()),
        ] {
            let path = programs.join(name);
            std::fs::write(&path, format!("#!/bin/bash\n{RECORD}{body}"))?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        }
        Ok(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What no value may ever make.
    fn sentinel(&self) -> PathBuf {
        self.path("sentinel")
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn site(&self) -> Site {
        Site {
            account: Some("research".into()),
            partition: Some("main".into()),
            shared_dir: Some(self.text("shared")),
            workdir: Some(self.text("work")),
            rank_binary: Some(self.text("bin/train")),
            torch_lib: Some(self.text("shared")),
            recipe: Some("recipe".into()),
            config: Some("recipe.yaml".into()),
            titan_module: Some("llama3".into()),
            titan_config: Some("llama3_8b".into()),
            container: Some(Container::None),
            ..Site::default()
        }
    }

    fn run(&self, script: &str, variables: &[(&str, &str)]) -> Result<Output> {
        let path = self.path("script.sh");
        std::fs::write(&path, script)?;
        let _ = std::fs::remove_file(self.path("calls"));
        let programs = format!("{}:/usr/bin:/bin", self.text("bin"));
        let mut command = Command::new("timeout");
        command.arg("60").arg("bash").arg(&path).current_dir(self.folder.path()).env_clear();
        for (name, value) in [
            ("PATH", programs.as_str()),
            ("STAGE", &self.folder.path().display().to_string()),
            ("HOME", &self.folder.path().display().to_string()),
            ("TMPDIR", &self.folder.path().display().to_string()),
            ("SLURM_JOB_ID", "123456"),
            ("SLURM_JOB_NODELIST", "node1"),
            ("SLURM_JOB_NUM_NODES", "2"),
            ("SLURM_ARRAY_JOB_ID", "123456"),
            ("SLURM_ARRAY_TASK_ID", "2"),
            ("HF_TOKEN", "x"),
        ] {
            command.env(name, value);
        }
        command.envs(variables.iter().copied());
        command.output().context("bash can't be started")
    }

    fn calls(&self) -> String {
        std::fs::read_to_string(self.path("calls")).unwrap_or_default()
    }
}

fn plan(name: &str) -> Result<Plan> {
    let text = serde_json::json!({
        "version": 1, "name": name, "model": {"preset": "tiny-dense"},
        "cluster": {"gpu": "cpu", "nodes": 2, "gpus_per_node": 2}, "layout": {"tp": 2},
        "training": {"seq_len": 32, "global_batch_size": 4, "dtype": "fp32"},
    });
    let file = parse_plan(&text.to_string()).map_err(|findings| anyhow::anyhow!("{findings:?}"))?;
    Plan::resolve(&file).plan.context("not a plan")
}

/// Checks what a script calls and how it ends.
#[track_caller]
fn check(
    options: &ScriptOptions,
    change: fn(&mut Site),
    variables: &[(&str, &str)],
    code: i32,
    calls: &[(&str, usize)],
) {
    let stage = Stage::new().expect("a stage");
    let mut site = stage.site();
    change(&mut site);
    let (text, findings) = script(&plan("a plan").expect("a plan"), &site, options);
    let output = stage.run(&text, variables).expect("a run");
    let said = format!("{findings:?}\n{text}\n{output:?}\n{}", stage.calls());
    assert_eq!(output.status.code(), Some(code), "{said}");
    for (call, times) in calls {
        assert_eq!(stage.calls().matches(call).count(), *times, "{call}: {said}");
    }
}

fn kind(mode: Mode, body: Body) -> ScriptOptions {
    ScriptOptions { mode, body, command: vec!["train".into(), "a b".into()], ..ScriptOptions::default() }
}

const SYNC: &str = "CALL uv\nARG sync\n";
const NO_SYNC: &str = "ARG run\nARG --no-sync\n";

#[test]
fn phases_and_exit_codes() {
    for mode in [Mode::Srun, Mode::Torchrun] {
        for body in [Body::Bridge, Body::Mlm, Body::Automodel] {
            let both = [(SYNC, 1), (NO_SYNC, 1), ("CALL python\n", 1)];
            check(&kind(mode, body), |_| {}, &[], 0, &both);
            check(&kind(mode, body), |_| {}, &[("PYTHON_EXIT", "7")], 7, &both);
            check(&kind(mode, body), |_| {}, &[("SYNC_EXIT", "5")], 5, &[(SYNC, 1), ("CALL python\n", 0)]);
            let local = |site: &mut Site| site.environment = Some(Environment::NodeLocal);
            check(&kind(mode, body), local, &[], 0, &[(SYNC, 1), ("CALL python\n", 1)]);
            check(&kind(mode, body), local, &[("SYNC_EXIT", "5")], 5, &[("CALL python\n", 0)]);
        }
        check(
            &kind(mode, Body::Torchtitan),
            |_| {},
            &[("PYTHON_EXIT", "7")],
            7,
            &[("CALL uv", 0), ("CALL python\n", 1)],
        );
    }
    check(&kind(Mode::Srun, Body::Command), |_| {}, &[], 0, &[("CALL train\nARG a\\ b\n", 1)]);
    check(&kind(Mode::Srun, Body::Worker), |_| {}, &[], 0, &[("CALL train\nARG --plan\n", 1)]);
    let retries = |site: &mut Site| site.retries = 1;
    let requeued = [("CALL scontrol\nARG requeue\nARG 123456\n", 1)];
    check(&kind(Mode::Srun, Body::Bridge), retries, &[("PYTHON_EXIT", "3")], 3, &requeued);
    let again = [("PYTHON_EXIT", "3"), ("SLURM_RESTART_COUNT", "1")];
    check(&kind(Mode::Srun, Body::Bridge), retries, &again, 3, &[("ARG requeue", 0)]);
}

#[test]
fn secrets_come_from_a_private_file_that_does_not_stay() -> Result<()> {
    for (mode, code, exit, stays) in [(0o600, 0, "0", false), (0o600, 4, "4", false), (0o644, 1, "0", true)] {
        let stage = Stage::new()?;
        let file = stage.path("secrets.env");
        std::fs::write(&file, "export MY_KEY=secret-value\n")?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode))?;
        let site = Site {
            secrets_file: Some(stage.text("secrets.env")),
            required_env: vec!["MY_KEY".into()],
            ..stage.site()
        };
        let (text, _) = script(&plan("a plan")?, &site, &kind(Mode::Srun, Body::Bridge));
        let output = stage.run(&text, &[("PYTHON_EXIT", exit)])?;
        assert_eq!(output.status.code(), Some(code), "{output:?}\n{text}");
        assert_eq!(file.exists(), stays);
        let said = format!("{output:?}{}", stage.calls());
        assert!(!said.contains("secret-value"), "{said}");
    }
    Ok(())
}

/// Values that somebody types to run something else, and honest ones that look alike.
fn hostile(sentinel: &Path) -> Vec<String> {
    let touch = format!("touch {}", sentinel.display());
    let mut all = vec![
        format!("$({touch})"),
        format!("`{touch}`"),
        format!("x; {touch} #"),
        format!("x'; {touch}; '"),
        format!("x\"; {touch}; \""),
        format!("x\n{touch}\n"),
        format!("x\r\n#SBATCH --wrap={touch}\n"),
        format!("x\0{touch}"),
        format!("| {touch} &"),
        format!("-c{touch}"),
        format!("${{x:-$({touch})}}"),
        format!("x\\\n{touch}"),
        format!("#{touch}"),
        format!("a[$({touch})]"),
        format!("/a:/b:$({touch})"),
        "x".repeat(10_000),
        "~root".to_owned(),
        "*".to_owned(),
        "!x".to_owned(),
    ];
    let mut both = String::new();
    let _ = write!(both, "'\"`$(\u{202e}{touch})");
    all.push(both);
    all
}

/// A field of a site, and how a value gets into it.
type Place = (&'static str, fn(&mut Site, String));

/// Places of the site that a value can be put in.
fn places() -> Vec<Place> {
    vec![
        ("account", |site, value| site.account = Some(value)),
        ("partition", |site, value| site.partition = Some(value)),
        ("qos", |site, value| site.qos = Some(value)),
        ("reservation", |site, value| site.reservation = Some(value)),
        ("constraint", |site, value| site.constraint = Some(value)),
        ("exclude", |site, value| site.exclude = Some(value)),
        ("dependency", |site, value| site.dependency = Some(value)),
        ("time", |site, value| site.time = Some(value)),
        ("job_name", |site, value| site.job_name = Some(value)),
        ("signal", |site, value| site.signal = Some(value)),
        ("shared_dir", |site, value| site.shared_dir = Some(value)),
        ("image", |site, value| {
            site.container = Some(Container::Apptainer);
            site.image = Some(value);
        }),
        ("mounts", |site, value| {
            site.container = Some(Container::Pyxis);
            site.mounts = vec![value];
        }),
        ("container_env", |site, value| {
            site.container = Some(Container::Pyxis);
            site.container_env = vec![value];
        }),
        ("gpu_type", |site, value| site.gpu_type = Some(value)),
        ("mpi", |site, value| site.mpi = Some(value)),
        ("mem", |site, value| site.mem = Some(value)),
        ("modules", |site, value| site.modules = vec![value]),
        ("env name", |site, value| site.env = [(value, "1".to_owned())].into()),
        ("env value", |site, value| site.env = [("FINE".to_owned(), value)].into()),
        ("required_env", |site, value| site.required_env = vec![value]),
        ("secrets_file", |site, value| site.secrets_file = Some(value)),
        ("rank_binary", |site, value| site.rank_binary = Some(value)),
        ("torch_lib", |site, value| site.torch_lib = Some(value)),
        ("workdir", |site, value| site.workdir = Some(value)),
        ("recipe", |site, value| site.recipe = Some(value)),
        ("hf_model", |site, value| site.hf_model = Some(value)),
        ("megatron_lm", |site, value| site.megatron_lm = Some(value)),
        ("data_path", |site, value| site.data_path = Some(value)),
        ("tokenizer", |site, value| site.tokenizer = Some(value)),
        ("config", |site, value| site.config = Some(value)),
        ("titan_module", |site, value| site.titan_module = Some(value)),
        ("titan_config", |site, value| site.titan_config = Some(value)),
        ("hf_home", |site, value| site.hf_home = Some(value)),
        ("uv_cache_dir", |site, value| site.uv_cache_dir = Some(value)),
        ("nemo_home", |site, value| site.nemo_home = Some(value)),
    ]
}

/// Kinds of scripts that a value can be put in, turn by turn.
fn kinds() -> Vec<ScriptOptions> {
    let mut all = Vec::new();
    for mode in Mode::ALL {
        all.extend(Body::ALL.map(|body| kind(mode, body)));
    }
    all
}

#[test]
fn no_value_is_ever_executed() -> Result<()> {
    let stage = Stage::new()?;
    let values = hostile(&stage.sentinel());
    let kinds = kinds();
    let mut turn = 0;
    let run = |stage: &Stage, what: &str, plan: &Plan, site: &Site, options: &ScriptOptions| -> Result<()> {
        let (text, _) = script(plan, site, options);
        ensure!(!text.contains('\0'), "{what}: a NUL in the script");
        let mut directives = text.lines().filter(|line| line.trim_start().starts_with("#SBATCH"));
        ensure!(!directives.any(|line| line.contains("--wrap")), "{what}: a directive of its own\n{text}");
        let output = stage.run(&text, &[])?;
        ensure!(!stage.sentinel().exists(), "{what} was executed:\n{text}\n{output:?}");
        Ok(())
    };
    for (place, put) in places() {
        for value in &values {
            // Kinds take turns, so that each place meets each of them.
            turn += 1;
            let mut site = stage.site();
            put(&mut site, value.clone());
            let options = &kinds[turn % kinds.len()];
            run(&stage, &format!("{place} {value:?} {options:?}"), &plan("a plan")?, &site, options)?;
        }
    }
    for value in &values {
        // Every third kind, another third for the next value.
        turn += 1;
        for options in kinds.iter().skip(turn % 3).step_by(3) {
            let mut named = plan("a plan")?;
            named.name.clone_from(value);
            named.file.name = Some(value.clone());
            named.run.data = planner::wire::DataFile::Text { path: value.clone() };
            named.file.run.data = Some(named.run.data.clone());
            let mut options = options.clone();
            options.command = vec!["train".to_owned(), value.clone()];
            run(&stage, &format!("name {value:?} {options:?}"), &named, &stage.site(), &options)?;
            options.array = Some(value.clone());
            options.het = Some(value.clone());
            options.command = vec![value.clone()];
            run(
                &stage,
                &format!("options {value:?} {options:?}"),
                &plan("a plan")?,
                &stage.site(),
                &options,
            )?;
        }
    }
    Ok(())
}

#[test]
fn quoted_values_arrive_as_they_were_typed() -> Result<()> {
    let awkward = "it's $HOME `id` \"x\" \\ #end";
    let stage = Stage::new()?;
    let site = Site { recipe: Some(awkward.to_owned()), ..stage.site() };
    for mode in [Mode::Srun, Mode::Torchrun] {
        let (text, _) = script(&plan("a plan")?, &site, &kind(mode, Body::Bridge));
        let output = stage.run(&text, &[])?;
        ensure!(output.status.success(), "{output:?}");
        let quoted = Command::new("bash").args(["-c", "printf '%q' \"$1\"", "bash", awkward]).output()?;
        let expected = format!("ARG --recipe\nARG {}\n", String::from_utf8_lossy(&quoted.stdout));
        ensure!(stage.calls().contains(&expected), "{expected} is not in {}", stage.calls());
    }
    Ok(())
}
