use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};

use super::{advice, advice_in_pieces};
use crate::plan::{advise, estimate, parse_plan};
use crate::wire::{AdviceAnswer, PlanFile, Verdict};

fn plan(model: &str, runtime: &str, nodes: u64, layout: &Value, training: &Value) -> PlanFile {
    let file = json!({"version": 1, "model": {"preset": model}, "runtime": runtime, "layout": layout,
        "cluster": {"gpu": "h100-sxm", "nodes": nodes}, "training": training});
    parse_plan(&file.to_string()).unwrap()
}

/// `file` with the changes of a piece of advice, put in by path as the page does.
fn with(file: &PlanFile, changes: &[crate::wire::Change]) -> PlanFile {
    changes
        .iter()
        .fold(file.clone(), |file, change| crate::plan::with_value(&file, &change.field, &change.to).unwrap())
}

/// Every piece of advice is what the changed plan's own answer says.
fn check(file: &PlanFile) -> AdviceAnswer {
    let before = estimate(file);
    let found = advice(file);
    for one in found.savings.iter().chain(&found.headroom) {
        let answer = estimate(&with(file, &one.changes));
        let (memory, before) = (answer.memory.unwrap(), before.memory.as_ref().unwrap());
        assert_eq!(
            (one.peak_bytes, one.interval_bytes, one.verdict),
            (memory.peak_bytes, memory.interval_bytes, memory.verdict),
            "{}",
            one.title
        );
        assert_eq!(one.saved_bytes, before.peak_bytes as i64 - memory.peak_bytes as i64, "{}", one.title);
        assert_eq!(one.step_seconds, answer.time.map(|time| time.step_seconds), "{}", one.title);
    }
    assert!(found.savings.iter().all(|one| one.saved_bytes >= 0));
    assert!(found.headroom.iter().all(|one| one.verdict == Verdict::Fits));
    found
}

fn titles(found: &[crate::wire::Advice]) -> Vec<&str> {
    found.iter().map(|one| one.title.as_str()).collect()
}

#[test]
fn a_plan_that_does_not_fit_gets_changes_that_do() {
    let file = plan("llama-3-70b", "megatron", 4, &json!({"tp": 8}), &json!({"seq_len": 8192}));
    assert_eq!(estimate(&file).memory.unwrap().verdict, Verdict::No);
    let found = check(&file);
    let fits: Vec<_> = found.savings.iter().filter(|one| one.verdict == Verdict::Fits).collect();
    assert!(fits.iter().any(|one| one.title.starts_with("Pipeline stages")), "{:?}", titles(&found.savings));
    assert!(fits.is_sorted_by(|a, b| {
        a.step_seconds.unwrap() + a.host_seconds <= b.step_seconds.unwrap() + b.host_seconds
    }));
    assert!(found.headroom.is_empty());
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
        let titles = titles(&found.savings);
        assert!(titles.iter().any(|title| title.starts_with(wanted)), "{runtime}: {titles:?}");
    }
}

#[test]
fn experts_have_changes_of_their_own() {
    let found =
        check(&plan("qwen3-30b-a3b", "megatron", 1, &json!({"ep": 8}), &json!({"micro_batch_size": 4})));
    let titles = titles(&found.savings);
    for wanted in ["Recompute moe", "At most the mean number", "Micro batches of"] {
        assert!(titles.iter().any(|title| title.starts_with(wanted)), "{wanted}: {titles:?}");
    }
    let dropped = found.savings.iter().find(|one| one.title.starts_with("At most")).unwrap();
    assert!(dropped.changes_training && !dropped.notes.is_empty());
}

#[test]
fn where_no_single_change_is_enough_several_are_put_together() {
    let file = plan("llama-3-70b", "megatron", 1, &json!({"tp": 8}), &json!({"seq_len": 8192}));
    let found = check(&file);
    let first = found.savings.first().unwrap();
    assert!(first.title.contains(" + ") || first.title.contains("nodes"), "{:?}", titles(&found.savings));
    assert!(first.changes.len() > 1 || first.title.contains("nodes"));
}

#[test]
fn room_buys_a_shorter_step() {
    let training = json!({"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}});
    let found = check(&plan("llama-3-8b", "megatron", 4, &json!({"tp": 4}), &training));
    assert!(titles(&found.headroom).contains(&"Recompute nothing"), "{:?}", titles(&found.headroom));
    assert!(found.headroom.iter().all(|one| one.step_ratio.unwrap() < 1.0));
}

#[test]
fn what_goes_to_the_host_is_counted() {
    let file = plan("llama-3-8b", "megatron", 1, &json!({"tp": 2}), &json!({"seq_len": 16384}));
    let found = check(&file);
    let hosted: Vec<_> = found.savings.iter().filter(|one| one.title.contains("host")).collect();
    assert!(!hosted.is_empty(), "{:?}", titles(&found.savings));
    assert!(hosted.iter().all(|one| one.host_bytes > 0 && one.host_seconds > 0.0 && !one.notes.is_empty()));
}

#[test]
fn advice_is_given_unasked_where_a_plan_does_not_fit() {
    let advised = |tp: u64, always| {
        let file = plan("llama-3-8b", "megatron", 1, &json!({"tp": tp}), &json!({}));
        advise(&file, always).memory.unwrap()
    };
    assert_eq!(advised(1, false).verdict, Verdict::No);
    assert!(advised(1, false).advice.is_some());
    assert_eq!(advised(8, false).verdict, Verdict::Fits);
    assert!(advised(8, false).advice.is_none() && advised(8, true).advice.is_some());
    let broken = plan("llama-3-8b", "megatron", 1, &json!({"tp": 3}), &json!({}));
    assert_eq!(advice(&broken), AdviceAnswer::default());
    assert!(advise(&broken, true).memory.is_none());
}

#[test]
fn absurd_plans_are_advised_without_a_panic() {
    for training in [
        json!({"seq_len": 4_294_967_296_u64, "global_batch_size": 4_294_967_296_u64}),
        json!({"micro_batch_size": 4_294_967_296_u64, "global_batch_size": 4_294_967_296_u64}),
    ] {
        let file = plan("deepseek-v3", "megatron", 1, &json!({"ep": 8}), &training);
        let found = advice(&file);
        assert!(found.savings.iter().all(|one| one.saved_bytes >= 0));
    }
}

#[test]
fn advice_in_pieces_is_the_same_and_stops_when_told_to() {
    let file = plan("llama-3-8b", "megatron", 1, &json!({"tp": 2}), &json!({}));
    let whole = advice(&file);
    assert!(!whole.savings.is_empty());
    // Told to stop after so many pieces.
    let until = |end: usize| {
        let pieces = Cell::new(0);
        let go_on = async || {
            pieces.set(pieces.get() + 1);
            pieces.get() <= end
        };
        match pin!(advice_in_pieces(&file, go_on)).poll(&mut Context::from_waker(Waker::noop())) {
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
