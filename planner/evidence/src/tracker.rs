//! Buffers of FSDP2 against torch's FSDPMemTracker: bytes of gathered parameters, of gathers and of reductions under
//! way at the fullest moment of forward and backward.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Dataset, Scores, plan_of};
use planner::memory::{LayerTerms, Moment, moments};

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    model: Model,
    mesh: Vec<u64>,
    micro_batch: u64,
    seq: u64,
    grad_accumulation: u64,
    #[serde(default = "every")]
    sync_every: bool,
    reshard_after_forward_layers: Value,
    param_dtype: String,
    reduce_dtype: String,
    activation_checkpoint: String,
    peak_bytes_fwd_bwd: Peak,
}

fn every() -> bool {
    true
}

#[derive(Deserialize)]
struct Model {
    hidden: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    ffn: u64,
    layers: u64,
    vocab: u64,
}

#[derive(Deserialize)]
struct Peak {
    #[serde(rename = "Unsharded Param")]
    unsharded: u64,
    #[serde(rename = "All Gather")]
    gather: u64,
    #[serde(rename = "Reduce Scatter")]
    scatter: u64,
}

pub(super) fn score(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    let file: File = serde_json::from_str(text)
        .map_err(|error| format!("{name}.json is not a file of FSDPMemTracker cases: {error}"))?;
    let mut scores = Scores::default();
    for case in &file.cases {
        match predict(case) {
            Err(reason) => scores.unmapped(&case.name, &reason),
            Ok(found) => {
                let peak = &case.peak_bytes_fwd_bwd;
                let wanted = [peak.unsharded, peak.gather, peak.scatter].map(u128::from);
                let (sum, measured) = (found.iter().sum::<u128>(), wanted.iter().sum::<u128>());
                scores.bytes(sum as f64, measured as f64);
                if found == wanted {
                    scores.equal += 1;
                } else {
                    scores.notes.push(format!("{}: predicted {found:?}, torch has {wanted:?}", case.name));
                }
            }
        }
    }
    Ok(vec![scores.into_dataset(name, "buffer_bytes")])
}

/// Gathered parameters, gathers, reductions at the fullest moment before the optimizer.
fn predict(case: &Case) -> Result<[u128; 3], String> {
    let plan = plan_of(&plan_file(case)?)?;
    let all = moments(&LayerTerms::new(&plan), 0);
    let fullest = all
        .iter()
        // Where there are no streams nothing is gathered ahead in forward.
        .filter(|moment| !matches!(moment.phase, "optimizer" | "forward"))
        .max_by(|one, other| one.total().total_cmp(&other.total()))
        .ok_or("the plan has no moments")?;
    let &Moment { unsharded, gather, scatter, .. } = fullest;
    Ok([unsharded, gather, scatter].map(u128::from))
}

fn dtype(name: &str) -> Result<&'static str, String> {
    match name {
        "bfloat16" => Ok("bf16"),
        "float16" => Ok("fp16"),
        "float32" => Ok("fp32"),
        other => Err(format!("dtype `{other}` has no name in plan files")),
    }
}

fn plan_file(case: &Case) -> Result<Value, String> {
    let model = &case.model;
    let world: u64 = case.mesh.iter().product();
    let replicas = if case.mesh.len() > 1 { case.mesh[0] } else { 1 };
    let param = dtype(&case.param_dtype)?;
    let reduce = if case.reduce_dtype == "= param_dtype" { param } else { dtype(&case.reduce_dtype)? };
    let reshard = match &case.reshard_after_forward_layers {
        Value::Bool(true) => json!("always"),
        Value::Bool(false) => json!("never"),
        other => other.clone(),
    };
    let recompute = match case.activation_checkpoint.as_str() {
        "none" => json!({}),
        "full" => json!({"granularity": "full", "method": "uniform", "num_layers": 1}),
        other => return Err(format!("activation checkpoint `{other}` is unknown")),
    };
    Ok(json!({
        "version": 1,
        "model": {"architecture": {
            "num_layers": model.layers, "hidden_size": model.hidden, "ffn_hidden_size": model.ffn,
            "vocab_size": model.vocab,
            "attention": {"kind": "gqa", "heads": model.heads, "kv_heads": model.kv_heads, "head_dim": model.head_dim}
        }},
        "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": world},
        "runtime": "fsdp2",
        "layout": {"dp_replicate": replicas, "fsdp": {
            "reshard_after_forward": reshard, "sharded_dtype": "fp32", "reduce_dtype": reduce, "outer_units": "apart",
            "gradient_sync": if case.sync_every { "every" } else { "last" }
        }},
        "training": {
            "dtype": param, "seq_len": case.seq, "micro_batch_size": case.micro_batch,
            "global_batch_size": case.micro_batch * world * case.grad_accumulation, "recompute": recompute
        }
    }))
}
