//! Every script that planner writes: read by bash and shellcheck, and run with programs that only record.

mod fields;
mod hostile;
mod jobs;
mod stage;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};
use batch::launch::{Body, Environment, Mode, ScriptOptions, Site};
use frameworks::script;
use planner::{Plan, parse_plan};
use system_tests::programs::{expect_code, system_program};
use system_tests::scripts::{Written, combinations, salloc_steps, with_additions};

use self::stage::{Call, Stage};

fn all() -> Result<Vec<Written>> {
    let mut all = combinations()?;
    ensure!(all.len() >= 200, "{} combinations are fewer than 200", all.len());
    all.extend(salloc_steps()?);
    let adding = with_additions()?;
    ensure!(
        adding.iter().filter(|written| written.name.starts_with("tp")).count() >= 30,
        "{} scripts",
        adding.len()
    );
    all.extend(adding);
    Ok(all)
}

#[test]
fn bash_and_shellcheck_read_every_script() -> Result<()> {
    let folder = tempfile::tempdir()?;
    // Of scripts that are the same for several plans or sites one is enough.
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for written in all()? {
        names.entry(written.script).or_insert(written.name);
    }
    let mut paths = Vec::new();
    for (index, (script, name)) in names.iter().enumerate() {
        let path = folder.path().join(format!("{index:03} {}.sh", name.replace('/', "-")));
        std::fs::write(&path, script)?;
        paths.push(path);
    }
    // Each reader takes many scripts at once: bash in one process that forks, shellcheck in two.
    let bash = "for script; do bash -n \"$script\" || echo \"$script\"; done";
    let bash = started(Command::new("bash").args(["-c", bash, "bash"]).args(&paths))?;
    let mut clean = Clean::read()?;
    let unread: Vec<(&String, PathBuf)> =
        names.keys().zip(paths).filter(|(script, _)| !clean.has(script)).collect();
    let halves = unread
        .chunks(unread.len().div_ceil(2).max(1))
        .map(|half| shellcheck(half.iter().map(|(_, path)| path)));
    for reader in halves.collect::<Result<Vec<_>>>()?.into_iter().chain([bash]) {
        let output = reader.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && said.is_empty() && errors.is_empty(),
            "{}{errors}",
            said.chars().take(8000).collect::<String>()
        );
    }
    unread.iter().for_each(|(script, _)| clean.add(script));
    clean.write()?;
    // It would find something.
    let wrong = folder.path().join("wrong.sh");
    std::fs::write(&wrong, "#!/bin/bash\necho $1\n")?;
    let said = shellcheck([&wrong])?.wait_with_output()?;
    ensure!(String::from_utf8_lossy(&said.stdout).contains("[SC2086]"), "{said:?}");
    Ok(())
}

/// Scripts in which shellcheck has found nothing, which it takes a minute and a half to read: of the same script the same
/// program says the same each time, so it reads what has changed since.
struct Clean {
    path: PathBuf,
    version: Vec<u8>,
    known: BTreeSet<String>,
}

impl Clean {
    fn read() -> Result<Clean> {
        let version = expect_code(Command::new(system_program("shellcheck")?).arg("--version"), 0)?.stdout;
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("scripts-without-shellcheck-findings");
        // None where it was never written.
        let known = std::fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
        Ok(Clean { path, version, known })
    }

    fn name(&self, script: &str) -> String {
        let mut hasher = std::hash::DefaultHasher::new();
        (&self.version, SHELLCHECK, script).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    fn has(&self, script: &str) -> bool {
        self.known.contains(&self.name(script))
    }

    fn add(&mut self, script: &str) {
        self.known.insert(self.name(script));
    }

    fn write(&self) -> Result<()> {
        let lines: String = self.known.iter().flat_map(|name| [name, "\n"]).collect();
        std::fs::write(&self.path, lines).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

const SHELLCHECK: [&str; 2] = ["--shell=bash", "--format=gcc"];

fn shellcheck<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<std::process::Child> {
    started(Command::new(system_program("shellcheck")?).args(SHELLCHECK).args(paths))
}

fn started(command: &mut Command) -> Result<std::process::Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().with_context(|| format!("{command:?} can't be started"))
}

#[test]
fn our_own_linter_finds_nothing_in_any_script() -> Result<()> {
    let mut found: Vec<String> = Vec::new();
    for written in all()? {
        let report = batch::lint::lint(written.script.as_bytes());
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

/// Files of ours that a worker's attempt replaces by a newer version of themselves, and a request to stop that was asked of
/// an earlier attempt.
const REPLACED: [&str; 5] = ["/.plan.json", "/plan.json", "/.run.json", "/run.json", "/control"];

/// Whatever a script removes, moves or writes over, its own attempt has made.
#[test]
fn no_script_takes_away_what_was_there_before_its_attempt() -> Result<()> {
    let mut found = Vec::new();
    let mut ours = 0;
    for written in all()? {
        for taken in batch::lint::taken(written.script.as_bytes()) {
            let is_ours =
                written.name.ends_with(" worker") && REPLACED.iter().any(|end| taken.path.ends_with(end));
            ours += usize::from(is_ours);
            if !is_ours {
                found.push(format!("{}:{}: {:?} {}", written.name, taken.line, taken.harm, taken.path));
            }
        }
    }
    ensure!(found.is_empty(), "{} of them: {:#?}", found.len(), found.get(..found.len().min(40)));
    // Nothing at all would be found if scripts could not be read.
    ensure!(ours > 0, "not even the worker's own files are replaced");
    Ok(())
}

#[test]
fn the_same_scripts_come_each_time() -> Result<()> {
    for (one, other) in all()?.into_iter().zip(all()?) {
        ensure!(one.script == other.script, "{}", one.name);
    }
    Ok(())
}

fn plan(name: &str) -> Result<Plan> {
    let text = serde_json::json!({
        "version": 1, "name": name, "model": {"preset": "tiny-dense"},
        "cluster": {"gpu": "cpu", "nodes": 2, "gpus_per_node": 2}, "layout": {"tp": 2},
        "training": {"seq_len": 32, "global_batch_size": 4, "dtype": "fp32"},
    });
    let file = parse_plan(&text.to_string()).map_err(|findings| anyhow!("{findings:?}"))?;
    Plan::resolve(&file).plan.context("not a plan")
}

/// Checks what a script calls and how it ends: programs with their first arguments, and how often.
#[track_caller]
fn check(
    options: &ScriptOptions,
    change: fn(&mut Site),
    variables: &[(&str, &str)],
    code: i32,
    calls: &[(&[&str], usize)],
) {
    let stage = Stage::new().expect("a stage");
    let mut site = stage.site();
    change(&mut site);
    let (text, findings) = script(&plan("a plan").expect("a plan"), &site, options);
    let output = stage.run(&text, variables).expect("a run");
    let seen = stage.calls().expect("calls");
    let said = format!("{findings:?}\n{text}\n{output:?}\n{seen:#?}");
    assert_eq!(output.status.code(), Some(code), "{said}");
    for (call, times) in calls {
        assert_eq!(seen.iter().filter(|seen| begins(seen, call)).count(), *times, "{call:?}: {said}");
    }
}

/// Whether a call is of this program with these first arguments.
fn begins(call: &Call, words: &[&str]) -> bool {
    let (program, arguments) = words.split_first().unwrap_or((&"", &[]));
    call.program == *program && call.arguments.get(..arguments.len()).is_some_and(|first| first == arguments)
}

fn kind(mode: Mode, body: Body) -> ScriptOptions {
    ScriptOptions { mode, body, command: vec!["train".into(), "a b".into()], ..ScriptOptions::default() }
}

const SYNC: &[&str] = &["uv", "sync"];
const NO_SYNC: &[&str] = &["uv", "run", "--no-sync"];
const PYTHON: &[&str] = &["python"];

#[test]
fn phases_and_exit_codes() {
    for mode in [Mode::Srun, Mode::Torchrun] {
        for body in [Body::Bridge, Body::Mlm, Body::Automodel] {
            let both = [(SYNC, 1), (NO_SYNC, 1), (PYTHON, 1)];
            check(&kind(mode, body), |_| {}, &[], 0, &both);
            check(&kind(mode, body), |_| {}, &[("PYTHON_EXIT", "7")], 7, &both);
            check(&kind(mode, body), |_| {}, &[("SYNC_EXIT", "5")], 5, &[(SYNC, 1), (PYTHON, 0)]);
            let local = |site: &mut Site| site.environment = Some(Environment::NodeLocal);
            check(&kind(mode, body), local, &[], 0, &[(SYNC, 1), (PYTHON, 1)]);
            check(&kind(mode, body), local, &[("SYNC_EXIT", "5")], 5, &[(PYTHON, 0)]);
        }
        check(
            &kind(mode, Body::Torchtitan),
            |_| {},
            &[("PYTHON_EXIT", "7")],
            7,
            &[(&["uv"], 0), (PYTHON, 1)],
        );
    }
    check(&kind(Mode::Srun, Body::Command), |_| {}, &[], 0, &[(&["train", "a b"], 1)]);
    check(&kind(Mode::Srun, Body::Worker), |_| {}, &[], 0, &[(&["train", "--plan"], 1)]);
    let retries = |site: &mut Site| site.retries = 1;
    let requeue: &[&str] = &["scontrol", "requeue", "123456"];
    check(&kind(Mode::Srun, Body::Bridge), retries, &[("PYTHON_EXIT", "3")], 3, &[(requeue, 1)]);
    // Who else has queued it again takes no try away.
    let again = [("PYTHON_EXIT", "3"), ("SLURM_RESTART_COUNT", "1")];
    check(&kind(Mode::Srun, Body::Bridge), retries, &again, 3, &[(requeue, 1)]);
}

#[test]
fn secrets_come_from_a_private_file_that_a_requeue_finds_again() -> Result<()> {
    // A job that succeeded, failed, or was preempted may be queued again, by the site's retries or by Slurm itself.
    for (mode, code, exit, retries) in [
        (0o600, 0, "0", 0),
        (0o600, 4, "4", 0),
        (0o600, 143, "143", 0),
        (0o600, 4, "4", 1),
        (0o644, 1, "0", 0),
    ] {
        let stage = Stage::new()?;
        let file = stage.path("secrets.env");
        std::fs::write(&file, "export MY_KEY=secret-value\n")?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode))?;
        let site = Site {
            secrets_file: Some(stage.text("secrets.env")),
            required_env: vec!["MY_KEY".into()],
            retries,
            ..stage.site()
        };
        let (text, _) = script(&plan("a plan")?, &site, &kind(Mode::Srun, Body::Bridge));
        let output = stage.run(&text, &[("PYTHON_EXIT", exit)])?;
        assert_eq!(output.status.code(), Some(code), "{output:?}\n{text}");
        if mode == 0o600 {
            let again = stage.run(&text, &[("PYTHON_EXIT", "0"), ("SLURM_RESTART_COUNT", "1")])?;
            assert_eq!(again.status.code(), Some(0), "{again:?}\n{text}");
            let python = stage.calls()?.into_iter().find(|call| call.program == "python");
            let python = python.context("Python was not called")?;
            assert_eq!(python.environment.get("MY_KEY").map(String::as_str), Some("secret-value"));
        }
        // Programs are given it in their environment, and nowhere else.
        let words: Vec<Vec<String>> = stage.calls()?.into_iter().map(|call| call.arguments).collect();
        let said = format!("{output:?}{words:?}");
        assert!(!said.contains("secret-value"), "{said}");
    }
    Ok(())
}

/// Every byte of a variable's value reaches the tasks, whatever Slurm's own options would make of it.
#[test]
fn variables_reach_the_task_unchanged() -> Result<()> {
    let values = [
        ("NCCL_IB_HCA", "mlx5_0,mlx5_1,mlx5_10"),
        ("NCCL_SOCKET_IFNAME", "=eth0,ib0"),
        ("OPTIONS", "a=1,B=2, C='x y' \"$HOME\""),
        ("EMPTY", ""),
    ];
    for (mode, body, name) in [
        (Mode::Srun, Body::Worker, "train"),
        (Mode::Srun, Body::Command, "train"),
        (Mode::Srun, Body::Bridge, "python"),
        (Mode::Torchrun, Body::Mlm, "python"),
    ] {
        let stage = Stage::new()?;
        // As a site file gives them.
        let written = batch::launch::site_toml(&Site {
            env: values.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..stage.site()
        });
        let site: Site = toml::from_str(&written)?;
        let (text, findings) = script(&plan("a plan")?, &site, &kind(mode, body));
        let output = stage.run(&text, &[])?;
        assert_eq!(output.status.code(), Some(0), "{findings:?} {output:?}\n{text}");
        let task = stage.calls()?.into_iter().find(|call| call.program == name).context("no task")?;
        for (variable, value) in values {
            assert_eq!(
                task.environment.get(variable).map(String::as_str),
                Some(value),
                "{variable} in {text}"
            );
        }
    }
    Ok(())
}

#[test]
fn a_run_folder_is_for_its_owner_alone_and_nobody_elses() -> Result<()> {
    let stage = Stage::new()?;
    let (text, _) = script(&plan("a plan")?, &stage.site(), &kind(Mode::Srun, Body::Worker));
    let output = stage.run(&text, &[("SLURM_CLUSTER_NAME", "left")])?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let run = stage.path("shared/runs/20260101T000000Z-slurm-123456");
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
    assert_eq!(mode(&run)?, 0o700);
    for file in ["plan.json", "run.json"] {
        assert_eq!(mode(&run.join(file))?, 0o600, "{file}");
    }
    let info = system_tests::run_folder::info(&run)?;
    assert_eq!(info.slurm_cluster.as_deref(), Some("left"));
    // Its name can be guessed: somebody has put a link there first.
    let stage = Stage::new()?;
    let target = stage.path("target");
    std::fs::create_dir_all(stage.path("shared/runs"))?;
    std::fs::create_dir(&target)?;
    std::os::unix::fs::symlink(&target, stage.path("shared/runs/20260101T000000Z-slurm-123456"))?;
    let (text, _) = script(&plan("a plan")?, &stage.site(), &kind(Mode::Srun, Body::Worker));
    for attempt in ["0", "1"] {
        std::fs::write(target.join("run.json"), "{}")?;
        let output = stage.run(&text, &[("SLURM_RESTART_COUNT", attempt)])?;
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        assert!(
            !target.join("plan.json").exists() && stage.calls()?.iter().all(|call| call.program != "train")
        );
    }
    Ok(())
}
