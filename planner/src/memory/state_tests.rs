//! A rank's list of buffers is what the estimate counts, to the byte.

use serde_json::{Value, json};

use crate::memory::answer;
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::shard::BufferShard;

fn plan(runtime: &str, preset: &str, layout: &Value, training: &Value) -> Option<Plan> {
    let file = json!({
        "version": 1, "model": {"preset": preset}, "runtime": runtime,
        "cluster": {"gpu": "h100-sxm", "nodes": 2, "gpus_per_node": 8}, "layout": layout, "training": training,
    });
    Plan::judge(&parse_plan(&file.to_string()).unwrap()).plan
}

/// The lists of all ranks that the estimate names against what it counts for them. Says how many there are.
fn check(plan: &Plan) -> usize {
    let classes = answer(plan).rank_classes;
    for class in &classes {
        let buffers = plan.rank_shards(class.example_rank).buffers;
        let sum = |of: fn(&BufferShard) -> u64| buffers.iter().map(of).sum::<u64>();
        let listed = [
            sum(BufferShard::weights_bytes),
            sum(BufferShard::gradients_bytes),
            sum(BufferShard::optimizer_bytes),
        ];
        let counted = [class.weights_bytes, class.gradients_bytes, class.optimizer_bytes];
        assert_eq!(listed, counted, "rank {} of {:?} {:?}", class.example_rank, plan.layout, plan.training);
    }
    classes.len()
}

#[test]
fn lists_are_what_the_estimate_counts() {
    let mut checked = 0;
    let kinds = ["adam", "sgd", "muon"];
    let moments = [("fp32", "fp32"), ("bf16", "bf16"), ("fp16", "fp8")];
    for (kind, (first, second), number) in kinds
        .into_iter()
        .flat_map(|kind| moments.map(|moments| (kind, moments)))
        .flat_map(|(kind, moments)| (0..256u32).map(move |number| (kind, moments, number)))
    {
        let bit = |place: u32| number & (1 << place) != 0;
        let dtype = match (bit(5), bit(6)) {
            (true, false) => "fp8_current",
            (true, true) => "mxfp8",
            (false, true) => "fp32",
            (false, false) => "bf16",
        };
        let training = json!({
            "global_batch_size": 16, "seq_len": 256, "dtype": dtype, "fp8_param_gather": bit(5),
            "bf16_first_layers": if bit(5) && bit(7) { 1 } else { 0 },
            "grad_dtype": if bit(4) && dtype != "fp32" { "bf16" } else { "fp32" },
            "optimizer": {
                "kind": kind, "distributed": bit(1), "precision_aware": bit(2), "exp_avg_dtype": first,
                "exp_avg_sq_dtype": second, "instances": if bit(3) { 2 } else { 1 },
                "offload_fraction": if bit(0) { 0.3 } else { 0.0 },
            },
        });
        for (preset, ep) in [("tiny-dense", 1), ("tiny-moe", 2)] {
            let layout = json!({"tp": 2, "pp": if bit(7) { 2 } else { 1 }, "ep": ep});
            let Some(plan) = plan("megatron", preset, &layout, &training) else { continue };
            checked += check(&plan);
        }
    }
    assert!(checked > 400, "{checked}");
}

#[test]
fn lists_of_other_runtimes_are_what_is_counted() {
    for (runtime, fsdp) in [
        ("native", json!({})),
        ("fsdp2", json!({})),
        ("fsdp2", json!({"offload": "cpu"})),
        ("megatron_fsdp", json!({})),
    ] {
        for preset in ["tiny-dense", "tiny-moe"] {
            for kind in ["adam", "sgd", "muon"] {
                let ep = if preset == "tiny-moe" && runtime != "megatron_fsdp" { 2 } else { 1 };
                let layout = json!({"tp": 2, "ep": ep, "fsdp": fsdp});
                let training = json!({"global_batch_size": 16, "seq_len": 256, "optimizer": {"kind": kind}});
                if let Some(plan) = plan(runtime, preset, &layout, &training) {
                    check(&plan);
                }
            }
        }
    }
}

/// Ranks of a dealt optimizer between the first and the last are none that the estimate names; together they hold all.
#[test]
fn dealt_state_is_all_of_it() {
    let training =
        json!({"global_batch_size": 16, "seq_len": 256, "optimizer": {"kind": "muon", "distributed": true}});
    for (preset, ep) in [("tiny-dense", 1), ("tiny-moe", 2)] {
        let plan = plan("megatron", preset, &json!({"tp": 2, "ep": ep}), &training).unwrap();
        for expert in [false, true] {
            let (mut kept, mut held) = (0, 0);
            for rank in 0..plan.world_size() {
                let shards = plan.rank_shards(rank);
                for (number, buffer) in
                    shards.buffers.iter().enumerate().filter(|(_, one)| one.expert == expert)
                {
                    kept += buffer.state_elements() * plan.group_size(buffer.group);
                    held += shards
                        .params
                        .iter()
                        .filter(|one| one.buffer == number)
                        .map(|one| one.elements())
                        .sum::<u64>();
                }
            }
            assert_eq!(kept, held, "{preset}");
        }
    }
}

#[test]
fn state_on_the_host_is_no_byte_less() {
    let of = |fraction: f64| {
        let training = json!({"optimizer": {"precision_aware": true, "offload_fraction": fraction}});
        let plan = plan("megatron", "llama-3-8b", &json!({"tp": 2}), &training).unwrap();
        check(&plan);
        let buffers = plan.rank_shards(0).buffers;
        let sum = |of: fn(&BufferShard) -> u64| buffers.iter().map(of).sum::<u64>();
        (sum(BufferShard::optimizer_bytes), sum(BufferShard::host_bytes))
    };
    let (all, none) = of(0.0);
    assert_eq!(none, 0);
    let (here, there) = of(0.25);
    assert_eq!(here + there, all);
    assert!(there.abs_diff(all / 4) < 8, "{there} of {all}");
    assert_eq!(of(1.0), (0, all));
}

#[test]
fn half_the_moments_are_half_the_bytes() {
    let of = |moments: &str| {
        let training = json!({"optimizer": {"precision_aware": true, "exp_avg_dtype": moments, "exp_avg_sq_dtype": moments}});
        let plan = plan("megatron", "llama-3-8b", &json!({"tp": 2}), &training).unwrap();
        check(&plan);
        plan.rank_shards(0).buffers.iter().map(BufferShard::optimizer_bytes).sum::<u64>()
    };
    // Two bytes of the master, and eight or four of the moments.
    assert_eq!(of("fp32") / 10, of("bf16") / 6);
}

#[test]
fn nanotron_keeps_buckets_and_copies_of_split_state() {
    let held = |distributed: bool, profile: Option<&str>| {
        let file = json!({"version": 1,
            "model": {"architecture": {"num_layers": 16, "hidden_size": 2048, "ffn_hidden_size": 8192, "vocab_size": 131_072,
                "attention": {"kind": "gqa", "heads": 32, "kv_heads": 32, "head_dim": 64}, "tied_embeddings": true}},
            "cluster": {"gpu": "h100-sxm", "nodes": 1}, "layout": {"tp": 2},
            "training": {"seq_len": 4096, "global_batch_size": 16, "optimizer": {"distributed": distributed}},
            "software": {"profile": profile}});
        let plan = Plan::judge(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
        let class = answer(&plan).rank_classes[0].clone();
        let part =
            |name: &str| class.parts.iter().find(|part| part.name == name).map_or(0, |part| part.bytes);
        (class.weights_bytes / 2, part("program_copies"), part("gather_buffer"), part("workspaces"))
    };
    let (weights, copies, gathered, workspaces) = held(false, Some("nanotron-2024"));
    assert_eq!((copies, gathered, workspaces), (2 * weights, 2 * 2 * 4096 * 2048, 2 * (32 << 20)));
    let (weights, copies, ..) = held(true, Some("nanotron-2024"));
    assert_eq!(copies, 4 * weights + 2 * weights / 4);
    assert_eq!(held(true, None).1, 0);
}
