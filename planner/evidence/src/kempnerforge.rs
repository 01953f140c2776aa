//! KempnerForge's benchmark reports: FSDP2 with tensor, expert and pipeline parallelism on H200.
//!
//! Its log prints `torch.cuda.max_memory_allocated` in GiB and calls it GB (`metrics/memory.py`). The trainer keeps
//! parameters, gradients and moments in bf16, reduces in fp32 after the last micro batch, leaves the embedding whole
//! under tensor parallelism, gathers all logits, and holds them through backward (`distributed/parallel.py`,
//! `distributed/tensor_parallel.py`, `scripts/train.py`).

use serde_json::{Value, json};

use super::Dataset;
use super::asked::{self, Asked};
use super::runs::{Column, Row, score_peaks};

const GIB: f64 = (1u64 << 30) as f64;
/// Vocabulary of all its models (Llama 3's tokenizer).
const VOCABULARY: u64 = 128_256;
/// Tokens of a sequence, where a row does not say.
const SEQ_LEN: u64 = 4096;

pub(super) fn score(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    score_peaks(name, text, Column::Allocated, |row| Some(row.real("peak_memory_gb")? * GIB), plan)
}

/// A row as a plan file. Its framework is none of those that plans name.
pub(super) fn asked(row: &asked::row::Row, _: &Value) -> Option<Asked> {
    let text = Row(row.fields());
    let label = format!("{} on {} GPUs", text.label(), text.degree("gpus"));
    let asked =
        Asked::by_rate(row, row.text("model").to_owned(), plan(&text), row.real("tokens_per_s_total")?)?;
    // Loops over experts, not kernels, which no plan can say.
    let excluded = row.number("num_experts").map(|_| "experts in a loop, at 1 to 6 % of the peak");
    Some(Asked { excluded, ..asked.labelled(label) })
}

/// Width of an MLP: Llama's rule with a multiplier of 1.3 (`config/model.py`).
fn width(hidden: u64) -> u64 {
    (8 * hidden / 3 * 13 / 10).next_multiple_of(256)
}

/// Hidden size, layers, query heads, kv heads, MLP width.
fn sizes(row: &Row<'_>) -> Result<[u64; 5], String> {
    let own = |hidden, layers, heads, kv| [hidden, layers, heads, kv, width(hidden)];
    if let (Some(hidden), Some(layers)) = (row.size("hidden_size"), row.size("num_layers")) {
        return Ok(own(hidden, layers, row.need("num_attention_heads")?, row.need("num_kv_heads")?));
    }
    match row.text("model") {
        "kempner_7B" => Ok(own(4096, 32, 32, 8)),
        "kempner_13B" => Ok(own(5120, 40, 40, 8)),
        "kempner_29B" => Ok(own(6144, 56, 48, 8)),
        "kempner_70B" => Ok([8192, 80, 64, 8, 28_672]),
        other => Err(format!("the sizes of model `{other}` are unknown")),
    }
}

/// The plan file of a row, with all that it says.
pub(super) fn plan(row: &Row<'_>) -> Result<Value, String> {
    let [hidden, layers, heads, kv_heads, ffn] = sizes(row)?;
    let (tp, pp, ep) = (row.degree("tp"), row.degree("pp"), row.degree("ep"));
    let gpus = row.need("gpus")?;
    let per_node = row.size("gpus_per_node").unwrap_or(4).min(gpus);
    let experts = row.size("num_experts");
    // Sequence parallelism stays off in pipelines and for models with experts; so does the cut of the output layer.
    let sequence = tp > 1 && pp == 1 && experts.is_none();
    let mut styles = json!({});
    for (pattern, style) in [
        ("model.layers.*.self_attn.q_proj", "colwise"),
        ("model.layers.*.self_attn.k_proj", "colwise"),
        ("model.layers.*.self_attn.v_proj", "colwise"),
        ("model.layers.*.self_attn.o_proj", "rowwise"),
    ] {
        styles[pattern] = style.into();
    }
    if experts.is_none() {
        for (name, style) in [("gate_proj", "colwise"), ("up_proj", "colwise"), ("down_proj", "rowwise")] {
            styles[format!("model.layers.*.mlp.{name}")] = style.into();
        }
    }
    if sequence {
        styles["lm_head"] = "colwise_rep".into();
    }
    let top_k = row.size("topk").unwrap_or(2);
    let moe = experts.map(|experts| json!({"experts": experts, "top_k": top_k, "ffn_hidden_size": ffn}));
    let recompute = match row.text("ac") {
        "full" => json!({"granularity": "full", "method": "uniform", "num_layers": 1}),
        "selective" => json!({"granularity": "selective", "modules": ["core_attn"]}),
        "none" => json!({}),
        other => return Err(format!("activation checkpoints `{other}` are unknown")),
    };
    // The reports show a router just initialised that sends its tokens to the same few experts.
    let load = experts.map_or(1.0, |experts| experts as f64 / top_k as f64);
    let replicas = gpus / (tp * pp);
    Ok(json!({
        "version": 1,
        "model": {"architecture": {
            "num_layers": layers, "hidden_size": hidden, "ffn_hidden_size": ffn, "vocab_size": VOCABULARY,
            "attention": {"kind": "gqa", "heads": heads, "kv_heads": kv_heads, "head_dim": hidden / heads},
            "moe": moe
        }},
        "cluster": {"gpu": "h200", "nodes": gpus / per_node, "gpus_per_node": per_node},
        "runtime": "fsdp2",
        "layout": {
            "tp": tp, "sp": sequence, "pp": pp, "ep": ep, "tp_plan": if tp > 1 { styles } else { Value::Null },
            "fsdp": {
                "reshard_after_forward": if row.text("fsdp_wrap").is_empty() { "always" } else { "never" },
                "sharded_dtype": "bf16", "reduce_dtype": "fp32", "gradient_sync": "last", "loss_dtype": "bf16",
                "keeps_logits": true, "compile": row.flag("compile")
            }
        },
        "training": {
            "seq_len": row.size("seq_len").unwrap_or(SEQ_LEN), "micro_batch_size": row.need("mbs")?,
            "global_batch_size": row.need("mbs")? * row.degree("grad_accum") * replicas,
            "recompute": recompute, "moe": {"load_imbalance": load}
        }
    }))
}
