//! Megatron Bridge's memory studies and model verification cards: peaks allocated. The studies' pipelines ran before
//! May 2026, when the last stage's rank wrote Bridge's log (its issue 3164); since its commit 55c4e6676 the log has the
//! most of all stages, as the cards of July and August 2026 do.
//!
//! Bridge writes the name of its 8-bit recipe, `tensorwise` unless another is named, over the optimizer's also in bf16 runs
//! (`training/mixed_precision.py`), so that Megatron-Core keeps fp32 master weights beside a precision-aware optimizer.
//!
//! Studies print GB, which Bridge's log makes of 10^9 bytes (`mem-max-allocated-gigabytes`); cards print GiB. Recipes use
//! TransformerEngine's cross entropy unless they say otherwise, no dropout, no attention mask, and reduce gradients in bf16 in performance runs.

use serde_json::{Value, json};

use super::Dataset;
use super::runs::{Column, Row, score_peaks};
use frameworks::bridge::{RECIPES, preset_of};

const GB: f64 = 1e9;
const GIB: f64 = (1u64 << 30) as f64;
/// Modules that texts name as recomputed.
const MODULES: [&str; 7] =
    ["core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts", "mla_up_proj"];

pub(super) fn studies(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    score_peaks(
        name,
        text,
        Column::AllocatedByLast,
        |row| Some(row.real("peak_allocated_gb").or_else(|| row.real("memory_gb_approx"))? * GB),
        study_plan,
    )
}

/// The plan of a study with what its recipe sets.
pub(super) fn study_plan(row: &Row<'_>) -> Result<Value, String> {
    as_its_recipe_says(row, plan(row, row.flag("grad_reduce_in_fp32"))?)
}

/// The plan of a card with what its recipe sets.
pub(super) fn card_plan(row: &Row<'_>) -> Result<Value, String> {
    as_its_recipe_says(row, plan(row, !row.text("item").starts_with("pretrain_performance"))?)
}

pub(super) fn cards(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    score_peaks(
        name,
        text,
        Column::Allocated,
        |row| Some(row.real("peak_allocated_gib").or_else(|| peak_in(&sentences(row)))? * GIB),
        card_plan,
    )
}

/// The recipe of a row: the one it names, or the one for its model, task, GPUs and precision.
fn recipe<'a>(row: &Row<'_>, recipes: &'a Value) -> Option<&'a Value> {
    if let Some(named) = recipes.get(row.text("recipe")) {
        return Some(named);
    }
    let precision = match row.text("precision") {
        "fp8 current scaling" | "fp8_cs" | "FP8" => "fp8cs",
        "mxfp8" | "fp8_mx" | "MXFP8" => "fp8mx",
        "nvfp4" | "NVFP4" => "nvfp4",
        _ => "bf16",
    };
    let task = if row.text("task").is_empty() { "pretrain" } else { row.text("task") };
    let end =
        format!("_{}_{}gpu_{}_{precision}_config", task, row.degree("gpus"), row.text("gpu")).to_lowercase();
    // `moonlight_16b_a3b` is `moonlight_16b` there.
    let model = row.text("model");
    let shorter = model.rsplit_once('_').map_or(model, |(first, _)| first);
    [model, shorter].into_iter().find_map(|model| recipes.get(format!("{model}{end}")))
}

/// A row's plan with what its recipe sets.
fn as_its_recipe_says(row: &Row<'_>, mut plan: Value) -> Result<Value, String> {
    let file: Value = serde_json::from_str(RECIPES).map_err(|error| error.to_string())?;
    let Some(facts) = file.get("recipes").and_then(|recipes| recipe(row, recipes)) else { return Ok(plan) };
    if let Some(sp) = facts.get("sp") {
        plan["layout"]["sp"] = sp.clone();
    }
    let training = &mut plan["training"];
    if let (Some(wide), None) = (facts.get("fp32_gradients"), row.0.get("grad_reduce_in_fp32")) {
        training["grad_dtype"] = if wide == true { "fp32" } else { "bf16" }.into();
    }
    for name in ["optimizer", "cuda_graphs", "cuda_graph_modules", "mtp_layers", "cross_entropy"] {
        if let Some(fact) = facts.get(name) {
            training[name] = fact.clone();
        }
    }
    if training["optimizer"]["precision_aware"] == true {
        training["optimizer"]["core_master"] = true.into();
    }
    let says = row.0.get("recompute_modules").is_some_and(Value::is_array)
        || training["recompute"].as_object().is_some_and(|said| !said.is_empty());
    if let (Some(fact), false) = (facts.get("recompute"), says) {
        training["recompute"] = fact.clone();
    }
    if let Some(capacity) = facts.get("padded_capacity") {
        training["moe"]["capacity_factor"] = capacity.clone();
        training["moe"]["pad_to_capacity"] = true.into();
    }
    Ok(plan)
}

fn sentences(row: &Row<'_>) -> String {
    let list = row.0.get("memory_sentences").and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.collect::<Vec<&str>>().join(" ")
}

/// `58.079 GiB allocated`, or `allocated memory is 174.120 GiB`.
fn peak_in(text: &str) -> Option<f64> {
    let words: Vec<&str> =
        text.split_whitespace().map(|word| word.trim_matches([',', ';', ':', '.'])).collect();
    let after = |at: usize, wanted: &str| words.get(at).is_some_and(|word| *word == wanted);
    words.iter().enumerate().find_map(|(at, word)| {
        let number: f64 = word.parse().ok()?;
        let before = words[..at].iter().rev().take(4).any(|word| *word == "allocated");
        (after(at + 1, "GiB") && (after(at + 2, "allocated") || before)).then_some(number)
    })
}

/// What is recomputed: named in a column, or in the words of a card.
fn recompute(row: &Row<'_>) -> Value {
    let named: Vec<&str> = match row.0.get("recompute_modules").and_then(Value::as_array) {
        Some(list) => list.iter().filter_map(Value::as_str).collect(),
        None => {
            let text = row.text("config_text");
            let said = text.split_once("recompute of ").map_or("", |(_, after)| after);
            let words = said.split([' ', ',', '.']).filter(|word| !word.is_empty() && *word != "and");
            words.map_while(|word| MODULES.into_iter().find(|module| *module == word)).collect()
        }
    };
    if named.is_empty() { json!({}) } else { json!({"granularity": "selective", "modules": named}) }
}

/// Moonlight's recipe keeps moments in bf16, and gradients too (`recipes/moonlight/moonlight_16b.py`).
const MOONLIGHT: &str = "moonlight-16b-a3b";

fn optimizer(preset: &str) -> Value {
    if preset == MOONLIGHT {
        json!({"precision_aware": true, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"})
    } else {
        json!({})
    }
}

/// The plan of a row.
pub(super) fn plan(row: &Row<'_>, fp32_gradients: bool) -> Result<Value, String> {
    if row.text("task") == "LoRA" {
        return Err("LoRA is not planned".to_owned());
    }
    let model = row.text("model");
    let preset = preset_of(model).ok_or_else(|| format!("model `{model}` has no preset"))?;
    let gpu = match row.text("gpu") {
        "H100" => "h100-sxm",
        "B200" => "b200",
        "GB200" => "gb200",
        "B300" => "b300",
        "GB300" => "gb300",
        other => return Err(format!("GPU {other} is not in the catalogue")),
    };
    let gpus = row.need("gpus")?;
    let node = if gpu.starts_with("gb") { 4 } else { 8 }.min(gpus);
    let precision = match row.text("precision") {
        "bf16" | "BF16" => "bf16",
        "fp8 current scaling" | "fp8_cs" | "FP8" => "fp8_current",
        "mxfp8" | "fp8_mx" | "MXFP8" => "mxfp8",
        "nvfp4" | "NVFP4" => "nvfp4",
        other => return Err(format!("precision `{other}` is unknown")),
    };
    let (tp, pp) = (row.need("tp")?, row.need("pp")?);
    let flex = row.text("dispatcher") == "HybridEP" || row.text("config_text").contains("HybridEP");
    let said = row.text("config_text").contains("1.10x fixed expert capacity");
    // A run that says nothing of its load is one in which more may come.
    let load = row.real("expert_capacity").or(said.then_some(1.1));
    let fsdp = ["item", "recipe"].iter().any(|name| row.text(name).contains("fsdp"));
    let runtime = if fsdp { "megatron_fsdp" } else { "megatron" };
    Ok(json!({
        "version": 1, "model": {"preset": preset}, "runtime": runtime,
        "cluster": {"gpu": gpu, "nodes": gpus / node, "gpus_per_node": node},
        "layout": {
            "tp": tp, "pp": pp, "vpp": row.degree("vpp"), "cp": row.degree("cp"), "ep": row.degree("ep"),
            "etp": row.size("etp").unwrap_or(if row.degree("ep") > 1 { 1 } else { tp })
        },
        "training": {
            "seq_len": row.need("seq_len")?, "micro_batch_size": row.need("mbs")?,
            "global_batch_size": row.need("gbs")?, "dtype": precision, "recompute": recompute(row),
            // The mixed-precision recipes of 8 bits gather parameters in them (`training/mixed_precision.py`).
            "fp8_param_gather": matches!(precision, "fp8_current" | "mxfp8"),
            "optimizer": optimizer(preset),
            "grad_dtype": if fp32_gradients && preset != MOONLIGHT { "fp32" } else { "bf16" }, "cross_entropy": "te",
            "moe": {
                // Where a row says neither, what its recipe has is not known to be another.
                "dispatcher": flex.then_some("flex"), "backend": flex.then_some("hybridep"),
                "load_imbalance": load
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_read_from_sentences() {
        assert_eq!(
            peak_in("Peak device memory is 58.079 GiB allocated and 70.336 GiB reserved"),
            Some(58.079)
        );
        assert_eq!(
            peak_in("steps 11-20 average 1,679.460 ms; peak allocated memory is 174.120 GiB."),
            Some(174.12)
        );
        assert_eq!(peak_in("70.336 GiB reserved"), None);
    }

    #[test]
    fn fsdp_is_planned_as_such() {
        let runtime = |item: &str| {
            let row = json!({
                "model": "llama3_70b", "gpu": "H100", "gpus": 64, "precision": "bf16", "tp": 1, "pp": 1, "ep": 1,
                "seq_len": 8192, "mbs": 1, "gbs": 128, "item": item
            });
            plan(&Row(row.as_object().unwrap()), false).unwrap()["runtime"].clone()
        };
        assert_eq!([runtime("pretrain/H100"), runtime("pretrain_fsdp/H100")], ["megatron", "megatron_fsdp"]);
    }

    #[test]
    fn models_by_name() {
        assert_eq!(preset_of("moonlight_16b_a3b"), Some("moonlight-16b-a3b"));
        assert_eq!(preset_of("llama3_70b"), Some("llama-3-70b"));
        assert_eq!(preset_of("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16"), Some("nemotron-3-super"));
        assert_eq!(preset_of("something else"), None);
    }
}
