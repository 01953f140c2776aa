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

/// The script of a plan file's parts over Llama 3 8B on two nodes.
fn parts(kind: Body, framework: &str, parts: &Value) -> String {
    let mut file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 2},
        "software": {"framework": framework}});
    for (name, value) in parts.as_object().unwrap() {
        file[name] = value.clone();
    }
    let (text, findings) = script(&plan(&file.to_string()), &site(), &body(kind));
    assert!(!has_error(&findings), "{findings:?}");
    text
}

/// What Hydra takes as an override, as it stands in a script.
fn overridden(text: &str, name: &str) -> Option<String> {
    let words = text.split_whitespace().filter_map(|word| word.strip_prefix(name));
    words.filter_map(|rest| rest.strip_prefix('=')).next_back().map(|word| word.trim_matches('\'').to_owned())
}

#[test]
fn nothing_of_a_recipe_holds_that_the_plan_does_not_say() {
    let bridge = |layout: Value, training: Value, run: Value| {
        parts(Body::Bridge, "bridge 26.08", &json!({"layout": layout, "training": training, "run": run}))
    };
    // Recipes of 0.6 set each of these.
    let text = bridge(json!({"tp": 2, "pp": 2}), json!({}), json!({"steps": 1000}));
    for (name, word) in [
        ("model.virtual_pipeline_model_parallel_size", "null"),
        ("model.pipeline_model_parallel_layout", "null"),
        ("model.num_layers_in_first_pipeline_stage", "null"),
        ("model.num_layers_in_last_pipeline_stage", "null"),
        ("model.microbatch_group_size_per_vp_stage", "null"),
        ("model.account_for_embedding_in_pipeline_split", "false"),
        ("model.account_for_loss_in_pipeline_split", "false"),
        ("model.cpu_offloading", "false"),
        ("ddp.num_distributed_optimizer_instances", "1"),
        ("optimizer.main_grads_dtype", "torch.float32"),
        ("optimizer.main_params_dtype", "torch.float32"),
        ("optimizer.exp_avg_dtype", "torch.float32"),
        ("optimizer.exp_avg_sq_dtype", "torch.float32"),
        ("optimizer.overlap_param_gather_with_optimizer_step", "false"),
        ("scheduler.lr_decay_iters", "1000"),
        ("comm_overlap", "null"),
    ] {
        assert_eq!(overridden(&text, name).as_deref(), Some(word), "{name}");
    }
    // An overlap of the plan's is the model's own, with or without which the two ways to send between stages exclude each other.
    for p2p in [true, false] {
        let overlap = json!({"tp": true, "p2p": p2p});
        let text = bridge(
            json!({"tp": 2, "pp": 4, "vpp": 2}),
            json!({"overlap": overlap, "global_batch_size": 64}),
            json!({}),
        );
        assert_eq!(overridden(&text, "comm_overlap").as_deref(), Some("null"));
        assert_eq!(overridden(&text, "model.tp_comm_overlap").as_deref(), Some("true"));
        assert_eq!(overridden(&text, "model.overlap_p2p_comm"), Some(p2p.to_string()));
        assert_eq!(overridden(&text, "model.batch_p2p_comm"), Some((!p2p).to_string()));
    }
    let offload = json!({"offload": {"modules": ["core_attn"]}, "cuda_graphs": "iteration"});
    let text = bridge(json!({}), offload, json!({}));
    assert!(overridden(&text, "model.fine_grained_offloading_max_inflight_offloads").is_some(), "{text}");
}

#[test]
fn context_parallelism_in_two_levels_has_their_sizes() {
    // Eight key-value heads on two tensor-parallel ranks, and four of the context's on a node.
    for (tp, cp, sizes) in [(2, 8, [4, 2]), (1, 16, [8, 2]), (8, 2, [1, 2]), (4, 4, [2, 2])] {
        let layout = json!({"layout": {"tp": tp, "cp": cp, "cp_kind": "a2a+p2p"}});
        let [inner, outer] = sizes;
        let text = parts(Body::Bridge, "bridge 26.08", &layout);
        let written = overridden(&text, "model.hierarchical_context_parallel_sizes");
        assert_eq!(written, Some(format!("[{inner},{outer}]")), "tp {tp} cp {cp}");
        let text = parts(Body::Mlm, "megatron-lm core_v0.19", &layout);
        assert!(text.contains(&format!("--hierarchical-context-parallel-sizes {inner} {outer}")), "{text}");
    }
    let text = parts(Body::Mlm, "megatron-lm core_v0.19", &json!({"layout": {"cp": 2}}));
    assert!(!has(&text, "--hierarchical-context-parallel-sizes"), "{text}");
}

#[test]
fn a_rate_ends_behind_its_warm_up_and_no_higher_than_it_is() {
    let run = json!({"run": {"steps": 100, "warmup_steps": 100, "lr": 3e-4, "min_lr": 1e-3}});
    let text = parts(Body::Mlm, "megatron-lm core_v0.19", &run);
    assert!(text.contains("--lr-decay-iters 101") && text.contains("--min-lr 0.0003"), "{text}");
    let text = parts(Body::Bridge, "bridge 26.08", &run);
    assert_eq!(overridden(&text, "scheduler.lr_decay_iters").as_deref(), Some("101"));
    assert_eq!(overridden(&text, "optimizer.min_lr").as_deref(), Some("0.0003"));
    let mut mesh = run.clone();
    mesh["runtime"] = "fsdp2".into();
    let text = parts(Body::Automodel, "automodel 0.7", &mesh);
    let has_end =
        text.contains("--lr_scheduler.lr_decay_steps 101") && text.contains("--lr_scheduler.min_lr 0.0003");
    assert!(has_end, "{text}");
}

#[test]
fn torchtitans_rate_falls_until_the_last_step() {
    let of = |run: Value| {
        let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 2},
            "software": {"framework": "torchtitan 0.3"}, "runtime": "fsdp2", "run": run});
        let (text, findings) = script(&plan(&file.to_string()), &site(), &body(Body::Torchtitan));
        (text, findings.into_iter().any(|finding| finding.field == "run.lr_decay_steps"))
    };
    for (schedule, decay, total, said) in [
        ("constant", json!(500), 1000, false),
        ("linear", json!(500), 1000, true),
        ("cosine", json!(2000), 2000, false),
        ("cosine", Value::Null, 1000, false),
    ] {
        let (text, is_said) = of(json!({"steps": 1000, "lr_schedule": schedule, "lr_decay_steps": decay}));
        assert!(text.contains(&format!("--lr_scheduler.total_steps {total}")), "{schedule} {decay}: {text}");
        assert_eq!(is_said, said, "{schedule} {decay}");
    }
}
