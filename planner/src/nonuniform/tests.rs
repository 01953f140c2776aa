//! Whole plans with failed GPUs.

use serde_json::{Value, json};

use crate::answer::estimate;
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::wire::{Answer, NonuniformAnswer, RankRole};

fn file(preset: &str, nodes: u64, layout: &Value, failed: &Value, batch: u64) -> crate::wire::PlanFile {
    let plan = json!({
        "version": 1, "model": {"preset": preset},
        "cluster": {"gpu": "h100-sxm", "nodes": nodes, "failed": failed},
        "layout": layout, "training": {"global_batch_size": batch}
    });
    parse_plan(&plan.to_string()).unwrap()
}

fn answer(preset: &str, nodes: u64, layout: Value, failed: Value) -> Answer {
    estimate(&file(preset, nodes, &layout, &failed, 64))
}

fn refused(preset: &str, nodes: u64, layout: Value, failed: Value, part: &str) {
    let answer = answer(preset, nodes, layout.clone(), failed.clone());
    let said: Vec<&str> = answer
        .findings
        .iter()
        .filter(|finding| finding.severity == crate::Severity::Error)
        .map(|finding| finding.message.as_str())
        .collect();
    assert!(said.iter().any(|said| said.contains(part)), "{layout} {failed}: {said:?}");
    assert_eq!(answer.memory, None);
}

fn planned(preset: &str, nodes: u64, layout: Value, failed: Value) -> NonuniformAnswer {
    let resolved = Plan::resolve(&file(preset, nodes, &layout, &failed, 64));
    let plan = resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings));
    crate::nonuniform::answer(&plan).unwrap()
}

#[test]
fn the_greatest_degree_that_the_model_allows_is_taken() {
    // 32 heads of 8 key-value heads, tp 8: one GPU less leaves 7 slots, of which 4 can be used.
    let found = planned("llama-3-8b", 8, json!({"tp": 8}), json!([{"node": 1, "gpu": 5}]));
    assert_eq!((found.base, found.reduced, &found.reduced_replicas[..]), (8, 4, &[1][..]));
    assert_eq!(found.allowed, [4, 2, 1]);
    assert_eq!(found.inactive_ranks, [8 + 4, 8 + 5, 8 + 6, 8 + 7]);
    assert_eq!((found.local_batch, found.reduced_batch), (8, 4));
    let by_rank = planned("llama-3-8b", 8, json!({"tp": 8}), json!([{"rank": 13}]));
    let by_place = planned("llama-3-8b", 8, json!({"tp": 8}), json!([{"dp": 1, "cp": 0, "pp": 0, "tp": 5}]));
    assert_eq!((&by_rank, &by_place), (&found, &found));
}

#[test]
fn failed_domains_far_apart_are_better_packed() {
    // Four stages: two failed GPUs reduce two replicas in place, one when packed.
    let failed = json!([{"rank": 0}, {"rank": 12}]);
    let found = planned("llama-3-8b", 8, json!({"tp": 4, "pp": 4}), failed);
    assert_eq!(found.reduced_replicas, [0, 3]);
    let loss = |name: &str| found.alternatives.iter().find(|other| other.name == name).unwrap().loss;
    assert!(loss("nonuniform_packed") < loss("nonuniform"), "{:?}", found.alternatives);
    assert!(loss("nonuniform") < loss("drop"), "{:?}", found.alternatives);
    // Half of the slots are more than any boost makes up for: one replica of four does 1.1557 / 2 of its work.
    let faster = crate::nonuniform::Boost::of_power(crate::nonuniform::MOST_POWER).speed;
    assert!(
        (loss("nonuniform_boosted") - (1.0 - 0.5 * faster) / 4.0).abs() < 1e-12,
        "{:?}",
        found.alternatives
    );
    // Two domains of four GPUs for the two that failed, fewer than a replica of four domains for the half that one reduced replica does not
    // do: of 64 GPUs and the spares these stand idle.
    assert_eq!((loss("spares"), loss("nonuniform_spares")), (8.0 / 72.0, 8.0 / 72.0));
}

/// What binds where fewer slots are used than are left is named, with the way out where a setting of the plan is one.
#[test]
fn what_keeps_slots_from_being_used_is_named() {
    let said = |heads: u64, layout: Value, seq_len: u64| {
        let file = json!({
            "version": 1,
            "model": {"hf_config": {
                "model_type": "llama", "hidden_size": 128 * heads, "intermediate_size": 12288, "num_hidden_layers": 8,
                "num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": 128, "vocab_size": 49152,
                "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
                "tie_word_embeddings": false, "attention_bias": false, "torch_dtype": "bfloat16"
            }},
            "cluster": {"gpu": "h100-sxm", "nodes": 4,
                        "failed": [{"dp": 0, "cp": 0, "pp": 0, "tp": 2}, {"dp": 0, "cp": 0, "pp": 0, "tp": 5}]},
            "layout": layout, "training": {"global_batch_size": 64, "seq_len": seq_len}
        });
        let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        let plan = resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings));
        let remarks = crate::nonuniform::remarks(&plan);
        (
            plan.nonuniform.unwrap().shrunk.reduced,
            remarks[0].message.split("--wait=0").last().unwrap().to_owned(),
        )
    };
    let lifts = "; they would with layout.sp false, or a training.seq_len that they divide";
    let of = |what: &str, way: &str| format!(". 6 slots can't go on, which do not divide {what}{way}");
    assert_eq!(said(24, json!({"tp": 8}), 4096), (4, of("a sequence's tokens of 4096", lifts)));
    assert_eq!(said(24, json!({"tp": 8, "sp": false}), 4096), (6, String::new()));
    assert_eq!(said(24, json!({"tp": 8}), 4080), (6, String::new()));
    let padded = json!({"tp": 8, "sp": false, "vocab_divisible_by": 4096});
    let way = "; they would with a layout.vocab_divisible_by that is a multiple of them";
    assert_eq!(said(24, padded, 4096), (4, of("a padded vocabulary of 65536", way)));
    assert_eq!(said(24, json!({"tp": 8, "sp": false, "vocab_divisible_by": 6}), 4096), (6, String::new()));
    // What the model has is no setting.
    let heads = "attention heads of 32, key-value heads of 32";
    assert_eq!(said(32, json!({"tp": 8, "sp": false}), 4096), (4, of(heads, "")));
    assert_eq!(
        said(32, json!({"tp": 8}), 4096),
        (4, of(&format!("{heads}, a sequence's tokens of 4096"), ""))
    );
}

#[test]
fn what_can_not_be_planned_around_is_refused() {
    let one = || json!([{"node": 0, "gpu": 0}]);
    refused("llama-3-8b", 8, json!({"tp": 8}), json!([{"node": 8, "gpu": 0}]), "node 8 does not exist");
    refused(
        "llama-3-8b",
        8,
        json!({"tp": 8}),
        json!([{"node": 0, "gpu": 9}]),
        "GPU 9 of node 0 does not exist",
    );
    refused("llama-3-8b", 8, json!({"tp": 8}), json!([{"rank": 64}]), "rank 64 does not exist");
    refused(
        "llama-3-8b",
        8,
        json!({"tp": 8}),
        json!([{"dp": 0, "cp": 0, "pp": 0, "tp": 8}]),
        "tp 8 does not exist",
    );
    refused("llama-3-8b", 8, json!({}), one(), "leave out that replica");
    refused("llama-3-8b", 1, json!({"tp": 8}), one(), "all 1 replicas would run reduced");
    refused("mixtral-8x7b", 8, json!({"tp": 8}), one(), "leave out the replicas");
    let slices = json!([{"dp": 0, "cp": 0, "pp": 0, "tp": 1}, {"dp": 0, "cp": 1, "pp": 0, "tp": 2}]);
    refused("llama-3-8b", 8, json!({"tp": 4, "cp": 2}), slices, "list 1 and 2 for each");
    let fsdp = estimate(
        &parse_plan(
            &json!({
                "version": 1, "model": {"preset": "llama-3-8b"}, "runtime": "fsdp2",
                "cluster": {"gpu": "h100-sxm", "nodes": 2, "failed": [{"rank": 0}]}
            })
            .to_string(),
        )
        .unwrap(),
    );
    assert!(fsdp.findings[0].message.contains("runtime fsdp2"), "{:?}", fsdp.findings);
    let small = estimate(&file("llama-3-8b", 8, &json!({"tp": 8}), &one(), 8));
    assert!(small.findings[0].message.contains("less than one micro batch"), "{:?}", small.findings);
}

/// Every element of every parameter is held once in each replica, reduced or not, and buffers are as memory says.
#[test]
fn shards_of_reduced_and_healthy_replicas_tile_every_tensor() {
    let failed = json!([{"node": 0, "gpu": 6}]);
    let plan = Plan::resolve(&file("llama-3-8b", 2, &json!({"tp": 4}), &failed, 64)).plan.unwrap();
    let nonuniform = plan.nonuniform.as_ref().unwrap();
    assert_eq!(nonuniform.reduced_replicas(), [1]);
    let mut held: std::collections::BTreeMap<(u64, String), u64> = std::collections::BTreeMap::new();
    for rank in 0..plan.world_size() {
        let at = crate::layout::coordinates(&plan.layout, rank);
        let shards = plan.rank_shards(rank);
        assert_eq!(
            shards.params.is_empty(),
            nonuniform.shrunk.role(&at) == RankRole::Inactive,
            "rank {rank}"
        );
        for param in shards.params {
            if param.cut_by.is_some() {
                *held.entry((at.dp, param.name.clone())).or_default() += param.elements();
                let whole: u64 = param.shape.iter().product();
                assert_eq!(whole % param.elements(), 0);
            }
        }
        for class in &crate::memory::answer(&plan).rank_classes {
            if class.role == Some(nonuniform.shrunk.role(&at)) {
                let buffers = &shards.buffers;
                assert_eq!(
                    buffers.iter().map(|buffer| buffer.weights_bytes()).sum::<u64>(),
                    class.weights_bytes
                );
                assert_eq!(
                    buffers.iter().map(|buffer| buffer.gradients_bytes()).sum::<u64>(),
                    class.gradients_bytes
                );
                assert_eq!(
                    buffers.iter().map(|buffer| buffer.optimizer_bytes()).sum::<u64>(),
                    class.optimizer_bytes
                );
            }
        }
    }
    let of = |replica: u64| {
        held.iter().filter(move |((dp, _), _)| *dp == replica).map(|((_, name), &size)| (name.clone(), size))
    };
    for replica in 1..4 {
        assert!(of(replica).eq(of(0)), "replica {replica} holds what replica 0 holds");
    }
}

#[test]
fn memory_tells_reduced_core_and_extra_ranks_apart() {
    let failed = json!([{"node": 0, "gpu": 6}]);
    let answer = answer("llama-3-8b", 2, json!({"tp": 4}), failed);
    let classes = answer.memory.unwrap().rank_classes;
    let of = |role: RankRole| classes.iter().find(|class| class.role == Some(role)).unwrap();
    let (reduced, core, extra) = (of(RankRole::Reduced), of(RankRole::Core), of(RankRole::Extra));
    assert_eq!((reduced.count, core.count, extra.count), (2, 6, 6));
    assert_eq!((reduced.example_rank, core.example_rank, extra.example_rank), (4, 0, 2));
    assert!(reduced.weights_bytes > core.weights_bytes);
    assert_eq!(core.weights_bytes, extra.weights_bytes);
    // Cores have room for the rows of the extras, extras keep the optimizer state of their slices alone.
    assert!(core.gradients_bytes > extra.gradients_bytes);
    assert!(extra.optimizer_bytes > 3 * core.optimizer_bytes);
}

/// Under runtime native every block of slots has each expert once, whole or in slices, and each rank's buffers are as memory says.
#[test]
fn experts_of_a_world_with_failed_gpus_are_held_once_by_each_block() {
    for (layout, optimizer) in [
        (json!({"tp": 4, "etp": 2}), "adam"),
        (json!({"tp": 4, "ep": 2}), "muon"),
        (json!({"tp": 4, "etp": 2, "pp": 2}), "muon"),
    ] {
        for distributed in [true, false] {
            let plan = json!({"version": 1, "runtime": "native", "layout": layout,
                "model": {"architecture": {"num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 96, "vocab_size": 256,
                    "attention": {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8},
                    "moe": {"experts": 8, "top_k": 2, "ffn_hidden_size": 32, "shared_ffn_hidden_size": 32}}},
                "cluster": {"gpu": "cpu", "nodes": 4, "gpus_per_node": 4, "failed": [{"node": 1, "gpu": 2}]},
                "training": {"seq_len": 16, "micro_batch_size": 1, "global_batch_size": 16,
                    "optimizer": {"kind": optimizer, "distributed": distributed}}});
            let resolved = Plan::resolve(&parse_plan(&plan.to_string()).unwrap());
            let plan = resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings));
            let classes = crate::memory::answer(&plan).rank_classes;
            let all: Vec<_> = (0..plan.world_size()).map(|rank| plan.rank_shards(rank)).collect();
            let blocks =
                plan.groups().into_iter().filter(|group| group.kind == crate::layout::GroupKind::EtpEp);
            for block in blocks {
                let mut held: std::collections::BTreeMap<&str, (u64, u64)> =
                    std::collections::BTreeMap::new();
                for param in block.ranks.iter().flat_map(|&rank| &all[rank as usize].params) {
                    if param.module == crate::model::Module::Expert {
                        held.entry(&param.name).or_insert((0, param.shape.iter().product())).0 +=
                            param.elements();
                    }
                }
                assert!(
                    !held.is_empty() && held.values().all(|(held, whole)| held == whole),
                    "{layout}: {held:?}"
                );
            }
            for rank in plan.active_ranks() {
                let (buffers, at) =
                    (&all[rank as usize].buffers, crate::layout::coordinates(&plan.layout, rank));
                let sum = |of: fn(&crate::shard::BufferShard) -> u64| buffers.iter().map(of).sum::<u64>();
                let own = |class: &&crate::wire::RankClass| {
                    class.role == plan.role_of(rank) && class.stage == at.pp
                };
                let class = classes.iter().find(own).unwrap();
                assert_eq!(
                    sum(crate::shard::BufferShard::weights_bytes),
                    class.weights_bytes,
                    "{layout} {rank}"
                );
                assert_eq!(
                    sum(crate::shard::BufferShard::gradients_bytes),
                    class.gradients_bytes,
                    "{layout} {rank}"
                );
                assert_eq!(
                    sum(crate::shard::BufferShard::optimizer_bytes),
                    class.optimizer_bytes,
                    "{layout} {rank}"
                );
            }
        }
    }
}
