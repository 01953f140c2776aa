//! A folder in which a script runs under bash with programs that only record, in place of Slurm's, uv and Python.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use batch::launch::{Container, Site};
use tempfile::TempDir;

/// The folder.
pub struct Stage {
    folder: TempDir,
}

/// One call of a program that records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its name.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The folder that it was called in.
    pub folder: String,
    /// Its environment.
    pub environment: BTreeMap<String, String>,
}

/// Writes down name, folder, arguments and environment, with a zero byte after each.
const RECORD: &str = r#"{
  printf '%s\0' "${0##*/}" "$PWD" "$#" "$@"
  cat /proc/$$/environ
  printf 'END\0'
} >> "$STAGE/calls"
"#;

/// Finds the command among srun's options and runs it, once, as task 0.
const SRUN: &str = r#"
while [ $# -gt 0 ]; do case "$1" in -N) shift 2 ;; -*) shift ;; *) break ;; esac; done
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1
[ $# -eq 0 ] || "$@"
"#;

/// Makes folders, but none outside of the stage, whatever the script asks for.
const MKDIR: &str = r#"
parents=
for folder in "$@"; do
  case "$folder" in -p) parents=-p ;; "$STAGE"/* | [!/]*) /bin/mkdir $parents -- "$folder" || exit ;; esac
done
"#;

const UV: &str = r#"
if [ "$1" = sync ]; then exit "${SYNC_EXIT:-0}"; fi
while [ $# -gt 0 ] && [ "$1" != --no-sync ]; do shift; done
[ $# -le 1 ] || { shift; "$@"; }
"#;

/// The same moment each time, as text and as a number.
const DATE: &str = r#"case "$*" in *%s*) echo 1700000000000 ;; *) echo 20260101T000000Z ;; esac"#;

/// Is given its plan on standard input.
const LAUNCHER: &str = r#"cat > "$STAGE/given""#;

/// How often Slurm has queued the job again, whatever a variable says that it has inherited.
const SCONTROL: &str = r#"
case "$1 $2" in
  "show job") echo "   Requeue=1 Restarts=${RESTARTS-${SLURM_RESTART_COUNT:-0}} BatchFlag=1 Reboot=0" ;;
  *) echo node1 ;;
esac
"#;

/// The jobs that are `QUEUED`; its filters are heard, as squeue does.
const SQUEUE: &str = r#"
[ -z "${NO_ANSWER:-}" ] || exit "$NO_ANSWER"
[ -n "${SQUEUE_STATES:-}${SQUEUE_PARTITION:-}" ] || printf '%s\n' $QUEUED
"#;

/// The worker's program, which may refuse a plan.
const TRAIN: &str = r#"case " $* " in *" --check "*) exit "${CHECK_EXIT:-0}" ;; esac"#;

const PROGRAMS: [(&str, &str); 13] = [
    ("srun", SRUN),
    ("uv", UV),
    ("python", "exit \"${PYTHON_EXIT:-0}\"\n"),
    ("scontrol", SCONTROL),
    ("squeue", SQUEUE),
    ("sleep", ""),
    ("numactl", "while [ \"${1#-}\" != \"$1\" ]; do shift; done\n\"$@\"\n"),
    ("apptainer", "while [ $# -gt 0 ] && [ \"$1\" != bash ] && [ \"$1\" != env ]; do shift; done\n\"$@\"\n"),
    ("module", ""),
    ("salloc", ""),
    ("train", TRAIN),
    ("mkdir", MKDIR),
    ("date", DATE),
];

impl Stage {
    /// An empty one.
    pub fn new() -> Result<Stage> {
        let stage = Stage { folder: tempfile::Builder::new().prefix("shardplan-scripts-").tempdir()? };
        // Along PATH no launcher is found, which would measure other frameworks' runs: it lies beside the worker's program.
        std::fs::create_dir_all(stage.path("bin/worker"))?;
        symlink(stage.path("bin/train"), stage.path("bin/worker/train"))?;
        for (name, body) in PROGRAMS.into_iter().chain([("worker/shardplan", LAUNCHER)]) {
            let path = stage.path("bin").join(name);
            // Folders and times are asked for by scripts alone; a record of them would only take time.
            let record = if ["mkdir", "date"].contains(&name) { "" } else { RECORD };
            std::fs::write(&path, format!("#!/bin/bash\n{record}{body}"))?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        }
        stage.clear()?;
        Ok(stage)
    }

    /// Removes what a run has left.
    pub fn clear(&self) -> Result<()> {
        for entry in std::fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            if path == self.path("bin") {
                continue;
            }
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) }
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
        for name in ["shared", "work"] {
            std::fs::create_dir(self.path(name))?;
        }
        Ok(())
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A path in it, as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// What no value may ever make.
    pub fn sentinel(&self) -> PathBuf {
        self.path("sentinel")
    }

    /// A site whose paths are here.
    pub fn site(&self) -> Site {
        Site {
            account: Some("research".into()),
            partition: Some("main".into()),
            shared_dir: Some(self.text("shared")),
            workdir: Some(self.text("work")),
            rank_binary: Some(self.text("bin/worker/train")),
            torch_lib: Some(self.text("shared")),
            recipe: Some("recipe".into()),
            hf_model: Some("org/model".into()),
            config: Some("recipe.yaml".into()),
            titan_module: Some("llama3".into()),
            titan_config: Some("llama3_8b".into()),
            container: Some(Container::None),
            ..Site::default()
        }
    }

    /// Runs a script as sbatch's shell would, with a few variables besides Slurm's.
    pub fn run(&self, script: &str, variables: &[(&str, &str)]) -> Result<Output> {
        let path = self.path("script.sh");
        std::fs::write(&path, script)?;
        let _ = std::fs::remove_file(self.path("calls"));
        let here = self.folder.path().display().to_string();
        let programs = format!("{}:/usr/bin:/bin", self.text("bin"));
        let mut command = Command::new("timeout");
        command.arg("60").arg("bash").arg(&path).current_dir(self.folder.path()).env_clear();
        for (name, value) in [
            ("PATH", programs.as_str()),
            ("STAGE", &here),
            ("HOME", &here),
            ("TMPDIR", &here),
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

    /// The calls of the last run, in their order.
    pub fn calls(&self) -> Result<Vec<Call>> {
        let Ok(bytes) = std::fs::read(self.path("calls")) else { return Ok(Vec::new()) };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut fields = text.split_terminator('\0').map(str::to_owned);
        let mut calls = Vec::new();
        while let Some(program) = fields.next() {
            let folder = fields.next().context("a record without a folder")?;
            let count: usize = fields.next().context("a record without a number")?.parse()?;
            let arguments: Vec<String> = fields.by_ref().take(count).collect();
            ensure!(arguments.len() == count, "a record of {program} ends early");
            let environment = fields
                .by_ref()
                .take_while(|field| field != "END")
                .filter_map(|field| {
                    field.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
                })
                .collect();
            calls.push(Call { program, arguments, folder, environment });
        }
        Ok(calls)
    }

    /// Files that the last run has made, by their paths, with what is in them.
    pub fn files(&self) -> Result<BTreeMap<String, String>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder)? {
                let path = entry?.path();
                if ["bin", "calls", "script.sh"].iter().any(|name| path == self.path(name)) {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else if std::fs::read_link(&path).is_ok_and(|to| to.starts_with(self.path("bin"))) {
                    // A program that was put where a value says.
                } else {
                    let content = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
                    files.insert(path.display().to_string(), content);
                }
            }
        }
        Ok(files)
    }
}
