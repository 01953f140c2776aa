//! Megatron-LM's own table: GPT of 1.7B to 462B on 48 to 6,144 H100, as a user would type it. Micro batch and chunks are not
//! printed, so they are left open and chosen.

use serde_json::{Value, json};

use super::asked::{self, Asked};
use super::runs::Row;

/// A row as a plan file. MLPs are four times as wide, activations GELU and the embedding is not tied, which gives the sizes that the
/// models are named by.
fn plan(row: &Row<'_>) -> Result<Value, String> {
    let (hidden, heads) = (row.need("hidden_size")?, row.need("num_attention_heads")?);
    Ok(json!({"version": 1,
        "model": {"architecture": {"num_layers": row.need("num_layers")?, "hidden_size": hidden, "ffn_hidden_size": 4 * hidden,
            "vocab_size": row.need("vocab_size")?, "gated": false, "activation": "gelu", "norm": "layer",
            "attention": {"kind": "gqa", "heads": heads, "kv_heads": heads, "head_dim": hidden / heads.max(1)}}},
        "cluster": {"gpu": "h100-sxm", "nodes": row.need("gpus")? / 8},
        "layout": {"tp": row.need("tp")?, "pp": row.need("pp")?},
        "training": {"seq_len": row.need("seq_len")?, "global_batch_size": row.need("gbs")?, "dtype": "bf16"},
        "software": {"framework": "megatron-lm core_v0.19"}, "choose": ["micro_batch_size", "vpp"]}))
}

/// Seconds of a step by the printed FLOP/s and Megatron-LM's own count of a step's FLOPs (`num_floating_point_operations` of
/// core_r0.8.0): attention is counted whole, not its causal half.
fn measured(row: &Row<'_>) -> Option<f64> {
    let size = |name: &str| row.size(name).map(|size| size as f64);
    let (hidden, layers, tokens) =
        (size("hidden_size")?, size("num_layers")?, size("gbs")? * size("seq_len")?);
    let each = 6.0 + size("seq_len")? / hidden + size("vocab_size")? / (2.0 * layers * hidden);
    let flops = 12.0 * tokens * layers * hidden * hidden * each;
    Some(flops / (row.real("model_tflops_per_gpu")? * 1e12 * size("gpus")?))
}

/// A row as a plan file, with all that it says.
pub(super) fn asked(row: &asked::row::Row, _: &Value) -> Option<Asked> {
    let text = Row(row.fields());
    let label = format!("{} on {} GPUs", row.text("model"), text.degree("gpus"));
    Some(Asked::new(row, "gpt".to_owned(), plan(&text), measured(&text)?).labelled(label))
}
