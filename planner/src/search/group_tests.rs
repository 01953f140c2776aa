//! Plans that fit stand before tight ones, whatever is searched, but where a tight one is over twice as fast.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::tests::{all_of, answer_of, check_one_by_one, file, group_of, whole};
use super::*;
use crate::answer::estimate;
use crate::wire::Verdict;

/// The answer keeps the order of groups, and each row is what its plan's estimate says.
fn check(request: &Request) -> Result<SearchAnswer, TestCaseError> {
    let search = Search::new(request).unwrap_or_else(|findings| panic!("{findings:?}"));
    check_found(&search, &all_of(&search))
}

/// The same where all parts were worked on.
fn check_found(search: &Search, found: &Partial) -> Result<SearchAnswer, TestCaseError> {
    let request = search.request();
    let answer = answer_of(search, found);
    let counts = &answer.counts;
    let of = |group: FitGroup| answer.rows.iter().filter(move |row| row.group == group).count() as u64;
    let most = request.limits.rows;
    let blocks: Vec<FitGroup> =
        answer.rows.chunk_by(|one, next| one.group == next.group).map(|rows| rows[0].group).collect();
    let (fits, tight) = (found.fits.best.first(), found.tight.best.first());
    let gain = |what: fn(&Search, &Scored) -> f64| {
        fits.zip(tight).map_or(0.0, |(fits, tight)| what(search, fits) / what(search, tight))
    };
    let paid = |search: &Search, one: &Scored| {
        let subspace = &search.space.subspaces[one.candidate.subspace as usize];
        one.seconds * subspace.plan.world_size() as f64 * subspace.price.unwrap_or(1.0)
    };
    let tight_first = request.margin.is_none()
        && match request.objective {
            Objective::Fastest | Objective::Deadline => gain(|_, one| one.seconds) > 2.0,
            Objective::Cheapest => gain(paid) > 2.0,
            _ => false,
        };
    let expected: &[FitGroup] = if tight_first { &[FitGroup::Tight, FitGroup::Fits] } else { &FitGroup::ALL };
    prop_assert!(blocks.iter().eq(expected.iter().filter(|group| blocks.contains(group))), "{:?}", blocks);
    prop_assert!(answer.rows.iter().map(|row| row.place).eq(1..=answer.rows.len() as u64));
    for (group, count) in [(FitGroup::Fits, counts.fitting), (FitGroup::Tight, counts.tight)] {
        // Of plans that are alike in all that is shown one is a row; those whose bytes differ are not alike.
        let bytes: BTreeSet<u64> = found.group(group).best.iter().map(|scored| scored.peak_bytes).collect();
        let least = most.min(bytes.len() as u64);
        prop_assert!(
            (least..=count.min(most)).contains(&of(group)),
            "{:?}: {} of {}",
            group,
            of(group),
            count
        );
    }
    for row in answer.rows.iter().chain(&answer.front) {
        let memory = estimate(&row.apply(&request.plan)).memory.unwrap();
        prop_assert_eq!((memory.verdict, memory.peak_bytes), (row.verdict, row.peak_bytes));
        let free = memory.capacity_bytes.map_or(u64::MAX, |bytes| bytes.saturating_sub(memory.peak_bytes));
        let margin = request.margin.zip(memory.capacity_bytes).map_or(0, |(margin, all)| margin.bytes(all));
        let expected = if free >= margin { group_of(memory.verdict) } else { Some(FitGroup::Tight) };
        prop_assert_eq!(Some(row.group), expected, "{} bytes free, {}", free, margin);
    }
    let fits = counts.fitting > 0;
    prop_assert!(answer.front.iter().all(|row| (row.group == FitGroup::Fits) == fits));
    let late = answer.rows.first().and_then(|row| row.missed(answer.objective, answer.deadline_days));
    prop_assert_eq!(answer.relief.is_none(), fits && late.is_none());
    // What would help is told in a sentence at least.
    prop_assert!(answer.relief.iter().all(|relief| !relief.suggestions.is_empty()));
    if !fits && counts.tight > 0 {
        prop_assert!(answer.tight_in_words().starts_with("nothing fits for sure"));
        prop_assert!(answer.relief.iter().all(|relief| relief.smallest.is_none()));
    }
    Ok(answer)
}

/// A request with few values of most axes.
fn narrow(preset: &str, runtime: &str, gpu: &str, nodes: u64, batch: u64) -> Request {
    let training = json!({"global_batch_size": batch});
    let mut request = Request::new(file(preset, runtime, json!({"gpu": gpu, "nodes": nodes}), training));
    request.axes.tp = Some(AxisValues::Values(vec![1, 2, 8]));
    request.axes.cp = Some(AxisValues::Fixed(1));
    request.axes.pp = Some(AxisValues::Values(vec![1, 2, 4]));
    request.axes.vpp = Some(AxisValues::Values(vec![1, 2]));
    request.axes.ep = Some(AxisValues::Values(vec![1, 4, 8]));
    request.axes.etp = Some(AxisValues::Fixed(1));
    request.axes.micro_batch_size = Some(AxisValues::Values(vec![1, 2, 4]));
    request.axes.uneven_stages = Some(false);
    (request.limits.rows, request.limits.simulated) = (5, 20);
    request
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_is_searched_plans_that_fit_stand_first(
        model in prop_oneof![Just("llama-3-8b"), Just("qwen3-30b-a3b"), Just("mixtral-8x7b"), Just("tiny-moe"), Just("llama-3-70b")],
        runtime in prop_oneof![4 => Just("megatron"), 1 => Just("fsdp2"), 1 => Just("native")],
        gpu in prop_oneof![Just("h100-sxm"), Just("rtx-4090"), Just("b200"), Just("l40s")],
        nodes in prop_oneof![Just(1u64), Just(2), Just(4)],
        batch in prop_oneof![Just(64u64), Just(96), Just(128)],
        objective in 0usize..5,
        margin in prop_oneof![
            3 => Just(None),
            1 => (0.0f64..0.6).prop_map(|share| Some(Margin::Share(share))),
            1 => (0u64..20 << 30).prop_map(|bytes| Some(Margin::Bytes(bytes))),
        ],
        deferred in any::<bool>(),
    ) {
        let mut request = narrow(model, runtime, gpu, nodes, batch);
        request.objective = Objective::ALL[objective];
        request.margin = margin;
        if request.objective == Objective::Deadline {
            request.deadline_days = Some(if deferred { 1.0 } else { 1000.0 });
            request.plan.training.train_tokens = Some(1e11);
        }
        let search = Search::new(&request).unwrap();
        let found = all_of(&search);
        check_found(&search, &found)?;
        check_one_by_one(&search, &found);
    }
}

#[test]
fn of_plans_that_are_alike_one_is_a_row() {
    let answer = check(&narrow("qwen3-30b-a3b", "megatron", "b200", 4, 64)).unwrap();
    let tight = answer.rows.iter().filter(|row| row.group == FitGroup::Tight).count();
    assert!((tight as u64) < answer.counts.tight.min(5), "{:?}", answer.counts);
}

#[test]
fn many_tight_plans_do_not_crowd_out_those_that_fit() {
    // The fastest leave next to nothing.
    let cluster = json!({"gpu": "h100-sxm", "nodes": 2});
    let mut request =
        Request::new(file("qwen3-30b-a3b", "megatron", cluster, json!({"global_batch_size": 512})));
    request.axes.micro_batch_size = Some(AxisValues::Bounds(Bounds { min: 1, max: 8 }));
    request.axes.cp = Some(AxisValues::Fixed(1));
    request.axes.etp = Some(AxisValues::Fixed(1));
    request.axes.uneven_stages = Some(false);
    let answer = check(&request).unwrap();
    let first = &answer.rows[0];
    let tight = answer.rows.iter().find(|row| row.group == FitGroup::Tight).unwrap();
    assert_eq!((first.verdict, tight.verdict), (Verdict::Fits, Verdict::Tight));
    assert!(tight.step_seconds < first.step_seconds, "{} {}", tight.step_seconds, first.step_seconds);
    assert!(first.interval_bytes[1] <= first.peak_bytes + first.headroom_bytes.unwrap() as u64);
    assert!(answer.counts.tight > 300, "{:?}", answer.counts);
    // What must stay free is more than that of some, and less than that of others.
    request.margin = Some(Margin::Bytes(20 << 30));
    let roomy = check(&request).unwrap();
    assert!(roomy.rows[0].headroom_bytes >= Some(20 << 30));
    assert!(roomy.counts.fitting < answer.counts.fitting && roomy.counts.tight > answer.counts.tight);
    assert_eq!(roomy.counts.fitting + roomy.counts.tight, answer.counts.fitting + answer.counts.tight);
    assert!(roomy.tight_in_words().contains("20.00 GiB"), "{}", roomy.tight_in_words());
}

#[test]
fn rows_of_automodel_wait_with_whole_gradients_as_its_recipe_has_it() {
    let mut request = narrow("llama-3-8b", "fsdp2", "h100-sxm", 2, 256);
    request.plan.software.framework = Some("automodel".to_owned());
    let answer = check(&request).unwrap();
    assert!(answer.counts.too_large > answer.counts.fitting, "{:?}", answer.counts);
}

#[test]
fn a_tight_plan_stands_first_where_whatever_fits_takes_over_twice_as_long() {
    // What fits for sure splits each layer over four nodes.
    let mut request = narrow("gpt-oss-120b", "megatron", "h100-sxm", 4, 1024);
    request.axes.tp = Some(AxisValues::Values(vec![1, 32]));
    request.axes.ep = Some(AxisValues::Values(vec![8, 32]));
    let answer = check(&request).unwrap();
    let of =
        |answer: &SearchAnswer, group| answer.rows.iter().find(|row| row.group == group).cloned().unwrap();
    let [tight, fits] = [FitGroup::Tight, FitGroup::Fits].map(|group| of(&answer, group));
    assert_eq!((tight.place, fits.settings.tp), (1, 32));
    assert!(fits.step_seconds > 2.0 * tight.step_seconds, "{} {}", fits.step_seconds, tight.step_seconds);
    let headings: Vec<Option<String>> = answer.by_group().into_iter().map(|(said, _)| said).collect();
    assert!(
        matches!(headings.as_slice(), [Some(one), Some(other)] if one.starts_with("tight, and first") && other == "these fit for sure"),
        "{headings:?}"
    );
    // Most memory is left by one that fits for sure, whatever stands first.
    let most =
        answer.bests().into_iter().find(|(objective, _)| *objective == Objective::MostHeadroom).unwrap().1;
    let left = answer.rows.iter().chain(&answer.front).filter_map(|row| row.headroom_bytes).max();
    assert_eq!((most.group, most.headroom_bytes), (FitGroup::Fits, left));
    // Who wants the first row alone gets the same, and is told of the other.
    let alone = whole(&Search::new(&Request { only_first: true, ..request.clone() }).unwrap());
    assert_eq!(alone.rows.len(), 1);
    assert_eq!((alone.rows[0].group, alone.rows[0].peak_bytes), (FitGroup::Tight, tight.peak_bytes));
    let notes = alone.notes.join("\n");
    assert!(notes.contains("tight, and chosen") && notes.contains("layout.tp 32"), "{notes}");
    // Not where memory was asked for.
    for change in [(|request| request.margin = Some(Margin::Bytes(1))) as fn(&mut Request), |request| {
        request.objective = Objective::MostHeadroom
    }] {
        let mut other = request.clone();
        change(&mut other);
        assert_eq!(check(&other).unwrap().rows[0].group, FitGroup::Fits);
    }
}

#[test]
fn where_only_tight_plans_are_left_it_says_so_and_what_would_fit() {
    let mut request = narrow("llama-3-70b", "megatron", "h100-sxm", 4, 64);
    request.axes.recompute = Some(vec![RecomputeWords::none()]);
    let all = check(&request).unwrap();
    // The margin of the plan with the most memory left, and a byte.
    request.objective = Objective::MostHeadroom;
    let most = check(&request).unwrap().rows.iter().filter_map(|row| row.headroom_bytes).max().unwrap();
    request.margin = Some(Margin::Bytes(most as u64 + 1));
    let answer = check(&request).unwrap();
    assert_eq!((answer.counts.fitting, answer.counts.tight), (0, all.counts.fitting + all.counts.tight));
    assert!(answer.counts.tight > 0);
    let relief = answer.relief.unwrap();
    assert!(!relief.suggestions.is_empty());
}

#[test]
fn no_upper_end_is_more_than_twice_its_peak() {
    let mut checked = 0;
    for preset in crate::model::presets() {
        for runtime in ["megatron", "fsdp2", "megatron_fsdp", "native"] {
            for gpu in ["h100-sxm", "l40s"] {
                let file = json!({"version": 1, "model": {"preset": preset.id}, "runtime": runtime,
                    "cluster": {"gpu": gpu}, "training": {"global_batch_size": 64, "micro_batch_size": 4}});
                let Some(memory) = estimate(&crate::parse_plan(&file.to_string()).unwrap()).memory else {
                    continue;
                };
                let high = memory.interval_bytes[1];
                assert!(high <= crate::memory::MOST_OVER_PEAK * memory.peak_bytes, "{} {runtime}", preset.id);
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn what_an_objective_does_not_mean_is_said() {
    let notes = |change: fn(&mut Request)| {
        let mut request = narrow("tiny-moe", "megatron", "h100-sxm", 1, 64);
        change(&mut request);
        whole(&Search::new(&request).unwrap()).notes.join("\n")
    };
    assert_eq!(notes(|_| {}), "");
    assert!(notes(|request| request.objective = Objective::Cheapest).contains("no price is known"));
    let priced = |request: &mut Request| {
        request.objective = Objective::Cheapest;
        request.plan.cluster.price_per_gpu_hour = Some(2.0);
    };
    assert!(notes(priced).contains("the cheapest is the fastest"));
    let choice = |request: &mut Request| {
        request.objective = Objective::Cheapest;
        request.plan.cluster.price_per_gpu_hour = Some(2.0);
        request.axes.nodes = Some(AxisValues::Values(vec![1, 2]));
    };
    assert_eq!(notes(choice), "");
    let held = |request: &mut Request| {
        request.objective = Objective::FewestGpus;
        request.axes.nodes = Some(AxisValues::Fixed(2));
    };
    assert!(notes(held).contains("nodes=1..2"));
    // There are none fewer than one.
    let one = notes(|request| request.objective = Objective::FewestGpus);
    assert!(one.contains("the fewest are no choice") && !one.contains("nodes="), "{one}");
    let free = |request: &mut Request| {
        request.objective = Objective::FewestGpus;
        request.axes.nodes = Some(AxisValues::Values(vec![1, 2]));
    };
    assert_eq!(notes(free), "");
    assert!(notes(|request| request.plan.cluster.gpu = "cpu".to_owned()).contains("cpu is not known"));
}

#[test]
fn rows_differ_in_what_is_shown_and_say_what_was_free() {
    let mut request = narrow("qwen3-14b", "megatron", "h100-sxm", 2, 64);
    request
        .axes
        .settings
        .insert("layout.order".to_owned(), vec![json!("tp-cp-ep-dp-pp"), json!("tp-cp-ep-pp-dp")]);
    request.axes.pp = Some(AxisValues::Fixed(1));
    let answer = whole(&Search::new(&request).unwrap());
    // Without a pipeline both orders are the same ranks.
    assert!(answer.counts.fitting > answer.rows.len() as u64);
    for (at, row) in answer.rows.iter().enumerate() {
        for other in answer.rows.iter().take(at).filter(|other| other.peak_bytes == row.peak_bytes) {
            assert!((row.step_seconds / other.step_seconds - 1.0).abs() > 1e-5, "{row:?} {other:?}");
        }
        let [low, high] = row.interval_seconds;
        assert!(low < row.step_seconds && row.step_seconds < high);
        assert!(row.left_share().is_some_and(|share| (0.0..1.0).contains(&share)));
    }
    let said = answer.scope.in_words();
    for word in [
        "tp",
        "layout.order (tp-cp-ep-dp-pp, tp-cp-ep-pp-dp)",
        "layout.pp 1",
        "cluster.nodes 2",
        "cluster.gpu h100-sxm",
        "training.dtype bf16",
        "training.global_batch_size 64",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let (free, held) = said.split_once("; held: ").unwrap();
    assert!(!free.contains("ep") || free.contains("tp-cp-ep"), "{free}");
    assert!(!held.contains("layout.tp"), "{held}");
}

#[test]
fn the_fewest_gpus_are_looked_for_unless_the_nodes_are_held() {
    let mut request = narrow("llama-3-8b", "megatron", "h100-sxm", 8, 64);
    request.objective = Objective::FewestGpus;
    let first = |request: &Request| whole(&Search::new(request).unwrap()).rows.first().map(|row| row.gpus);
    assert_eq!(first(&request), Some(8));
    request.axes.nodes = Some(AxisValues::Fixed(4));
    assert_eq!(first(&request), Some(32));
}

#[test]
fn prices_of_unlike_gpus_are_asked_for_in_one_sentence() {
    let mut request = narrow("llama-3-8b", "megatron", "h100-sxm", 1, 64);
    request.objective = Objective::Cheapest;
    request.axes.gpu = Some(vec!["h100-sxm".to_owned(), "b200".to_owned()]);
    let said = Search::new(&request).unwrap_err();
    assert!(said.len() == 1 && said[0].message.contains("an hour of h100-sxm and of b200"), "{said:?}");
}

#[test]
fn the_order_of_a_settings_values_is_no_matter_of_validity() {
    let valid = |path: &str, values: serde_json::Value| {
        let mut request = narrow("qwen3-30b-a3b", "megatron", "h100-sxm", 1, 64);
        request.axes.tp = Some(AxisValues::Values(vec![1, 2]));
        request.axes.ep = Some(AxisValues::Values(vec![1, 2]));
        request.axes.etp = Some(AxisValues::Fixed(1));
        let values: Vec<serde_json::Value> = serde_json::from_value(values).unwrap();
        request.axes.settings.insert(path.to_owned(), values);
        whole(&Search::new(&request).unwrap()).counts.valid
    };
    for (path, first, last) in [
        ("training.overlap.tp", json!(false), json!(true)),
        ("training.moe.dispatcher", json!("alltoall"), json!("flex")),
    ] {
        let found = valid(path, json!([first, last]));
        assert!(found > 0);
        assert_eq!(valid(path, json!([last, first])), found, "{path}");
    }
}
