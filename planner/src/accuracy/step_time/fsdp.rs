//! Runs of FSDP2: torchtitan and KempnerForge.

use super::Case;
use super::row::{Dense, Row, inputs, preset};
use crate::time::{Numbers, Recompute};

/// Compute that op-selective checkpoints do again: about every second matrix product, no attention.
const OP_SELECTIVE: f64 = 0.5;
/// Bytes of gathered activations with float8 tensors over bf16's: one of two matrix inputs is gathered in 8 bits.
const FLOAT8_GATHERED: f64 = 0.75;

fn recompute(row: &Row) -> Recompute {
    match row.text("ac") {
        "full" => Recompute { layer: 1.0, ..Recompute::default() },
        "" | "none" => Recompute::default(),
        _ => Recompute { projections: OP_SELECTIVE, mlp: OP_SELECTIVE, ..Recompute::default() },
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

pub(super) fn kempnerforge(row: &Row) -> Result<Option<Case>, String> {
    let Some(tokens) = row.real("tokens_per_s_total") else { return Ok(None) };
    let name = row.text("model");
    if name.contains("moe") {
        return kempnerforge_experts(row, tokens);
    }
    let dense = |layers, hidden, heads, ffn| Dense {
        layers,
        hidden,
        heads,
        kv_heads: 8,
        head_dim: 128,
        ffn,
        vocabulary: 128_256,
        gated: true,
        tied: false,
    };
    // Sizes by its repository's model list.
    let model = match name {
        "kempner_7B" => dense(32, 4096, 32, 14_336),
        "kempner_13B" => dense(40, 5120, 40, 17_920),
        "kempner_70B" => dense(80, 8192, 64, 28_672),
        "kempner_175B" => dense(96, 12_288, 96, 39_680),
        other => return Err(format!("`{other}` is not known")),
    }
    .architecture();
    let mut inputs = inputs(&model, row.text("gpu"), "torchtitan-2024", row.need("gpus")?)?;
    inputs.domain = row.number("gpus_per_node").unwrap_or(4);
    (inputs.tp, inputs.pp, inputs.mbs) = (row.size("tp"), row.size("pp"), row.need("mbs")?);
    inputs.seq_len = row.need("seq_len")?;
    let shards = row.size("fsdp");
    inputs.gbs = inputs.mbs * row.size("grad_accum") * inputs.world / (inputs.tp * inputs.pp).max(1);
    (inputs.gathers, inputs.by_layer) = (if shards > 1 { 2.0 } else { 0.0 }, true);
    inputs.recompute = recompute(row);
    // The loss stays outside of what is compiled (KempnerForge 3309cff788f0, training/loss.py).
    inputs.fused_loss = false;
    let seconds = (inputs.gbs * inputs.seq_len) as f64 / tokens;
    let mut case = row.case(inputs, name, seconds)?;
    case.printed_tokens = true;
    Ok(Some(case))
}

/// Its experts run at one to six per cent of the peak: loops over experts, not kernels.
fn kempnerforge_experts(row: &Row, tokens: f64) -> Result<Option<Case>, String> {
    let mut model = preset("mixtral-8x7b").ok_or("no preset")?;
    (model.hidden_size, model.num_layers) = (row.need("hidden_size")?, row.need("num_layers")?);
    if let Some(moe) = &mut model.moe {
        (moe.experts, moe.top_k) = (row.need("num_experts")?, row.need("topk")?);
        moe.ffn_hidden_size = 4 * model.hidden_size;
    }
    let mut inputs = inputs(&model, row.text("gpu"), "torchtitan-2024", row.need("gpus")?)?;
    inputs.domain = row.number("gpus_per_node").unwrap_or(4);
    (inputs.tp, inputs.ep, inputs.mbs) = (row.size("tp"), row.size("ep"), row.need("mbs")?);
    inputs.seq_len = row.number("seq_len").unwrap_or(4096);
    (inputs.gathers, inputs.recompute) = (2.0, recompute(row));
    inputs.gbs = inputs.mbs * row.size("grad_accum") * inputs.world / inputs.tp;
    let seconds = (inputs.gbs * inputs.seq_len) as f64 / tokens;
    let mut case = row.case(inputs, row.text("model"), seconds)?;
    case.printed_tokens = true;
    case.excluded = Some("experts in a loop, at 1 to 6 % of the peak");
    Ok(Some(case))
}
