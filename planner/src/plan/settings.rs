//! What is worth saying of training settings besides broken rules: what has no effect, and what is not computed yet.

use serde_json::Value;

use super::{Plan, Product};
use crate::finding::Finding;
use crate::settings::{
    AttentionBackend, CrossEntropy, CudaGraphs, Dispatcher, FlexBackend, Granularity, Implementation,
};
use crate::units::LowPrecision;

/// Remarks on the settings of a filled plan.
pub(super) fn check(plan: &Plan) -> Vec<Finding> {
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
