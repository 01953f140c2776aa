//! Every element that a rank computes with comes from one place, and over all ranks each is kept once.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{CarriedOut, carried_out, computed_with};
use crate::parse_plan;
use crate::plan::Plan;
use crate::shard::{ParamShard, RankShards, rank_shards};

fn plan(model: &Value, world: u64, layout: &Value) -> Plan {
    let file = json!({"version": 1, "model": model, "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": world},
        "layout": layout, "runtime": "fsdp2", "training": {"seq_len": 32, "global_batch_size": 240}});
    let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
    resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
}

fn native(plan: &Plan) -> Plan {
    let resolved = Plan::resolve(&computed_with(plan));
    resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
}

/// The number of a slice's element in the whole parameter.
pub(crate) fn number(shard: &ParamShard, mut local: u64) -> u64 {
    let (mut index, mut stride) = (0, 1);
    for dim in (0..shard.shape.len()).rev() {
        index += (shard.offset[dim] + local % shard.local_shape[dim]) * stride;
        local /= shard.local_shape[dim];
        stride *= shard.shape[dim];
    }
    index
}

type Element = (String, u64);

/// What lies in a unit's slice of a rank.
fn slice_of(carried: &CarriedOut, unit: usize) -> Vec<Option<Element>> {
    let unit = &carried.units[unit];
    let mut found = vec![None; unit.slice as usize];
    for part in &carried.parts {
        let shard = &part.shard;
        let here = unit.start..unit.start + unit.slice;
        if shard.buffer != unit.buffer || !here.contains(&shard.buffer_offset) {
            continue;
        }
        for local in 0..shard.elements() {
            let slot = &mut found[(shard.buffer_offset - unit.start + local) as usize];
            assert!(slot.is_none());
            *slot = Some((shard.name.clone(), number(shard, local)));
        }
    }
    found
}

fn elements(extent: &[u64]) -> impl Iterator<Item = Vec<u64>> + use<> {
    let extent = extent.to_vec();
    (0..extent.iter().product::<u64>()).map(move |mut flat| {
        let mut index = vec![0; extent.len()];
        for dim in (0..extent.len()).rev() {
            index[dim] = flat % extent[dim];
            flat /= extent[dim];
        }
        index
    })
}

#[track_caller]
fn check(model: Value, world: u64, layout: Value) {
    let plan = plan(&model, world, &layout);
    let (native, mesh) = (native(&plan), plan.mesh());
    let shards: Vec<RankShards> = (0..world).map(|rank| native.rank_shards(rank)).collect();
    let carried: Vec<CarriedOut> = shards.iter().map(|shards| carried_out(&plan, shards).unwrap()).collect();
    for rank in 0..world {
        let (mine, shards) = (&carried[rank as usize], &shards[rank as usize]);
        assert_eq!(native.place_of(rank).tp, mesh.place(rank).tp);
        // Bytes are the shards' own.
        let own = rank_shards(&plan, rank);
        assert_eq!(mine.buffers, own.buffers);
        for (index, buffer) in mine.buffers.iter().enumerate() {
            let units = mine.units.iter().filter(|unit| unit.buffer == index);
            assert_eq!(units.map(|unit| unit.slice).sum::<u64>(), buffer.elements);
            let parts = mine.parts.iter().filter(|part| part.shard.buffer == index);
            let kept: u64 = parts.clone().map(|part| part.shard.elements()).sum();
            assert_eq!(kept, buffer.states[0].elements);
            let mut next = 0;
            for part in parts {
                assert_eq!(part.state_start, next);
                next += part.shard.elements();
            }
        }
        // What is gathered is what is computed with.
        let mut filled: Vec<Vec<Option<u64>>> =
            shards.params.iter().map(|shard| vec![None; shard.elements() as usize]).collect();
        for (index, unit) in mine.units.iter().enumerate() {
            let group = plan
                .groups()
                .into_iter()
                .find(|group| group.kind == unit.group && group.ranks.contains(&rank));
            let members = group.unwrap().ranks;
            assert_eq!(members.len() as u64, unit.members);
            let gathered: Vec<Option<Element>> =
                members.iter().flat_map(|&member| slice_of(&carried[member as usize], index)).collect();
            for copy in &unit.copies {
                for place in elements(&copy.extent) {
                    let at = |(base, strides): &(u64, Vec<u64>)| {
                        base + place.iter().zip(strides).map(|(index, stride)| index * stride).sum::<u64>()
                    };
                    let (name, number) = gathered[at(&copy.gathered) as usize].clone().unwrap();
                    assert_eq!(name, shards.params[copy.parameter].name);
                    let slot = &mut filled[copy.parameter][at(&copy.local) as usize];
                    assert!(slot.is_none(), "{name} {number} twice");
                    *slot = Some(number);
                }
            }
        }
        for (shard, filled) in shards.params.iter().zip(filled) {
            let row: u64 = shard.shape.iter().skip(1).product();
            for (local, found) in filled.into_iter().enumerate() {
                let expected =
                    Some(number(shard, local as u64)).filter(|number| number / row < shard.unpadded_rows);
                assert_eq!(found, expected, "{} element {local} on rank {rank}", shard.name);
            }
        }
    }
    // Ranks of one replica that hold different slices keep each element once.
    let mut kept: BTreeMap<Element, u64> = BTreeMap::new();
    for (rank, mine) in carried.iter().enumerate() {
        let place = mesh.place(rank as u64);
        for part in &mine.parts {
            let expert = mine.buffers[part.shard.buffer].expert;
            let alone = expert || (place.dp_replicate == 0 && (part.shard.cut_by.is_some() || place.tp == 0));
            for local in 0..if alone { part.shard.elements() } else { 0 } {
                *kept.entry((part.shard.name.clone(), number(&part.shard, local))).or_default() += 1;
            }
        }
    }
    for shard in shards.iter().flat_map(|shards| &shards.params) {
        let row: u64 = shard.shape.iter().skip(1).product();
        for local in 0..shard.elements() {
            let number = number(shard, local);
            if number / row < shard.unpadded_rows {
                let copies = if shard.shared_over.is_some() { 2 } else { 1 };
                assert_eq!(kept.get(&(shard.name.clone(), number)), Some(&copies), "{} {number}", shard.name);
            }
        }
    }
}

/// A small model with these fields changed.
pub(crate) fn small(change: Value) -> Value {
    let mut architecture = json!({"num_layers": 2, "hidden_size": 16, "ffn_hidden_size": 20, "vocab_size": 26,
        "attention": {"kind": "gqa", "heads": 4, "kv_heads": 2, "head_dim": 4}, "gated": true});
    for (key, value) in change.as_object().unwrap() {
        architecture[key] = value.clone();
    }
    json!({"architecture": architecture})
}

fn experts(count: u64) -> Value {
    small(json!({"moe": {"experts": count, "top_k": 2, "ffn_hidden_size": 8, "shared_ffn_hidden_size": 4}}))
}

#[test]
fn dense_models() {
    check(small(json!({})), 2, json!({}));
    check(small(json!({})), 3, json!({}));
    check(small(json!({"mlp_bias": true, "gated": false, "tied_embeddings": true})), 4, json!({}));
    check(small(json!({})), 5, json!({}));
    check(small(json!({})), 8, json!({"dp_replicate": 2}));
    check(small(json!({})), 4, json!({"tp": 2, "sp": true}));
    check(small(json!({})), 8, json!({"tp": 2, "cp": 2, "fsdp": {"outer_units": "apart"}}));
    check(small(json!({})), 4, json!({"pp": 2}));
}

#[test]
fn experts_with_and_without_ranks_of_their_own() {
    check(experts(4), 2, json!({}));
    check(experts(4), 3, json!({}));
    check(experts(2), 6, json!({}));
    check(experts(4), 4, json!({"ep": 2}));
    check(experts(4), 4, json!({"ep": 4}));
    check(experts(4), 8, json!({"ep": 2, "tp": 2, "sp": true}));
    check(experts(4), 4, json!({"tp": 2, "sp": true}));
}

#[test]
fn latent_attention_and_prediction_modules() {
    let latent = small(json!({"mtp_layers": 1, "attention": {"kind": "mla", "heads": 4, "q_lora_rank": 6,
        "kv_lora_rank": 5, "qk_nope_dim": 3, "qk_rope_dim": 2, "v_dim": 4}}));
    check(latent.clone(), 3, json!({}));
    check(latent, 4, json!({"dp_replicate": 2}));
}

#[test]
fn what_is_cut_otherwise_is_refused() {
    // Rows of the compressed queries on one rank each, which runtime native has whole on all.
    let model = small(
        json!({"attention": {"kind": "mla", "heads": 4, "q_lora_rank": 6, "kv_lora_rank": 5, "qk_nope_dim": 3,
        "qk_rope_dim": 2, "v_dim": 4}}),
    );
    let tp_plan = json!({"model.layers.*.self_attn.q_a_proj": "colwise"});
    let plan = plan(&model, 4, &json!({"tp": 2, "tp_plan": tp_plan}));
    let sentence = carried_out(&plan, &native(&plan).rank_shards(0)).unwrap_err();
    assert!(sentence.contains("attention.q_down"), "{sentence}");
}
