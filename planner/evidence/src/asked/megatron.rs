//! Runs of Megatron: Megatron-DeepSpeed (vTrain), Korthikanti et al., Megatron-Core 0.14 (SimuMax).

use serde_json::{Value, json};

use super::Asked;
use super::row::Row;
use crate::simumax as readings;

/// GPT with learned positions; 51,200 words, as those papers say.
fn gpt(layers: u64, hidden: u64, heads: u64) -> Value {
    json!({"architecture": {
        "num_layers": layers, "hidden_size": hidden, "ffn_hidden_size": 4 * hidden, "vocab_size": 51_200,
        "attention": {"kind": "gqa", "heads": heads, "kv_heads": heads, "head_dim": hidden / heads.max(1), "qkv_bias": true,
            "out_bias": true},
        "gated": false, "activation": "gelu", "mlp_bias": true, "norm": "layer", "tied_embeddings": true
    }})
}

/// A cluster of A100 in nodes of eight, or in a part of one.
fn a100(gpus: u64) -> Value {
    let node = gpus.min(8);
    json!({"gpu": "a100-80gb-sxm", "nodes": gpus / node, "gpus_per_node": node})
}

pub(super) fn vtrain(row: &Row, _: &Value) -> Option<Asked> {
    let milliseconds = row.real("iteration_time_ms")?;
    let family = format!("gpt {} x {}", row.size("num_layers"), row.size("hidden_size"));
    Some(Asked::new(row, family, vtrain_file(row), milliseconds / 1e3))
}

fn vtrain_file(row: &Row) -> Result<Value, String> {
    Ok(json!({
        "version": 1, "model": gpt(row.need("num_layers")?, row.need("hidden_size")?, row.need("num_attention_heads")?),
        "cluster": a100(row.need("gpus")?),
        "layout": {"tp": row.need("tp")?, "pp": row.need("pp")?, "sp": false},
        "training": {"seq_len": row.need("seq_len")?, "micro_batch_size": row.need("mbs")?,
            "global_batch_size": row.need("gbs")?, "dtype": "fp16", "grad_dtype": "fp16",
            "optimizer": {"distributed": false}, "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1},
            "cross_entropy": "unfused"},
        "software": {"profile": "megatron-deepspeed-2021"}
    }))
}

pub(super) fn korthikanti(row: &Row, _: &Value) -> Option<Asked> {
    let seconds = row.real("measured_iteration_time_s")?;
    Some(Asked::new(row, row.text("model").to_owned(), korthikanti_file(row), seconds))
}

fn korthikanti_file(row: &Row) -> Result<Value, String> {
    let recompute = match row.text("recompute") {
        "full" => json!({"granularity": "full", "method": "uniform", "num_layers": 1}),
        _ => json!({"granularity": "selective", "modules": ["core_attn"]}),
    };
    Ok(json!({
        "version": 1, "model": gpt(row.need("num_layers")?, row.need("hidden_size")?, row.need("num_attention_heads")?),
        "cluster": a100(row.need("gpus")?),
        "layout": {"tp": row.size("tp"), "pp": row.size("pp"), "vpp": row.size("vpp"),
            "sp": row.flag("sequence_parallel") && row.size("tp") > 1},
        "training": {"seq_len": row.need("seq_len")?, "micro_batch_size": row.need("mbs")?,
            "global_batch_size": row.need("gbs")?, "dtype": "fp16", "grad_dtype": "fp32",
            "optimizer": {"distributed": false}, "recompute": recompute, "cross_entropy": "unfused"},
        "software": {"profile": "megatron-2022"}
    }))
}

/// SimuMax's runs, by the plan that their memory is scored by, too.
pub(super) fn simumax(row: &Row, _: &Value) -> Option<Asked> {
    let milliseconds = row.real("measured_step_time_ms")?;
    let file = readings::plan_file(row.fields()).map(|mut file| {
        file["software"]["profile"] = "megatron-core-0.14".into();
        file
    });
    Some(Asked::new(row, row.text("model").to_owned(), file, milliseconds / 1e3))
}
