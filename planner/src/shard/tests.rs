//! Shards against instantiated Megatron-Core models.

use serde_json::{Value, json};

use super::{Module, stage_families};
use crate::plan::{Plan, parse_plan};

#[test]
fn stages_hold_what_megatron_allocates() {
    let data: Value = serde_json::from_str(include_str!("data/megatron_param_counts.json")).unwrap();
    let rows = data["rows"].as_array().unwrap();
    assert!(rows.len() >= 22);
    for row in rows {
        let world = row["world"].as_u64().unwrap();
        let file = json!({
            "version": 1, "model": row["model"], "layout": row["layout"],
            "cluster": {"gpu": "h100-sxm", "nodes": world / world.min(8), "gpus_per_node": world.min(8)},
            // Enough micro batches for any pipeline here.
            "training": {"global_batch_size": 4096},
        });
        let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        let plan = resolved.plan.unwrap_or_else(|| panic!("{row}: {:?}", resolved.findings));
        let stages: Vec<[u64; 2]> = (0..plan.layout.pp)
            .map(|stage| {
                let mut counts = [0; 2];
                for family in stage_families(&plan, stage) {
                    // Megatron marks experts as such only where expert parallelism is used.
                    let expert = family.parameter.module == Module::Expert && plan.layout.ep > 1;
                    counts[usize::from(expert)] += family.count * family.local_elements();
                }
                counts
            })
            .collect();
        assert_eq!(json!(stages), row["stages"], "{} {}", row["model"], row["layout"]);
    }
}

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
