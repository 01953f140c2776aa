//! A job of two nodes whose uv and python are stand-ins that write down how they were called.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use batch::launch::{Body, Container, Mode, ScriptOptions, Site};
use frameworks::script;
use planner::finding::has_error;
use planner::{Plan, parse_plan};
use serde_json::json;
use system_tests::slurm::stubs::{Call, Stubs};
use system_tests::slurm::{GPUS_PER_NODE, NODES, Slurm};
use system_tests::wait::{Attempt, LONG, until};

pub const RANKS: u64 = NODES.len() as u64 * GPUS_PER_NODE;

/// A job of two nodes with stand-ins, in a folder of its own.
pub struct Job {
    pub slurm: &'static Slurm,
    pub folder: PathBuf,
    pub stubs: Stubs,
    pub site: Site,
    pub options: ScriptOptions,
    /// Steps of the plan.
    pub steps: u64,
    /// Variables of the shell that submits it.
    pub variables: Vec<(&'static str, &'static str)>,
    /// Failed GPUs of the plan, as its file has them.
    pub failed: serde_json::Value,
}

impl Job {
    pub fn new(name: &str, mode: Mode, body: Body) -> Result<Job> {
        let slurm = Slurm::shared()?;
        let folder = slurm.shared_folder(name)?;
        let stubs = Stubs::new(&folder)?;
        std::fs::create_dir(folder.join("logs"))?;
        let workdir = folder.join("work dir");
        std::fs::create_dir(&workdir)?;
        let site = Site {
            account: Some("research".into()),
            partition: Some("compute".into()),
            shared_dir: Some(folder.display().to_string()),
            workdir: Some(workdir.display().to_string()),
            recipe: Some("some_recipe".into()),
            hf_model: Some("MiniMaxAI/MiniMax-M2".into()),
            config: Some("examples/recipe.yaml".into()),
            titan_module: Some("llama3".into()),
            titan_config: Some("llama3_8b".into()),
            container: Some(Container::None),
            mpi: Some("none".into()),
            ..Site::default()
        };
        let options = ScriptOptions { mode, body, strict: true, ..ScriptOptions::default() };
        let (variables, failed) = (Vec::new(), json!([]));
        Ok(Job { slurm, folder, stubs, site, options, steps: 5, variables, failed })
    }

    /// The script, as `shardplan script --strict` writes it.
    pub fn script(&self) -> Result<String> {
        let plan = json!({
            "version": 1, "name": "payload",
            "model": {"preset": "tiny-dense"},
            "cluster": {"gpu": "h100-sxm", "nodes": NODES.len(), "gpus_per_node": GPUS_PER_NODE, "failed": self.failed},
            "layout": {"tp": 2},
            "training": {"seq_len": 64, "micro_batch_size": 1, "global_batch_size": 4},
            "run": {"steps": self.steps},
        });
        let file = parse_plan(&plan.to_string()).map_err(|findings| anyhow!("{findings:?}"))?;
        let resolved = Plan::resolve(&file);
        let plan = resolved.plan.with_context(|| format!("{:?}", resolved.findings))?;
        let (text, findings) = script(&plan, &self.site, &self.options);
        ensure!(!has_error(&findings), "{findings:?}");
        Ok(text)
    }

    pub fn submit(&self) -> Result<String> {
        let path = self.folder.join("job.sbatch");
        std::fs::write(&path, self.script()?)?;
        self.slurm.submit_with(&path, &self.folder, |sbatch: &mut Command| {
            self.stubs.on_path_of(sbatch);
            sbatch.envs(self.variables.iter().copied());
        })
    }

    /// Runs it to its end: number, state and exit code.
    pub async fn run(&self) -> Result<(String, String, String)> {
        let job = self.submit()?;
        let (state, code) = self.slurm.finished(&job, LONG).await?;
        Ok((job, state, code))
    }

    /// Runs it to a good end, and gives its number and the calls.
    pub async fn completed(&self) -> Result<(String, Vec<Call>)> {
        let (job, state, code) = self.run().await?;
        ensure!(state == "COMPLETED" && code == "0:0", "{state} {code}: {}", self.printed());
        Ok((job, self.stubs.calls()?))
    }

    /// Waits until the job has printed a text so often.
    pub async fn says(&self, text: &str, times: usize) -> Result<()> {
        until(text, LONG, async || {
            let printed = self.printed();
            Ok(if printed.matches(text).count() >= times {
                Attempt::Ready(())
            } else {
                Attempt::NotYet(printed)
            })
        })
        .await
        .with_context(|| self.slurm.logs())
    }

    /// What the job printed.
    pub fn printed(&self) -> String {
        let logs = std::fs::read_dir(self.folder.join("logs")).into_iter().flatten().flatten();
        logs.map(|log| std::fs::read_to_string(log.path()).unwrap_or_default()).collect()
    }
}

/// Calls of a program that begin with these words.
pub fn calls_of<'a>(calls: &'a [Call], program: &str, words: &[&str]) -> Vec<&'a Call> {
    let begins = |call: &&Call| {
        call.program == program
            && call.arguments.iter().zip(words).filter(|(a, b)| a == b).count() == words.len()
    };
    calls.iter().filter(begins).collect()
}

/// The training processes, by rank, and that they are where blocks of ranks put them.
pub fn ranks(calls: &[Call], torchrun: bool) -> Result<Vec<&Call>> {
    let is_launcher =
        |call: &&Call| call.arguments.get(1).is_some_and(|word| word == "torch.distributed.run");
    let mut found: Vec<&Call> =
        calls.iter().filter(|call| call.program == "python" && !is_launcher(call)).collect();
    let rank = |call: &Call| call.variable(if torchrun { "RANK" } else { "SLURM_PROCID" }).parse::<u64>();
    found.sort_by_key(|call| rank(call).unwrap_or(u64::MAX));
    ensure!(found.len() as u64 == RANKS, "{} training processes", found.len());
    for (number, call) in found.iter().enumerate() {
        let (node, local) = (number / 2, number % 2);
        ensure!(rank(call)? == number as u64, "process {number} has rank {}", rank(call)?);
        ensure!(call.host == NODES[node], "rank {number} is on {}", call.host);
        ensure!(call.variable("SLURM_NODEID") == node.to_string(), "rank {number}'s node id");
        let name = if torchrun { "LOCAL_RANK" } else { "SLURM_LOCALID" };
        ensure!(
            call.variable(name) == local.to_string(),
            "rank {number}: {name} is {:?}",
            call.variable(name)
        );
        let (name, world) = if torchrun { ("WORLD_SIZE", RANKS) } else { ("SLURM_NTASKS", RANKS) };
        ensure!(
            call.variable(name) == world.to_string(),
            "rank {number}: {name} is {:?}",
            call.variable(name)
        );
    }
    Ok(found)
}
