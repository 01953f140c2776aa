//! Shards against instantiated Megatron-Core models; `crate::accuracy` compares the others.

use serde_json::json;

use super::stage_families;
use crate::model::Module;
use crate::parse::parse_plan;
use crate::plan::Plan;

#[test]
fn deepseek_v3_with_its_prediction_module() {
    // Instantiated Megatron-Core 0.20, pp 16: the module (a layer, its projection, three norms) and a second embedding.
    for layout in [
        json!({"pp": 16, "ep": 64, "pipeline_layout": "Et*3|(tt|)*29m|L"}),
        json!({"pp": 16, "ep": 64, "first_stage_layers": 4, "last_stage_layers": 1}),
    ] {
        let file = json!({
            "version": 1, "model": {"preset": "deepseek-v3"}, "layout": layout,
            "cluster": {"gpu": "h100-sxm", "nodes": 128}, "training": {"global_batch_size": 4096, "mtp_layers": 1},
        });
        let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        let plan = resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings));
        let all: u64 = (0..16)
            .flat_map(|stage| stage_families(&plan, stage))
            .map(|family| {
                let replicas = if family.parameter.module == Module::Expert { plan.layout.ep } else { 1 };
                family.count * family.local_elements() * replicas
            })
            .sum();
        assert_eq!(all, 671_026_404_352 + 12_536_747_008, "{layout}");
        assert_eq!(crate::model::count(&plan.model).0, 671_026_404_352 + 11_610_067_968);
    }
}

/// Stages that hold the final norm, and those that hold the output layer.
fn ends(layout: serde_json::Value, mtp_layers: u64) -> [Vec<u64>; 2] {
    let file = json!({
        "version": 1, "model": {"preset": "deepseek-v3"}, "layout": layout,
        "cluster": {"gpu": "h100-sxm", "nodes": 128}, "training": {"global_batch_size": 4096, "mtp_layers": mtp_layers},
    });
    let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
    let plan = resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings));
    ["final_norm", "head.weight"].map(|wanted| {
        let has = |&stage: &u64| {
            stage_families(&plan, stage).iter().any(|family| family.parameter.name.starts_with(wanted))
        };
        (0..plan.layout.pp).filter(has).collect()
    })
}

#[test]
fn the_final_norm_is_behind_the_last_layer_where_tokens_are_predicted_ahead() {
    let alone = json!({"pp": 16, "ep": 64, "pipeline_layout": "Et*3|(tt|)*29m|L"});
    assert_eq!(ends(alone, 1), [vec![13], vec![15]]);
    // Without such modules it is in front of the output layer.
    let plain = json!({"pp": 16, "ep": 64, "pipeline_layout": "Et*3|(tt|)*29|L"});
    assert_eq!(ends(plain, 0), [vec![15], vec![15]]);
    let together = json!({"pp": 16, "ep": 64, "first_stage_layers": 4, "last_stage_layers": 1});
    assert_eq!(ends(together, 1), [vec![15], vec![15]]);
}
