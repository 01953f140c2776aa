//! Runs of Megatron: Megatron-DeepSpeed (vTrain), Korthikanti et al., Megatron-Core 0.14 (SimuMax).

use super::Case;
use super::row::{Dense, Row, inputs, preset};
use crate::model::{Architecture, Attention, LayerKind, Moe, fold};
use crate::time::Recompute;
use crate::wire::CpKind;

/// GPT with learned positions; 51,200 words, as those papers say.
fn gpt(layers: u64, hidden: u64, heads: u64) -> Architecture {
    Dense {
        layers,
        hidden,
        heads,
        kv_heads: heads,
        head_dim: hidden / heads.max(1),
        ffn: 4 * hidden,
        vocabulary: 51_200,
        gated: false,
        tied: true,
    }
    .architecture()
}

pub(super) fn vtrain(row: &Row) -> Result<Option<Case>, String> {
    let Some(milliseconds) = row.real("iteration_time_ms") else { return Ok(None) };
    let model = gpt(row.need("num_layers")?, row.need("hidden_size")?, row.need("num_attention_heads")?);
    let mut inputs = inputs(&model, "A100", "megatron-deepspeed-2021", row.need("gpus")?)?;
    (inputs.tp, inputs.pp, inputs.sp) = (row.need("tp")?, row.need("pp")?, false);
    (inputs.mbs, inputs.gbs, inputs.seq_len) = (row.need("mbs")?, row.need("gbs")?, row.need("seq_len")?);
    (inputs.gradient_bytes, inputs.distributed, inputs.fused_loss) = (2.0, false, false);
    inputs.recompute = Recompute { layer: 1.0, ..Recompute::default() };
    let family = format!("gpt {} x {}", model.num_layers, model.hidden_size);
    Ok(Some(row.case(inputs, &family, milliseconds / 1e3)?))
}

pub(super) fn korthikanti(row: &Row) -> Result<Option<Case>, String> {
    let Some(seconds) = row.real("measured_iteration_time_s") else { return Ok(None) };
    let model = gpt(row.need("num_layers")?, row.need("hidden_size")?, row.need("num_attention_heads")?);
    let mut inputs = inputs(&model, row.text("gpu"), "megatron-2022", row.need("gpus")?)?;
    (inputs.tp, inputs.pp, inputs.vpp) = (row.size("tp"), row.size("pp"), row.size("vpp"));
    inputs.sp = row.flag("sequence_parallel");
    (inputs.mbs, inputs.gbs, inputs.seq_len) = (row.need("mbs")?, row.need("gbs")?, row.need("seq_len")?);
    (inputs.gradient_bytes, inputs.distributed, inputs.fused_loss) = (4.0, false, false);
    inputs.recompute = if row.text("recompute") == "full" {
        Recompute { layer: 1.0, ..Recompute::default() }
    } else {
        Recompute { core: 1.0, ..Recompute::default() }
    };
    Ok(Some(row.case(inputs, row.text("model"), seconds)?))
}

pub(super) fn simumax(row: &Row) -> Result<Option<Case>, String> {
    let Some(milliseconds) = row.real("measured_step_time_ms") else { return Ok(None) };
    let name = row.text("model");
    let mut model = match name {
        // Its configuration: 16 key-value heads.
        "llama3-405b" => with_kv_heads(preset("llama-3.1-405b").ok_or("no preset")?, 16),
        "deepseekv2" => deepseek_v2()?,
        other => preset(other).ok_or_else(|| format!("`{other}` is not a preset"))?,
    };
    model.num_layers = row.need("num_layers")?;
    if let Some(dense) = row.number("dense_layers") {
        let kind = |layer| if layer < dense { LayerKind::DENSE } else { LayerKind::MOE };
        model.pattern = fold(&(0..model.num_layers).map(kind).collect::<Vec<_>>());
    }
    model.mtp_layers = 0;
    let mut inputs = inputs(&model, row.text("gpu"), "megatron-core-0.14", row.need("gpus")?)?;
    (inputs.tp, inputs.pp, inputs.cp) = (row.size("tp"), row.size("pp"), row.size("cp"));
    (inputs.ep, inputs.etp, inputs.vpp) = (row.size("ep"), row.size("etp"), row.size("vpp"));
    inputs.cp_kind = if row.text("cp_comm_type") == "a2a" { CpKind::A2a } else { CpKind::P2p };
    (inputs.mbs, inputs.gbs, inputs.seq_len) = (row.need("mbs")?, row.need("gbs")?, row.need("seq_len")?);
    Ok(Some(row.case(inputs, name, milliseconds / 1e3)?))
}

fn with_kv_heads(mut model: Architecture, count: u64) -> Architecture {
    if let Attention::Gqa { kv_heads, .. } = &mut model.attention {
        *kv_heads = count;
    }
    model
}

/// DeepSeek-V2, which differs from V3 in its sizes (config.json of deepseek-ai/DeepSeek-V2).
fn deepseek_v2() -> Result<Architecture, String> {
    let mut model = preset("deepseek-v3").ok_or("no preset deepseek-v3")?;
    (model.hidden_size, model.ffn_hidden_size, model.vocab_size) = (5120, 12_288, 102_400);
    let moe = model.moe.take().ok_or("DeepSeek-V3 without experts")?;
    model.moe =
        Some(Moe { experts: 160, top_k: 6, ffn_hidden_size: 1536, shared_ffn_hidden_size: 3072, ..moe });
    Ok(model)
}
