//! Megatron-Bridge: performance tables, verification cards, memory studies.

use serde_json::{Value, json};

use super::row::{Row, preset};
use super::{Asked, is_too_large};
use crate::bridge::{card_plan, study_plan};
use crate::plan_of;
use crate::runs::Row as TextRow;
use frameworks::bridge::preset_of;
use planner::model::{Architecture, Model};
use planner::shard::padded_vocabulary;
use planner::time::Numbers;
use planner::time::flops::model_flops;

/// The model, with as many multi-token-prediction modules as the source's own FLOPs per token say.
fn model(name: &str, gflop: Option<f64>, seq_len: u64) -> Result<Architecture, String> {
    // The vision models of this generation have the text model's layers.
    let name = if name.contains("Qwen3.8-27B") { "qwen3.5-27b" } else { name };
    let mut model = preset(name).ok_or_else(|| format!("`{name}` is not a preset"))?;
    if let Some(gflop) = gflop {
        let vocabulary = model.vocab_size;
        let distance = |modules: u64| {
            let tried = Architecture { mtp_layers: modules, ..model.clone() };
            (model_flops(&Model::new(tried), vocabulary, seq_len, 1) / seq_len as f64 / 1e9 - gflop).abs()
        };
        let best = (0..=1).min_by(|&one, &other| distance(one).total_cmp(&distance(other)));
        model.mtp_layers = best.unwrap_or(0);
    }
    Ok(model)
}

fn numbers(row: &Row, primary: bool) -> Numbers {
    let blackwell = row.text("gpu").contains('B');
    match row.text("precision").to_uppercase().as_str() {
        "MXFP8" | "FP8-MX" | "FP8_MX" => Numbers::Mxfp8,
        "NVFP4" => Numbers::Nvfp4,
        "BF16" => Numbers::Bf16,
        "FP8" | "FP8-CS" | "FP8_CS" => Numbers::Fp8,
        // The oldest tables print none: scales per tensor, and in parentheses per block.
        _ if primary => Numbers::Fp8,
        _ if blackwell => Numbers::Mxfp8,
        _ => Numbers::Fp8Rows,
    }
}

fn family(name: &str) -> String {
    let plain = name.to_lowercase();
    for family in
        ["llama", "deepseek", "qwen", "nemotron", "gpt-oss", "gpt_oss", "kimi", "moonlight", "mixtral"]
    {
        if plain.contains(family) {
            return family.replace('_', "-");
        }
    }
    plain
}

/// The plan file of a row of the performance tables, with all that it says.
///
/// # Errors
/// What no plan can say, or what the row lacks.
fn plan_file(row: &Row) -> Result<Value, String> {
    let name = row.text("model_key");
    let preset = preset_of(name).ok_or_else(|| format!("`{name}` is not a preset"))?;
    if row.text("task").starts_with("LoRA") {
        return Err("LoRA is not planned".to_owned());
    }
    let dtype = match numbers(row, row.text("variant") == "primary") {
        Numbers::Quantity | Numbers::Bf16 => "bf16",
        Numbers::Fp8 => "fp8_current",
        Numbers::Fp8Rows => "fp8_blockwise",
        Numbers::Mxfp8 => "mxfp8",
        Numbers::Nvfp4 => "nvfp4",
    };
    let gpu = match row.text("gpu").to_lowercase().as_str() {
        "h100" => "h100-sxm".to_owned(),
        other => other.to_owned(),
    };
    let gpus = row.need("gpus")?;
    let node = if gpu.starts_with("gb") { 4 } else { 8 }.min(gpus);
    let sharded = row.number("fsdp_shard_size").is_some_and(|size| size > 1);
    let release = row.text("release").split_whitespace().next().unwrap_or_default();
    let mut file = json!({
        "version": 1, "model": {"preset": preset}, "cluster": {"gpu": gpu, "nodes": gpus / node, "gpus_per_node": node},
        "runtime": if sharded { "megatron_fsdp" } else { "megatron" },
        "layout": {"tp": row.size("tp"), "pp": row.size("pp"), "vpp": row.size("vpp"), "cp": row.size("cp"), "ep": row.size("ep")},
        "training": {"seq_len": row.need("seq_len")?, "micro_batch_size": row.need("mbs")?,
            "global_batch_size": row.need("gbs")?, "dtype": dtype},
        "software": {"framework": format!("bridge {release}")}
    });
    if let Some(modules) = row.get("recompute_modules").and_then(Value::as_array) {
        file["training"]["recompute"] = match modules.is_empty() {
            true => json!({"granularity": "none"}),
            false => json!({"granularity": "selective", "modules": modules}),
        };
    }
    let model = model(name, row.real("gflop_per_token"), row.need("seq_len")?)?;
    file["training"]["mtp_layers"] = model.mtp_layers.into();
    if model.moe.is_some() {
        // As the tables' notes say.
        file["training"]["moe"] = json!({"force_balance": true});
    }
    Ok(file)
}

/// Whether a row prints an accumulation that its batch, micro batch and layout don't have.
fn contradicts_its_batch(row: &Row) -> bool {
    let printed = || {
        let ranks = row.size("tp") * row.size("pp") * row.size("cp");
        let samples = row.number("ga")? * row.number("mbs")? * (row.number("gpus")? / ranks);
        Some(samples != row.number("gbs")?)
    };
    printed().unwrap_or(false)
}

/// A row of the performance tables; none where it prints no tokens per second.
pub(super) fn performance(row: &Row, _: &Value) -> Option<Asked> {
    let tokens = row.real("tokens_per_s_per_gpu")?;
    let gpus = row.number("gpus")?;
    let file = plan_file(row);
    let too_large = is_too_large(&file);
    let mut asked = Asked::by_rate(row, family(row.text("model_key")), file, tokens * gpus as f64)?
        .labelled(format!("{} {} {}", row.id(), row.text("model"), row.text("gpu")));
    if row.text("id") == "mbridge-166" {
        asked.excluded = Some("a pipeline of 4 without its bubble: the number of chunks is not printed");
    } else if contradicts_its_batch(row) {
        asked.excluded = Some("its batch is not micro batch x accumulation x data parallel");
    } else if too_large {
        asked.excluded = Some("parameters and gradients don't fit the printed layout");
    }
    Some(asked)
}

/// The release of cards and studies: the newest, whose repository they stand in.
const NEWEST: &str = "bridge 26.08";

/// A plan of a card or study with its framework named so.
fn named(file: Result<Value, String>, framework: &str) -> Result<Value, String> {
    file.map(|mut file| {
        file["software"]["framework"] = framework.into();
        file
    })
}

/// A verification card; none where it says no time.
pub(super) fn card(row: &Row, _: &Value) -> Option<Asked> {
    let milliseconds = row.real("step_time_ms")?;
    let item = row.text("item");
    let tuned = ["pretrain_performance", "pretrain_weak_scaling"].iter().any(|tuned| item.starts_with(tuned));
    let hybrid = row.get("enabled_features").is_some_and(|on| on.to_string().contains("hybridep"));
    let mut fields = row.fields().clone();
    // By the step, not by tokens/s, which one card prints wrong.
    if row.number("seq_len").is_none() && row.get("flag").is_some() {
        fields.insert("seq_len".to_owned(), 8192.into());
    }
    let file = named(card_plan(&TextRow(&fields)), NEWEST);
    let mut asked = Asked::new(row, family(row.text("model")), file, milliseconds / 1e3).labelled(format!(
        "{} {} {}",
        row.id(),
        row.text("model"),
        row.text("gpu")
    ));
    if !(tuned || hybrid && item.starts_with("pretrain/")) {
        asked.excluded = Some("a functional run, not a tuned one");
    } else if row.text("model").contains("DeepSeek-V4") {
        asked.excluded = Some("compressed attention and hyper-connections are not in the formulas");
    }
    Some(asked)
}

/// A study of recomputation or layouts: its seconds, or those that its FLOP/s make by Megatron-Core's count; none where it prints neither.
pub(super) fn study(row: &Row, _: &Value) -> Option<Asked> {
    // Which release it had is not printed.
    let file = named(study_plan(&TextRow(row.fields())), "bridge");
    let seconds = match (row.real("step_time_ms"), &file) {
        (Some(milliseconds), _) => milliseconds / 1e3,
        (None, Ok(file)) => {
            let plan = plan_of(file).ok()?;
            let (training, tflops) = (&plan.training, row.real("model_tflops_per_gpu")?);
            let flops = model_flops(
                &plan.model,
                padded_vocabulary(&plan),
                training.seq_len,
                training.global_batch_size,
            );
            flops / (tflops * 1e12 * plan.world_size() as f64)
        }
        (None, Err(_)) => row.real("model_tflops_per_gpu").map(|_| 0.0)?,
    };
    Some(Asked::new(row, family(row.text("model")), file, seconds).labelled(format!(
        "{} {} {}",
        row.id(),
        row.text("model"),
        row.text("gpu")
    )))
}
