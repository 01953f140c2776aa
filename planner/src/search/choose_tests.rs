use serde_json::{Value, json};

use super::tests::whole;
use super::*;
use crate::answer::estimate;
use crate::parse::parse_plan;
use crate::wire::{PlanFile, Verdict};

fn file(value: Value) -> PlanFile {
    parse_plan(&value.to_string()).unwrap()
}

pub(super) fn open(preset: &str, gpu: &str, nodes: u64, more: Value) -> PlanFile {
    let mut value = json!({"version": 1, "model": {"preset": preset},
        "cluster": {"gpu": gpu, "nodes": nodes}, "choose": "all"});
    for (key, entry) in more.as_object().unwrap() {
        value[key] = entry.clone();
    }
    file(value)
}

/// The choice of a file, and the answer that it comes from.
pub(super) fn chosen_of(file: &PlanFile) -> (PlanFile, SearchAnswer) {
    let choice = Choice::of(file).unwrap().unwrap();
    let answer = whole(&Search::new(&choice.request).unwrap());
    let plan = choice.plan(&answer).unwrap_or_else(|| panic!("{answer:?}"));
    (plan, answer)
}

#[test]
fn model_and_cluster_alone_give_a_plan_that_fits() {
    for (preset, gpu, nodes) in [("llama-3-8b", "h100-sxm", 1), ("qwen3-30b-a3b", "h100-sxm", 2)] {
        let (plan, answer) = chosen_of(&open(preset, gpu, nodes, json!({})));
        assert_eq!(plan.choose, None);
        let found = estimate(&plan);
        assert_eq!(found.memory.map(|memory| memory.verdict), Some(Verdict::Fits), "{preset}");
        assert_eq!(answer.rows[0].apply(&plan), plan, "{preset}");
        let fields: Vec<&str> = answer.chosen.iter().map(|one| one.field.as_str()).collect();
        for field in ["layout.tp", "layout.pp", "training.micro_batch_size", "training.recompute"] {
            assert!(fields.contains(&field), "{preset}: {fields:?}");
        }
    }
}

/// What a search looked at and left is not offered in place of what it took.
#[test]
fn no_value_is_offered_in_place_of_a_chosen_one() {
    let more = json!({"training": {"global_batch_size": 1}, "software": {"framework": "bridge 26.08"}});
    let (plan, answer) = chosen_of(&open("llama-3-70b", "h100-sxm", 8, more));
    let mut found = estimate(&plan);
    let offered = |found: &crate::wire::Answer| {
        let of = |finding: &&Finding| finding.field == "layout.tp" && !finding.nearest.is_empty();
        found.findings.iter().filter(of).count()
    };
    assert_eq!(offered(&found), 1, "{:?}", found.findings);
    found.take_choice(&answer.chosen);
    assert_eq!((offered(&found), found.chosen), (0, answer.chosen));
}

#[test]
fn what_is_said_stays_and_what_is_not_open_is_the_default() {
    let more = json!({"layout": {"tp": 2, "vpp": 2, "pp": 4}, "training": {"micro_batch_size": 2, "global_batch_size": 256}});
    let (plan, answer) = chosen_of(&open("qwen3-14b", "h100-sxm", 2, more));
    let layout = &plan.layout;
    assert_eq!((layout.tp, layout.vpp, layout.pp), (Some(2), Some(2), Some(4)));
    assert_eq!((plan.training.micro_batch_size, plan.training.global_batch_size), (Some(2), Some(256)));
    assert!(answer.chosen.iter().all(|one| one.field != "layout.tp"));
    // Modules that are named are recomputed, though nobody said how much.
    let named = json!({"training": {"global_batch_size": 16, "recompute": {"modules": ["mlp"]}}});
    let (plan, _) = chosen_of(&open("llama-3-8b", "h100-sxm", 1, named));
    assert_eq!(plan.training.recompute.granularity, Some(crate::settings::Granularity::Selective));
    assert_eq!(plan.training.recompute.modules, Some(vec!["mlp".to_owned()]));
    let mut some = open("llama-3-8b", "h100-sxm", 1, json!({"training": {"global_batch_size": 256}}));
    some.choose = Some(crate::wire::Choose::Axes(vec!["tp".to_owned(), "layout.pp".to_owned()]));
    let (plan, answer) = chosen_of(&some);
    assert_eq!(
        (plan.layout.cp, plan.layout.vpp, plan.training.micro_batch_size),
        (Some(1), Some(1), Some(1))
    );
    assert_eq!(plan.training.recompute.granularity, Some(crate::settings::Granularity::None));
    let fields: Vec<&str> = answer.chosen.iter().map(|one| one.field.as_str()).collect();
    assert_eq!(&fields[..2], ["layout.tp", "layout.pp"]);
}

#[test]
fn without_choose_nothing_is_chosen() {
    let plain = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"}});
    assert_eq!(Choice::of(&file(plain)), Ok(None));
}

#[test]
fn a_split_that_is_said_stays() {
    let more = json!({"layout": {"pp": 4, "pipeline_layout": "Et*9|(t*10|)*2t*11L"}});
    let (plan, answer) = chosen_of(&open("qwen3-14b", "h100-sxm", 2, more));
    assert_eq!(plan.layout.pipeline_layout.as_deref(), Some("Et*9|(t*10|)*2t*11L"));
    assert!(answer.rows.iter().all(|row| row.settings.pp * row.settings.vpp == 4));
}

#[test]
fn nodes_precision_and_settings_open_when_named() {
    let mut wanted = open("llama-3-8b", "h100-sxm", 4, json!({"objective": "fewest_gpus"}));
    wanted.choose = Some(crate::wire::Choose::Axes(vec!["all".to_owned(), "nodes".to_owned()]));
    let (plan, _) = chosen_of(&wanted);
    assert_eq!(plan.cluster.nodes, Some(1));
    wanted.objective = None;
    wanted.choose = Some(crate::wire::Choose::Axes(vec!["all".to_owned(), "tp_overlap".to_owned()]));
    let (_, answer) = chosen_of(&wanted);
    assert!(answer.chosen.iter().any(|one| one.field == "training.overlap.tp"));
}

fn names(file: &mut PlanFile, axes: &[&str]) {
    file.choose = Some(crate::wire::Choose::Axes(axes.iter().map(|&axis| axis.to_owned()).collect()));
}

#[test]
fn the_fewest_gpus_may_be_any_number_of_nodes() {
    let mut wanted = open("gpt-oss-20b", "a100-40gb-sxm", 12, json!({"objective": "fewest_gpus"}));
    wanted.cluster.gpus_per_node = Some(2);
    names(&mut wanted, &["all", "nodes"]);
    let (plan, answer) = chosen_of(&wanted);
    let fewest = plan.cluster.nodes.unwrap();
    let fits = |nodes: u64| {
        let mut fixed = wanted.clone();
        fixed.cluster.nodes = Some(nodes);
        (fixed.objective, fixed.training.global_batch_size) = (None, plan.training.global_batch_size);
        names(&mut fixed, &["all"]);
        let request = Choice::of(&fixed).unwrap().unwrap().request;
        whole(&Search::new(&request).unwrap()).counts.fitting > 0
    };
    assert!(fewest > 1 && fits(fewest) && !(1..fewest).any(fits), "{fewest}");
    // What is faster on more GPUs is not called as fast.
    let apart = answer.chosen.iter().filter(|one| one.next_costs.is_some_and(|costs| costs < -0.02));
    assert!(
        apart.map(|one| &one.why).all(|why| why.ends_with("but the objective is fewest_gpus")),
        "{answer:?}"
    );
}

#[test]
fn the_order_of_ranks_is_open_where_the_framework_takes_it_and_the_host_where_it_is_named() {
    let fields = |file: &PlanFile| {
        let request = Choice::of(file).unwrap().unwrap().request;
        request.axes.settings.into_keys().collect::<Vec<String>>()
    };
    let of =
        |framework: &str| open("llama-3-8b", "h100-sxm", 1, json!({"software": {"framework": framework}}));
    let kind = "layout.cp_kind".to_owned();
    let mut long = open("llama-3-8b", "h100-sxm", 1, json!({}));
    assert!(!fields(&long).contains(&kind));
    names(&mut long, &["all", "cp_kind"]);
    assert!(fields(&long).contains(&kind));
    names(&mut long, &["all"]);
    long.training.seq_len = Some(16_384);
    assert!(fields(&long).contains(&kind));
    let order = "layout.order".to_owned();
    assert!(fields(&of("megatron-lm 0.19")).contains(&order));
    assert!(!fields(&of("bridge 26.08")).contains(&order));
    // One GPU, on which the optimizer's state has no room.
    let mut one = open("llama-3-8b", "h100-sxm", 1, json!({"training": {"global_batch_size": 8}}));
    one.cluster.gpus_per_node = Some(1);
    names(&mut one, &["all", "optimizer_offload"]);
    let (plan, answer) = chosen_of(&one);
    assert_eq!(answer.rows.first().map(|row| row.group), Some(FitGroup::Fits));
    assert!(plan.training.optimizer.offload_fraction > Some(0.0));
}

#[test]
fn whoever_is_told_what_others_found_chooses_the_same() {
    for (preset, nodes) in [("qwen3-30b-a3b", 2), ("llama-3.1-405b", 2)] {
        let more = json!({"training": {"global_batch_size": 128}});
        let request = Choice::of(&open(preset, "h100-sxm", nodes, more)).unwrap().unwrap().request;
        let search = Search::new(&request).unwrap();
        let mut mine = [Partial::default(), Partial::default()];
        let mut all = Partial::default();
        let mut workers = [search.worker(), search.worker()];
        for part in 0..search.parts() {
            let who = (part / 5 % 2) as usize;
            workers[who].run(part, &mut mine[who]);
            search.exchange(&mut mine[who], &mut all);
        }
        let [mut partial, other] = mine;
        search.merge(&mut partial, &other);
        let simulated: Vec<Simulated> =
            search.shortlist(&partial).iter().map(|one| search.simulate(one)).collect();
        let (answer, alone) = (search.finish(&partial, &simulated), whole(&search));
        assert_eq!((answer.rows, answer.relief), (alone.rows, alone.relief), "{preset}");
    }
}

#[test]
fn names_that_are_none_and_pins_that_contradict_are_said() {
    let mut wrong = open("llama-3-8b", "h100-sxm", 1, json!({}));
    for (word, meant) in [("tpp", "tp"), ("offload", "optimizer_offload"), ("overlap", "ep_overlap")] {
        names(&mut wrong, &[word]);
        let findings = Choice::of(&wrong).unwrap_err();
        assert!(findings[0].nearest.contains(&meant.into()), "{findings:?}");
    }
    let pins = open("llama-3-8b", "h100-sxm", 1, json!({"layout": {"tp": 8, "pp": 8}}));
    let choice = Choice::of(&pins).unwrap().unwrap();
    let search = Search::new(&choice.request).unwrap();
    let answer = whole(&search);
    assert_eq!(choice.plan(&answer), None);
    let said = answer.relief.unwrap().suggestions.join("\n");
    assert!(said.contains("layout.tp left open") && said.contains("layout.pp left open"), "{said}");
}

#[test]
fn what_is_chosen_is_the_first_row_of_a_search_for_all() {
    let cases = [
        ("llama-3-8b", "h100-sxm", 4, json!({})),
        ("llama-3-70b", "h100-sxm", 4, json!({"training": {"global_batch_size": 64}})),
        ("qwen3-30b-a3b", "h100-sxm", 2, json!({"training": {"global_batch_size": 128}})),
        ("qwen3-30b-a3b", "b200", 4, json!({"layout": {"pp": 4}, "training": {"dtype": "mxfp8"}})),
        ("deepseek-v2-lite", "h100-sxm", 1, json!({"objective": "most_headroom"})),
        ("nemotron-3-nano", "h100-sxm", 2, json!({"objective": "cheapest"})),
        ("llama-3-8b", "h100-sxm", 1, json!({"runtime": "fsdp2", "layout": {"pp": 1}})),
        // Layers of many kinds, whose plans are computed one by one.
        (
            "llama-nemotron-super-49b",
            "h100-sxm",
            2,
            json!({"layout": {"cp": 1}, "training": {"global_batch_size": 16}}),
        ),
        // What a framework's recipe sets goes with some of what is chosen, and not with the rest.
        (
            "qwen3-30b-a3b",
            "gb200",
            2,
            json!({"software": {"framework": "bridge 26.08"}, "training": {"global_batch_size": 64}}),
        ),
        (
            "deepseek-v2-lite",
            "h100-sxm",
            2,
            json!({"software": {"framework": "bridge 26.08"}, "training": {"global_batch_size": 64}}),
        ),
        // Both orders of ranks, and a number of nodes that is no power of two.
        (
            "qwen3-30b-a3b",
            "a100-40gb-sxm",
            3,
            json!({"software": {"framework": "megatron-lm 0.19"}, "training": {"global_batch_size": 48}}),
        ),
        // Where sequences are long, all kinds of context parallelism.
        ("llama-3-8b", "h100-sxm", 1, json!({"training": {"seq_len": 131_072, "global_batch_size": 8}})),
        // Only tight plans, and none.
        ("qwen3-30b-a3b", "l40s", 1, json!({"training": {"global_batch_size": 16}})),
        ("llama-3.1-405b", "h200", 16, json!({"training": {"global_batch_size": 64}})),
        ("llama-3.1-405b", "h100-sxm", 2, json!({"training": {"global_batch_size": 16}})),
    ];
    for (preset, gpu, nodes, more) in cases {
        let file = open(preset, gpu, nodes, more.clone());
        let (plan, answer) = chosen_of(&file);
        let choice = Choice::of(&file).unwrap().unwrap();
        assert!(choice.request.only_first);
        let request = Request { only_first: false, ..choice.request.clone() };
        let all = whole(&Search::new(&request).unwrap());
        assert_eq!(choice.plan(&all), Some(plan), "{preset} on {nodes} {gpu} with {more}");
        assert_eq!(answer.rows.first(), all.rows.first(), "{preset}");
        for row in all.rows.iter().take(10) {
            let resolved = Plan::resolve(&row.apply(&choice.request.plan)).plan.unwrap();
            let closed = crate::time::answer(&resolved).0.unwrap().step_seconds;
            let ratio = row.closed_form_seconds / closed;
            assert!((ratio - 1.0).abs() < 1e-7, "{preset}: {closed} {row:?}");
        }
        assert_eq!(answer.relief, all.relief, "{preset}");
        let values = |answer: &SearchAnswer| -> Vec<(String, Value)> {
            answer.chosen.iter().map(|one| (one.field.clone(), one.value.clone())).collect()
        };
        assert_eq!(values(&answer), values(&all), "{preset}");
    }
}

#[test]
fn a_simulated_step_takes_nearly_what_the_closed_form_says_or_more() {
    for (preset, nodes, batch) in [("llama-3-70b", 8, 128), ("qwen3-30b-a3b", 4, 64), ("glm-4.5", 32, 512)] {
        let more = json!({"training": {"global_batch_size": batch}});
        let choice = Choice::of(&open(preset, "h100-sxm", nodes, more)).unwrap().unwrap();
        let search = Search::new(&Request { only_first: false, ..choice.request }).unwrap();
        let mut partial = Partial::default();
        let mut worker = search.worker();
        (0..search.parts()).for_each(|part| worker.run(part, &mut partial));
        let list = search.shortlist(&partial);
        let ratio = |scored: &Scored| Some(search.simulate(scored).seconds? / scored.seconds);
        let least = list.iter().filter_map(ratio).fold(f64::INFINITY, f64::min);
        assert!(list.len() > 100 && least > ranking::SIMULATED_LEAST, "{preset}: {least}");
    }
}

#[test]
fn what_is_simulated_is_the_plan_that_the_candidate_stands_for() {
    let mut simulated = 0;
    for (preset, gpu, nodes, more) in [
        ("glm-4.5", "h100-sxm", 16, json!({"training": {"global_batch_size": 512}})),
        ("deepseek-v3", "h100-sxm", 32, json!({"training": {"dtype": "fp8_current"}})),
        // Its recipe keeps layers on the host where there is no pipeline.
        ("llama-3-70b", "gb200", 16, json!({})),
        ("llama-3-70b", "h100-sxm", 4, json!({"runtime": "fsdp2"})),
        ("qwen3-30b-a3b", "h100-sxm", 4, json!({"runtime": "megatron_fsdp"})),
        ("nemotron-3-nano", "b200", 8, json!({"training": {"seq_len": 32768}})),
    ] {
        let choice = Choice::of(&open(preset, gpu, nodes, more)).unwrap().unwrap();
        let mut request = Request { only_first: false, ..choice.request };
        (request.limits.rows, request.limits.simulated) = (2, 60);
        let search = Search::new(&request).unwrap();
        let mut partial = Partial::default();
        let mut worker = search.worker();
        (0..search.parts()).step_by(13).for_each(|part| worker.run(part, &mut partial));
        for scored in search.shortlist(&partial) {
            let file = search.settings(&scored.candidate).unwrap().apply(&request.plan);
            let plan = Plan::resolve(&file).plan.unwrap();
            let expected = match plan.layout.pp {
                1 => Some(scored.seconds),
                _ => crate::time::simulated(&plan),
            };
            assert_eq!(search.simulate(&scored).seconds, expected, "{preset}: {file:?}");
            simulated += u64::from(plan.layout.pp > 1);
        }
    }
    assert!(simulated > 100, "{simulated}");
}

#[test]
fn what_a_recipe_sets_does_not_keep_a_better_plan_from_being_chosen() {
    // Whole layers are recomputed beside no graphs, and whole gradients wait where there is room for them.
    for (preset, gpu, nodes, framework, pins) in [
        ("qwen3-30b-a3b", "gb200", 1, "bridge 26.08", json!({"recompute": {"granularity": "full"}})),
        ("llama-3-8b", "h100-sxm", 4, "automodel", json!({})),
    ] {
        let more = json!({"runtime": if framework == "automodel" { "fsdp2" } else { "megatron" },
            "software": {"framework": framework}, "training": {"global_batch_size": 256}});
        let free = open(preset, gpu, nodes, more.clone());
        let mut pinned = free.clone();
        pinned.training.recompute = serde_json::from_value(pins["recompute"].clone()).unwrap_or_default();
        let step = |file: &PlanFile| {
            let (plan, _) = chosen_of(file);
            let answer = estimate(&plan);
            assert_ne!(answer.memory.unwrap().verdict, Verdict::No, "{preset}");
            answer.time.unwrap().step_seconds
        };
        let [free, pinned] = [&free, &pinned].map(step);
        assert!(free <= 1.03 * pinned, "{preset}: {free} {pinned}");
    }
}

/// What helps where nothing is valid or fits: each is a plan that is valid, and fits where bytes are told.
fn relief_of(request: &Request) -> Relief {
    let answer = whole(&Search::new(request).unwrap());
    let relief = answer.relief.unwrap();
    for remedy in &relief.remedies {
        let found = estimate(&remedy.apply(&request.plan));
        let memory = found.memory.unwrap_or_else(|| panic!("{}: {:?}", remedy.said, found.findings));
        if let Some(bytes) = remedy.peak_bytes {
            let verdict = if remedy.said.contains("then is tight") { Verdict::Tight } else { Verdict::Fits };
            assert_eq!((memory.verdict, memory.peak_bytes), (verdict, bytes), "{}", remedy.said);
            assert_eq!(
                found.time.map(|time| time.step_seconds),
                remedy.step_seconds.map(crate::time::rounded)
            );
        }
        assert!(relief.suggestions.contains(&remedy.said));
        // As options of the command: the same changes give a search with rows.
        let mut again = request.clone();
        for pin in &remedy.changes {
            again.axes.fix(&pin.field, &pin.value_in_words()).unwrap();
        }
        let counts = whole(&Search::new(&again).unwrap()).counts;
        assert!(counts.fitting > 0 || remedy.peak_bytes.is_none(), "{}", remedy.said);
    }
    relief
}

fn words(pins: &[Pin]) -> Vec<String> {
    pins.iter().map(Pin::in_words).collect()
}

#[test]
fn the_fewest_pins_that_contradict_are_named_and_the_fewest_that_help() {
    let pinned = |layout: Value| {
        Choice::of(&open("llama-3-8b", "h100-sxm", 1, json!({"layout": layout}))).unwrap().unwrap()
    };
    let two = relief_of(&pinned(json!({"tp": 8, "pp": 8, "cp": 1})).request);
    assert_eq!(words(&two.contradiction), ["layout.tp 8", "layout.pp 8"]);
    let helps: Vec<&str> = two.remedies.iter().map(|remedy| remedy.changes[0].field.as_str()).collect();
    assert_eq!(helps, ["layout.tp", "layout.pp"]);
    assert!(two.suggestions[0].contains("layout.tp 8 and layout.pp 8 contradict each other"), "{two:?}");
    assert!(two.suggestions[1].contains("tp 8 x pp 8 x cp 1"), "{two:?}");
    let mut batch = open("llama-3-70b", "h100-sxm", 2, json!({"training": {"global_batch_size": 64}}));
    batch.training.micro_batch_size = Some(3);
    let batch = relief_of(&Choice::of(&batch).unwrap().unwrap().request);
    assert!(batch.suggestions[1].contains("64"), "{batch:?}");
    // Nobody said a layout string, so none is what is wrong.
    let stages = open("deepseek-v3", "h100-sxm", 32, json!({"layout": {"tp": 8, "pp": 3}}));
    let stages = relief_of(&Choice::of(&stages).unwrap().unwrap().request);
    assert!(stages.suggestions[1].contains("256 GPUs can't be split by pp 3"), "{stages:?}");
    let one = relief_of(&pinned(json!({"tp": 7, "pp": 2})).request);
    assert_eq!(words(&one.contradiction), ["layout.tp 7"]);
    // Each two go together, and all three don't.
    let three = relief_of(&pinned(json!({"tp": 2, "cp": 2, "pp": 4})).request);
    assert_eq!(words(&three.contradiction), ["layout.tp 2", "layout.cp 2", "layout.pp 4"]);
    assert_eq!(three.remedies.len(), 3);
    // Of these, no single one helps.
    let both = relief_of(&pinned(json!({"tp": 7, "pp": 5})).request);
    assert!(
        both.remedies.iter().all(|remedy| remedy.changes.len() == 2) && !both.remedies.is_empty(),
        "{both:?}"
    );
}

#[test]
fn where_nothing_fits_settings_gpus_and_their_type_that_would_are_told() {
    let mut tight = open("llama-3-8b", "l40s", 1, json!({"training": {"global_batch_size": 64}}));
    tight.cluster.gpus_per_node = Some(2);
    let request = Choice::of(&tight).unwrap().unwrap().request;
    let relief = relief_of(&request);
    let fields: Vec<&str> =
        relief.remedies.iter().flat_map(|remedy| &remedy.changes).map(|pin| pin.field.as_str()).collect();
    for field in ["training.optimizer.offload_fraction", "cluster.nodes", "cluster.gpu"] {
        assert!(fields.contains(&field), "{fields:?}");
    }
    let nodes = relief.remedies.iter().find(|remedy| remedy.changes[0].field == "cluster.nodes").unwrap();
    // No fewer nodes do.
    let mut fewer = request.clone();
    fewer.axes.nodes = Some(AxisValues::Fixed(nodes.settings.nodes - 1));
    assert!(whole(&Search::new(&fewer).unwrap()).counts.fitting == 0);
}

#[test]
fn clusters_of_one_gpu_of_a_prime_number_of_nodes_and_of_a_million_ranks_are_answered() {
    let mut one = open("llama-3-8b", "h100-sxm", 1, json!({"training": {"global_batch_size": 8}}));
    one.cluster.gpus_per_node = Some(1);
    let relief = relief_of(&Choice::of(&one).unwrap().unwrap().request);
    assert!(relief.remedies.iter().any(|remedy| remedy.changes[0].field == "cluster.nodes"), "{relief:?}");
    let prime = open("llama-3-70b", "h100-sxm", 13, json!({}));
    let (plan, _) = chosen_of(&prime);
    assert_eq!(plan.cluster.nodes, Some(13));
    let many = open("llama-3-70b", "h100-sxm", 125_000, json!({"layout": {"tp": 8, "pp": 8, "cp": 1}}));
    let request = Choice::of(&many).unwrap().unwrap().request;
    let answer = whole(&Search::new(&request).unwrap());
    assert!(answer.rows.iter().all(|row| row.gpus == 1_000_000));
    assert!(!answer.rows.is_empty() || !answer.relief.unwrap().suggestions.is_empty());
}

#[test]
fn until_it_is_chosen_anew_a_plan_keeps_what_was_chosen() {
    let more = json!({"training": {"global_batch_size": 128}});
    let earlier = open("qwen3-30b-a3b", "h100-sxm", 2, more);
    let (chosen, _) = chosen_of(&earlier);
    let filled = |file: &PlanFile| Plan::resolve(file).plan.unwrap();
    assert_eq!(filled(&with_earlier(&earlier, &earlier, &chosen)), filled(&chosen));
    // What is said now is said, and the rest stays.
    let mut pinned = earlier.clone();
    pinned.layout.cp = Some(2);
    pinned.training.moe.dispatcher = Some(crate::settings::Dispatcher::AllGather);
    let kept = with_earlier(&pinned, &earlier, &chosen);
    assert_eq!(kept.training.moe.dispatcher, Some(crate::settings::Dispatcher::AllGather));
    assert_eq!(kept.layout, crate::wire::LayoutFile { cp: Some(2), ..chosen.layout.clone() });
    let (kept, known) = (&kept.training, &chosen.training);
    assert_eq!((&kept.overlap, &kept.recompute), (&known.overlap, &known.recompute));
    assert_eq!(kept.micro_batch_size, known.micro_batch_size);
    // Another model keeps what is not its experts'.
    let dense = open("llama-3-8b", "h100-sxm", 2, json!({}));
    let kept = with_earlier(&dense, &earlier, &chosen);
    assert_eq!((kept.layout.ep, kept.training.moe.dispatcher), (None, None));
    assert_eq!(kept.layout.tp, chosen.layout.tp);
    let resolved = Plan::resolve(&kept);
    assert!(resolved.plan.is_some(), "{:?}", resolved.findings);
    // Axes that are not open are not filled.
    let mut some = earlier.clone();
    some.choose = Some(crate::wire::Choose::Axes(vec!["tp".to_owned()]));
    assert_eq!(with_earlier(&some, &earlier, &chosen).training.moe.dispatcher, None);
    assert_eq!(open_axes(&some), [("layout.tp", false)].into());
}

#[test]
fn what_no_layout_helps_is_said_of_its_field() {
    let unknown = open("llama-3-8b", "h100-sxm", 1, json!({"training": {"dtype": "nvfp4"}}));
    let request = Choice::of(&unknown).unwrap().unwrap().request;
    let suggestions = whole(&Search::new(&request).unwrap()).relief.unwrap().suggestions;
    let [first, ..] = &suggestions[..] else { panic!("{suggestions:?}") };
    assert!(first.starts_with("training.dtype: ") && first.contains("; nearest: "), "{suggestions:?}");
    // Switches that contradict each other, though no number does.
    let overlap = json!({"tp": true});
    let more =
        json!({"layout": {"tp": 4, "sp": false}, "training": {"overlap": overlap, "global_batch_size": 64}});
    let request = Choice::of(&open("llama-3-8b", "h100-sxm", 1, more)).unwrap().unwrap().request;
    let suggestions = whole(&Search::new(&request).unwrap()).relief.unwrap().suggestions;
    let [first, ..] = &suggestions[..] else { panic!("{suggestions:?}") };
    assert!(first.contains("sp") && first.contains("overlap"), "{suggestions:?}");
}

#[test]
fn a_number_of_nodes_with_few_divisors_is_told_of_its_neighbours() {
    let mut prime = open(
        "llama-3-70b",
        "h100-sxm",
        127,
        json!({"training": {"global_batch_size": 256, "seq_len": 4096}}),
    );
    prime.cluster.gpus_per_node = Some(1);
    let request = Choice::of(&prime).unwrap().unwrap().request;
    let relief = whole(&Search::new(&request).unwrap()).relief.unwrap();
    let nodes: Vec<u64> = relief
        .remedies
        .iter()
        .flat_map(|remedy| &remedy.changes)
        .filter(|pin| pin.field == "cluster.nodes")
        .filter_map(|pin| pin.value.as_u64())
        .collect();
    let [less, more] = nodes[..] else { panic!("{relief:?}") };
    assert!((96..127).contains(&less) && more == 128, "{nodes:?}");
}

#[test]
fn days_alone_are_a_deadline() {
    let aim = |more: Value| {
        let file = open("llama-3-8b", "h100-sxm", 2, more);
        let request = Choice::of(&file).unwrap().unwrap().request;
        (request.objective, request.deadline_days)
    };
    let training = json!({"train_tokens": 1e9});
    assert_eq!(aim(json!({"training": training})), (Objective::Fastest, None));
    assert_eq!(aim(json!({"training": training, "deadline_days": 30})), (Objective::Deadline, Some(30.0)));
    let other = json!({"training": training, "deadline_days": 30, "objective": "cheapest"});
    assert_eq!(aim(other), (Objective::Cheapest, Some(30.0)));
}

#[test]
fn a_deadline_takes_the_cheapest_plan_that_meets_it() {
    let days_of = |plan: &PlanFile| {
        let seconds = estimate(plan).time.unwrap().step_seconds;
        let batch = plan.training.global_batch_size.unwrap() * 8192;
        plan.training.train_tokens.unwrap() / batch as f64 * seconds / 86_400.0
    };
    let of = |objective: &str, days: Option<f64>| {
        let training = json!({"train_tokens": 1e11, "seq_len": 8192, "global_batch_size": 512});
        let mut wanted =
            open("llama-3-8b", "h100-sxm", 8, json!({"training": training, "objective": objective}));
        wanted.deadline_days = days;
        names(&mut wanted, &["all", "nodes"]);
        chosen_of(&wanted).0
    };
    let fastest = of("fastest", None);
    let least = days_of(&fastest);
    for slack in [1.02, 2.2, 9.0] {
        let plan = of("deadline", Some(least * slack));
        assert_eq!((plan.objective, plan.deadline_days), (None, None));
        assert!(days_of(&plan) <= least * slack * 1.001, "{slack}: {} of {least}", days_of(&plan));
        if slack > 8.5 {
            assert_eq!(plan.cluster.nodes, of("cheapest", None).cluster.nodes);
        } else if slack < 1.1 {
            assert_eq!(plan.cluster.nodes, fastest.cluster.nodes);
        }
    }
    // Where none is, the fastest stands there and it is said.
    let training = json!({"train_tokens": 1e11, "global_batch_size": 512});
    let mut wanted =
        open("llama-3-8b", "h100-sxm", 1, json!({"training": training, "objective": "deadline"}));
    for (days, late) in [(1.0, true), (1000.0, false)] {
        wanted.deadline_days = Some(days);
        let (_, answer) = chosen_of(&wanted);
        let said =
            answer.notes.iter().any(|note| note.starts_with("no plan trains all tokens within 1 days: "));
        assert_eq!(said, late, "{:?}", answer.notes);
    }
    let mut unsaid = open("llama-3-8b", "h100-sxm", 1, json!({"objective": "deadline"}));
    unsaid.deadline_days = None;
    let request = Choice::of(&unsaid).unwrap().unwrap().request;
    let fields: Vec<String> = Search::new(&request).unwrap_err().into_iter().map(|one| one.field).collect();
    assert_eq!(fields, ["deadline_days", "training.train_tokens"]);
}

#[test]
fn what_misses_a_deadline_is_not_looked_at_first() {
    let training = json!({"train_tokens": 1e11, "seq_len": 8192, "global_batch_size": 512});
    let mut wanted = open("llama-3-8b", "h100-sxm", 4, json!({"training": training}));
    names(&mut wanted, &["tp", "nodes", "recompute"]);
    let fastest = chosen_of(&wanted).1.rows[0].days.unwrap();
    wanted.deadline_days = Some(1.5 * fastest);
    let request = Request { only_first: false, ..Choice::of(&wanted).unwrap().unwrap().request };
    let answer = whole(&Search::new(&request).unwrap());
    let late = |row: &Row| row.missed(Objective::Deadline, request.deadline_days).is_some();
    assert!(answer.rows.iter().chain(&answer.front).any(late), "{:?}", answer.front);
    assert!(answer.bests().len() > 1 && !answer.bests().into_iter().any(|(_, row)| late(row)));
}
