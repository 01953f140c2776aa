//! Plans of FSDP runtimes, which are computed one by one: bounds hold, and spare plans without changing what is found.

use serde_json::{Value, json};

use super::fewest::on_one_gpu;
use super::plan_of::{set_grid, set_pipe};
use super::space::{Subspace, replicas};
use super::tests::{all_of, check_one_by_one, file, whole};
use super::*;
use crate::memory::{Peak, States};
use crate::parse::parse_plan;
use crate::rules::{Aspect, Shape, first_broken};
use crate::settings::{Granularity, Schedule};
use crate::shard::fsdp::Placements;

fn is_valid(plan: &Plan) -> bool {
    let aspects = [Aspect::Grid, Aspect::Overlap, Aspect::Batch];
    aspects.into_iter().all(|aspect| first_broken(&Shape::of(plan), aspect).is_none())
}

/// Peaks of a valid plan with each set that is valid and what it recomputes, by micro batch.
fn peaks(plan: &mut Plan, subspace: &Subspace, states: &States) -> Vec<Vec<(Granularity, Peak)>> {
    let of = |micro_batch: &u64| {
        let sets = subspace.recompute.iter().filter_map(|(_, training)| {
            plan.training.clone_from(training);
            plan.training.micro_batch_size = *micro_batch;
            is_valid(plan).then(|| (training.recompute, states.peak(plan)))
        });
        sets.collect()
    };
    [1, 2].iter().map(of).collect()
}

/// Whether there are alike few micro batches of one and of two sequences.
fn is_as_few(plan: &Plan) -> bool {
    let of = |size: u64| {
        let count = plan.training.global_batch_size / (plan.layout.dp * size);
        [count <= 1, count <= plan.layout.microbatch_group_size]
    };
    of(1) == of(2)
}

#[test]
fn bounds_on_memory_hold_whatever_is_split_and_recomputed() {
    let mut checked = [0; 4];
    for (preset, runtime, nodes, more) in [
        ("llama-3-8b", "fsdp2", 2, json!({})),
        ("qwen3-30b-a3b", "fsdp2", 2, json!({})),
        ("deepseek-v3", "fsdp2", 4, json!({"dtype": "fp8_current", "fp8_param_gather": true})),
        ("gemma-3-4b", "fsdp2", 1, json!({"seq_len": 16384})),
        ("nemotron-3-nano", "fsdp2", 2, json!({})),
        ("qwen3-30b-a3b", "megatron_fsdp", 1, json!({})),
    ] {
        let mut training = json!({"global_batch_size": 128});
        training.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let cluster = json!({"gpu": "h100-sxm", "nodes": nodes});
        let mut request = Request::new(file(preset, runtime, cluster, training));
        request.axes.tp = Some(AxisValues::Values(vec![1, 4]));
        request.axes.cp = Some(AxisValues::Values(vec![1, 2]));
        request.axes.ep = Some(AxisValues::Values(vec![1, 8]));
        request.axes.pp = Some(AxisValues::Values(vec![1, 2]));
        request.axes.vpp = Some(AxisValues::Values(vec![1, 2]));
        request.axes.schedule =
            Some(vec![Schedule::OneFOneB, Schedule::Interleaved, Schedule::ZbH1, Schedule::Zbv]);
        let search = Search::new(&request).unwrap();
        let mut placements = Placements::default();
        for part in &search.space.parts {
            let subspace = &search.space.subspaces[part.subspace];
            let one = on_one_gpu(&subspace.plan);
            let all = States::of(&one, &mut placements).unwrap().least(&one);
            let mut plan = subspace.plan.clone();
            for (stages, &pp) in subspace.stages.iter().enumerate() {
                set_grid(&mut plan, subspace, [part.tp, part.cp, part.ep, part.etp], pp, part.tp > 1);
                let dp = plan.layout.dp;
                for size in replicas(None, true, dp).into_iter().filter(|size| [1, 2, dp / 2].contains(size))
                {
                    for pipe in subspace.pipes[stages].iter() {
                        let [tp, cp] = [part.tp, part.cp];
                        set_grid(&mut plan, subspace, [tp, cp, part.ep, part.etp], pp, tp > 1);
                        plan.layout.dp_replicate = size;
                        set_pipe(&mut plan, pipe);
                        plan.training.micro_batch_size = 1;
                        if !is_valid(&plan) {
                            continue;
                        }
                        let states = States::of(&plan, &mut placements).unwrap();
                        let said = format!("{preset} {:?}", plan.layout);
                        let apart = part.ep == 1 || runtime == "megatron_fsdp";
                        let ranks = plan.world_size() / if apart { size } else { 1 };
                        assert!(all / ranks as f64 <= states.least(&plan), "{said}");
                        let found = peaks(&mut plan, subspace, &states);
                        for (place, peaks) in found.iter().enumerate() {
                            let full = peaks.iter().find(|(again, _)| *again == Granularity::Full);
                            for (again, peak) in peaks {
                                assert!(states.least(&plan) <= peak.allocated as f64, "{said} {again:?}");
                                if let Some((_, full)) = full {
                                    assert!(full.allocated <= peak.allocated, "{said} {again:?}");
                                    checked[1] += 1;
                                }
                                checked[0] += 1;
                            }
                            // A larger micro batch takes no less with the same set, unless it is the only one.
                            if let Some(smaller) = place.checked_sub(1).map(|place| &found[place])
                                && smaller.len() == peaks.len()
                                && is_as_few(&plan)
                            {
                                let pairs = smaller.iter().zip(peaks);
                                checked[2] += pairs.clone().count();
                                for ((_, smaller), (_, larger)) in pairs {
                                    assert!(smaller.allocated <= larger.allocated, "{said}");
                                }
                            }
                        }
                        // What was kept of other layouts is what a plan alone comes to.
                        plan.training.micro_batch_size = 2;
                        if is_valid(&plan) && pipe.vpp == 1 {
                            assert_eq!(states.peak(&plan), Peak::of_plan(&plan), "{said}");
                            checked[3] += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(checked.iter().all(|count| *count > 100), "{checked:?}");
}

/// A request of a plan file with these fields.
fn open(preset: &str, gpu: &str, [nodes, each]: [u64; 2], more: Value) -> Request {
    let mut file = json!({"version": 1, "model": {"preset": preset}, "choose": "all",
        "cluster": {"gpu": gpu, "nodes": nodes, "gpus_per_node": each}});
    for (key, value) in more.as_object().unwrap() {
        file[key] = value.clone();
    }
    Choice::of(&parse_plan(&file.to_string()).unwrap()).unwrap().unwrap().request
}

#[test]
fn what_is_chosen_is_the_first_row_of_a_search_that_knows_no_bounds() {
    let fsdp = |more: Value| {
        let mut file = json!({"runtime": "fsdp2", "training": {"global_batch_size": 32}});
        for (key, value) in more.as_object().unwrap() {
            file[key] = value.clone();
        }
        file
    };
    let mut groups = Vec::new();
    for (preset, gpu, cluster, more) in [
        // Replicas, stages and chunks, of which several fit.
        ("tiny-dense", "h100-sxm", [1, 8], fsdp(json!({}))),
        ("llama-3-8b", "h100-sxm", [1, 8], fsdp(json!({"layout": {"vpp": 1}}))),
        ("llama-3-8b", "h100-sxm", [1, 4], fsdp(json!({"objective": "most_headroom", "layout": {"pp": 2}}))),
        ("deepseek-v2-lite", "a100-40gb-sxm", [1, 8], fsdp(json!({"layout": {"vpp": 1, "cp": 1}}))),
        // Nothing fits, or only just.
        ("qwen3-30b-a3b", "l40s", [1, 8], fsdp(json!({"layout": {"vpp": 1, "cp": 1}}))),
        ("llama-3-8b", "l40s", [1, 2], fsdp(json!({}))),
        (
            "llama-3-8b",
            "a100-40gb-sxm",
            [1, 4],
            json!({"runtime": "megatron_fsdp", "training": {"global_batch_size": 32}}),
        ),
    ] {
        let choice = open(preset, gpu, cluster, more.clone());
        let search = Search::new(&choice).unwrap();
        let answer = whole(&search);
        let all = Search::new(&Request { only_first: false, ..choice }).unwrap();
        let found = all_of(&all);
        check_one_by_one(&all, &found);
        let rows = super::tests::answer_of(&all, &found);
        assert_eq!(answer.rows.first(), rows.rows.first(), "{preset} on {cluster:?} {gpu} with {more}");
        assert_eq!(answer.relief, rows.relief, "{preset} on {cluster:?} {gpu} with {more}");
        groups.push(rows.rows.first().map(|row| row.group));
    }
    assert!(groups.contains(&Some(FitGroup::Fits)) && groups.contains(&None), "{groups:?}");
}
