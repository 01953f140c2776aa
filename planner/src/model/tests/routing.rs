//! How routers are read from what people have.

use serde_json::json;

use crate::model::{Architecture, Balance, Beside, Routing, Score, import_megatron, presets};

fn preset(id: &str) -> Routing {
    let preset = presets().iter().find(|preset| preset.id == id).unwrap();
    let architecture = crate::model::import_hf(preset.hf_config.as_ref().unwrap()).architecture.unwrap();
    architecture.moe.unwrap().routing
}

#[test]
fn presets_route_as_their_code_does() {
    let usual = Routing::default();
    let sigmoid = Routing { score: Score::Sigmoid, ..usual.clone() };
    assert_eq!(preset("mixtral-8x7b"), usual);
    assert_eq!(preset("minimax-m2"), sigmoid);
    assert_eq!(preset("deepseek-v3"), Routing { scale: 2.5, groups: 8, group_top_k: 4, ..sigmoid.clone() });
    assert_eq!(preset("kimi-k2"), Routing { scale: 2.827, ..sigmoid });
    assert_eq!(preset("deepseek-v2-lite"), Routing { normalize: false, ..usual });
}

/// transformers scores a group of experts by its best two, or in DeepSeek-V2 by its best one; Megatron-Core by `top_k / group_top_k`.
#[test]
fn groups_are_scored_as_the_models_code_does() {
    let scored = |model_type: &str, top_k: u64, groups: u64, group_top_k: u64| {
        let mut config = json!({"model_type": model_type, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "vocab_size": 1000, "n_routed_experts": 16, "n_group": groups, "topk_group": group_top_k, "first_k_dense_replace": 1});
        config["num_experts_per_tok"] = top_k.into();
        let routing =
            crate::model::import_hf(config.as_object().unwrap()).architecture.unwrap().moe.unwrap().routing;
        (routing.group_experts, routing.scored_together(top_k))
    };
    assert_eq!(scored("deepseek_v3", 8, 8, 4), (None, 2));
    assert_eq!(scored("deepseek_v3", 2, 4, 2), (Some(2), 2));
    assert_eq!(scored("deepseek_v3", 8, 4, 2), (Some(2), 2));
    assert_eq!(scored("glm4_moe", 4, 4, 4), (Some(2), 2));
    assert_eq!(scored("deepseek_v2", 6, 8, 3), (Some(1), 1));
    assert_eq!(scored("deepseek_v2", 3, 8, 3), (None, 1));
    assert_eq!(scored("deepseek_v3", 8, 1, 1).0, None);
}

fn tiny() -> Architecture {
    presets().iter().find(|preset| preset.id == "tiny-moe").unwrap().model().unwrap().0.clone()
}

#[track_caller]
fn refused(routing: Routing, part: &str) {
    let mut architecture = tiny();
    architecture.moe.as_mut().unwrap().routing = routing;
    let findings = crate::model::check_model(&architecture);
    assert!(findings.iter().any(|finding| finding.message.contains(part)), "{findings:?}");
}

#[test]
fn impossible_groups_and_factors_are_refused() {
    let usual = Routing::default();
    refused(Routing { groups: 0, ..usual.clone() }, "0 equal routing groups");
    refused(Routing { groups: 3, ..usual.clone() }, "3 equal routing groups");
    refused(Routing { groups: 2, group_top_k: 3, ..usual.clone() }, "3 of 2 routing groups");
    refused(Routing { groups: 8, group_top_k: 8, ..usual.clone() }, "must be between the 8");
    let together = |together| Routing { groups: 2, group_experts: Some(together), ..Routing::default() };
    refused(together(0), "0 of a routing group's experts");
    refused(together(5), "5 of a routing group's experts");
    refused(Routing { scale: f64::NAN, ..usual.clone() }, "scale is NaN");
    refused(Routing { aux_coefficient: -1.0, ..usual }, "aux_coefficient is -1");
}

#[test]
fn megatrons_switches() {
    let config = json!({
        "num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_moe_experts": 8,
        "moe_router_topk": 2, "moe_router_pre_softmax": true, "moe_router_topk_scaling_factor": 1.5,
        "moe_router_num_groups": 4, "moe_router_group_topk": 2, "moe_aux_loss_coeff": 0.01,
        "moe_router_load_balancing_type": "seq_aux_loss"
    });
    let architecture = import_megatron(config.as_object().unwrap(), Beside::default()).unwrap();
    assert_eq!(
        architecture.moe.unwrap().routing,
        Routing {
            normalize: false,
            scale: 1.5,
            groups: 4,
            group_top_k: 2,
            balance: Balance::SeqAuxLoss,
            aux_coefficient: 0.01,
            ..Routing::default()
        }
    );
}
