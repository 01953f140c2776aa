//! What Megatron-LM (`validate_args`, `determinism`, `__post_init__` of core_v0.19) and Megatron Bridge (training config of 0.6) want
//! to see before a job's first step, and what they end it for.

use serde_json::{Value, json};

use super::*;

/// The script of a model's plan with these settings, and the fields of which something is said.
fn of(kind: Body, model: &str, layout: Value, training: Value) -> (String, Vec<String>) {
    let framework = if kind == Body::Mlm { "megatron-lm core_v0.19" } else { "bridge 26.08" };
    let file = json!({
        "version": 1, "model": {"preset": model}, "cluster": {"gpu": "h100-sxm", "nodes": 8}, "layout": layout,
        "training": training, "software": {"framework": framework}
    });
    let (text, findings) = script(&plan(&file.to_string()), &site(), &body(kind));
    assert!(!has_error(&findings), "{findings:?}");
    (text, findings.into_iter().map(|finding| finding.field).collect())
}

/// Whether an option stands in a script.
fn has(text: &str, option: &str) -> bool {
    text.split_whitespace().any(|word| word == option)
}

#[test]
fn latent_attention_has_a_fused_rotation_under_yarn_alone_and_widths_that_divide() {
    for preset in planner::model::presets() {
        let file = json!({"version": 1, "model": {"preset": preset.id}, "cluster": {"gpu": "h100-sxm", "nodes": 64}});
        let Some(plan) =
            planner::parse_plan(&file.to_string()).ok().and_then(|file| Plan::resolve(&file).plan)
        else {
            continue;
        };
        let (text, _) = script(&plan, &site(), &body(Body::Mlm));
        let heads = plan.model.attention.heads();
        let divides = plan.model.hidden_size.is_multiple_of(heads);
        assert!(divides || has(&text, "--kv-channels"), "{}", preset.id);
        let yarn = text.contains("--rope-type yarn");
        let latent = has(&text, "--multi-latent-attention");
        assert_eq!(has(&text, "--no-rope-fusion"), latent && !yarn, "{}", preset.id);
    }
}

#[test]
fn the_same_bits_every_time() {
    for kind in [Body::Mlm, Body::Bridge] {
        let (text, _) = of(kind, "llama-3-70b", json!({"tp": 8}), json!({"deterministic": true}));
        for variable in ["NVTE_ALLOW_NONDETERMINISTIC_ALGO=0", "NCCL_ALGO=Ring"] {
            assert!(text.contains(variable), "{variable}: {text}");
        }
        assert!(!has(&text, "--cross-entropy-loss-fusion") && !has(&text, "--tp-comm-overlap"), "{text}");
        assert!(!text.contains("cross_entropy_loss_fusion=true"), "{text}");
        let (text, _) = of(kind, "llama-3-70b", json!({"tp": 8}), json!({}));
        assert!(
            !text.contains("NVTE_ALLOW_NONDETERMINISTIC_ALGO=0") && !text.contains("NCCL_ALGO"),
            "{text}"
        );
    }
}

#[test]
fn activations_on_the_host_leave_weights_where_they_are() {
    for kind in [Body::Mlm, Body::Bridge] {
        let offload = json!({"offload": {"modules": ["core_attn"]}});
        let (text, _) = of(kind, "qwen3-30b-a3b", json!({"ep": 8}), offload);
        assert!(text.contains("NVTE_CPU_OFFLOAD_V1=1"), "{text}");
        let (text, _) = of(kind, "qwen3-30b-a3b", json!({"ep": 8}), json!({}));
        assert!(!text.contains("NVTE_CPU_OFFLOAD_V1"), "{text}");
    }
}

#[test]
fn what_megatron_lm_has_no_option_for_is_said() {
    let (text, said) = of(Body::Mlm, "llama-3-8b", json!({}), json!({"cross_entropy": "te"}));
    assert!(text.contains("--cross-entropy-fusion-impl native"), "{text}");
    assert!(said.contains(&"training.cross_entropy".to_owned()), "{said:?}");
    let eight = json!({"dtype": "fp8_current", "fp8_attention": true});
    let (text, said) = of(Body::Mlm, "llama-3-8b", json!({}), eight);
    assert!(!text.contains("--fp8-dot-product-attention"), "{text}");
    assert!(said.contains(&"training.fp8_attention".to_owned()), "{said:?}");
    let (_, said) = of(Body::Mlm, "gpt-oss-20b", json!({}), json!({"mtp_layers": 1}));
    assert!(said.contains(&"model.mtp_layers".to_owned()), "{said:?}");
}

#[test]
fn a_graph_has_no_counts_of_tokens_that_are_dropped() {
    let capacity =
        json!({"cuda_graphs": "scoped", "moe": {"capacity_factor": 1.5, "dispatcher": "alltoall"}});
    let (text, _) = of(Body::Mlm, "qwen3-30b-a3b", json!({"ep": 8}), capacity);
    assert!(text.contains("moe_router") && !text.contains("moe_preprocess"), "{text}");
}
