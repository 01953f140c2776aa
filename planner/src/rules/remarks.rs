//! What is worth saying of training settings besides broken rules: what has no effect, and what is not computed yet.

use serde_json::Value;

use crate::finding::Finding;
use crate::plan::Plan;
use crate::settings::{
    AttentionBackend, CrossEntropy, CudaGraphs, Dispatcher, FlexBackend, Granularity, Implementation,
    OptimizerKind, Precision, Strategy,
};
use crate::software::Product;
use crate::units::LowPrecision;
use crate::wire::{DataFile, Part, PlanFile, Setting};

/// Remarks on the settings of a filled plan.
pub(crate) fn remarks(plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    let training = &plan.training;
    if training.recompute != Granularity::Selective && !training.recompute_modules.is_empty() {
        findings.push(
            Finding::warning(
                "training.recompute.modules",
                training.recompute_modules.join(", "),
                "modules are named but granularity is not selective, so they change nothing",
            )
            .rule("recomputation settings (Megatron-Core transformer_config)"),
        );
    }
    let bridge =
        plan.software.named.is_some_and(|named| matches!(named.product, Product::Bridge | Product::Nemo));
    if training.cross_entropy == CrossEntropy::Te
        && plan.runtime.facts().counts("training.cross_entropy")
        && !bridge
    {
        findings.push(
            Finding::warning(
                "training.cross_entropy",
                "te",
                "recent Megatron-LM refuses TransformerEngine's loss kernel as unstable; older ones and Megatron Bridge take it",
            )
            .rule("Megatron-LM validate_args")
            .nearest(["native"]),
        );
    }
    if training.cuda_graphs == CudaGraphs::Scoped && plan.software.expandable_segments {
        findings.push(
            Finding::warning(
                "software.expandable_segments",
                true,
                "with CUDA graphs, expandable segments need NCCL_GRAPH_REGISTER=0 in the environment",
            )
            .rule("Megatron-LM validate_args"),
        );
    }
    findings.extend(without_effect(plan));
    findings.extend(unread(plan));
    findings.extend(pending(plan));
    findings
}

/// Settings that are set but belong to another runtime, or to another value of a setting next to them.
fn without_effect(plan: &Plan) -> Vec<Finding> {
    let (training, facts) = (&plan.training, plan.runtime.facts());
    let (optimizer, moe, overlap) = (&training.optimizer, &training.moe, &training.overlap);
    let warn = |field: &str, why: String| {
        Finding::warning(field, Value::Null, format!("{field} changes nothing: {why}"))
    };
    let of_megatron: [(&str, bool); 17] = [
        ("training.bf16_first_layers", training.bf16_first_layers > 0),
        ("training.bf16_last_layers", training.bf16_last_layers > 0),
        ("training.optimizer.distributed", !optimizer.distributed),
        ("training.optimizer.precision_aware", optimizer.precision_aware),
        ("training.optimizer.offload_fraction", optimizer.offload_fraction > 0.0),
        ("training.optimizer.instances", optimizer.instances > 1),
        ("training.fused_gradient_accumulation", training.fused_gradient_accumulation),
        ("training.offload.modules", !training.offload.modules.is_empty()),
        ("training.offload.layers", training.offload.layers > 0),
        ("training.fp8_attention", training.fp8_attention),
        ("training.fp8_output", training.fp8_output),
        ("training.cuda_graphs", training.cuda_graphs != CudaGraphs::None),
        ("training.overlap.ep", overlap.ep),
        ("training.overlap.delay_wgrad", overlap.delay_wgrad),
        ("training.moe.shared_expert_overlap", moe.shared_expert_overlap),
        ("training.moe.capacity_factor", moe.capacity_factor.is_some()),
        ("training.recompute.distribute_saved_activations", training.distribute_saved_activations),
    ];
    let set = of_megatron.into_iter().filter(|(field, set)| *set && facts.without.contains(field));
    let why = |(field, _)| {
        let runtime = plan.runtime.name();
        warn(field, format!("it is a setting of Megatron-Core, and the runtime is {runtime}"))
    };
    let mut findings: Vec<Finding> = set.map(why).collect();
    let recipe = training.low_precision.is_some();
    if !recipe && training.bf16_first_layers + training.bf16_last_layers > 0 {
        let why = "every layer is in training.dtype, which names no low-precision recipe".to_owned();
        findings.push(warn("training.bf16_first_layers", why));
    }
    if moe.backend != FlexBackend::DeepEp && moe.dispatcher != Dispatcher::Flex {
        let why = format!("it is of dispatcher flex, and the dispatcher is {}", moe.dispatcher.name());
        findings.push(warn("training.moe.backend", why));
    }
    if plan.model.moe.is_none() && (moe.capacity_factor.is_some() || moe.dispatcher != Dispatcher::AllToAll) {
        findings.push(warn("training.moe.dispatcher", "this model has no experts".to_owned()));
    }
    findings
}

/// Settings of sharded parameters that are said, and that the runtime does not read.
fn unread(plan: &Plan) -> Vec<Finding> {
    let facts = plan.runtime.facts();
    let layout = serde_json::to_value(&plan.file.layout).unwrap_or_default();
    let said = |field: &&str| {
        // What holds where nothing is said is filled in for every runtime.
        let usual = match *field {
            "layout.fsdp.strategy" => Value::from(Strategy::default().name()),
            "layout.fsdp.outer_strategy" => Value::from("no_shard"),
            "layout.fsdp.reshard_after_forward" => Value::from("default"),
            _ => Value::Null,
        };
        let place =
            field.trim_start_matches("layout.").split('.').try_fold(&layout, |place, key| place.get(key));
        place.is_some_and(|value| !value.is_null() && *value != usual)
    };
    let of_shards = |field: &&str| field.starts_with("layout.fsdp.") || *field == "layout.tp_plan";
    let unread = facts.lacked().filter(of_shards).filter(said);
    unread
        .map(|field| {
            let message =
                format!("{field} changes nothing: runtime {} does not read it", plan.runtime.name());
            Finding::warning(field, Value::Null, message)
        })
        .collect()
}

/// Whether a form has a setting for a plan: the runtime reads it, and nothing else that is said leaves it idle. `experts` is whether
/// the model has some.
pub fn is_asked(setting: &Setting, file: &PlanFile, experts: bool) -> bool {
    let facts = file.runtime.unwrap_or_default().facts();
    let path = setting.path;
    // No script carries what the worker does not compute with.
    if !facts.reads(path) || facts.without.contains(&path) || (facts.is_workers_own && !facts.counts(path)) {
        return false;
    }
    let training = &file.training;
    let (optimizer, recompute) = (&training.optimizer, training.recompute.granularity);
    let kind = optimizer.kind.unwrap_or(OptimizerKind::Adam);
    let graphs = training.cuda_graphs.is_some_and(|graphs| graphs != CudaGraphs::None);
    let documents = file.run.data.as_ref().is_some_and(|data| *data != DataFile::Synthetic);
    match (setting.part, path) {
        (Part::LowPrecision, _) => training.dtype.is_some_and(|dtype| dtype.low_precision().is_some()),
        (_, "training.moe.backend") => experts && training.moe.dispatcher == Some(Dispatcher::Flex),
        (_, "training.moe.pad_to_capacity") => experts && training.moe.capacity_factor.is_some(),
        (Part::Experts, _) | (_, "training.overlap.ep" | "training.overlap.delay_wgrad") => experts,
        (_, "training.cuda_graph_modules") => graphs,
        (_, "training.recompute.modules") => recompute == Some(Granularity::Selective),
        (Part::Recompute, "training.recompute.granularity") => true,
        (Part::Recompute, _) => recompute == Some(Granularity::Full),
        (_, "training.optimizer.momentum") => kind != OptimizerKind::Adam,
        (_, "training.optimizer.beta1" | "training.optimizer.beta2" | "training.optimizer.eps") => {
            kind != OptimizerKind::Sgd
        }
        (
            _,
            "training.optimizer.master_dtype"
            | "training.optimizer.exp_avg_dtype"
            | "training.optimizer.exp_avg_sq_dtype",
        ) => facts.state_as_said,
        (Part::LossScale, "training.loss_scale.fixed") => training.dtype == Some(Precision::Fp16),
        (Part::LossScale, _) => {
            training.dtype == Some(Precision::Fp16) && training.loss_scale.fixed.is_none()
        }
        (_, "run.evaluation.every_steps" | "run.evaluation.sequences") => file.run.evaluation.data.is_some(),
        (Part::Data, path) if path.starts_with("run.documents.") => documents,
        (_, "layout.microbatch_group_size") => file.layout.vpp.is_some_and(|chunks| chunks > 1),
        (part, _) => part != Part::Apart,
    }
}

/// Settings that the answers of other runtimes compute with, and not of the plan's: it is answered as if it had the default.
fn pending(plan: &Plan) -> Vec<Finding> {
    let facts = plan.runtime.facts();
    let (training, overlap) = (&plan.training, &plan.training.overlap);
    let optimizer = &training.optimizer;
    // Weights of flat buffers that are gathered in 8 bits are counted so.
    let gathers_8_bits =
        facts.flat_units && training.fp8_param_gather && training.low_precision != Some(LowPrecision::Nvfp4);
    let settings: [(&str, bool); 25] = [
        ("training.dtype", training.low_precision.is_some() && !gathers_8_bits),
        (
            "layout.fsdp.keep_fp8_transpose",
            plan.layout.fsdp.keep_fp8_transpose && training.low_precision.is_some() && !gathers_8_bits,
        ),
        ("training.fp8_param_gather", training.fp8_param_gather && !gathers_8_bits),
        ("training.optimizer.precision_aware", optimizer.precision_aware),
        ("training.optimizer.offload_fraction", optimizer.offload_fraction > 0.0),
        ("training.optimizer.instances", optimizer.instances > 1),
        ("training.optimizer.core_master", optimizer.core_master.is_some()),
        ("training.recompute.distribute_saved_activations", training.distribute_saved_activations),
        ("training.offload.modules", !training.offload.modules.is_empty()),
        ("training.offload.layers", training.offload.layers > 0),
        ("training.attention_dropout", training.attention_dropout > 0.0),
        ("training.hidden_dropout", training.hidden_dropout > 0.0),
        ("training.attention_backend", training.attention_backend == AttentionBackend::Unfused),
        ("training.implementation", training.implementation == Implementation::Local),
        ("training.cross_entropy", training.cross_entropy != CrossEntropy::Unfused),
        ("training.fused_gradient_accumulation", !training.fused_gradient_accumulation),
        ("training.cuda_graphs", training.cuda_graphs != CudaGraphs::None),
        ("training.overlap.tp", overlap.tp),
        ("training.overlap.ep", overlap.ep),
        ("training.moe.shared_expert_overlap", training.moe.shared_expert_overlap),
        ("training.moe.capacity_factor", training.moe.capacity_factor.is_some()),
        ("training.attention_mask", training.attention_mask),
        ("training.fused_softmax", !training.fused_softmax),
        ("training.deferred_head_gradients", training.deferred_head_gradients.is_some()),
        ("software.expandable_segments", plan.software.expandable_segments),
    ];
    let set = settings.into_iter().filter(|(field, set)| *set && !facts.counts(field));
    set.map(|(field, _)| {
        let message = format!(
            "{field} is recorded, and nothing computes with it yet: the answer is that of its default"
        );
        Finding::warning(field, Value::Null, message)
    })
    .collect()
}
