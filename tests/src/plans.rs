//! Plans that the tests run.

use anyhow::{Result, anyhow};
use planner::wire::PlanFile;
use serde_json::{Value, json};

/// A plan from its JSON.
pub fn plan(value: &Value) -> Result<PlanFile> {
    planner::parse_plan(&value.to_string())
        .map_err(|findings| anyhow!("the test's plan is not one: {findings:?}"))
}

/// Four ranks, DP2 x TP2, of a model that takes a second a step on two cores.
pub fn four_ranks(dtype: &str, steps: u64) -> Value {
    json!({
        "version": 1,
        "name": format!("four ranks in {dtype}"),
        "model": {"preset": "tiny-dense"},
        "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 4},
        "runtime": "native",
        "layout": {"tp": 2},
        "training": {"seq_len": 64, "micro_batch_size": 1, "global_batch_size": 4, "dtype": dtype},
        "run": {"steps": steps, "lr": 1e-3},
    })
}
