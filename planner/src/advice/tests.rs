use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};

use super::{advice_in_pieces, advise};
use crate::answer::estimate;
use crate::parse::parse_plan;
use crate::search::Margin;
use crate::wire::{AdviceAnswer, PlanFile, Verdict};

fn plan(model: &str, runtime: &str, nodes: u64, layout: &Value, training: &Value) -> PlanFile {
    let file = json!({"version": 1, "model": {"preset": model}, "runtime": runtime, "layout": layout,
        "cluster": {"gpu": "h100-sxm", "nodes": nodes}, "training": training});
    parse_plan(&file.to_string()).unwrap()
}

/// `file` with the changes of a piece of advice, put in by path as the page does.
fn with(file: &PlanFile, changes: &[crate::wire::Change]) -> PlanFile {
    changes.iter().fold(file.clone(), |file, change| {
        crate::parse::with_value(&file, &change.field, &change.to).unwrap()
    })
}

fn advice(file: &PlanFile) -> AdviceAnswer {
    super::advice(file, None)
}

/// Every piece of advice is what the changed plan's own answer says.
fn check(file: &PlanFile) -> AdviceAnswer {
    let before = estimate(file);
    let found = advice(file);
    for one in found.lowering().chain(&found.headroom) {
        let answer = estimate(&with(file, &one.changes));
        let (memory, before) = (answer.memory.unwrap(), before.memory.as_ref().unwrap());
        assert_eq!(
            (one.peak_bytes, one.interval_bytes, one.verdict),
            (memory.peak_bytes, memory.interval_bytes, memory.verdict),
            "{}",
            one.title
        );
        assert_eq!(one.saved_bytes, before.peak_bytes as i64 - memory.peak_bytes as i64, "{}", one.title);
        let time = answer.time.as_ref();
        assert_eq!(one.step_seconds, time.map(|time| time.step_seconds), "{}", one.title);
        assert_eq!(one.interval_seconds, time.map(|time| time.interval_seconds), "{}", one.title);
    }
    let fits = |list: &[crate::wire::Advice]| list.iter().all(|one| one.verdict == Verdict::Fits);
    assert_eq!(found.fits, before.memory.is_some_and(|memory| memory.verdict == Verdict::Fits));
    assert!(fits(&found.headroom) && fits(&found.together) && fits(&found.more_gpus));
    assert!(found.fits || fits(&found.savings), "{:?}", titles(&found.savings));
    assert!(found.short.iter().all(|one| one.verdict != Verdict::Fits));
    // No row saves nothing that can be seen.
    let worth = |one: &crate::wire::Advice| {
        one.saved_bytes >= (1 << 30) / 100 || (!found.fits && one.verdict == Verdict::Fits)
    };
    assert!(found.lowering().all(worth));
    found
}

fn titles(found: &[crate::wire::Advice]) -> Vec<&str> {
    found.iter().map(|one| one.title.as_str()).collect()
}

fn all_titles(found: &AdviceAnswer) -> Vec<&str> {
    found.lowering().map(|one| one.title.as_str()).collect()
}

#[test]
fn a_plan_that_does_not_fit_gets_changes_that_do() {
    let file = plan("llama-3-70b", "megatron", 4, &json!({"tp": 8}), &json!({"seq_len": 8192}));
    assert_eq!(estimate(&file).memory.unwrap().verdict, Verdict::No);
    let found = check(&file);
    let fits = &found.savings;
    assert!(fits.iter().any(|one| one.title.starts_with("Pipeline stages")), "{:?}", titles(&found.savings));
    assert!(fits.is_sorted_by(|a, b| a.step_seconds <= b.step_seconds));
    assert!(found.headroom.is_empty() && found.more_gpus.is_empty());
    assert_eq!(found.lists().first().map(|list| list.title), Some("Changes that make it fit"));
}

#[test]
fn every_runtime_is_advised_by_its_own_settings() {
    for (runtime, wanted) in [
        ("megatron", "Moments in bf16"),
        ("fsdp2", "Shards and optimizer state on the host"),
        ("megatron_fsdp", "Recompute every whole layer"),
        ("native", "Recompute all layers"),
    ] {
        let found = check(&plan(
            "llama-3-8b",
            runtime,
            1,
            &json!({}),
            &json!({"seq_len": 32768, "global_batch_size": 64}),
        ));
        let titles = all_titles(&found);
        assert!(titles.iter().any(|title| title.starts_with(wanted)), "{runtime}: {titles:?}");
    }
}

#[test]
fn experts_have_changes_of_their_own() {
    let found = check(&plan(
        "qwen3-30b-a3b",
        "megatron",
        1,
        &json!({"ep": 8}),
        &json!({"micro_batch_size": 4, "moe": {"load_imbalance": 2.0}}),
    ));
    let titles = all_titles(&found);
    for wanted in ["Recompute moe", "At most the mean number", "Micro batches of"] {
        assert!(titles.iter().any(|title| title.starts_with(wanted)), "{wanted}: {titles:?}");
    }
    let dropped = found.lowering().find(|one| one.title.starts_with("At most")).unwrap();
    assert!(dropped.changes_training && !dropped.notes.is_empty());
}

#[test]
fn where_no_single_change_is_enough_several_or_more_gpus_are() {
    let file = plan("llama-3-70b", "megatron", 1, &json!({"tp": 8}), &json!({"seq_len": 8192}));
    let found = check(&file);
    assert!(found.savings.is_empty() && !found.short.is_empty());
    let several = |one: &crate::wire::Advice| one.title.contains(" + ") && one.changes.len() > 1;
    assert!(found.together.iter().all(several), "{:?}", titles(&found.together));
    let grown = |one: &crate::wire::Advice| {
        one.gpus > 8 && one.changes.iter().any(|change| change.field == "cluster.nodes")
    };
    assert!(
        !found.more_gpus.is_empty() && found.more_gpus.iter().all(grown),
        "{:?}",
        titles(&found.more_gpus)
    );
    assert!(found.makes_it_fit());
    let shown: Vec<&str> = found.lists().into_iter().map(|list| list.title).collect();
    assert!(!shown.contains(&"Changes that make it fit"), "{shown:?}");
    assert!(shown.contains(&"What lowers the peak, but is not enough"), "{shown:?}");
}

#[test]
fn several_changes_are_tried_where_a_single_one_costs_much_time() {
    let training = json!({"global_batch_size": 128, "seq_len": 8192});
    let file = plan("llama-3.1-405b", "megatron", 16, &json!({"tp": 8, "pp": 2}), &training);
    let found = check(&file);
    let alone = found.savings.first().and_then(|one| one.step_ratio).unwrap();
    assert!(alone > 1.25, "{alone}");
    assert!(!found.together.is_empty() && found.more_gpus.is_empty());
    assert!(
        found.together.iter().all(|one| one.step_ratio.unwrap() < alone),
        "{:?}",
        titles(&found.together)
    );
}

#[test]
fn the_margin_is_the_searchs() {
    let file = plan("llama-3-8b", "megatron", 1, &json!({"tp": 4}), &json!({"global_batch_size": 64}));
    let memory = estimate(&file).memory.unwrap();
    assert_eq!(memory.verdict, Verdict::Fits);
    let left = memory.capacity_bytes.unwrap() - memory.peak_bytes;
    assert!(super::advice(&file, Some(Margin::Bytes(left))).fits);
    let found = super::advice(&file, Some(Margin::Bytes(left + 1)));
    assert!(!found.fits && found.headroom.is_empty());
    let leaves = |one: &crate::wire::Advice| memory.capacity_bytes.unwrap() - one.peak_bytes > left;
    assert!(!found.savings.is_empty() && found.savings.iter().all(leaves), "{:?}", titles(&found.savings));
    assert!(advise(&file, false, Some(Margin::Bytes(1))).memory.unwrap().advice.is_some());
}

#[test]
fn room_buys_a_shorter_step() {
    let training = json!({"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}});
    let found = check(&plan("llama-3-8b", "megatron", 4, &json!({"tp": 4}), &training));
    assert!(titles(&found.headroom).contains(&"Recompute nothing"), "{:?}", titles(&found.headroom));
    assert!(found.headroom.iter().all(|one| one.step_ratio.unwrap() < 1.0));
}

#[test]
fn what_goes_to_the_host_is_part_of_the_step() {
    let file = plan("llama-3-8b", "megatron", 1, &json!({"tp": 2}), &json!({"seq_len": 16384}));
    let found = check(&file);
    let hosted: Vec<_> =
        found.lowering().filter(|one| one.title.contains("optimizer's state on the host")).collect();
    assert!(!hosted.is_empty(), "{:?}", all_titles(&found));
    let copies = |one: &&crate::wire::Advice| {
        one.costs.iter().any(|cost| cost.part == "host copies" && cost.seconds > 0.0)
    };
    assert!(hosted.iter().all(copies), "{hosted:?}");
    assert!(hosted.iter().all(|one| one.step_ratio.unwrap() > 1.0 && !one.notes.is_empty()));
}

#[test]
fn advice_is_given_unasked_where_a_plan_does_not_fit() {
    let advised = |tp: u64, always| {
        let file = plan("llama-3-8b", "megatron", 1, &json!({"tp": tp}), &json!({}));
        advise(&file, always, None).memory.unwrap()
    };
    assert_eq!(advised(1, false).verdict, Verdict::No);
    assert!(advised(1, false).advice.is_some());
    assert_eq!(advised(8, false).verdict, Verdict::Fits);
    assert!(advised(8, false).advice.is_none() && advised(8, true).advice.is_some());
    let broken = plan("llama-3-8b", "megatron", 1, &json!({"tp": 3}), &json!({}));
    assert_eq!(advice(&broken), AdviceAnswer::default());
    assert!(advise(&broken, true, None).memory.is_none());
}

#[test]
fn absurd_plans_are_advised_without_a_panic() {
    for training in [
        json!({"seq_len": 4_294_967_296_u64, "global_batch_size": 4_294_967_296_u64}),
        json!({"micro_batch_size": 4_294_967_296_u64, "global_batch_size": 4_294_967_296_u64}),
    ] {
        let file = plan("deepseek-v3", "megatron", 1, &json!({"ep": 8}), &training);
        let found = advice(&file);
        assert!(found.lowering().all(|one| one.saved_bytes >= 0));
    }
}

#[test]
fn advice_in_pieces_is_the_same_and_stops_when_told_to() {
    let file = plan("llama-3-8b", "megatron", 1, &json!({"tp": 2}), &json!({}));
    let whole = advice(&file);
    assert!(whole.lowering().next().is_some());
    // Told to stop after so many pieces.
    let until = |end: usize| {
        let pieces = Cell::new(0);
        let go_on = async || {
            pieces.set(pieces.get() + 1);
            pieces.get() <= end
        };
        match pin!(advice_in_pieces(&file, None, go_on)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => (found, pieces.get()),
            Poll::Pending => panic!("nothing waits"),
        }
    };
    let (found, all) = until(usize::MAX);
    assert_eq!(found, Some(whole));
    assert!(all > 10, "{all} pieces");
    assert_eq!(until(all), (Some(advice(&file)), all));
    assert_eq!(until(all - 1), (None, all));
    assert_eq!(until(0), (None, 1));
}
