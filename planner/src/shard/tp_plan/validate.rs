//! What a plan must satisfy besides sizes.

use super::{TpPlanSource, known_sources, matches, model_type};
use crate::finding::{Finding, clip};
use crate::model::Attention;
use crate::plan::Plan;
use crate::shard::fsdp::module_paths;

/// What attention of one tensor-parallel rank works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalHeads {
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Width of a head, which stays what it was.
    pub head_dim: u64,
}

/// Heads of one rank after attention's columns were cut; none where tp does not divide them.
pub fn local_heads(attention: &Attention, tp: u64) -> Option<LocalHeads> {
    let (heads, kv_heads) = (attention.heads(), attention.kv_heads());
    let whole = tp > 0 && heads.is_multiple_of(tp) && kv_heads.is_multiple_of(tp);
    let head_dim = match *attention {
        Attention::Gqa { head_dim, .. } | Attention::Shared { head_dim, .. } => head_dim,
        Attention::Mla { qk_nope_dim, qk_rope_dim, .. } => qk_nope_dim + qk_rope_dim,
    };
    whole.then(|| LocalHeads { heads: heads / tp, kv_heads: kv_heads / tp, head_dim })
}

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
    fn f6_local_heads() {
        let gqa = |heads: u64, kv_heads: u64| -> Attention {
            let json =
                serde_json::json!({"kind": "gqa", "heads": heads, "kv_heads": kv_heads, "head_dim": 128});
            serde_json::from_value(json).unwrap()
        };
        let of = |attention: &Attention| -> Vec<u64> {
            [1, 2, 4, 8, 16].into_iter().filter(|&tp| local_heads(attention, tp).is_some()).collect()
        };
        assert_eq!(of(&gqa(32, 8)), [1, 2, 4, 8]);
        assert_eq!(local_heads(&gqa(32, 8), 8), Some(LocalHeads { heads: 4, kv_heads: 1, head_dim: 128 }));
        assert_eq!(of(&gqa(28, 4)), [1, 2, 4]);
        assert_eq!(local_heads(&gqa(28, 4), 4), Some(LocalHeads { heads: 7, kv_heads: 1, head_dim: 128 }));
        assert_eq!(of(&gqa(48, 8)), [1, 2, 4, 8]);
    }

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
