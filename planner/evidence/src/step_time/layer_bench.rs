//! Megatron-Core's own benchmark of one MoE layer: router, dispatcher and experts.
//!
//! A layer alone is no step that a plan can ask for, so these are the only rows that are predicted from the time model's inputs. Its
//! configuration names a shared expert, but hands neither that nor a gate to the layer, and gradients are written
//! new in every iteration (`tests/functional_tests/test_cases/common/moe_perf/__main__.py`).

use super::{Case, Quantity};
use crate::asked::row::{Row, preset};
use planner::cluster::gpu;
use planner::layout::Strides;
use planner::model::{Activation, LayerRun, Mlp, Model};
use planner::settings::{CpKind, CrossEntropy, Schedule};
use planner::time::constants::table;
use planner::time::{
    Choices, HostBytes, Inputs, ModelShape, Numbers, Recompute, Setup, SoftwareFacts, Stages,
};

pub(super) fn case(row: &Row) -> Result<Option<Case>, String> {
    let (Some(forward), Some(backward)) = (row.real("forward_ms"), row.real("backward_ms")) else {
        return Ok(None);
    };
    let mut model = preset("mixtral-8x7b").ok_or("no preset")?;
    (model.hidden_size, model.num_layers) = (row.need("hidden_size")?, 1);
    model.pattern = vec![LayerRun { ffn: None, count: 1, mixer: None, mlp: Mlp::Moe, unnormed: false }];
    if let Some(moe) = &mut model.moe {
        (moe.experts, moe.top_k) = (row.need("num_experts")?, row.need("topk")?);
        moe.ffn_hidden_size = row.need("moe_ffn")?;
        moe.shared_ffn_hidden_size = 0;
    }
    (model.gated, model.activation) = (false, Activation::Gelu);
    let fused = row.text("dispatcher") != "a2a";
    let profile = if fused { "bridge-moe-scoped" } else { "bridge-moe-alltoall" };
    let model = Model::new(model);
    let mut inputs = inputs(&model, row.text("gpu"), profile, row.need("gpus")?)?;
    (inputs.tp, inputs.ep, inputs.mbs) = (row.size("tp"), row.size("ep"), row.need("mbs")?);
    inputs.etp = row.size("etp");
    (inputs.seq_len, inputs.gbs) = (row.need("seq_len")?, row.need("gpus")?);
    // Two bytes written, none read.
    inputs.gradient_bytes = 1.0;
    inputs.numbers = if row.text("precision") == "fp8" { Numbers::Fp8Rows } else { Numbers::Bf16 };
    inputs.strides = Strides::usual(inputs.world, inputs.tp, inputs.pp, inputs.etp, inputs.ep);
    let shape = ModelShape::of(inputs.model, inputs.vocabulary, &(0..inputs.model.num_layers));
    let stages = Stages::consecutive(&shape, 1).unwrap_or_else(|| Stages::spread(&shape, 1));
    Ok(Some(Case {
        id: row.id(),
        label: row.id(),
        dataset: String::new(),
        family: row.text("model_proxy").to_owned(),
        gpu: inputs.gpu.id,
        gpus: inputs.world,
        key: row.id(),
        group: row.id(),
        printed_tokens: false,
        quantity: Quantity::Experts,
        measured: (forward + backward) / 1e3,
        excluded: None,
        model: [0; 3],
        standing: None,
        simulated_share: 1.0,
        setup: Setup::new(&inputs, shape, stages)?,
    }))
}

/// Inputs of one GPU, to be changed by what a row says.
fn inputs<'a>(model: &'a Model, gpu_name: &str, profile: &str, world: u64) -> Result<Inputs<'a>, String> {
    let plain = gpu_name.to_lowercase();
    let id = match plain.as_str() {
        "h100" => "h100-sxm",
        "a100" | "a100-80gb" => "a100-80gb-sxm",
        other => other,
    };
    let gpu = gpu(id).ok_or_else(|| format!("`{gpu_name}` is not a GPU of the catalogue"))?;
    let profile = table().profile(profile).ok_or_else(|| format!("`{profile}` is not a software profile"))?;
    Ok(Inputs {
        model,
        vocabulary: model.vocab_size,
        gpu,
        domain: gpu.nvlink_domain,
        nic_gbps: gpu.nic_gbps,
        world,
        tp: 1,
        sp: true,
        cp: 1,
        cp_kind: CpKind::P2p,
        pp: 1,
        vpp: 1,
        schedule: Schedule::OneFOneB,
        ep: 1,
        etp: 1,
        strides: Strides::usual(world, 1, 1, 1, 1),
        replicas: 1,
        gathers: 0.0,
        reduces: 0.0,
        gathered_again_from: None,
        by_layer: [false; 2],
        seq_len: 4096,
        mbs: 1,
        gbs: 1,
        numbers: Numbers::Bf16,
        gradient_bytes: 4.0,
        parameter_bytes: 2.0,
        optimizer_bytes: 30.0,
        update_flops: 0.0,
        distributed: true,
        recompute: Recompute::default(),
        loss: CrossEntropy::Te,
        loss_bytes: 4.0,
        whole_logits: false,
        low_attention: false,
        low_head: false,
        squares_apart: false,
        imbalance: 1.0,
        choices: Choices::default(),
        stops_early: false,
        frozen: false,
        gathered_share: 1.0,
        host: HostBytes::default(),
        software: SoftwareFacts::of(profile),
    })
}
