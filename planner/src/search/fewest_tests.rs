use serde_json::{Value, json};

use super::tests::whole;
use super::*;
use crate::parse::parse_plan;

fn request(model: Value, cluster: Value, more: Value) -> Request {
    let mut file = json!({"version": 1, "model": model, "cluster": cluster, "choose": "all"});
    for (key, entry) in more.as_object().unwrap() {
        file[key] = entry.clone();
    }
    Choice::of(&parse_plan(&file.to_string()).unwrap()).unwrap().unwrap().request
}

/// The group of the first row on so many nodes, of a search that knows nothing of others.
fn group_on(request: &Request, nodes: u64) -> Option<FitGroup> {
    let mut request = Request { objective: Objective::Fastest, only_first: true, ..request.clone() };
    request.axes.nodes = Some(AxisValues::Fixed(nodes));
    whole(&Search::new(&request).unwrap()).rows.first().map(|row| row.group)
}

#[test]
fn the_fewest_are_the_least_of_all_numbers_on_which_a_plan_fits() {
    let preset = |id: &str| json!({"preset": id});
    let cluster =
        |gpu: &str, nodes: u64, each: u64| json!({"gpu": gpu, "nodes": nodes, "gpus_per_node": each});
    let batch = |size: u64| json!({"training": {"global_batch_size": size}});
    let cases = [
        // Between the quarters of a doubling, and with few divisors.
        (preset("qwen3-14b"), cluster("l40s", 12, 1), batch(5 * 7 * 9 * 11 * 13)),
        (preset("gpt-oss-20b"), cluster("a100-40gb-sxm", 11, 1), json!({})),
        (
            preset("llama-3-8b"),
            cluster("l40s", 5, 1),
            json!({"runtime": "fsdp2", "layout": {"pp": 1}, "training": {"global_batch_size": 60}}),
        ),
        (
            preset("llama-3-8b"),
            cluster("l40s", 12, 1),
            json!({"runtime": "megatron_fsdp", "training": {"global_batch_size": 48}}),
        ),
        // Held at what few numbers are divided by.
        (
            preset("llama-3-8b"),
            cluster("h100-sxm", 12, 1),
            json!({"layout": {"pp": 11}, "training": {"global_batch_size": 44}}),
        ),
        (
            preset("qwen3-30b-a3b"),
            cluster("h100-sxm", 12, 1),
            json!({"layout": {"tp": 2, "ep": 2}, "training": {"global_batch_size": 220}}),
        ),
        // Only tight, and never.
        (
            preset("llama-3-8b"),
            cluster("l40s", 4, 1),
            json!({"layout": {"tp": 1, "pp": 1, "cp": 1}, "training": {"global_batch_size": 12}}),
        ),
        (preset("llama-3-70b"), cluster("l40s", 6, 1), batch(36)),
    ];
    for (model, cluster, more) in cases {
        let said = format!("{model} on {cluster} with {more}");
        let mut request = request(model, cluster, more);
        let most = request.plan.cluster.nodes.unwrap();
        request.objective = Objective::FewestGpus;
        let groups: Vec<Option<FitGroup>> = (1..=most).map(|nodes| group_on(&request, nodes)).collect();
        let least = |group| groups.iter().position(|known| *known == Some(group)).map(|at| at as u64 + 1);
        let expected = least(FitGroup::Fits).or_else(|| least(FitGroup::Tight));
        for only_first in [true, false] {
            request.only_first = only_first;
            let answer = whole(&Search::new(&request).unwrap());
            let found = answer.rows.first().map(|row| row.settings.nodes);
            assert_eq!(found, expected, "{said}, only the first: {only_first}: {groups:?}");
            let nodes = answer.chosen.iter().find(|one| one.field == "cluster.nodes");
            let none = nodes.is_some_and(|one| one.why == "within the bounds no plan fits on fewer nodes");
            assert_eq!(none, least(FitGroup::Fits).is_some(), "{said}: {nodes:?}");
        }
        let bounded = AxisValues::Bounds(Bounds { min: expected.unwrap_or(0) + 1, max: most });
        request.axes.nodes = Some(bounded);
        let next = groups
            .iter()
            .skip(expected.unwrap_or(0) as usize)
            .position(|group| *group == Some(FitGroup::Fits));
        if let Some(next) = next {
            let first = whole(&Search::new(&request).unwrap()).rows.remove(0);
            assert_eq!(first.settings.nodes, expected.unwrap_or(0) + 1 + next as u64, "{said}: {groups:?}");
        }
    }
}

#[test]
fn no_plan_fits_on_fewer_nodes_than_hold_what_ranks_keep() {
    let cases = [
        ("qwen3-30b-a3b", 4, json!({})),
        ("deepseek-v2-lite", 2, json!({"training": {"dtype": "fp8_blockwise"}})),
        ("llama-3-8b", 2, json!({"training": {"optimizer": {"kind": "muon"}}})),
        (
            "llama-3-8b",
            2,
            json!({"training": {"optimizer": {"offload_fraction": 0.5, "precision_aware": true}}}),
        ),
        ("llama-3-8b", 2, json!({"training": {"optimizer": {"kind": "sgd"}}})),
        ("llama-3-8b", 2, json!({"training": {"grad_dtype": "bf16"}})),
        ("llama-3-8b", 2, json!({"runtime": "fsdp2"})),
        ("llama-3-8b", 2, json!({"runtime": "fsdp2", "layout": {"fsdp": {"offload": "cpu"}}})),
        ("llama-3-8b", 2, json!({"runtime": "megatron_fsdp"})),
        ("qwen3-14b", 2, json!({"runtime": "native"})),
    ];
    for (preset, nodes, more) in cases {
        let said = format!("{preset} with {more}");
        let cluster = json!({"gpu": "h100-sxm", "nodes": nodes, "gpus_per_node": 4});
        let mut request = request(json!({"preset": preset}), cluster, more);
        (request.objective, request.only_first) = (Objective::MostHeadroom, false);
        request.plan.training.global_batch_size = Some(32);
        let search = Search::new(&request).unwrap();
        let answer = whole(&search);
        let least = search.space.subspaces.iter().map(|subspace| fewest::kept_at_least(&subspace.plan)).min();
        let least = least.unwrap();
        for row in answer.rows.iter().chain(&answer.front) {
            let plan = Plan::resolve(&row.apply(&request.plan)).plan.unwrap();
            let classes = crate::memory::answer(&plan).rank_classes;
            let kept = |class: &crate::wire::RankClass| {
                class.count * (class.weights_bytes + class.gradients_bytes + class.optimizer_bytes)
            };
            let all: u64 = classes.iter().map(kept).sum();
            assert!(least <= all, "{said}: {least} of {all} bytes: {row:?}");
        }
        assert!(!answer.rows.is_empty(), "{said}");
    }
}

#[test]
fn a_batch_that_nobody_said_is_the_one_of_the_nodes() {
    let mut request = request(
        json!({"preset": "llama-3-8b"}),
        json!({"gpu": "l40s", "nodes": 14, "gpus_per_node": 1}),
        json!({"objective": "fewest_gpus", "training": {"seq_len": 8192}}),
    );
    let fresh = |nodes: u64| crate::fill::assumed_batch(Some("llama-3-8b"), 8192, nodes, None);
    let batch_there = fresh(14);
    assert!(request.batch_is_assumed && request.plan.training.global_batch_size == Some(batch_there));
    let row = whole(&Search::new(&request).unwrap()).rows.remove(0);
    let batch = |row: &Row| row.apply(&request.plan).training.global_batch_size;
    assert!(fresh(row.settings.nodes) != batch_there, "{row:?}");
    assert_eq!(batch(&row), Some(fresh(row.settings.nodes)), "{row:?}");
    // Steps that are compared are of one batch.
    request.objective = Objective::Cheapest;
    request.axes.nodes = Some(AxisValues::Bounds(Bounds { min: 1, max: 14 }));
    let rows = whole(&Search::new(&request).unwrap()).rows;
    assert!(rows.iter().all(|row| batch(row) == Some(batch_there)));
    // What nobody assumed stays.
    (request.objective, request.batch_is_assumed) = (Objective::FewestGpus, false);
    let row = whole(&Search::new(&request).unwrap()).rows.remove(0);
    assert_eq!(row.apply(&request.plan).training.global_batch_size, Some(batch_there));
}

#[test]
fn a_deadline_that_is_missed_is_told_the_gpus_that_meet_it() {
    for (preset, gpu, over) in [("llama-3-8b", "h100-sxm", 2.5), ("gpt-oss-20b", "h200", 7.0)] {
        let more =
            json!({"objective": "deadline", "training": {"train_tokens": 1e11, "global_batch_size": 1024}});
        let mut request = request(json!({"preset": preset}), json!({"gpu": gpu, "nodes": 1}), more);
        request.deadline_days = Some(1e6);
        let whole_of = |request: &Request| whole(&Search::new(request).unwrap());
        let answer = whole_of(&request);
        assert_eq!(answer.relief, None, "{preset}");
        let days = answer.rows[0].days.unwrap();
        request.deadline_days = Some(days / over);
        let relief = whole_of(&request).relief.unwrap();
        let [remedy] = &relief.remedies[..] else { panic!("{preset}: {relief:?}") };
        assert!(remedy.said.contains(" days for all tokens") && relief.smallest.is_none(), "{}", remedy.said);
        let nodes = remedy.changes[0].value.as_u64().unwrap();
        assert!((over..2.0 * over).contains(&(nodes as f64)), "{preset}: {nodes}");
        // Who takes them is in time.
        request.plan.cluster.nodes = Some(nodes);
        let answer = whole_of(&request);
        assert!(answer.rows[0].days.unwrap() <= days / over && answer.relief.is_none(), "{preset}");
        assert_eq!(Some(answer.rows[0].step_seconds), remedy.step_seconds, "{preset}");
    }
}

#[test]
fn what_stands_first_is_no_note_where_nothing_fits_and_advice_is_what_the_command_takes() {
    let of = |preset: &str, gpu: &str, objective: &str, only_first: bool| {
        let more = json!({"objective": objective});
        let mut request = request(json!({"preset": preset}), json!({"gpu": gpu, "nodes": 1}), more);
        request.only_first = only_first;
        whole(&Search::new(&request).unwrap())
    };
    let nothing = of("llama-3-70b", "l40s", "fewest_gpus", true);
    assert!(nothing.rows.is_empty() && nothing.notes.is_empty(), "{:?}", nothing.notes);
    assert!(
        nothing.relief.unwrap().suggestions.iter().any(|said| said.contains(" GPUs: what is chosen then"))
    );
    // One node is the fewest there are.
    let one = of("llama-3-8b", "h100-sxm", "fewest_gpus", true).notes.join("\n");
    assert!(one.contains("so the fewest are no choice") && !one.contains("nodes="), "{one}");
    for (only_first, said) in [(true, "with nodes (up to cluster.nodes)"), (false, "such as nodes=1..2")] {
        let notes = of("llama-3-8b", "h100-sxm", "cheapest", only_first).notes.join("\n");
        assert!(notes.contains(said), "{notes}");
    }
}

/// Nearer plans are those that the objective would take, if they fitted.
#[test]
fn the_nearest_plan_is_one_that_the_objective_prefers() {
    let mut found = 0;
    for objective in Objective::ALL {
        let more = json!({"training": {"global_batch_size": 64, "train_tokens": 1e11}});
        let mut request = request(json!({"preset": "qwen3-14b"}), json!({"gpu": "l40s", "nodes": 8}), more);
        (request.objective, request.only_first) = (objective, false);
        request.deadline_days = Some(1000.0);
        request.axes.nodes = Some(AxisValues::Values(vec![4, 8]));
        let answer = whole(&Search::new(&request).unwrap());
        let (Some(nearest), first) = (&answer.nearest, &answer.rows[0]) else { continue };
        found += 1;
        let cost = |nodes: u64, seconds: f64| nodes as f64 * seconds;
        let [own, best] = [
            (nearest.settings.nodes, nearest.step_seconds),
            (first.settings.nodes, first.closed_form_seconds),
        ];
        let prefers = match objective {
            Objective::Fastest => true,
            Objective::FewestGpus => own.0 <= best.0,
            Objective::Cheapest | Objective::Deadline => cost(own.0, own.1) <= cost(best.0, best.1),
            Objective::MostHeadroom => false,
        };
        assert!(prefers && own.1 < best.1, "{objective:?}: {nearest:?} {first:?}");
    }
    assert!(found > 1, "{found}");
}
