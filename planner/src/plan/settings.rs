//! Rules of training settings: which of them go together, and with which model.

use serde_json::Value;

use super::{Plan, clip};
use crate::finding::{Finding, nearest_names};
use crate::model::{Attention, MixerRef};
use crate::wire::{
    AttentionBackend, CrossEntropy, CudaGraphs, Dispatcher, Granularity, Implementation, OptimizerKind,
    Runtime,
};

/// Modules that selective recomputation knows.
const MODULES: &[&str] =
    &["core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts", "mla_up_proj"];
const RECOMPUTE_RULE: &str = "recomputation settings (Megatron-Core transformer_config)";

/// Everything that can be said against the settings of a filled plan.
pub(super) fn check(plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    recompute_modules(plan, &mut findings);
    recompute_method(plan, &mut findings);
    let dispatcher = plan.training.moe.dispatcher;
    let expert_ranks = plan.layout.ep.saturating_mul(plan.layout.etp);
    if dispatcher == Dispatcher::Flex
        && plan.runtime == Runtime::Megatron
        && plan.model.moe.is_some()
        && expert_ranks == 1
    {
        findings.push(
            Finding::error(
                "training.moe.dispatcher",
                dispatcher.name(),
                "the flex dispatcher needs experts on more than one rank, and ep x etp is 1",
            )
            .rule("dispatchers (Megatron-Core transformer_config)")
            .nearest(["alltoall"]),
        );
    }
    if plan.training.optimizer.kind == OptimizerKind::Muon {
        findings.push(
            Finding::error(
                "training.optimizer.kind",
                "muon",
                "the memory of Muon is not computed yet; take adam, which needs more",
            )
            .nearest(["adam", "sgd"]),
        );
    }
    findings.extend(pending(plan));
    findings
}

/// Settings that nothing computes with yet: a plan with one of them is answered as if it had the default.
fn pending(plan: &Plan) -> Vec<Finding> {
    let (training, overlap) = (&plan.training, &plan.training.overlap);
    let optimizer = &training.optimizer;
    let settings: [(&str, bool); 18] = [
        ("training.dtype", training.low_precision.is_some()),
        ("training.fp8_param_gather", training.fp8_param_gather),
        ("training.optimizer.precision_aware", optimizer.precision_aware),
        ("training.optimizer.offload_fraction", optimizer.offload_fraction > 0.0),
        ("training.optimizer.instances", optimizer.instances > 1),
        ("training.offload.modules", !training.offload.modules.is_empty()),
        ("training.attention_dropout", training.attention_dropout > 0.0),
        ("training.hidden_dropout", training.hidden_dropout > 0.0),
        ("training.attention_backend", training.attention_backend == AttentionBackend::Unfused),
        ("training.implementation", training.implementation == Implementation::Local),
        ("training.cross_entropy", training.cross_entropy != CrossEntropy::Unfused),
        ("training.fused_gradient_accumulation", !training.fused_gradient_accumulation),
        ("training.cuda_graphs", training.cuda_graphs != CudaGraphs::None),
        ("training.overlap.tp", overlap.tp),
        ("training.overlap.ep", overlap.ep),
        ("training.moe.capacity_factor", training.moe.capacity_factor.is_some()),
        ("training.attention_mask", training.attention_mask),
        ("software.expandable_segments", plan.software.expandable_segments),
    ];
    let set = settings.into_iter().filter(|(_, set)| *set);
    set.map(|(field, _)| {
        let message = format!(
            "{field} is recorded, and nothing computes with it yet: the answer is that of its default"
        );
        Finding::warning(field, Value::Null, message)
    })
    .collect()
}

fn recompute_modules(plan: &Plan, findings: &mut Vec<Finding>) {
    const FIELD: &str = "training.recompute.modules";
    let model = &plan.model;
    let latent = || {
        model.mixers().into_iter().any(|mixer| matches!(mixer, MixerRef::Attention(Attention::Mla { .. })))
    };
    for module in &plan.training.recompute_modules {
        let wrong = match module.as_str() {
            "mla_up_proj" if !latent() => Some("needs latent attention, which this model does not have"),
            "moe" | "moe_act" if model.moe.is_none() => Some("needs experts, which this model does not have"),
            "shared_experts" if model.moe.as_ref().is_none_or(|moe| moe.shared_ffn_hidden_size == 0) => {
                Some("needs shared experts, which this model does not have")
            }
            known if MODULES.contains(&known) => None,
            _ => Some("is not a module that can be recomputed"),
        };
        if let Some(wrong) = wrong {
            findings.push(
                Finding::error(
                    FIELD,
                    clip(module),
                    format!("`{}` {wrong}; known are {}", clip(module), MODULES.join(", ")),
                )
                .rule(RECOMPUTE_RULE)
                .nearest(nearest_names(
                    module,
                    MODULES.iter().copied().filter(|known| known != module),
                    2,
                )),
            );
        }
    }
    if plan.training.recompute != Granularity::Selective && !plan.training.recompute_modules.is_empty() {
        findings.push(
            Finding::warning(
                FIELD,
                plan.training.recompute_modules.join(", "),
                "modules are named but granularity is not selective, so they change nothing",
            )
            .rule(RECOMPUTE_RULE),
        );
    }
}

fn recompute_method(plan: &Plan, findings: &mut Vec<Finding>) {
    const FIELD: &str = "training.recompute.method";
    let recompute = &plan.file.training.recompute;
    let mut wrong = |field: &str, value: Value, message: String, nearest: &[&str]| {
        findings.push(
            Finding::error(field, value, message).rule(RECOMPUTE_RULE).nearest(nearest.iter().copied()),
        );
    };
    match (plan.training.recompute, recompute.method.as_deref()) {
        (Granularity::Full, Some("uniform" | "block")) if recompute.num_layers.is_some() => {}
        (Granularity::Full, None) | (Granularity::Full, Some("uniform" | "block")) => {
            let message = "full recomputation needs a method (uniform or block) and num_layers".to_owned();
            wrong(FIELD, recompute.method.clone().into(), message, &["uniform", "block"]);
        }
        (Granularity::None, None) => {}
        (Granularity::Selective, method) if method.is_some() || recompute.num_layers.is_some() => {
            let message =
                "selective recomputation takes neither a method nor num_layers: it names modules".to_owned();
            wrong(FIELD, method.map(clip).into(), message, &[]);
        }
        (_, Some(method)) if !["uniform", "block"].contains(&method) => {
            let message = format!("method is `{}`; allowed are uniform, block", clip(method));
            wrong(FIELD, clip(method).into(), message, &["uniform", "block"]);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::plan::{estimate, parse_plan};

    /// The errors of a model with these training settings, as fields.
    fn check(preset: &str, training: serde_json::Value, expected: &[&str]) {
        let file = json!({"version": 1, "model": {"preset": preset}, "cluster": {"gpu": "h100-sxm"}, "training": training});
        let answer = estimate(&parse_plan(&file.to_string()).unwrap());
        let errors = answer.findings.iter().filter(|finding| finding.severity == crate::Severity::Error);
        assert_eq!(
            errors.map(|finding| finding.field.as_str()).collect::<Vec<_>>(),
            expected,
            "{preset} {training}"
        );
    }

    #[test]
    fn settings_that_do_not_go_together() {
        let recompute = |value| json!({ "recompute": value });
        let modules = "training.recompute.modules";
        let method = "training.recompute.method";
        check(
            "llama-3-8b",
            recompute(json!({"granularity": "selective", "modules": ["core_attn", "mlp"]})),
            &[],
        );
        check(
            "llama-3-8b",
            recompute(json!({"granularity": "selective", "modules": ["moe_act"]})),
            &[modules],
        );
        check(
            "llama-3-8b",
            recompute(json!({"granularity": "selective", "modules": ["mla_up_proj", "x"]})),
            &[modules, modules],
        );
        check(
            "deepseek-v3",
            recompute(
                json!({"granularity": "selective", "modules": ["mla_up_proj", "moe_act", "shared_experts"]}),
            ),
            &[],
        );
        check("llama-3-8b", recompute(json!({"granularity": "full"})), &[method]);
        check("llama-3-8b", recompute(json!({"granularity": "full", "method": "uniform"})), &[method]);
        check(
            "llama-3-8b",
            recompute(json!({"granularity": "full", "method": "all", "num_layers": 1})),
            &[method],
        );
        check(
            "llama-3-8b",
            recompute(json!({"granularity": "full", "method": "block", "num_layers": 1})),
            &[],
        );
        check("llama-3-8b", recompute(json!({"granularity": "selective", "method": "block"})), &[method]);
        check("mixtral-8x7b", json!({"moe": {"dispatcher": "flex"}}), &["training.moe.dispatcher"]);
        check("mixtral-8x7b", json!({"moe": {"dispatcher": "allgather"}}), &[]);
    }
}
