//! Scripts for plans x sites x modes x bodies, as planner writes them, for whoever reads scripts: bash, shellcheck, the
//! linter, `sbatch --test-only`.

use anyhow::{Result, ensure};
use batch::launch::{Body, Container, Environment, GpuRequest, Mode, Profile, ScriptOptions, Site, Task};
use frameworks::script;
use planner::finding::has_error;
use planner::wire::{GoingOn, OnFailure};
use planner::{Plan, parse_plan};
use serde_json::{Value, json};

/// A script and what its header asks for.
#[derive(Debug, Clone)]
pub struct Written {
    /// Names of plan, site, mode and body.
    pub name: String,
    /// The script.
    pub script: String,
    /// GPUs that each node must have; 0 for a plan without GPUs.
    pub gpus_per_node: u64,
    /// Nodes in all, those that stand by among them.
    pub nodes: u64,
}

/// Every combination that planner writes without an error, byte for byte the same each time.
pub fn combinations() -> Result<Vec<Written>> {
    written(plans(), &sites(), kinds)
}

/// Scripts on a site that adds to them, and of plans with failed GPUs.
pub fn with_additions() -> Result<Vec<Written>> {
    let (_, plain) = sites().remove(1);
    let adds = Site {
        extra_args: vec!["--name".into(), "two words".into()],
        prologue: vec!["ulimit -n 65536".into(), "export OWN=1".into()],
        data_path: Some("/lustre/team/data/a b".into()),
        pretrained: Some("/lustre/team/base".into()),
        trust_remote_code: true,
        failed_nodes: Some("node[07,09]".into()),
        exclude: Some("node[01-02]".into()),
        ..plain
    };
    let failed = |layout: Value| {
        let failed = json!([{"node": 1, "gpu": 3}, {"node": 3, "gpu": 0}, {"node": 3, "gpu": 4}]);
        json!({
            "version": 1, "model": {"preset": "llama-3-8b"}, "layout": layout,
            "cluster": {"gpu": "h100-sxm", "nodes": 4, "gpus_per_node": 8, "failed": failed},
        })
    };
    let plans =
        [("tp8", json!({"tp": 8})), ("tp4", json!({"tp": 4})), ("tp2-pp2", json!({"tp": 2, "pp": 2}))];
    let plans = plans.map(|(name, layout)| (name, failed(layout))).to_vec();
    written([plans, self::plans()].concat(), &[("adds", adds)], kinds)
}

fn written(
    plans: Vec<(&'static str, Value)>,
    sites: &[(&'static str, Site)],
    kinds: impl Fn() -> Vec<(String, ScriptOptions)>,
) -> Result<Vec<Written>> {
    let mut all = Vec::new();
    for (plan_name, value) in plans {
        let file = parse_plan(&value.to_string())
            .map_err(|findings| anyhow::anyhow!("{plan_name} is not a plan file: {findings:?}"))?;
        let resolved = Plan::resolve(&file);
        ensure!(resolved.plan.is_some(), "{plan_name} is not a plan: {:?}", resolved.findings);
        let Some(plan) = resolved.plan else { continue };
        let has_gpus = !plan.cluster.gpu.is_cpu();
        for (site_name, site) in sites {
            for (kind, options) in kinds() {
                let (script, findings) = script(&plan, site, &options);
                if !has_error(&findings) {
                    all.push(Written {
                        name: format!("{plan_name} {site_name} {kind}"),
                        script,
                        gpus_per_node: if has_gpus { plan.cluster.gpus_per_node } else { 0 },
                        nodes: plan.cluster.nodes + options.spare_nodes,
                    });
                }
            }
        }
    }
    Ok(all)
}

fn plans() -> Vec<(&'static str, Value)> {
    let plan = |preset: &str, cluster: Value, layout: Value, training: Value| json!({"version": 1, "model": {"preset": preset}, "cluster": cluster, "layout": layout, "training": training});
    let h100 = |nodes: u64| json!({"gpu": "h100-sxm", "nodes": nodes, "gpus_per_node": 8});
    vec![
        (
            "tiny",
            plan(
                "tiny-dense",
                json!({"gpu": "cpu", "nodes": 2, "gpus_per_node": 2}),
                json!({"tp": 2}),
                json!({"seq_len": 32, "global_batch_size": 4, "dtype": "fp32"}),
            ),
        ),
        (
            "saving",
            json!({
                "version": 1, "model": {"preset": "tiny-dense"}, "runtime": "native", "layout": {"tp": 2},
                "cluster": {"gpu": "cpu", "nodes": 2, "gpus_per_node": 2},
                "training": {"seq_len": 32, "global_batch_size": 4, "dtype": "fp32"},
                "run": {"steps": 20, "checkpoint": {"every_steps": 5}},
            }),
        ),
        ("one-node", plan("llama-3-8b", h100(1), json!({"tp": 2}), json!({}))),
        ("minimax-64", plan("minimax-m2", h100(8), json!({"tp": 2, "ep": 32}), json!({}))),
        ("mixtral-32", plan("mixtral-8x7b", h100(4), json!({"tp": 2, "pp": 4, "ep": 4}), json!({}))),
        (
            "gb200-72",
            plan(
                "llama-3-70b",
                json!({"gpu": "gb200", "nodes": 18, "gpus_per_node": 4, "nvlink_domain": 72}),
                json!({"tp": 4}),
                json!({"global_batch_size": 288}),
            ),
        ),
    ]
}

fn sites() -> Vec<(&'static str, Site)> {
    let plain = Site {
        account: Some("research".into()),
        partition: Some("main".into()),
        shared_dir: Some("/lustre/team".into()),
        rank_binary: Some("/lustre/team/bin/shardplan-rank".into()),
        torch_lib: Some("/lustre/team/torch/lib".into()),
        workdir: Some("/lustre/team/src".into()),
        recipe: Some("some_recipe".into()),
        hf_model: Some("MiniMaxAI/MiniMax-M2".into()),
        config: Some("examples/llm_pretrain/recipe.yaml".into()),
        titan_module: Some("llama3".into()),
        titan_config: Some("llama3_8b".into()),
        ..Site::default()
    };
    let pyxis = Site {
        image: Some("/lustre/team/images/train.sqsh".into()),
        mounts: vec!["/lustre/team:/lustre/team".into(), "/lustre/team/src:/opt/Megatron-Bridge".into()],
        environment: Some(Environment::NodeLocal),
        required_env: vec!["HF_TOKEN".into()],
        ..plain.clone()
    };
    let gres = Site {
        gpus: GpuRequest::Gres,
        mpi: Some("none".into()),
        exclusive: Some(false),
        requeue: Some(true),
        retries: 2,
        signal: Some("USR1@120".into()),
        modules: vec!["cuda/12.9".into()],
        ..plain.clone()
    };
    let apptainer = Site {
        image: Some("/lustre/team/images/train.sif".into()),
        container: Some(Container::Apptainer),
        gpus: GpuRequest::Nothing,
        numa_bind: true,
        cpus_per_task: Some(4),
        ..plain.clone()
    };
    let runspec = Site {
        profile: Some(Profile::NemoRunspec),
        required_env: vec!["HF_TOKEN".into(), "WANDB_API_KEY".into()],
        image: Some("/lustre/team/images/train.sqsh".into()),
        ..plain.clone()
    };
    vec![
        ("empty", Site::default()),
        ("plain", plain),
        ("pyxis", pyxis),
        ("gres", gres),
        ("apptainer", apptainer),
        ("nemo-runspec", runspec),
    ]
}

/// Modes, bodies, tasks, an array and two components. Steps of an interactive allocation are not for sbatch, but are
/// scripts all the same.
fn kinds() -> Vec<(String, ScriptOptions)> {
    let mut all = Vec::new();
    for mode in [Mode::Srun, Mode::Torchrun] {
        for body in Body::ALL {
            let command = if body == Body::Command {
                ["python", "train.py", "--steps", "3"].map(str::to_owned).to_vec()
            } else {
                Vec::new()
            };
            let options = ScriptOptions { mode, body, command, ..ScriptOptions::default() };
            all.push((format!("{} {}", mode.name(), body.name()), options));
        }
    }
    for task in [Task::Convert, Task::Generate] {
        let options = ScriptOptions { body: Body::Bridge, task, ..ScriptOptions::default() };
        all.push((format!("srun bridge {}", task.name()), options));
    }
    for body in [Body::Bridge, Body::Mlm, Body::Worker, Body::Automodel, Body::Torchtitan] {
        let options = ScriptOptions { body, array: Some("0-3%2".into()), ..ScriptOptions::default() };
        all.push((format!("array {}", body.name()), options));
    }
    // Of the plan with two nodes.
    for body in [Body::Bridge, Body::Mlm, Body::Worker] {
        let options = ScriptOptions { body, het: Some("1:main,1:batch".into()), ..ScriptOptions::default() };
        all.push((format!("het {}", body.name()), options));
    }
    // Of plans that save: their runs go on in the allocation.
    for (on_failure, spare_nodes) in [(OnFailure::Drop, 1), (OnFailure::Ntp, 0), (OnFailure::Spare, 2)] {
        let going_on = GoingOn { on_failure, ..GoingOn::STOP };
        let options = ScriptOptions { body: Body::Worker, going_on, spare_nodes, ..ScriptOptions::default() };
        all.push((format!("srun {} and {spare_nodes} nodes beside, worker", on_failure.name()), options));
    }
    let startup = vec!["module list".to_owned(), "export X=1".to_owned()];
    let command = vec!["./train".to_owned()];
    let options = ScriptOptions { body: Body::Command, command, startup, ..ScriptOptions::default() };
    all.push(("srun command with startup".to_owned(), options));
    all
}

/// The steps of interactive allocations, by the same plans and sites.
pub fn salloc_steps() -> Result<Vec<Written>> {
    written(plans(), &sites(), || {
        let steps = |body: Body| {
            let command = if body == Body::Command { vec!["./train".to_owned()] } else { Vec::new() };
            let options = ScriptOptions { mode: Mode::Salloc, body, command, ..ScriptOptions::default() };
            (format!("salloc {}", body.name()), options)
        };
        Body::ALL.map(steps).to_vec()
    })
}
