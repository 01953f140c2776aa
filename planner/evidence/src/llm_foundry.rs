//! LLM Foundry's table: MPT models of 125M to 70B under torch's FSDP on 8 to 512 A100 and H100. Nothing is fitted to it.
//!
//! They were run by the FSDP before FSDP2, with the same gathers and reductions. Its fused loss reads logits in bf16 and overwrites them with
//! their gradients (`modeling_mpt.py`); the nearest that a plan can say is a loss in bf16.

use serde_json::{Value, json};

use super::asked::{self, Asked};
use super::runs::Row;

/// Gb/s of a GPU's share of its node's network, by the GPU's name in the table; none for one that is not there.
fn cluster(row: &Row<'_>) -> Result<Value, String> {
    let (gpu, nic_gbps) = match row.text("gpu") {
        "a100_40gb" => ("a100-40gb-sxm", 200),
        "a100_80gb" => ("a100-80gb-sxm", 200),
        "h100_80gb" => ("h100-sxm", 400),
        other => return Err(format!("GPU `{other}` is not known")),
    };
    Ok(json!({"gpu": gpu, "nodes": row.need("gpus")? / 8, "nic_gbps": nic_gbps}))
}

/// A row as a plan file, with all that it says.
fn plan(row: &Row<'_>, models: Option<&Value>) -> Result<Value, String> {
    let sizes = models.and_then(|all| all.get(row.text("model"))).ok_or("its model is not in `models`")?;
    let size = |place: usize| sizes.get(place).and_then(Value::as_u64).ok_or("a model is three numbers");
    let (hidden, heads, layers) = (size(0)?, size(1)?, size(2)?);
    let seq_len = row.need("seq_len")?;
    let reshard = match row.text("sharding") {
        "FULL_SHARD" => "always",
        "SHARD_GRAD_OP" => "never",
        other => return Err(format!("sharding `{other}` is not known")),
    };
    let recomputed = if row.flag("checkpoints") { "full" } else { "none" };
    Ok(json!({"version": 1,
        "model": {"architecture": {"num_layers": layers, "hidden_size": hidden, "ffn_hidden_size": 4 * hidden,
            "vocab_size": 50_368, "gated": false, "activation": "gelu_erf", "norm": "layer", "mlp_bias": true,
            "learned_positions": seq_len, "tied_embeddings": true,
            "attention": {"kind": "gqa", "heads": heads, "kv_heads": heads, "head_dim": hidden / heads.max(1),
                "qkv_bias": true, "out_bias": true}}},
        "cluster": cluster(row)?, "runtime": "fsdp2",
        "layout": {"fsdp": {"reshard_after_forward": reshard, "loss_dtype": "bf16"}},
        "training": {"seq_len": seq_len, "micro_batch_size": row.need("mbs")?, "global_batch_size": row.need("gbs")?,
            "dtype": "bf16", "recompute": {"granularity": recomputed}}}))
}

/// A row as a plan file. Its framework is none of those that plans name.
pub(super) fn asked(row: &asked::row::Row, file: &Value) -> Option<Asked> {
    let text = Row(row.fields());
    let label = format!(
        "{} with {} tokens on {} {}",
        row.text("model"),
        text.degree("seq_len"),
        text.degree("gpus"),
        row.text("gpu")
    );
    let rate = row.real("tokens_per_s_per_gpu")? * row.real("gpus")?;
    let asked = Asked::by_rate(row, row.text("model").to_owned(), plan(&text, file.get("models")), rate)?;
    Some(asked.labelled(label))
}

#[cfg(test)]
mod tests {
    use crate::asked::{Detail, list, source};
    use crate::{BUNDLED, plan_of, score};

    fn text() -> &'static str {
        BUNDLED.iter().find(|(name, _)| *name == "llm_foundry_fsdp").unwrap().1
    }

    #[test]
    fn models_have_as_many_parameters_as_are_printed() {
        // `NumParams` of the table, with 2,048 positions.
        let printed = [
            ("125m", 125_311_488),
            ("350m", 355_985_408),
            ("760m", 760_470_528),
            ("1b", 1_315_950_592),
            ("3b", 2_651_837_440),
            ("7b", 6_658_859_008),
            ("13b", 12_853_954_560),
            ("30b", 29_975_214_080),
            ("70b", 64_862_437_376),
        ];
        let rows = list(source("llm_foundry_fsdp").unwrap(), text()).unwrap().rows;
        for (model, parameters) in printed {
            let row = rows.iter().find(|row| row.label.starts_with(&format!("{model} with 2048 "))).unwrap();
            let plan = plan_of(&row.file_with(Detail::Run).unwrap()).unwrap();
            assert_eq!(planner::model::count(&plan.model).0, parameters, "{model}");
        }
    }

    #[test]
    fn runs_that_ran_are_told_so_and_their_steps_are_in_range() {
        let scored = score("llm_foundry_fsdp", text()).unwrap();
        let of = |quantity: &str| {
            scored.iter().find(|one| one.quantity == quantity && one.split == "as run").unwrap()
        };
        let (steps, ranges) = (of("step_seconds"), of("interval_seconds"));
        assert_eq!((steps.n, steps.unmapped), (209, 0), "{:?}", steps.notes);
        assert!(steps.median_abs_err < 0.08 && steps.p90_abs_err < 0.2, "{steps:#?}");
        assert!(ranges.equal as f64 >= 0.85 * ranges.n as f64, "{ranges:#?}");
        let told_no = steps.notes.iter().find_map(|note| {
            let count = note.strip_prefix("as run: told `no` though they ran, ")?.split(' ').next()?;
            count.parse::<u64>().ok()
        });
        assert!(told_no.unwrap_or(0) * 100 <= 3 * steps.n, "{:?}", steps.notes);
    }
}
