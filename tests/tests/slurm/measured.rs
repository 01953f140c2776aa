//! Scripts of other frameworks bring their measurement back: with the program, without it, and switched off.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use batch::launch::{Body, Container, Environment, Mode, ScriptOptions, Site};
use frameworks::script;
use planner::finding::has_error;
use planner::wire::{Event, PlanFile};
use planner::{Plan, parse_plan};
use serde_json::json;
use system_tests::programs::program;
use system_tests::run_folder::records;
use system_tests::slurm::{GPUS_PER_NODE, NODES, Slurm};
use system_tests::wait::LONG;

/// A `python` that starts ranks as torchrun does, and prints on the last of them what Megatron-LM prints.
const PYTHON: &str = r#"#!/bin/bash
if [ "${1-} ${2-}" = "-m torch.distributed.run" ]; then
  shift 2
  count=1 node=0 nodes=1
  while [ "${1#--}" != "$1" ]; do
    case $1 in
      --nproc_per_node=*) count=${1#*=} ;;
      --node_rank=*) node=${1#*=} ;;
      --nnodes=*) nodes=${1#*=} ;;
    esac
    shift
  done
  for ((local = 0; local < count; local++)); do
    RANK=$((node * count + local)) WORLD_SIZE=$((nodes * count)) "$0" "$@" &
  done
  status=0
  for ((local = 0; local < count; local++)); do
    wait -n || status=$?
  done
  exit "$status"
fi
if [ "$RANK" -eq $((WORLD_SIZE - 1)) ]; then
  for i in 1 2 3; do
    printf ' iteration %8d/%8d | consumed samples: %12d | elapsed time per iteration (ms): 250.0 | learning rate: 1.000E-04 | global batch size:     4 | lm loss: 2.5E+00 | grad norm: 1.0 |\n' $i 3 $i
  done
  echo "arguments $#"
  exit "${LAST_RANK-0}"
fi
"#;

struct Job {
    slurm: &'static Slurm,
    folder: PathBuf,
    plan: Plan,
    site: Site,
    mode: Mode,
    variables: Vec<(&'static str, &'static str)>,
}

impl Job {
    fn new(name: &str, mode: Mode) -> Result<Job> {
        let slurm = Slurm::shared()?;
        let folder = slurm.shared_folder(name)?;
        for sub in ["logs", "programs", "bin", "work dir"] {
            std::fs::create_dir(folder.join(sub))?;
        }
        let python = folder.join("programs/python");
        std::fs::write(&python, PYTHON)?;
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755))?;
        let plan = json!({
            "version": 1, "name": "größer \"quoted\" $HOME `id`",
            "model": {"preset": "tiny-dense"},
            "cluster": {"gpu": "h100-sxm", "nodes": NODES.len(), "gpus_per_node": GPUS_PER_NODE},
            "layout": {"tp": 2}, "training": {"seq_len": 64, "micro_batch_size": 1, "global_batch_size": 4},
        });
        let file = parse_plan(&plan.to_string()).map_err(|findings| anyhow!("{findings:?}"))?;
        let resolved = Plan::resolve(&file);
        let plan = resolved.plan.with_context(|| format!("{:?}", resolved.findings))?;
        let site = Site {
            shared_dir: Some(folder.display().to_string()),
            workdir: Some(folder.join("work dir").display().to_string()),
            container: Some(Container::None),
            environment: Some(Environment::None),
            mpi: Some("none".into()),
            job_name: Some("measured".into()),
            account: Some("research".into()),
            partition: Some("compute".into()),
            ..Site::default()
        };
        Ok(Job { slurm, folder, plan, site, mode, variables: Vec::new() })
    }

    /// Puts the program where scripts look for it.
    fn with_program(self) -> Result<Job> {
        symlink(program("shardplan")?, self.folder.join("bin/shardplan"))?;
        Ok(self)
    }

    /// Runs it: state, exit code, what was printed.
    async fn run(&self) -> Result<(String, String, String)> {
        let options = ScriptOptions { mode: self.mode, body: Body::Mlm, ..ScriptOptions::default() };
        let (text, findings) = script(&self.plan, &self.site, &options);
        ensure!(!has_error(&findings), "{findings:?}");
        let path = self.folder.join("job.sbatch");
        std::fs::write(&path, text)?;
        let job = self.slurm.submit_with(&path, &self.folder, |sbatch: &mut Command| {
            let path = std::env::var("PATH").unwrap_or_default();
            sbatch.env("PATH", format!("{}:{path}", self.folder.join("programs").display()));
            sbatch.envs(self.variables.iter().copied());
        })?;
        let (state, code) = self.slurm.finished(&job, LONG).await?;
        let logs = std::fs::read_dir(self.folder.join("logs"))?.flatten();
        let printed = logs.map(|log| std::fs::read_to_string(log.path()).unwrap_or_default()).collect();
        Ok((state, code, printed))
    }

    /// Folders of runs that were recorded.
    fn runs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.join("measured")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.join(run_folder::INFO).is_file()).collect()
    }
}

fn steps(run: &Path) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(run)?
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "log"))
    {
        found.extend(records(&entry.path())?.into_iter().filter_map(|record| match record.event {
            Event::Iteration(iteration) => Some(iteration.step),
            _ => None,
        }));
    }
    Ok(found)
}

#[tokio::test]
async fn what_a_job_measures_stands_beside_its_plan() -> Result<()> {
    for mode in [Mode::Srun, Mode::Torchrun] {
        let job = Job::new(&format!("measured-{}", mode.name()), mode)?.with_program()?;
        let (state, code, printed) = job.run().await?;
        ensure!(state == "COMPLETED" && code == "0:0", "{state} {code}: {printed}");
        let runs = job.runs();
        ensure!(runs.len() == 1, "{runs:?}: {printed}");
        ensure!(steps(&runs[0])? == [1, 2, 3], "{printed}");
        // The plan came through here-document, file and record as it is.
        let text = std::fs::read_to_string(runs[0].join("plan.json"))?;
        let plan: PlanFile = serde_json::from_str(&text)?;
        ensure!(serde_json::to_value(&plan)? == serde_json::to_value(&job.plan.file)?, "{text}");
        let info: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(runs[0].join("run.json"))?)?;
        ensure!(info["source"]["plan"] == "file" && info["source"]["framework"] == "megatron", "{info}");
        ensure!(printed.contains("predicted") && printed.contains("measured"), "{printed}");
        let arguments =
            printed.lines().find(|line| line.contains("arguments")).context("no last rank")?.to_owned();

        // Without the program, and switched off at submission, the job is the same and leaves no record.
        let without = Job::new(&format!("unmeasured-{}", mode.name()), mode)?;
        let mut off = Job::new(&format!("switched-off-{}", mode.name()), mode)?.with_program()?;
        off.variables.push(("SHARDPLAN_MEASURE", "no"));
        for job in [without, off] {
            let (state, code, printed) = job.run().await?;
            ensure!(state == "COMPLETED" && code == "0:0", "{state} {code}: {printed}");
            ensure!(job.runs().is_empty() && printed.lines().any(|line| line == arguments), "{printed}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_watched_rank_that_fails_fails_its_job_and_a_program_that_is_broken_is_left_alone() -> Result<()> {
    let mut job = Job::new("measured-fails", Mode::Srun)?.with_program()?;
    job.variables.push(("LAST_RANK", "7"));
    let (state, code, printed) = job.run().await?;
    ensure!(state == "FAILED" && code == "7:0", "{state} {code}: {printed}");
    ensure!(job.runs().len() == 1, "{printed}");

    let job = Job::new("measured-broken", Mode::Srun)?;
    let other = job.folder.join("bin/shardplan");
    std::fs::write(&other, "#!/bin/sh\necho 'no such option' >&2\nexit 2\n")?;
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755))?;
    let (state, code, printed) = job.run().await?;
    ensure!(state == "COMPLETED" && code == "0:0" && job.runs().is_empty(), "{state} {code}: {printed}");
    Ok(())
}
