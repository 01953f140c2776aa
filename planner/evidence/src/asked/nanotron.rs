//! nanotron's sweep over layouts on H100 (the Ultra-Scale Playbook's), as plans of its software profile.

use serde_json::{Value, json};

use super::Asked;
use super::row::Row;

/// All-gather bandwidth of the run's own test, Gbit/s, that parts the two states of the network, by nodes: rows lie
/// on one of two curves (215 to 228 and 40 to 170 at few nodes, 44 and 6 at 64).
const HEALTHY: &[(u64, f64)] = &[(2, 190.0), (4, 150.0), (8, 95.0), (16, 55.0), (32, 32.0), (64, 17.0)];

pub(super) fn asked(row: &Row, _: &Value) -> Option<Asked> {
    let tokens = row.real("tokens_per_s_per_gpu").filter(|_| row.text("status") == "Success")?;
    let family = format!("nanotron-{}B", row.real("num_params_B").unwrap_or(0.0));
    let ranks = row.size("dp") * row.size("tp") * row.size("pp");
    let mut asked = Asked::by_rate(row, family, plan_file(row), tokens * ranks as f64)?;
    if row.size("pp") > 1 && !row.flag("after_pp_fix") {
        asked.excluded = Some("measured before the framework's pipeline fix");
    }
    Some(asked)
}

/// The plan file of a run. Runs that died print less: grouped heads stand in their names, and widths and shared embeddings are those of the
/// models of these sizes that lived.
pub(crate) fn plan_file(row: &Row) -> Result<Value, String> {
    let (nodes, heads, hidden) = (row.need("nodes")?, row.need("num_heads")?, row.need("hidden_size")?);
    let (dp, tp, pp) = (row.need("dp")?, row.need("tp")?, row.need("pp")?);
    let (world, mbs) = (dp * tp * pp, row.need("mbs")?);
    let kv_heads = if row.text("name").contains("gqa8") { 8 } else { heads };
    let width = if hidden == 16_384 { 53_248 } else { 28_672 };
    let tied = row.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(hidden <= 3072);
    let threshold = HEALTHY.iter().find(|(known, _)| *known == nodes).map(|known| known.1);
    let slow = threshold.is_some_and(|least| row.real("allgather_gbps").is_some_and(|found| found < least));
    let mut file = json!({
        "version": 1,
        "model": {"architecture": {
            "num_layers": row.need("num_layers")?, "hidden_size": hidden,
            "ffn_hidden_size": row.number("interm_dim").unwrap_or(width),
            "vocab_size": row.need("vocab_size")?, "tied_embeddings": tied,
            "attention": {"kind": "gqa", "heads": heads, "kv_heads": row.number("num_kv_heads").unwrap_or(kv_heads),
                "head_dim": hidden / heads}
        }},
        "cluster": {"gpu": "h100-sxm", "nodes": world.div_ceil(8), "gpus_per_node": world.min(8)},
        "layout": {"tp": tp, "pp": pp},
        "training": {"seq_len": row.need("seq_len")?, "micro_batch_size": mbs,
            "global_batch_size": mbs * row.need("batch_accum")? * dp, "dtype": "bf16",
            "optimizer": {"distributed": row.number("zero_stage") == Some(1)}, "cross_entropy": "unfused"},
        "software": {"profile": if slow { "nanotron-2024-slow-network" } else { "nanotron-2024" }}
    });
    if let Some(wide) = row.get("accumulate_grad_in_fp32").and_then(Value::as_bool) {
        file["training"]["grad_dtype"] = if wide { "fp32" } else { "bf16" }.into();
    }
    Ok(file)
}
