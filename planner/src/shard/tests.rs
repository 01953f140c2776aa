//! Shards against instantiated Megatron-Core models; `crate::accuracy` compares the others.

use serde_json::json;

use super::{Module, stage_families};
use crate::plan::{Plan, parse_plan};

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
