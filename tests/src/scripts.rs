//! Scripts for plans x sites x modes x bodies, as planner writes them, for whoever reads scripts: bash, shellcheck, the
//! linter, `sbatch --test-only`.

use anyhow::{Result, ensure};
use planner::finding::has_error;
use planner::launch::{Body, GpuRequest, ScriptOptions, Site, script};
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
    /// Nodes in all.
    pub nodes: u64,
}

/// Every combination that planner writes without an error, byte for byte the same each time.
pub fn combinations() -> Result<Vec<Written>> {
    let mut all = Vec::new();
    for (plan_name, value) in plans() {
        let file = parse_plan(&value.to_string())
            .map_err(|findings| anyhow::anyhow!("{plan_name} is not a plan file: {findings:?}"))?;
        let resolved = Plan::resolve(&file);
        ensure!(resolved.plan.is_some(), "{plan_name} is not a plan: {:?}", resolved.findings);
        let Some(plan) = resolved.plan else { continue };
        let has_gpus = plan.cluster.gpu.id != "cpu";
        for (site_name, site) in sites() {
            for (kind, options) in kinds() {
                let (script, findings) = script(&plan, &site, options);
                if !has_error(&findings) {
                    all.push(Written {
                        name: format!("{plan_name} {site_name} {kind}"),
                        script,
                        gpus_per_node: if has_gpus { plan.cluster.gpus_per_node } else { 0 },
                        nodes: plan.cluster.nodes,
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
        recipe: Some("some_recipe".into()),
        ..Site::default()
    };
    let pyxis = Site {
        image: Some("/lustre/team/images/train.sqsh".into()),
        mounts: vec!["/lustre/team:/lustre/team".into(), "/lustre/team/src:/opt/Megatron-Bridge".into()],
        ..plain.clone()
    };
    let gres =
        Site { gpus: GpuRequest::Gres, mpi: Some("none".into()), exclusive: Some(false), ..plain.clone() };
    vec![("empty", Site::default()), ("plain", plain), ("pyxis", pyxis), ("gres", gres)]
}

fn kinds() -> Vec<(&'static str, ScriptOptions)> {
    vec![
        ("srun worker", ScriptOptions { body: Body::Worker, ..ScriptOptions::default() }),
        ("srun bridge", ScriptOptions { body: Body::Bridge, ..ScriptOptions::default() }),
    ]
}
