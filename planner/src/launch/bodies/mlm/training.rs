//! Batch, precision, optimizer, recomputation, overlaps and steps as flags.

use super::super::super::writer::Writer;
use super::super::number;
use super::Flags;
use crate::import::megatron_names;
use crate::model::Activation;
use crate::units::Dtype;
use crate::wire::{
    CrossEntropy, CudaGraphs, Dispatcher, FlexBackend, Granularity, Implementation, LrSchedule,
    OptimizerKind, Precision, Runtime,
};

/// Appends the flags.
pub fn flags(writer: &mut Writer<'_>, flags: &mut Flags) {
    let plan = writer.plan;
    let (training, run) = (&plan.training, &plan.run);
    flags.set("seq-length", training.seq_len);
    flags.set("micro-batch-size", training.micro_batch_size);
    flags.set("global-batch-size", training.global_batch_size);
    flags.set("train-iters", run.steps);
    precision(writer, flags);
    optimizer(writer, flags);
    recompute(writer, flags);
    flags.set("attention-dropout", number(training.attention_dropout));
    flags.set("hidden-dropout", number(training.hidden_dropout));
    flags.set("attention-backend", megatron_names::attention_backend(training.attention_backend));
    if training.implementation == Implementation::Local {
        flags.set("transformer-impl", "local");
    }
    if training.cross_entropy != CrossEntropy::Unfused {
        flags.flag("cross-entropy-loss-fusion");
        flags.set("cross-entropy-fusion-impl", training.cross_entropy.name());
    }
    flags.flag_if("no-gradient-accumulation-fusion", !training.fused_gradient_accumulation);
    graphs(writer, flags);
    flags.flag_if("overlap-grad-reduce", training.overlap.grad_reduce);
    flags.flag_if("overlap-param-gather", training.overlap.param_gather);
    flags.flag_if("tp-comm-overlap", training.overlap.tp);
    flags.flag_if("overlap-moe-expert-parallel-comm", training.overlap.ep);
    flags.flag_if("no-overlap-p2p-communication", !training.overlap.p2p);
    flags.flag_if("delay-wgrad-compute", training.overlap.delay_wgrad);
    if plan.model.moe.is_some() {
        experts(writer, flags);
    }
    flags.flag_if("no-create-attention-mask-in-dataloader", !training.attention_mask);
    flags.flag_if("deterministic-mode", training.deterministic);
    flags.flag_if("no-masked-softmax-fusion", !training.fused_softmax);
    if let Some(waiting) = training.deferred_head_gradients {
        flags.flag("defer-embedding-wgrad-compute");
        flags.set("wgrad-deferral-limit", waiting);
    }
    flags.set("lr", number(run.lr));
    flags.set("min-lr", number(run.min_lr));
    flags.set(
        "lr-decay-style",
        match run.lr_schedule {
            LrSchedule::Constant => "constant",
            LrSchedule::Linear => "linear",
            LrSchedule::Cosine => "cosine",
        },
    );
    flags.set("lr-decay-iters", run.lr_decay_steps);
    flags.set("lr-warmup-iters", run.warmup_steps);
    flags.set("weight-decay", number(run.weight_decay));
    flags.set("clip-grad", number(run.clip_grad));
}

fn precision(writer: &mut Writer<'_>, flags: &mut Flags) {
    let plan = writer.plan;
    let training = &plan.training;
    let precision = plan.file.training.dtype.unwrap_or(Precision::Bf16);
    match training.dtype {
        Dtype::Bf16 => flags.flag("bf16"),
        Dtype::Fp16 => flags.flag("fp16"),
        Dtype::Fp32 => {}
        other => writer.cannot("training.dtype", other.name(), "there are bf16, fp16 and fp32"),
    }
    if let Some(recipe) = megatron_names::fp8_recipe(precision) {
        flags.set("fp8-format", "hybrid");
        flags.set("fp8-recipe", recipe);
        flags.flag_if("fp8-param-gather", training.fp8_param_gather);
        let reuses = training.fp8_param_gather && precision == Precision::Mxfp8;
        flags.flag_if("reuse-grad-buf-for-mxfp8-param-ag", reuses);
    } else if precision == Precision::Nvfp4 {
        flags.set("fp4-format", "e2m1");
        flags.flag_if("fp4-param-gather", training.fp8_param_gather);
    }
    if training.bf16_first_layers + training.bf16_last_layers > 0 {
        flags.flag("first-last-layers-bf16");
        flags.set("num-layers-at-start-in-bf16", training.bf16_first_layers);
        flags.set("num-layers-at-end-in-bf16", training.bf16_last_layers);
    }
    let fsdp = plan.runtime == Runtime::MegatronFsdp;
    match (training.dtype, training.grad_dtype) {
        (_, gradients) if fsdp => match megatron_names::state_dtype(gradients) {
            Some(name) => flags.set("megatron-fsdp-main-grads-dtype", name),
            None => writer.cannot("training.grad_dtype", gradients.name(), "there are fp32, bf16 and fp16"),
        },
        (Dtype::Bf16, Dtype::Fp32) | (Dtype::Fp16, Dtype::Fp16) | (Dtype::Fp32, Dtype::Fp32) => {}
        (Dtype::Bf16, Dtype::Bf16) => flags.flag("grad-reduce-in-bf16"),
        (Dtype::Fp16, Dtype::Fp32) => flags.flag("accumulate-allreduce-grads-in-fp32"),
        (_, gradients) => {
            let what = "main gradients are fp32, or of the compute type";
            writer.cannot("training.grad_dtype", gradients.name(), what);
        }
    }
}

fn optimizer(writer: &mut Writer<'_>, flags: &mut Flags) {
    let plan = writer.plan;
    let optimizer = &plan.training.optimizer;
    flags.set("optimizer", optimizer.kind.name());
    flags.flag_if("use-distributed-optimizer", optimizer.distributed);
    let states = [
        ("main-params-dtype", "master_dtype", optimizer.master_dtype),
        ("exp-avg-dtype", "exp_avg_dtype", optimizer.exp_avg_dtype),
        ("exp-avg-sq-dtype", "exp_avg_sq_dtype", optimizer.exp_avg_sq_dtype),
    ];
    flags.flag_if("use-precision-aware-optimizer", optimizer.precision_aware);
    for (option, field, dtype) in states {
        let name = megatron_names::state_dtype(dtype);
        match name.filter(|_| optimizer.precision_aware) {
            Some(name) => flags.set(option, name),
            None if dtype == Dtype::Fp32 => {}
            None => {
                let what = "state of other types than fp32 needs the precision-aware optimizer";
                writer.cannot(&format!("training.optimizer.{field}"), dtype.name(), what);
            }
        }
    }
    if optimizer.precision_aware && plan.training.grad_dtype == Dtype::Bf16 {
        flags.set("main-grads-dtype", "bf16");
    }
    if optimizer.offload_fraction > 0.0 {
        flags.flag("optimizer-cpu-offload");
        flags.set("optimizer-offload-fraction", number(optimizer.offload_fraction));
    }
    // Those of Megatron-FSDP are its replicas.
    if optimizer.instances > 1 && plan.runtime != Runtime::MegatronFsdp {
        flags.set("num-distributed-optimizer-instances", optimizer.instances);
    }
    if optimizer.kind == OptimizerKind::Adam {
        flags.set("adam-beta1", 0.9);
        flags.set("adam-beta2", 0.95);
    }
}

fn recompute(writer: &mut Writer<'_>, flags: &mut Flags) {
    let training = &writer.plan.training;
    match training.recompute {
        Granularity::None => {}
        // The option takes a module at least; without one nothing is recomputed.
        Granularity::Selective if training.recompute_modules.is_empty() => {}
        Granularity::Selective => {
            flags.set("recompute-granularity", "selective");
            let modules = modules(writer, "training.recompute.modules", &training.recompute_modules);
            flags.set("recompute-modules", modules);
        }
        Granularity::Full => {
            flags.set("recompute-granularity", "full");
            if let Some(method) = &training.recompute_method {
                let method = writer.word("training.recompute.method", method);
                flags.set("recompute-method", method);
            }
            if let Some(layers) = training.recompute_layers {
                flags.set("recompute-num-layers", layers);
            }
            flags.flag_if("distribute-saved-activations", training.distribute_saved_activations);
        }
    }
    if !training.offload.modules.is_empty() {
        flags.flag("fine-grained-activation-offloading");
        let modules = modules(writer, "training.offload.modules", &training.offload.modules);
        flags.set("offload-modules", modules);
        flags.set("activation-offload-fraction", number(training.offload.fraction));
    }
}

fn graphs(writer: &mut Writer<'_>, flags: &mut Flags) {
    let training = &writer.plan.training;
    match training.cuda_graphs {
        CudaGraphs::None => {}
        CudaGraphs::Iteration => flags.set("cuda-graph-impl", "full_iteration"),
        CudaGraphs::Scoped => {
            flags.set("cuda-graph-impl", "transformer_engine");
            if !training.cuda_graph_modules.is_empty() {
                let modules = modules(writer, "training.cuda_graph_modules", &training.cuda_graph_modules);
                flags.set("cuda-graph-modules", modules);
            }
        }
    }
}

fn modules(writer: &mut Writer<'_>, field: &str, names: &[String]) -> String {
    names.iter().map(|name| writer.word(field, name)).collect::<Vec<_>>().join(" ")
}

fn experts(writer: &mut Writer<'_>, flags: &mut Flags) {
    let model = &writer.plan.model;
    let moe = &writer.plan.training.moe;
    flags.set("moe-token-dispatcher-type", moe.dispatcher.name());
    if moe.dispatcher == Dispatcher::Flex {
        let backend = if moe.backend == FlexBackend::HybridEp { "hybridep" } else { "deepep" };
        flags.set("moe-flex-dispatcher-backend", backend);
    }
    flags.flag_if("moe-grouped-gemm", moe.grouped_gemm);
    flags.flag_if("moe-permute-fusion", moe.permute_fusion);
    flags.flag_if("moe-shared-expert-overlap", moe.shared_expert_overlap);
    if let Some(factor) = moe.capacity_factor {
        flags.set("moe-expert-capacity-factor", number(factor));
    }
    flags.flag_if("moe-pad-expert-input-to-capacity", moe.pad_to_capacity);
    let squared = !model.gated && model.activation == Activation::SquaredRelu;
    match (moe.fused_activation, model.gated) {
        (true, true) | (false, false) => {}
        (true, false) if squared => flags.flag("use-fused-weighted-squared-relu"),
        (fused, _) => {
            let what = "whether the activation of experts is fused follows from its kind";
            writer.cannot("training.moe.fused_activation", fused, what);
        }
    }
}
