//! What the worker keeps of Megatron-FSDP's units is what the planner lists, and every element's state is kept once.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fsdp::carried_out_tests::{number, small};
use super::fsdp::computed_with;
use super::{BufferShard, ParamShard, flat_units, rank_shards, unit_buffers};
use crate::parse_plan;
use crate::plan::Plan;
use crate::settings::Strategy;

fn plan(model: &Value, world: u64, layout: &Value) -> Plan {
    let file = json!({"version": 1, "model": model, "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": world},
        "layout": layout, "runtime": "megatron_fsdp", "training": {"seq_len": 32, "global_batch_size": 240}});
    let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
    resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
}

/// A part of a parameter whose optimizer state a rank keeps: its first element in the slice, and how many.
fn states(plan: &Plan, native: &Plan, rank: u64) -> (Vec<BufferShard>, Vec<(ParamShard, u64, u64)>) {
    let shards = native.rank_shards(rank);
    if plan.layout.fsdp.strategy > Strategy::Optim {
        let carried = flat_units(plan, &shards).unwrap();
        let parts = carried.parts.into_iter().map(|part| {
            let elements = part.shard.elements();
            (part.shard, 0, elements)
        });
        return (carried.buffers, parts.collect());
    }
    let own = unit_buffers(plan, &shards).unwrap().shards;
    let part = |shard: &ParamShard| {
        let state = &own.buffers[shard.buffer].states[0];
        let (from, end) = (state.offset.unwrap(), state.offset.unwrap() + state.elements);
        let first = shard.buffer_offset.max(from);
        let last = (shard.buffer_offset + shard.elements()).min(end);
        (shard.clone(), first.saturating_sub(shard.buffer_offset), last.saturating_sub(first))
    };
    let parts = own.params.iter().map(part).collect();
    (own.buffers, parts)
}

#[track_caller]
fn check(model: &Value, world: u64, layout: &Value) {
    for strategy in ["no_shard", "optim", "optim_grads", "optim_grads_params"] {
        let mut layout = layout.clone();
        layout["fsdp"]["strategy"] = strategy.into();
        let outer = layout["fsdp"].get("outer_strategy").is_some();
        if outer && strategy != "optim_grads_params" {
            continue;
        }
        let plan = plan(model, world, &layout);
        let native = Plan::resolve(&computed_with(&plan)).plan.unwrap();
        let mesh = plan.mesh();
        let mut kept: BTreeMap<(String, u64), u64> = BTreeMap::new();
        for rank in 0..world {
            let (buffers, parts) = states(&plan, &native, rank);
            let sums = |buffers: &[BufferShard]| {
                let sum = |of: fn(&BufferShard) -> u64| buffers.iter().map(of).sum::<u64>();
                [
                    sum(BufferShard::weights_bytes),
                    sum(BufferShard::gradients_bytes),
                    sum(BufferShard::optimizer_bytes),
                ]
            };
            assert_eq!(sums(&buffers), sums(&rank_shards(&plan, rank).buffers), "{strategy}, rank {rank}");
            let place = mesh.place(rank);
            for (shard, first, elements) in parts {
                // Of split experts tensor-parallel ranks have their own.
                let expert = buffers[shard.buffer].expert;
                let slot = if expert { place.ep_shard } else { mesh.shard_slot(&place) };
                let alone = (outer || place.dp_replicate == 0)
                    && (strategy != "no_shard" || slot == 0)
                    && (expert || shard.cut_by.is_some() || place.tp == 0);
                for local in first..first + if alone { elements } else { 0 } {
                    *kept.entry((shard.name.clone(), number(&shard, local))).or_default() += 1;
                }
            }
        }
        for shard in (0..world).flat_map(|rank| native.rank_shards(rank).params) {
            for local in 0..shard.elements() {
                let element = (shard.name.clone(), number(&shard, local));
                assert_eq!(kept.get(&element), Some(&1), "{strategy}: {element:?}");
            }
        }
    }
}

#[test]
fn dense_models() {
    for world in [2, 3, 5] {
        check(&small(json!({})), world, &json!({}));
    }
    check(&small(json!({"mlp_bias": true, "gated": false, "tied_embeddings": true})), 4, &json!({}));
    check(&small(json!({})), 8, &json!({"dp_replicate": 2}));
    check(&small(json!({})), 12, &json!({"dp_replicate": 3, "fsdp": {"outer_strategy": "optim"}}));
    check(&small(json!({})), 4, &json!({"cp": 2}));
}

#[test]
fn beside_tensor_parallelism() {
    // Its own plan keeps embedding and output layer whole.
    check(&small(json!({})), 4, &json!({"tp": 2}));
    check(&small(json!({"tied_embeddings": true})), 8, &json!({"tp": 2, "cp": 2}));
    check(
        &small(json!({})),
        6,
        &json!({"tp": 2, "tp_plan": {"model.embed_tokens": "rowwise", "lm_head": "colwise",
        "model.layers.*.self_attn.q_proj": "colwise", "model.layers.*.self_attn.k_proj": "colwise",
        "model.layers.*.self_attn.v_proj": "colwise", "model.layers.*.self_attn.o_proj": "rowwise",
        "model.layers.*.mlp.gate_proj": "colwise", "model.layers.*.mlp.up_proj": "colwise",
        "model.layers.*.mlp.down_proj": "rowwise"}}),
    );
}

#[test]
fn experts_latent_attention_and_prediction_modules() {
    let moe = json!({"experts": 4, "top_k": 2, "ffn_hidden_size": 8, "shared_ffn_hidden_size": 4});
    check(&small(json!({"moe": moe})), 3, &json!({}));
    let routed = json!({"experts": 4, "top_k": 2, "ffn_hidden_size": 8});
    check(&small(json!({"moe": routed})), 4, &json!({"tp": 2}));
    let latent = small(json!({"mtp_layers": 1, "attention": {"kind": "mla", "heads": 4, "q_lora_rank": 6,
        "kv_lora_rank": 5, "qk_nope_dim": 3, "qk_rope_dim": 2, "v_dim": 4}}));
    check(&latent, 3, &json!({}));
}

#[test]
fn experts_over_expert_parallel_ranks() {
    let moe = json!({"experts": 4, "top_k": 2, "ffn_hidden_size": 7, "shared_ffn_hidden_size": 4});
    let shared = small(json!({"moe": moe, "mtp_layers": 1}));
    // Two ranks have the same experts, one has them alone, three share them with padding.
    check(&shared, 4, &json!({"ep": 2}));
    check(&shared, 4, &json!({"ep": 4}));
    check(&shared, 6, &json!({"ep": 2}));
    check(&shared, 6, &json!({"ep": 2, "dp_replicate": 3}));
    check(&shared, 8, &json!({"ep": 2, "dp_replicate": 2, "fsdp": {"outer_strategy": "optim"}}));
    let routed = small(json!({"moe": {"experts": 4, "top_k": 2, "ffn_hidden_size": 7}}));
    check(&routed, 8, &json!({"tp": 2, "ep": 4}));
    check(&routed, 8, &json!({"tp": 2, "ep": 2, "dp_replicate": 2}));
    let mixed = json!({"num_layers": 3, "pattern": [{"count": 1, "mlp": "dense"}, {"count": 2, "mlp": "moe"}], "moe": {"experts": 4, "top_k": 2, "ffn_hidden_size": 8}});
    check(&small(mixed), 4, &json!({"ep": 2, "cp": 2}));
}

#[test]
fn what_is_cut_otherwise_is_refused() {
    let why = |layout: &Value, words: u64| {
        let mut model = small(json!({}));
        model["architecture"]["vocab_size"] = words.into();
        plan(&model, 4, layout).not_as_megatron_fsdp().unwrap()
    };
    assert!(why(&json!({"tp": 2}), 27).contains("27 rows"), "{}", why(&json!({"tp": 2}), 27));
    // Columns of a matrix that the plan keeps whole lie apart.
    let tp_plan = json!({"model.layers.*.self_attn.q_proj": "colwise", "model.layers.*.self_attn.k_proj": "colwise",
        "model.layers.*.self_attn.v_proj": "colwise"});
    let sentence = why(&json!({"tp": 2, "tp_plan": tp_plan}), 26);
    assert!(sentence.contains("layers.0."), "{sentence}");
}
