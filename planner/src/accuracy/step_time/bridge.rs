//! Megatron-Bridge: performance tables, verification cards, memory studies.

use serde_json::{Value, json};

use super::Case;
use super::row::{Row, inputs, preset};
use crate::accuracy::plan_of;
use crate::frameworks::bridge::preset_of;
use crate::model::Architecture;
use crate::plan::Plan;
use crate::time::flops::model_flops;
use crate::time::{Inputs, Numbers, Recompute, select};
use crate::wire::Runtime;

/// The model, with as many multi-token-prediction modules as the source's own FLOPs per token say.
fn model(name: &str, gflop: Option<f64>, seq_len: u64) -> Result<Architecture, String> {
    // The vision models of this generation have the text model's layers.
    let name = if name.contains("Qwen3.8-27B") { "qwen3.5-27b" } else { name };
    let mut model = preset(name).ok_or_else(|| format!("`{name}` is not a preset"))?;
    if let Some(gflop) = gflop {
        let distance = |modules: u64| {
            let tried = Architecture { mtp_layers: modules, ..model.clone() };
            (model_flops(&tried, tried.vocab_size, seq_len, 1) / seq_len as f64 / 1e9 - gflop).abs()
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

fn sizes(row: &Row, inputs: &mut Inputs<'_>) -> Result<(), String> {
    (inputs.tp, inputs.pp, inputs.cp) = (row.size("tp"), row.size("pp"), row.size("cp"));
    (inputs.vpp, inputs.ep) = (row.size("vpp"), row.size("ep"));
    inputs.etp = row.size("etp");
    (inputs.mbs, inputs.gbs) = (row.need("mbs")?, row.need("gbs")?);
    // Performance recipes reduce gradients in two bytes and gather parameters in the GEMMs' type.
    inputs.gradient_bytes = 2.0;
    if inputs.numbers != Numbers::Bf16 {
        inputs.parameter_bytes = 1.0;
    }
    // Beyond a domain, recipes dispatch by DeepEP or HybridEP, also where an all-to-all serves inside.
    let beyond = inputs.ep * inputs.etp > inputs.domain;
    inputs.software.fused_dispatch |= beyond;
    // Chunks are what a hidden all-to-all needs, and where it leaves the domain recipes hide it.
    inputs.software.overlap_ep |= beyond && inputs.vpp > 1;
    let mut recompute = Recompute::default();
    for module in row.words("recompute_modules") {
        select(&mut recompute, module);
    }
    inputs.recompute = recompute;
    Ok(())
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

/// How much of a row a plan file gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::accuracy) enum Told {
    /// What a user types: model, GPU, nodes, layout, precision, batch, sequence, framework.
    Typed,
    /// All that the row says and a plan can.
    All,
}

/// The plan file of a row of the performance tables.
///
/// # Errors
/// What no plan can say, or what the row lacks.
pub(in crate::accuracy) fn plan_file(row: &Row, told: Told) -> Result<Value, String> {
    let name = row.text("model_key");
    let preset = preset_of(name).ok_or_else(|| format!("`{name}` is not a preset"))?;
    if row.text("task").starts_with("LoRA") {
        return Err("LoRA is not planned".to_owned());
    }
    let dtype = match numbers(row, row.text("variant") == "primary") {
        Numbers::Wide | Numbers::Bf16 => "bf16",
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
    if told == Told::All {
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
    }
    Ok(file)
}

/// Seconds of a step, from the printed tokens per second; none where a row prints none.
pub(in crate::accuracy) fn measured(row: &Row) -> Option<f64> {
    let tokens = row.real("tokens_per_s_per_gpu")?;
    let batch = row.number("gbs")? * row.number("seq_len")?;
    Some(batch as f64 / (tokens * row.number("gpus")? as f64))
}

pub(super) fn performance(row: &Row, told: Told) -> Result<Option<Case>, String> {
    let Some(seconds) = measured(row) else { return Ok(None) };
    let plan = plan_of(&plan_file(row, told)?)?;
    let mut case = row.case_of(&plan, &family(row.text("model_key")), seconds)?;
    (case.printed_tokens, case.excluded) = (true, excluded(row, &plan));
    Ok(Some(case))
}

/// Rows whose printed layout can't be what ran.
pub(in crate::accuracy) fn excluded(row: &Row, plan: &Plan) -> Option<&'static str> {
    if row.text("id") == "mbridge-166" {
        return Some("a pipeline of 4 without its bubble: the number of chunks is not printed");
    }
    let (total, _) = crate::model::count(&plan.model);
    let held = 4.0 * total as f64 / (plan.layout.tp * plan.layout.pp) as f64;
    let room = plan.cluster.gpu.capacity_bytes.unwrap_or(u64::MAX) as f64;
    let whole = plan.model.moe.is_none() && plan.runtime == Runtime::Megatron;
    (whole && held > 0.95 * room).then_some("parameters and gradients don't fit the printed layout")
}

pub(super) fn card(row: &Row) -> Result<Option<Case>, String> {
    let Some(milliseconds) = row.real("step_time_ms") else { return Ok(None) };
    let item = row.text("item");
    let tuned = ["pretrain_performance", "pretrain_weak_scaling"].iter().any(|tuned| item.starts_with(tuned));
    let hybrid = row.get("enabled_features").is_some_and(|on| on.to_string().contains("hybridep"));
    let seq_len = match row.number("seq_len") {
        Some(seq_len) => seq_len,
        // By the step, not by tokens/s, which one card prints wrong.
        None if row.get("flag").is_some() => 8192,
        None => return Err("no sequence length".to_owned()),
    };
    let model = model(row.text("model"), row.real("gflop_per_token"), seq_len)?;
    let bf16 = numbers(row, true) == Numbers::Bf16;
    let whole = row.get("recipe_helper_calls").is_some_and(|calls| calls.to_string().contains("full_iter"));
    let profile = match (&model.moe, whole || (!bf16 && row.get("cuda_graph_impl").is_none())) {
        (None, _) => "bridge-dense",
        (Some(_), true) => "bridge-moe-iteration",
        (Some(_), false) => "bridge-moe-scoped",
    };
    let mut inputs = inputs(&model, row.text("gpu"), profile, row.need("gpus")?)?;
    inputs.seq_len = seq_len;
    inputs.numbers = numbers(row, true);
    sizes(row, &mut inputs)?;
    if row.get("routing_force_balanced").is_some_and(|forced| forced == false) || !tuned {
        inputs.imbalance = NATURAL_IMBALANCE;
    }
    let mut case = row.case(inputs, &family(row.text("model")), milliseconds / 1e3)?;
    if !(tuned || hybrid && item.starts_with("pretrain/")) {
        case.excluded = Some("a functional run, not a tuned one");
    } else if row.text("model").contains("DeepSeek-V4") {
        case.excluded = Some("compressed attention and hyper-connections are not in the formulas");
    }
    Ok(Some(case))
}

/// Tokens of the busiest expert rank over the mean, with a router that is not forced (one measured pair: 1.06).
const NATURAL_IMBALANCE: f64 = 1.1;

pub(super) fn study(row: &Row) -> Result<Option<Case>, String> {
    let Some(milliseconds) = row.real("step_time_ms") else { return Ok(None) };
    let model = model(row.text("model"), None, 4096)?;
    let profile = if model.moe.is_some() { "bridge-moe-legacy" } else { "bridge-dense" };
    let mut inputs = inputs(&model, row.text("gpu"), profile, row.need("gpus")?)?;
    inputs.seq_len = row.need("seq_len")?;
    inputs.numbers = numbers(row, true);
    sizes(row, &mut inputs)?;
    inputs.gradient_bytes = 4.0;
    if model.moe.is_some() {
        inputs.imbalance = NATURAL_IMBALANCE;
    }
    Ok(Some(row.case(inputs, &family(row.text("model")), milliseconds / 1e3)?))
}
