//! Megatron-Core's own benchmark of one MoE layer: router, dispatcher and experts.
//!
//! Its configuration names a shared expert, but hands neither that nor a gate to the layer, and gradients are written
//! new in every iteration (`tests/functional_tests/test_cases/common/moe_perf/__main__.py`).

use super::row::{Row, inputs, preset};
use super::{Case, Quantity};
use crate::model::{Activation, LayerRun, Mlp};
use crate::time::Numbers;

pub(super) fn case(row: &Row) -> Result<Option<Case>, String> {
    let (Some(forward), Some(backward)) = (row.real("forward_ms"), row.real("backward_ms")) else {
        return Ok(None);
    };
    let mut model = preset("mixtral-8x7b").ok_or("no preset")?;
    (model.hidden_size, model.num_layers) = (row.need("hidden_size")?, 1);
    model.pattern = vec![LayerRun { ffn: None, count: 1, mixer: None, mlp: Mlp::Moe }];
    if let Some(moe) = &mut model.moe {
        (moe.experts, moe.top_k) = (row.need("num_experts")?, row.need("topk")?);
        moe.ffn_hidden_size = row.need("moe_ffn")?;
        moe.shared_ffn_hidden_size = 0;
    }
    (model.gated, model.activation) = (false, Activation::Gelu);
    let fused = row.text("dispatcher") != "a2a";
    let profile = if fused { "bridge-moe-scoped" } else { "bridge-moe-legacy" };
    let mut inputs = inputs(&model, row.text("gpu"), profile, row.need("gpus")?)?;
    (inputs.tp, inputs.ep, inputs.mbs) = (row.size("tp"), row.size("ep"), row.need("mbs")?);
    inputs.etp = row.size("etp");
    (inputs.seq_len, inputs.gbs) = (row.need("seq_len")?, row.need("gpus")?);
    inputs.clock = Some("clock_h100_burst");
    // Two bytes written, none read.
    inputs.gradient_bytes = 1.0;
    inputs.numbers = if row.text("precision") == "fp8" { Numbers::Fp8Rows } else { Numbers::Bf16 };
    let mut case = row.case(inputs, row.text("model_proxy"), (forward + backward) / 1e3)?;
    case.quantity = Quantity::Experts;
    case.key = row.id();
    Ok(Some(case))
}
