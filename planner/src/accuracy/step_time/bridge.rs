//! Megatron-Bridge: performance tables, verification cards, memory studies.

use super::Case;
use super::recipes::{Recipe, Wanted, recipe};
use super::row::{Row, inputs, preset};
use crate::model::Architecture;
use crate::time::flops::model_flops;
use crate::time::{Inputs, Numbers, Recompute, select};
use crate::wire::CudaGraphs;

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

/// The release as a number: 26.04.01 is 260401.
fn release(row: &Row) -> u64 {
    let text = row.text("release").split_whitespace().next().unwrap_or_default();
    let mut parts = text.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    next() * 10_000 + next() * 100 + next()
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

/// Which software a row ran, by its recipe, or else by what its table shows.
fn profile(row: &Row, model: &Architecture, when: u64, known: Option<&Recipe>) -> &'static str {
    if model.moe.is_none() {
        return "bridge-dense";
    }
    match known {
        Some(Recipe { fused_dispatch: false, .. }) => return "bridge-moe-legacy",
        Some(Recipe { graphs: CudaGraphs::Iteration, .. }) => return "bridge-moe-iteration",
        Some(_) => return "bridge-moe-scoped",
        None => {}
    }
    let gpu = row.text("gpu");
    let grace = gpu.starts_with("GB") || gpu == "B300";
    let whole = numbers(row, true) != Numbers::Bf16;
    match when {
        when if when >= 260_600 && grace && whole => "bridge-moe-iteration",
        when if when >= 260_201 || grace => "bridge-moe-scoped",
        _ => "bridge-moe-legacy",
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

pub(super) fn performance(row: &Row) -> Result<Option<Case>, String> {
    let Some(tokens) = row.real("tokens_per_s_per_gpu") else { return Ok(None) };
    let (seq_len, when) = (row.need("seq_len")?, release(row));
    let lora = row.text("task").starts_with("LoRA");
    let gflop = if lora { None } else { row.real("gflop_per_token") };
    let model = model(row.text("model_key"), gflop, seq_len)?;
    let numbers = numbers(row, row.text("variant") == "primary");
    let known = recipe(&Wanted {
        model: row.text("model_key"),
        gpu: row.text("gpu"),
        numbers,
        layout: [
            row.need("gpus")?,
            row.size("tp"),
            row.size("pp"),
            row.size("vpp"),
            row.size("cp"),
            row.size("ep"),
            row.need("mbs")?,
        ],
        release: when,
    });
    let profile = profile(row, &model, when, known.as_ref());
    let mut inputs = inputs(&model, row.text("gpu"), profile, row.need("gpus")?)?;
    inputs.seq_len = seq_len;
    inputs.numbers = numbers;
    sizes(row, &mut inputs)?;
    let sharded = row.number("fsdp_shard_size").is_some_and(|size| size > 1);
    (inputs.gathers, inputs.frozen) = (if sharded { 2.0 } else { 0.0 }, lora);
    let graphs = row.get("recipe").and_then(|recipe| recipe.get("cuda_graph_scope")).map(ToString::to_string);
    if model.moe.is_none() && graphs.is_some_and(|scope| scope.contains("full_iteration")) {
        inputs.software.graphs = CudaGraphs::Iteration;
    }
    if let Some(known) = known {
        let software = &mut inputs.software;
        (software.graphs, software.fused_dispatch) = (known.graphs, known.fused_dispatch);
        software.overlap_ep = known.overlap_ep;
        inputs.recompute = Recompute::default();
        for module in known.recompute {
            select(&mut inputs.recompute, module);
        }
    }
    if let Some(recipe) = row.get("recipe").map(ToString::to_string) {
        inputs.low_attention = recipe.contains("fp8_dot_product_attention=True");
        inputs.low_head = recipe.contains("fp8_output_proj=True");
    }
    let seconds = (inputs.gbs * seq_len) as f64 / (tokens * inputs.world as f64);
    let excluded = excluded(row, &inputs);
    let mut case = row.case(inputs, &family(row.text("model_key")), seconds)?;
    (case.printed_tokens, case.excluded) = (true, excluded);
    Ok(Some(case))
}

/// Rows whose printed layout can't be what ran.
fn excluded(row: &Row, inputs: &Inputs<'_>) -> Option<&'static str> {
    if row.text("id") == "mbridge-166" {
        return Some("a pipeline of 4 without its bubble: the number of chunks is not printed");
    }
    let (total, _) = crate::model::count(inputs.model);
    let held = 4.0 * total as f64 / (inputs.tp * inputs.pp) as f64;
    let room = inputs.gpu.capacity_bytes.unwrap_or(u64::MAX) as f64;
    let whole = inputs.model.moe.is_none() && inputs.gathers == 0.0 && !inputs.frozen;
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
