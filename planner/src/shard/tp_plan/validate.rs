//! What a plan must satisfy besides sizes.

use super::{TpPlanSource, known_sources, matches, model_type};
use crate::finding::{Finding, clip};
use crate::plan::Plan;
use crate::shard::fsdp::module_paths;

/// Names that a plan for a model with experts must leave alone: expert parallelism places them.
const EXPERT_NAMES: [&str; 6] =
    ["experts", "gate_and_up_projs", "down_projs", "router", "gate", "shared_expert_gate"];

/// Everything that can be said against the tensor-parallel plan.
pub fn check(plan: &Plan) -> Vec<Finding> {
    let field = "layout.tp_plan";
    let mut findings = Vec::new();
    if plan.layout.tp == 1 {
        return findings;
    }
    match &plan.layout.tp_plan {
        TpPlanSource::Own => {}
        TpPlanSource::HuggingFace => {
            if plan.layout.sp {
                findings.push(
                    Finding::error(
                        "layout.sp",
                        true,
                        "plans of transformers do not split the sequence; switch sp off or set tp_plan to null",
                    )
                    .rule("sequence parallelism with a plan of transformers (NeMo Automodel)")
                    .nearest([false]),
                );
            }
            let kind = model_type(plan);
            if kind.and_then(known_sources).is_none() {
                findings.push(
                    Finding::error(
                        field,
                        "hf",
                        format!(
                            "no plan of transformers is known for {}; set tp to 1, set tp_plan to null, or give a map from module pattern to style",
                            kind.map_or("this model".to_owned(), |kind| format!("model type {}", clip(kind)))
                        ),
                    )
                    .rule("plan of transformers")
                    .nearest([serde_json::Value::Null]),
                );
            } else if let Err(error) = super::applied(plan) {
                findings.push(
                    Finding::warning(
                        field,
                        "hf",
                        format!("transformers' plan can't be applied: {error}; the default plan is applied instead"),
                    )
                    .rule("styles of tensor-parallel plans"),
                );
            }
        }
        TpPlanSource::Map(entries) => {
            let modules = module_paths(plan);
            for (pattern, _) in entries {
                let touches = plan.model.moe.is_some() && touches_experts(pattern);
                if touches {
                    findings.push(
                        Finding::error(
                            field,
                            clip(pattern),
                            format!(
                                "`{}` touches experts or router, which expert parallelism places; leave it out (leaves of shared experts are allowed)",
                                clip(pattern)
                            ),
                        )
                        .rule("plans for models with experts (NeMo Automodel)"),
                    );
                } else if !modules.iter().any(|module| matches(pattern, module)) {
                    let message = format!("`{}` matches no module of this model", clip(pattern));
                    let finding = if plan.model.moe.is_some() {
                        Finding::error(field, clip(pattern), message)
                    } else {
                        Finding::warning(field, clip(pattern), message)
                    };
                    findings.push(finding.rule("patterns match modules"));
                }
            }
        }
    }
    findings
}

/// Whether a pattern reaches into routed experts or the router, or is a bare MLP.
fn touches_experts(pattern: &str) -> bool {
    let names: Vec<&str> = pattern.split('.').collect();
    let bare = names.last().is_some_and(|leaf| matches!(*leaf, "mlp" | "moe"));
    bare || names.iter().any(|name| EXPERT_NAMES.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_experts_may_be_planned_routed_ones_not() {
        for (pattern, touches) in [
            ("model.layers.*.mlp.shared_experts.up_proj", false),
            ("model.layers.*.self_attn.q_proj", false),
            ("model.layers.*.mlp.experts", true),
            ("model.layers.*.mlp.gate", true),
            ("model.layers.*.mlp.shared_expert_gate", true),
            ("model.layers.*.mlp", true),
            ("model.layers.*.mlp.gate_proj", false),
        ] {
            assert_eq!(touches_experts(pattern), touches, "{pattern}");
        }
    }
}
