//! Worked examples: Megatron Bridge's guide to several nodes, and MiniMax-M2 on four clusters.
//!
//! The guide is the skill `nemo-mbridge-multi-node-slurm` of NVIDIA-NeMo/Megatron-Bridge (commit 067f987).

use serde_json::{Value, json};

use super::body::Body;
use super::options::{Mode, ScriptOptions, Task};
use super::site::{Environment, Site};
use planner::parse::parse_plan;
use planner::wire::PlanFile;

/// A plan with the kind of script that goes with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// What it is, for a list to choose from.
    pub title: &'static str,
    /// The plan.
    pub plan: PlanFile,
    /// The kind of script.
    pub options: ScriptOptions,
    /// What it needs of the site besides accounts and paths.
    pub site: Site,
}

impl Example {
    /// A site with what this example needs.
    pub fn on(&self, site: &Site) -> Site {
        let mut site = site.clone();
        site.hf_model = self.site.hf_model.clone().or(site.hf_model);
        site.environment = self.site.environment;
        site
    }
}

/// What each example is, in the order of [`examples`].
pub const EXAMPLE_TITLES: [&str; 7] = [
    "MiniMax-M2 on 8 GPUs: 64 experts a GPU are too many",
    "MiniMax-M2 on 16 GPUs: weights there and back",
    "MiniMax-M2 on 16 GPUs: inference",
    "MiniMax-M2 on 64 GPUs: training",
    "Megatron Bridge's recipe by torchrun, 4 nodes",
    "Megatron-LM by torchrun, 8 nodes",
    "Generation in an interactive allocation, 1 node",
];

/// All examples.
pub fn examples() -> Vec<Example> {
    let minimax = |nodes: u64, tp: u64, ep: u64| {
        json!({
            "version": 1,
            "name": format!("MiniMax-M2, TP{tp} EP{ep} on {} H100", nodes * 8),
            "model": {"preset": "minimax-m2"},
            "cluster": {"gpu": "h100-sxm", "nodes": nodes, "gpus_per_node": 8},
            "layout": {"tp": tp, "ep": ep, "etp": 1},
        })
    };
    let of =
        |mode: Mode, body: Body, task: Task| ScriptOptions { mode, body, task, ..ScriptOptions::default() };
    let model = Site { hf_model: Some("MiniMaxAI/MiniMax-M2".to_owned()), ..Site::default() };
    let on_nodes = Site { environment: Some(Environment::NodeLocal), ..model.clone() };
    let small = Site { hf_model: Some("Qwen/Qwen3-30B-A3B".to_owned()), ..Site::default() };
    let bridge = |task: Task| of(Mode::Srun, Body::Bridge, task);
    let all: [(Value, ScriptOptions, Site); EXAMPLE_TITLES.len()] = [
        (minimax(1, 2, 4), bridge(Task::Convert), model.clone()),
        (minimax(2, 2, 8), bridge(Task::Convert), model.clone()),
        (minimax(2, 1, 16), bridge(Task::Generate), on_nodes),
        (minimax(8, 2, 32), bridge(Task::Train), model),
        (
            json!({
                "version": 1,
                "name": "Llama 3 70B, TP2 PP4 on 32 H100",
                "model": {"preset": "llama-3-70b"},
                "cluster": {"gpu": "h100-sxm", "nodes": 4, "gpus_per_node": 8},
                "layout": {"tp": 2, "pp": 4},
            }),
            of(Mode::Torchrun, Body::Bridge, Task::Train),
            Site::default(),
        ),
        (minimax(8, 2, 32), of(Mode::Torchrun, Body::Mlm, Task::Train), Site::default()),
        (
            json!({
                "version": 1,
                "name": "Qwen3 30B-A3B, EP8 on 8 H100",
                "model": {"preset": "qwen3-30b-a3b"},
                "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 8},
                "layout": {"ep": 8, "etp": 1},
            }),
            of(Mode::Salloc, Body::Bridge, Task::Generate),
            small,
        ),
    ];
    let example = |(title, (plan, options, site)): (_, (Value, _, _))| {
        parse_plan(&plan.to_string()).ok().map(|plan| Example { title, plan, options, site })
    };
    EXAMPLE_TITLES.into_iter().zip(all).filter_map(example).collect()
}
