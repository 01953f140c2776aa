use serde_json::json;

use super::*;
use crate::finding::has_error;
use crate::layout::{parse_layout_string, stage_layers};
use crate::model::presets;
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::resolve::Resolved;

fn resolved(preset: &str, runtime: &str, gpus: u64, layout: serde_json::Value) -> Resolved {
    let file = json!({"version": 1, "model": {"preset": preset}, "runtime": runtime,
        "cluster": {"gpu": "h100-sxm", "nodes": gpus.div_ceil(8), "gpus_per_node": gpus.min(8)},
        "layout": layout, "training": {"global_batch_size": 4096}});
    Plan::resolve(&parse_plan(&file.to_string()).unwrap())
}

/// What is assumed of the stages, and the layers of each virtual stage.
fn check(preset: &str, runtime: &str, [pp, vpp]: [u64; 2], assumed: &str, layers: &str) {
    let found = resolved(preset, runtime, 512, json!({"pp": pp, "vpp": vpp}));
    let plan = found.plan.unwrap_or_else(|| panic!("{preset} {pp} x {vpp}: {:?}", found.findings));
    let split = plan.split();
    let mut said = Vec::new();
    said.extend(split.account_for_embedding.then(|| "embedding".to_owned()));
    said.extend(split.account_for_loss.then(|| "loss".to_owned()));
    said.extend(split.first_stage_layers.map(|layers| format!("first {layers}")));
    said.extend(split.last_stage_layers.map(|layers| format!("last {layers}")));
    said.extend(split.listed.map(|(text, _)| text));
    assert_eq!(said.join(" "), assumed, "{preset} {pp} x {vpp}");
    let counts = stage_layers(&plan.layout, plan.model.num_layers).unwrap();
    let text: Vec<String> = counts.iter().map(u64::to_string).collect();
    assert_eq!(text.join(" "), layers, "{preset} {pp} x {vpp}");
}

#[test]
fn layers_that_do_not_divide_split_themselves_in_the_simplest_way_that_is_as_even() {
    check("llama-3.1-405b", "megatron", [8, 1], "embedding loss", "15 16 16 16 16 16 16 15");
    check("deepseek-v3", "megatron", [4, 1], "first 14 last 15", "14 16 16 15");
    check("llama-3-70b", "megatron", [8, 1], "", "10 10 10 10 10 10 10 10");
    check("qwen3-235b-a22b", "megatron", [8, 1], "embedding loss", "11 12 12 12 12 12 12 11");
    check("minimax-m2", "megatron", [4, 1], "embedding loss", "15 16 16 15");
    check("deepseek-v3", "fsdp2", [4, 1], "Et*16|(t*15|)*2t*15L", "16 15 15 15");
}

#[test]
fn what_is_said_of_stages_stays_as_it_is() {
    for layout in [
        json!({"pp": 4, "first_stage_layers": 15}),
        json!({"pp": 4, "account_for_embedding": true}),
        json!({"pp": 4, "vpp": 2, "last_stage_layers": 13}),
    ] {
        let found = resolved("deepseek-v3", "megatron", 512, layout.clone());
        assert!(has_error(&found.findings), "{layout}");
    }
    // That embedding and loss are no layers says nothing of the rest.
    let off = json!({"pp": 8, "account_for_embedding": false, "account_for_loss": false});
    let plan = resolved("llama-3.1-405b", "megatron", 512, off).plan.unwrap();
    assert!(!plan.layout.account_for_embedding && !plan.layout.account_for_loss);
    assert_eq!(plan.layout.first_stage_layers, Some(15));
}

/// Any number of stages and chunks that has a layer, embedding or loss for each is accepted, and none is fuller than it must be.
#[test]
fn every_preset_splits_over_any_stages_as_evenly_as_can_be() {
    let mut checked = 0;
    for preset in presets() {
        for runtime in ["megatron", "native", "fsdp2"] {
            for (pp, vpp) in [(2, 1), (3, 1), (4, 2), (5, 1), (7, 1), (8, 3), (16, 2)] {
                let gpus = pp * 8;
                let found = resolved(&preset.id, runtime, gpus, json!({"pp": pp, "vpp": vpp}));
                let Some(plan) = found.plan else {
                    let stage = |one: &crate::Finding| {
                        one.severity == crate::Severity::Error
                            && (one.field == "layout.pp" || one.field == "layout.vpp")
                            && one.rule.contains("layers divide")
                    };
                    let layers = model_layers(&preset.id);
                    let few = pp * vpp > layers;
                    assert!(
                        few || !found.findings.iter().any(stage),
                        "{} {pp} {vpp}: {:?}",
                        preset.id,
                        found.findings
                    );
                    continue;
                };
                checked += 1;
                let counts = stage_layers(&plan.layout, plan.model.num_layers).unwrap();
                assert_eq!(counts.iter().sum::<u64>(), plan.model.num_layers, "{} {pp} {vpp}", preset.id);
                if runtime == "fsdp2" || plan.model.num_layers % (pp * vpp) == 0 {
                    continue;
                }
                let (most, _) = load(&counts, plan.model.mtp_layers);
                let items = plan.model.num_layers + 2 + plan.model.mtp_layers;
                let alone = (1 + plan.model.mtp_layers).max(1);
                assert!(most <= items.div_ceil(pp * vpp).max(alone), "{} {pp} {vpp}: {counts:?}", preset.id);
            }
        }
    }
    assert!(checked > 300, "{checked}");
}

fn model_layers(preset: &str) -> u64 {
    resolved(preset, "megatron", 8, json!({})).model().map_or(0, |model| model.num_layers)
}

#[test]
fn strings_hold_every_layer() {
    let counts = [3, 5, 5, 5, 0, 2];
    let text = layout_string(&counts, 1);
    assert_eq!(text, "Ettt|(t*5|)*3|ttmL");
    let chunks = parse_layout_string(&text).unwrap();
    let layers: Vec<u64> = chunks.iter().map(|chunk| chunk.layers.end - chunk.layers.start).collect();
    assert_eq!(layers, counts);
}

#[test]
fn nanotron_cuts_by_what_blocks_cost() {
    let counts = |pp: u64| {
        let file = json!({"version": 1,
            "model": {"architecture": {"num_layers": 16, "hidden_size": 2048, "ffn_hidden_size": 8192, "vocab_size": 131_072,
                "attention": {"kind": "gqa", "heads": 32, "kv_heads": 32, "head_dim": 64}}},
            "cluster": {"gpu": "h100-sxm", "nodes": 4}, "layout": {"pp": pp},
            "training": {"global_batch_size": 1024}, "software": {"profile": "nanotron-2024"}});
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
        stage_layers(&plan.layout, 16).unwrap()
    };
    // The output layer costs as much as four of the sixteen layers.
    assert_eq!(counts(2), [10, 6]);
    assert_eq!(counts(4), [5, 5, 5, 1]);
    // Of stages that are as many as the layers, the last hold none.
    assert_eq!(counts(16).iter().filter(|layers| **layers == 0).count(), 3);
}
