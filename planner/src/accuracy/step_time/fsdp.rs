//! Runs of FSDP2: torchtitan and KempnerForge.

use super::Case;
use super::row::{Row, inputs, preset};
use crate::accuracy::kempnerforge::plan as kempnerforge_plan;
use crate::accuracy::plan_of;
use crate::accuracy::runs::Row as TextRow;
use crate::time::{EVERY_SECOND, FLOAT8_GATHERED, Numbers, Recompute};

fn recompute(row: &Row) -> Recompute {
    match row.text("ac") {
        "full" => Recompute { layer: 1.0, ..Recompute::default() },
        "" | "none" => Recompute::default(),
        _ => Recompute { projections: EVERY_SECOND, mlp: EVERY_SECOND, ..Recompute::default() },
    }
}

pub(super) fn torchtitan(row: &Row) -> Result<Option<Case>, String> {
    let Some(tokens) = row.real("tokens_per_s_per_gpu") else { return Ok(None) };
    let name = match row.text("model") {
        "llama3_1_8b" => "llama-3-8b",
        "llama3_1_70b" => "llama-3-70b",
        other => other,
    };
    let model = preset(name).ok_or_else(|| format!("`{name}` is not a preset"))?;
    let compiled = row.flag("compile");
    let profile = if compiled { "torchtitan-2024" } else { "torchtitan-2024-eager" };
    let mut inputs = inputs(&model, row.text("gpu"), profile, row.need("gpus")?)?;
    inputs.by_layer = true;
    // The compiler fuses the loss, too.
    inputs.fused_loss = compiled;
    if row.text("hardware").contains("HBM2e") {
        (inputs.memory_gbs, inputs.clock) = (Some(2400.0), Some("clock_h100_500w"));
    }
    (inputs.tp, inputs.pp, inputs.cp) = (row.size("tp"), row.size("pp"), row.size("cp"));
    // The tables' default where none is printed.
    inputs.seq_len = row.number("seq_len").unwrap_or(8192);
    let dp = inputs.world / (inputs.tp * inputs.pp * inputs.cp).max(1);
    let local = row.number("mbs").or_else(|| row.number("local_batch")).ok_or("no batch")?;
    inputs.gbs = local * dp;
    // A pipeline cuts its local batch into as many micro batches as stages (torchtitan's default then), and keeps
    // parameters gathered meanwhile.
    (inputs.mbs, inputs.gathers) =
        if inputs.pp > 1 { ((local / inputs.pp).max(1), 0.0) } else { (local, 2.0) };
    if inputs.pp > 1 {
        // Gradients are added up whole and reduced after the last backward (torch 2.6, distributed/pipelining/stage.py).
        (inputs.software.overlap_reduce, inputs.software.fused_gradients) = (false, false);
    }
    inputs.vpp = if row.text("pp_schedule").contains("Interleaved") { 2 } else { 1 };
    let quantized = row.text("quantization");
    inputs.numbers = match (quantized, row.flag("float8")) {
        ("float8 rowwise", _) => Numbers::Fp8Rows,
        ("float8 tensorwise", _) | ("", true) => Numbers::Fp8,
        _ => Numbers::Bf16,
    };
    if inputs.numbers == Numbers::Fp8 {
        (inputs.parameter_bytes, inputs.gathered_share) = (1.0, FLOAT8_GATHERED);
    }
    inputs.recompute = recompute(row);
    inputs.software.overlap_tp = row.flag("async_tp");
    let seconds = (inputs.gbs * inputs.seq_len) as f64 / (tokens * inputs.world as f64);
    let mut case = row.case(inputs, name, seconds)?;
    case.printed_tokens = true;
    Ok(Some(case))
}

/// A row of KempnerForge as the plan that its memory is scored by, too.
pub(super) fn kempnerforge(row: &Row) -> Result<Option<Case>, String> {
    let Some(tokens) = row.real("tokens_per_s_total") else { return Ok(None) };
    let plan = plan_of(&kempnerforge_plan(&TextRow(row.fields()))?)?;
    let batch = plan.training.global_batch_size * plan.training.seq_len;
    let mut case = row.case_of(&plan, row.text("model"), batch as f64 / tokens)?;
    case.printed_tokens = true;
    // Loops over experts, not kernels.
    case.excluded = plan.model.moe.is_some().then_some("experts in a loop, at 1 to 6 % of the peak");
    Ok(Some(case))
}
