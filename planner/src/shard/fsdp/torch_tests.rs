//! Shards, padding and mesh axes against those of torch, dumped by tests/python/fsdp_shards.py.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::layout::GroupKind;
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::shard::fsdp::{Slots, placed_blocks};

fn data() -> Value {
    serde_json::from_str(include_str!("../../../tests/data/torch_fsdp_shards.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<u64> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Allocated elements of each parameter of a rank, by name.
fn allocated(plan: &Plan, rank: u64) -> BTreeMap<String, u64> {
    let mesh = plan.mesh();
    let slots = Slots::of(&mesh, rank);
    let blocks = placed_blocks(plan, mesh.place(rank).pp);
    let named = blocks.iter().flat_map(|(_, number, params)| params.iter().map(move |one| (number, one)));
    named
        .map(|(number, placed)| {
            let number = number.map(|number| number.to_string()).unwrap_or_default();
            (placed.parameter.name.replace("{layer}", &number), placed.padded_elements(&mesh, &slots))
        })
        .collect()
}

fn check_rank(name: &str, plan: &Plan, expected: &Value) {
    let rank = expected["rank"].as_u64().unwrap();
    let ours = plan.rank_shards(rank);
    let padded = allocated(plan, rank);
    let mut found: Vec<_> = ours
        .params
        .iter()
        .map(|param| {
            let offset = (param.elements() > 0).then(|| param.offset.clone());
            (param.name.as_str(), param.shape.clone(), param.local_shape.clone(), offset, padded[&param.name])
        })
        .collect();
    found.sort();
    let theirs: Vec<_> = expected["shards"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let offset = (!row[3].is_null()).then(|| numbers(&row[3]));
            let padded = row[4].as_u64().unwrap();
            (row[0].as_str().unwrap(), numbers(&row[1]), numbers(&row[2]), offset, padded)
        })
        .collect();
    assert_eq!(found, theirs, "rank {rank} of {name}");
    let sum: u64 = ours.buffers.iter().map(|buffer| buffer.elements).sum();
    assert_eq!(sum, theirs.iter().map(|row| row.4).sum::<u64>(), "rank {rank} of {name}");
    let groups = plan.groups_of(rank);
    for (axis, ranks) in expected["axes"].as_object().unwrap() {
        let kind = match axis.as_str() {
            "dp_cp" => GroupKind::DpCp,
            axis => serde_json::from_value(Value::from(axis)).unwrap(),
        };
        let group = groups.iter().find(|group| group.kind == kind);
        assert_eq!(
            group.map(|group| group.ranks.clone()),
            Some(numbers(ranks)),
            "{axis} of {rank} in {name}"
        );
    }
}

#[test]
fn shards_and_groups_are_torchs() {
    let data = data();
    let cases = data["cases"].as_array().unwrap();
    assert!(cases.len() >= 15);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let resolved = Plan::resolve(&parse_plan(&case["plan"].to_string()).unwrap());
        let plan = resolved.plan.unwrap_or_else(|| panic!("{name}: {:?}", resolved.findings));
        let ranks = case["ranks"].as_array().unwrap();
        assert!(!ranks.is_empty());
        for rank in ranks {
            check_rank(name, &plan, rank);
        }
    }
}
