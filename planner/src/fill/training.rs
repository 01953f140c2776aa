//! Defaults and ranges of `training` and `software`.

use crate::fill::defaults::Filler;
use crate::finding::{Finding, clip};
use crate::model::Architecture;
use crate::plan::WherePossible;
use crate::plan::{LossScale, MoeTraining, Offload, Optimizer, Overlap, Software, Training};
use crate::runtime::Runtime;
use crate::settings::{Granularity, OptimizerKind};
use crate::software::Named;
use crate::software::recomputed_by;
use crate::units::Dtype;
use crate::wire::{
    LossScaleFile, MAX_COUNT, MoeFile, OffloadFile, OptimizerFile, OverlapFile, RecomputeFile, Setting,
    SoftwareFile, TrainingFile,
};

/// Longest name of software, in bytes.
const MAX_NAME: usize = 200;
/// Most modules that a list may name; more than there are to name.
const MAX_MODULES: usize = 64;

pub(super) fn fill_training(
    fill: &mut Filler<'_>,
    training: &mut TrainingFile,
    (runtime, profile): (Runtime, Option<&str>),
    model: &Architecture,
) -> Training {
    let gated = model.gated;
    // No longer than the model's learned positions.
    let usual = Setting::usual_of::<u64>("training.seq_len").min(model.learned_positions.unwrap_or(u64::MAX));
    let seq_len = fill.number_or("training.seq_len", &mut training.seq_len, usual);
    let micro_batch_size = fill.number("training.micro_batch_size", &mut training.micro_batch_size);
    let global_batch_size = fill.number("training.global_batch_size", &mut training.global_batch_size);
    let precision = fill.usual("training.dtype", &mut training.dtype);
    let dtype = precision.dtype();
    let wide = if dtype == Dtype::Fp64 { Dtype::Fp64 } else { Dtype::Fp32 };
    let grad_dtype = fill.dtype("training.grad_dtype", &mut training.grad_dtype, wide);
    let fp8_param_gather = fill.usual("training.fp8_param_gather", &mut training.fp8_param_gather);
    let [bf16_first_layers, bf16_last_layers] = [
        ("training.bf16_first_layers", &mut training.bf16_first_layers),
        ("training.bf16_last_layers", &mut training.bf16_last_layers),
    ]
    .map(|(field, slot)| fill.number(field, slot));
    let fp8_attention = fill.usual("training.fp8_attention", &mut training.fp8_attention);
    let fp8_output = fill.usual("training.fp8_output", &mut training.fp8_output);
    let loss_scale = fill_loss_scale(fill, &mut training.loss_scale, dtype);
    let optimizer = fill_optimizer(fill, &mut training.optimizer, wide, grad_dtype);
    let recompute = &mut training.recompute;
    // What is said of modules or layers goes with a granularity that is said.
    let said = recompute.modules.is_some() || recompute.method.is_some() || recompute.num_layers.is_some();
    let usual = profile.filter(|_| !said).and_then(recomputed_by);
    let granularity = fill.or(
        "training.recompute.granularity",
        &mut recompute.granularity,
        usual.unwrap_or_else(|| Setting::usual_of("training.recompute.granularity")),
    );
    let recompute_modules = fill.names("training.recompute.modules", &mut recompute.modules, MAX_MODULES);
    if let Some(layers) = recompute.num_layers {
        fill.checked("training.recompute.num_layers", layers);
    }
    if granularity == Granularity::Full {
        usual_method(fill, recompute);
    } else if recompute.method.is_some() {
        method(fill, recompute);
    }
    let (recompute_method, recompute_layers) = (recompute.method.clone(), recompute.num_layers);
    let distribute_saved_activations = fill.usual(
        "training.recompute.distribute_saved_activations",
        &mut recompute.distribute_saved_activations,
    );
    fill.real("training.train_tokens", training.train_tokens);
    if seq_len.saturating_mul(micro_batch_size) > MAX_COUNT {
        fill.findings.push(Finding::error(
            "training.micro_batch_size",
            micro_batch_size,
            format!("a micro batch of {micro_batch_size} x {seq_len} tokens is more than {MAX_COUNT}; lower one of them"),
        ));
    }
    Training {
        loss_scale,
        seq_len,
        micro_batch_size,
        global_batch_size,
        dtype,
        low_precision: precision.low_precision(),
        fp8_param_gather,
        bf16_first_layers,
        bf16_last_layers,
        fp8_attention,
        fp8_output,
        grad_dtype,
        overlap: fill_overlap(fill, &mut training.overlap, optimizer.distributed),
        optimizer,
        recompute: granularity,
        recompute_modules,
        recompute_method,
        recompute_layers,
        distribute_saved_activations,
        offload: fill_offload(fill, &mut training.offload),
        attention_dropout: fill.fraction("training.attention_dropout", &mut training.attention_dropout),
        hidden_dropout: fill.fraction("training.hidden_dropout", &mut training.hidden_dropout),
        attention_backend: fill.usual("training.attention_backend", &mut training.attention_backend),
        implementation: fill.usual("training.implementation", &mut training.implementation),
        cross_entropy: fill.usual("training.cross_entropy", &mut training.cross_entropy),
        fused_gradient_accumulation: fill.or(
            "training.fused_gradient_accumulation",
            &mut training.fused_gradient_accumulation,
            Setting::is_usual_under("training.fused_gradient_accumulation", runtime.facts()),
        ),
        cuda_graphs: fill.usual("training.cuda_graphs", &mut training.cuda_graphs),
        cuda_graph_modules: fill.names(
            "training.cuda_graph_modules",
            &mut training.cuda_graph_modules,
            MAX_MODULES,
        ),
        moe: fill_moe(fill, &mut training.moe, gated),
        attention_mask: fill.usual("training.attention_mask", &mut training.attention_mask),
        deterministic: fill.usual("training.deterministic", &mut training.deterministic),
        fused_softmax: fill.usual("training.fused_softmax", &mut training.fused_softmax),
        deferred_head_gradients: training.deferred_head_gradients,
    }
}

/// How whole layers are recomputed where nobody says: each is a checkpoint, which is all that FSDP2 has.
fn usual_method(fill: &mut Filler<'_>, recompute: &mut RecomputeFile) {
    // How many layers of a stage the other method recomputes is a choice that nobody can make for the plan.
    if method(fill, recompute) == "uniform" {
        fill.or("training.recompute.num_layers", &mut recompute.num_layers, 1);
    }
}

fn method(fill: &mut Filler<'_>, recompute: &mut RecomputeFile) -> String {
    fill.choice("training.recompute.method", &mut recompute.method)
}

/// A constant of the optimizer's update; without a default where the kind has none such.
fn constant(fill: &mut Filler<'_>, name: &str, slot: &mut Option<f64>, default: Option<f64>) -> f64 {
    let field = format!("training.optimizer.{name}");
    let value = match default {
        Some(default) => fill.or(&field, slot, default),
        None => slot.unwrap_or(0.0),
    };
    fill.real(&field, Some(value));
    value
}

fn fill_optimizer(
    fill: &mut Filler<'_>,
    optimizer: &mut OptimizerFile,
    wide: Dtype,
    grad_dtype: Dtype,
) -> Optimizer {
    let moment = if grad_dtype.size() >= wide.size() { grad_dtype } else { wide };
    let mut dtype = |field: &str, slot: &mut Option<Dtype>, default| {
        fill.dtype(&format!("training.optimizer.{field}"), slot, default)
    };
    let master_dtype = dtype("master_dtype", &mut optimizer.master_dtype, wide);
    let exp_avg_dtype = dtype("exp_avg_dtype", &mut optimizer.exp_avg_dtype, moment);
    let exp_avg_sq_dtype = dtype("exp_avg_sq_dtype", &mut optimizer.exp_avg_sq_dtype, moment);
    let kind = fill.usual("training.optimizer.kind", &mut optimizer.kind);
    let [beta1, beta2, eps, momentum] = Optimizer::usual(kind).map(|(_, usual)| usual);
    Optimizer {
        kind,
        beta1: constant(fill, "beta1", &mut optimizer.beta1, beta1),
        beta2: constant(fill, "beta2", &mut optimizer.beta2, beta2),
        eps: constant(fill, "eps", &mut optimizer.eps, eps),
        momentum: constant(fill, "momentum", &mut optimizer.momentum, momentum),
        distributed: fill.usual("training.optimizer.distributed", &mut optimizer.distributed),
        // State on the host needs it.
        precision_aware: fill.or(
            "training.optimizer.precision_aware",
            &mut optimizer.precision_aware,
            kind == OptimizerKind::Adam && optimizer.offload_fraction.is_some_and(|share| share > 0.0),
        ),
        master_dtype,
        exp_avg_dtype,
        exp_avg_sq_dtype,
        offload_fraction: fill
            .fraction("training.optimizer.offload_fraction", &mut optimizer.offload_fraction),
        instances: fill.number("training.optimizer.instances", &mut optimizer.instances),
        core_master: optimizer.core_master,
    }
}

/// In other types than fp16 nothing is scaled, whatever a file says.
fn fill_loss_scale(fill: &mut Filler<'_>, file: &mut LossScaleFile, dtype: Dtype) -> Option<LossScale> {
    if dtype != Dtype::Fp16 {
        return None;
    }
    if let Some(fixed) = fill.real("training.loss_scale.fixed", file.fixed) {
        return Some(LossScale::Fixed(fixed));
    }
    let initial = fill.fraction("training.loss_scale.initial", &mut file.initial);
    let min = fill.fraction("training.loss_scale.min", &mut file.min);
    if min > initial {
        let message = format!("the smallest loss scale, {min}, is larger than the first, {initial}");
        let finding = Finding::error("training.loss_scale.min", min, message);
        fill.findings.push(finding.rule("loss scaling").nearest([initial]));
    }
    Some(LossScale::Dynamic {
        initial,
        min,
        window: fill.number("training.loss_scale.window", &mut file.window),
        hysteresis: fill.number("training.loss_scale.hysteresis", &mut file.hysteresis),
    })
}

fn fill_offload(fill: &mut Filler<'_>, offload: &mut OffloadFile) -> Offload {
    Offload {
        modules: fill.names("training.offload.modules", &mut offload.modules, MAX_MODULES),
        fraction: fill.fraction("training.offload.fraction", &mut offload.fraction),
        layers: fill.number("training.offload.layers", &mut offload.layers),
    }
}

fn fill_overlap(fill: &mut Filler<'_>, overlap: &mut OverlapFile, distributed: bool) -> Overlap {
    let grad_reduce = fill.usual("training.overlap.grad_reduce", &mut overlap.grad_reduce);
    // Without a distributed optimizer there is nothing to gather.
    let gathers = grad_reduce && distributed;
    Overlap {
        grad_reduce,
        param_gather: fill.or("training.overlap.param_gather", &mut overlap.param_gather, gathers),
        tp: fill.usual("training.overlap.tp", &mut overlap.tp),
        ep: fill.usual("training.overlap.ep", &mut overlap.ep),
        p2p: fill.usual("training.overlap.p2p", &mut overlap.p2p),
        delay_wgrad: fill.usual("training.overlap.delay_wgrad", &mut overlap.delay_wgrad),
    }
}

fn fill_moe(fill: &mut Filler<'_>, moe: &mut MoeFile, gated: bool) -> MoeTraining {
    fill.real("training.moe.capacity_factor", moe.capacity_factor);
    // Who says how tokens spread has made a statement, be it 1.0.
    let unsaid = moe.load_imbalance.is_none() && moe.force_balance != Some(true);
    MoeTraining {
        dispatcher: fill.usual("training.moe.dispatcher", &mut moe.dispatcher),
        backend: fill.usual("training.moe.backend", &mut moe.backend),
        load_imbalance: fill.fraction("training.moe.load_imbalance", &mut moe.load_imbalance),
        load_may_grow: fill.or("training.moe.load_may_grow", &mut moe.load_may_grow, unsaid),
        capacity_factor: moe.capacity_factor,
        pad_to_capacity: fill.usual("training.moe.pad_to_capacity", &mut moe.pad_to_capacity),
        grouped_gemm: fill.usual("training.moe.grouped_gemm", &mut moe.grouped_gemm),
        shared_expert_overlap: fill
            .usual("training.moe.shared_expert_overlap", &mut moe.shared_expert_overlap),
        fused_activation: fill.or("training.moe.fused_activation", &mut moe.fused_activation, gated),
        permute_fusion: fill.usual("training.moe.permute_fusion", &mut moe.permute_fusion),
    }
}

/// The framework that a text names, if it trains with the plan's runtime.
fn fill_framework(fill: &mut Filler<'_>, text: &str, runtime: Runtime) -> Option<Named> {
    let Some((named, known)) = Named::parse(text) else {
        fill.findings.push(Named::unknown(text));
        return None;
    };
    if !known {
        fill.findings.push(named.taken_for(text));
    }
    if !named.product.runtimes().contains(&runtime) {
        fill.findings.push(named.against(runtime));
    }
    Some(named)
}

pub(super) fn fill_software(
    fill: &mut Filler<'_>,
    software: &mut SoftwareFile,
    runtime: Runtime,
) -> Software {
    for (field, name) in [("software.profile", &software.profile), ("software.torch", &software.torch)] {
        if let Some(name) = name
            && (name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control))
        {
            fill.findings.push(Finding::error(
                field,
                clip(name),
                format!("{field} is a name of 1 to {MAX_NAME} bytes without control characters, or null"),
            ));
        }
    }
    let named = software.framework.as_deref().and_then(|text| fill_framework(fill, text, runtime));
    Software {
        profile: software.profile.clone(),
        torch: software.torch.clone(),
        framework: named.and_then(Named::options),
        named,
        where_possible: WherePossible::default(),
        others_recipe: false,
        set: Vec::new(),
        cublas_workspace_bytes: software
            .cublas_workspace_bytes
            .map(|bytes| fill.checked("software.cublas_workspace_bytes", bytes)),
        expandable_segments: fill.usual("software.expandable_segments", &mut software.expandable_segments),
    }
}
