//! What is worth saying of a plan of an FSDP runtime besides broken rules of sizes.

use super::{by_runtime, is_wrapped, tp_plan};
use crate::finding::Finding;
use crate::model::Attention;
use crate::plan::Plan;
use crate::rules::{Owner, Shape};
use crate::settings::Strategy;
use crate::settings::{Granularity, OptimizerKind};

/// Findings on how parameters are split.
pub fn check(plan: &Plan) -> Vec<Finding> {
    let mut findings = not_counted(plan);
    findings.extend(by_runtime::remarks(plan));
    findings
}

/// Of a plan for Megatron-FSDP.
pub(super) fn of_megatron_fsdp(plan: &Plan) -> Vec<Finding> {
    let mut findings = tp_plan::check(plan);
    let settings = &plan.layout.fsdp;
    if !is_wrapped(plan) {
        findings.push(
            Finding::warning(
                "layout.tp",
                plan.layout.tp,
                "data parallelism of 1 leaves nothing to shard: Megatron-FSDP is not applied, only tensor parallelism",
            )
            .rule("Megatron-FSDP with dp 1 (NeMo Automodel)"),
        );
    } else if settings.strategy != Strategy::OptimGradsParams && !plan.is_computed_by_the_worker() {
        findings.push(
            Finding::warning(
                "layout.fsdp.strategy",
                settings.strategy.name(),
                format!("with strategy {} parameters are not sharded", settings.strategy.name()),
            )
            .rule("sharding strategies of Megatron-FSDP")
            .nearest(["optim_grads_params"]),
        );
    }
    findings.extend(start(plan));
    if settings.keep_fp8_transpose && plan.training.low_precision.is_none() {
        findings.push(Finding::warning(
            "layout.fsdp.keep_fp8_transpose",
            true,
            "keep_fp8_transpose changes nothing: training.dtype names no 8-bit recipe",
        ));
    }
    // Megatron-LM's modules split it by themselves.
    if plan.layout.sp && Shape::of(plan).is_of(Owner::Automodel) {
        findings.push(
            Finding::info(
                "layout.sp",
                true,
                "Megatron-FSDP's default tensor-parallel plan does not split the sequence, so sp has no effect on shards",
            )
            .rule("default plan of Megatron-FSDP (NeMo Automodel)"),
        );
    }
    findings.extend(without_checkpoints(plan));
    findings
}

/// Of a plan for FSDP2.
pub(super) fn of_fsdp2(plan: &Plan) -> Vec<Finding> {
    let mut findings = tp_plan::check(plan);
    if plan.layout.fsdp.offload {
        let bytes: u64 = super::stage_buffers(plan, 0).iter().map(super::BufferShard::host_bytes).sum();
        findings.push(
            Finding::info(
                "layout.fsdp.offload",
                "cpu",
                format!(
                    "sharded parameters, gradients and optimizer state are on the host: {bytes} bytes for each rank of the first stage"
                ),
            )
            .rule("CPU offload (torch fully_shard)"),
        );
    }
    findings.extend(without_checkpoints(plan));
    findings
}

/// A scope of checkpoints that has no layer in it.
fn without_checkpoints(plan: &Plan) -> Option<Finding> {
    let none = !plan.layout.fsdp.checkpoints_language && plan.training.recompute != Granularity::None;
    none.then(|| {
        Finding::warning(
            "layout.fsdp.checkpoint_scope",
            plan.file.layout.fsdp.checkpoint_scope.clone(),
            "this scope leaves the language model out, so none of its layers is checkpointed",
        )
    })
}

/// Parts of a model whose parameters are planned and whose activations and time are not.
fn not_counted(plan: &Plan) -> Vec<Finding> {
    let model = &plan.model;
    let parts = [
        (model.layer_inputs.is_some(), "inputs of single layers"),
        (model.alternating_updates > 0, "alternating updates"),
        (model.residual_rank > 0, "low-rank paths around attention"),
    ];
    let parts: Vec<&str> = parts.into_iter().filter(|(there, _)| *there).map(|(_, what)| what).collect();
    if parts.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "{} have their parameters, gradients and optimizer state counted, whole on every tensor-parallel rank, but not what they save for backward",
        parts.join(", ")
    );
    vec![
        Finding::info("model", parts.join(", "), message)
            .rule("what is counted of Gemma 3n and the small Gemma 4"),
    ]
}

/// Where tensor parallelism cuts through key-value heads, Megatron-Core's Muon takes queries, keys and values as one
/// matrix, and elsewhere each by itself.
pub(super) fn muon(plan: &Plan) -> Option<Finding> {
    let (tp, kv_heads) = (plan.layout.tp, plan.model.attention.kv_heads());
    let cut = matches!(plan.model.attention, Attention::Gqa { .. }) && kv_heads < tp;
    (plan.runtime.facts().deals_tensors && cut && plan.training.optimizer.kind == OptimizerKind::Muon).then(|| {
        Finding::warning(
            "training.optimizer.kind",
            "muon",
            format!(
                "tp {tp} cuts through {kv_heads} key-value heads, so Muon treats queries, keys and values as one matrix, and other layouts of this model train otherwise; lower tp to {kv_heads} or less"
            ),
        )
        .rule("Muon treats queries, keys and values apart where a rank has whole heads (Megatron-Core emerging_optimizers)")
    })
}

/// Before it is wrapped, the model stands whole on every GPU, unless it is made on the meta device.
fn start(plan: &Plan) -> Option<Finding> {
    let capacity = plan.cluster.capacity_bytes()?;
    let sizes = super::unit_sizes(plan, &super::fsdp::units_of_stage(plan, 0));
    let elements = sizes.layers.elements.saturating_add(sizes.root.elements);
    let bytes = elements.saturating_mul(plan.training.dtype.size());
    (!plan.layout.fsdp.init_meta && is_wrapped(plan) && bytes > capacity).then(|| {
        Finding::warning(
            "layout.fsdp.init_meta",
            false,
            format!(
                "before it is sharded the model takes {bytes} bytes on every GPU, and there are {capacity}; make it on the meta device"
            ),
        )
        .rule("init_model_with_meta_device (Megatron-FSDP)")
        .nearest([true])
    })
}
