//! nanotron's sweep over layouts on H100 (the Ultra-Scale Playbook's), as plans of its software profile.

use serde_json::{Value, json};

use super::Asked;
use super::row::Row;
use crate::nanotron::{self, Stage};

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

fn plan_file(row: &Row) -> Result<Value, String> {
    let (nodes, heads, hidden) = (row.need("nodes")?, row.need("num_heads")?, row.need("hidden_size")?);
    let (dp, tp, pp) = (row.need("dp")?, row.need("tp")?, row.need("pp")?);
    let (world, mbs) = (dp * tp * pp, row.need("mbs")?);
    let threshold = HEALTHY.iter().find(|(known, _)| *known == nodes).map(|known| known.1);
    let slow = threshold.is_some_and(|least| row.real("allgather_gbps").is_some_and(|found| found < least));
    let mut file = json!({
        "version": 1,
        "model": {"architecture": {
            "num_layers": row.need("num_layers")?, "hidden_size": hidden, "ffn_hidden_size": row.need("interm_dim")?,
            "vocab_size": row.need("vocab_size")?, "tied_embeddings": row.flag("tie_word_embeddings"),
            "attention": {"kind": "gqa", "heads": heads, "kv_heads": row.number("num_kv_heads").unwrap_or(heads),
                "head_dim": hidden / heads}
        }},
        "cluster": {"gpu": "h100-sxm", "nodes": world.div_ceil(8), "gpus_per_node": world.min(8)},
        "layout": {"tp": tp, "pp": pp},
        "training": {"seq_len": row.need("seq_len")?, "micro_batch_size": mbs,
            "global_batch_size": mbs * row.need("batch_accum")? * dp, "dtype": "bf16",
            "grad_dtype": if row.flag("accumulate_grad_in_fp32") { "fp32" } else { "bf16" },
            "optimizer": {"distributed": row.number("zero_stage") == Some(1)}, "cross_entropy": "unfused"},
        "software": {"profile": if slow { "nanotron-2024-slow-network" } else { "nanotron-2024" }}
    });
    if pp > 1 {
        file["layout"]["pipeline_layout"] = layout_string(&nanotron::stages(row.fields())?).into();
    }
    Ok(file)
}

/// Stages as a layout string.
fn layout_string(stages: &[Stage]) -> String {
    let of = |stage: &Stage| {
        let embedding = if stage.embedding { "E" } else { "" };
        let layers = match stage.layers {
            0 => String::new(),
            layers => format!("t*{layers}"),
        };
        format!("{embedding}{layers}{}", if stage.head { "L" } else { "" })
    };
    stages.iter().map(of).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_said_as_they_were_cut() {
        let stage = |embedding, layers, head| Stage { embedding, layers, head };
        let text = layout_string(&[stage(true, 0, false), stage(false, 3, false), stage(false, 2, true)]);
        assert_eq!(text, "E|t*3|t*2L");
    }
}
