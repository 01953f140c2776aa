//! torchtitan's published tables: Llama 3.1 on H100 under FSDP2 with tensor, context and pipeline parallelism.
//!
//! Memory is the largest `reserved_bytes.all.peak` over all GPUs, in GiB (`metrics.py` of 2024-12). Then: norm, embedding
//! and output layer in the root, fp32 logits in the loss, selective checkpoints by operator, micro batches of a pipeline
//! as many as its stages, reduction after the last of them.

use serde_json::{Value, json};

use super::Dataset;
use super::asked::{self, Asked};
use super::runs::{Column, Row, score_peaks};

/// The release of these runs.
const TORCHTITAN: &str = "torchtitan 0.2";
/// Its H100 have 96 GB of HBM2e and 500 W.
const GPU: &str = "h100-500w";
const GIB: f64 = (1u64 << 30) as f64;

pub(super) fn score(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    score_peaks(name, text, Column::Reserved, |row| Some(row.real("peak_memory_gib")? * GIB), plan)
}

/// A row as a plan file.
pub(super) fn asked(row: &asked::row::Row, _: &Value) -> Option<Asked> {
    let text = Row(row.fields());
    let tokens = row.real("tokens_per_s_per_gpu")? * text.degree("gpus") as f64;
    let label = format!("{} on {} GPUs", text.label(), text.degree("gpus"));
    Some(Asked::by_rate(row, row.text("model").to_owned(), run(&text), tokens)?.labelled(label))
}

/// A row's plan file with all that it says of its step.
fn run(row: &Row<'_>) -> Result<Value, String> {
    if row.text("quantization").ends_with("rowwise") {
        return Err("no plan of FSDP2 can say scales for each row".to_owned());
    }
    let mut file = plan(row)?;
    file["software"]["framework"] = TORCHTITAN.into();
    file["training"]["overlap"] = json!({"tp": row.flag("async_tp")});
    Ok(file)
}

/// Preset and layers of a model.
fn model(row: &Row<'_>) -> Result<(&'static str, u64), String> {
    match row.text("model") {
        "llama3_1_8b" => Ok(("llama-3-8b", 32)),
        "llama3_1_70b" => Ok(("llama-3-70b", 80)),
        "llama3_1_405b" => Ok(("llama-3.1-405b", 126)),
        other => Err(format!("model `{other}` has no preset")),
    }
}

/// torchtitan's own split of layers over virtual stages: the first gets the quotient, those after it one more while
/// layers are left (`generate_split_points`), as a layout string.
fn pipeline_layout(layers: u64, stages: u64) -> String {
    let (each, mut extra) = (layers / stages, layers % stages);
    let mut counts = vec![each];
    for _ in 1..stages.saturating_sub(1) {
        counts.push(each + u64::from(extra > 0));
        extra = extra.saturating_sub(1);
    }
    counts.push(layers - counts.iter().sum::<u64>());
    let parts: Vec<String> = counts.iter().map(|count| format!("t*{count}")).collect();
    format!("E{}L", parts.join("|"))
}

fn plan(row: &Row<'_>) -> Result<Value, String> {
    let (preset, layers) = model(row)?;
    let (tp, pp, cp) = (row.degree("tp"), row.degree("pp"), row.degree("cp"));
    let gpus = row.need("gpus")?;
    let schedule = row.text("pp_schedule");
    let vpp = if schedule.starts_with("Interleaved") { 2 } else { 1 };
    let local = row.size("mbs").map_or_else(|| row.need("local_batch"), Ok)?;
    if pp > 1 && !local.is_multiple_of(pp) {
        return Err(format!("a local batch of {local} does not divide into {pp} micro batches"));
    }
    let recompute = match row.text("ac") {
        "full" => json!({"granularity": "full", "method": "uniform", "num_layers": 1}),
        "selective" | "per-op selective" => json!({"granularity": "selective"}),
        "none" => json!({}),
        other => return Err(format!("activation checkpoints `{other}` are unknown")),
    };
    // `float8.py`: parameters are gathered in 8 bits where the data-parallel degree itself shards them, and the 405B's
    // configuration asks for it.
    let float8 = row.flag("float8") || row.text("quantization").starts_with("float8");
    let dtype = if float8 { "fp8_current" } else { "bf16" };
    let gathers_float8 = float8 && row.degree("fsdp") > 1;
    let mut layout = json!({
        "tp": tp, "cp": cp, "pp": pp,
        "fsdp": {"checkpoint_selects": "matmuls", "compile": row.flag("compile")}
    });
    if pp > 1 {
        layout["vpp"] = vpp.into();
        layout["pipeline_layout"] = pipeline_layout(layers, pp * vpp).into();
    }
    Ok(json!({
        "version": 1, "model": {"preset": preset},
        "cluster": {"gpu": GPU, "nodes": gpus.div_ceil(8), "gpus_per_node": gpus.min(8)},
        "runtime": "fsdp2", "layout": layout,
        "training": {
            "seq_len": row.size("seq_len").unwrap_or(8192), "micro_batch_size": local / pp,
            "global_batch_size": local * gpus / (tp * pp * cp), "recompute": recompute,
            "dtype": dtype, "fp8_param_gather": gathers_float8
        },
        // Its launch script sets it.
        "software": {"expandable_segments": true}
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_over_stages() {
        assert_eq!(pipeline_layout(126, 8), "Et*15|t*16|t*16|t*16|t*16|t*16|t*16|t*15L");
        assert_eq!(pipeline_layout(4, 2), "Et*2|t*2L");
    }
}
