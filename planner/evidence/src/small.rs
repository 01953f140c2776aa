//! Small published tables: peaks of one MoE layer alone, and rows that say too little to be planned.

use serde_json::{Value, json};

use super::runs::{Row, rows};
use super::{Dataset, Scores, plan_of};
use planner::memory;

/// Megatron-Core's benchmark of one layer of experts: weights, saved tensors and temporaries, no optimizer.
pub(super) fn expert_layers(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    let mut scores = Scores::default();
    for row in rows(name, text)? {
        let row = Row(&row);
        let Some(measured) = row.real("max_allocated_bytes") else {
            scores.excluded += 1;
            continue;
        };
        match plan(&row).and_then(|file| plan_of(&file)) {
            Err(reason) => scores.unmapped(&row.label(), &reason),
            Ok(plan) => scores.row(&row.label(), memory::expert_layer_bytes(&plan) as f64, measured),
        }
    }
    Ok(vec![scores.into_dataset(name, "peak_bytes")])
}

fn plan(row: &Row<'_>) -> Result<Value, String> {
    let precision = match row.text("precision") {
        "fp8" => "fp8_blockwise",
        "bf16" => "bf16",
        other => return Err(format!("precision `{other}` is unknown")),
    };
    let dispatcher = if row.text("dispatcher") == "a2a" { "alltoall" } else { "flex" };
    let hidden = row.need("hidden_size")?;
    Ok(json!({
        "version": 1,
        "model": {"architecture": {
            "num_layers": 1, "hidden_size": hidden, "ffn_hidden_size": row.need("moe_ffn")?, "vocab_size": 1024,
            "attention": {"kind": "gqa", "heads": hidden / 128, "kv_heads": hidden / 128, "head_dim": 128},
            "gated": false, "activation": "gelu",
            "moe": {
                "experts": row.need("num_experts")?, "top_k": row.need("topk")?, "ffn_hidden_size": row.need("moe_ffn")?,
                // The benchmark's configuration names a shared expert but never hands it to the layer.
                "routing": {"balance": "forced"}
            }
        }},
        "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": row.need("gpus")?},
        "layout": {"tp": row.degree("tp"), "ep": row.degree("ep"), "etp": row.degree("etp")},
        "training": {
            "seq_len": row.need("seq_len")?, "micro_batch_size": row.degree("mbs"),
            "global_batch_size": row.degree("mbs") * row.need("gpus")?, "dtype": precision,
            "moe": {"dispatcher": dispatcher, "grouped_gemm": true, "fused_activation": false}
        }
    }))
}

/// Tables beside other estimators: none of their rows says what a plan needs, so each is named with what it lacks.
pub(super) fn estimator_table(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    let mut scores = Scores::default();
    for row in rows(name, text)? {
        let row = Row(&row);
        let lacking = if row.size("seq_len").is_none() {
            "the row does not say seq_len, and its source disputes it".to_owned()
        } else {
            format!("the sizes of `{}` are not said, nor are pp and ep", row.text("model"))
        };
        scores.unmapped(&row.label(), &lacking);
    }
    Ok(vec![scores.into_dataset(name, "peak_bytes")])
}
