use serde_json::{Value, json};

use super::*;
use crate::answer::estimate;
use crate::parse::parse_plan;
use crate::runtime::Runtime;
use crate::settings::Schedule;
use crate::wire::{PlanFile, Verdict};

pub(super) fn file(preset: &str, runtime: &str, cluster: Value, training: Value) -> PlanFile {
    let file = json!({"version": 1, "model": {"preset": preset}, "runtime": runtime, "cluster": cluster,
        "training": training});
    parse_plan(&file.to_string()).unwrap()
}

fn gpus(count: u64) -> Value {
    json!({"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": count})
}

pub(super) fn all_of(search: &Search) -> Partial {
    let mut worker = search.worker();
    let mut partial = Partial::default();
    (0..search.parts()).for_each(|part| worker.run(part, &mut partial));
    partial
}

pub(super) fn whole(search: &Search) -> SearchAnswer {
    search.run()
}

/// The same from what was found of all parts.
pub(super) fn answer_of(search: &Search, found: &Partial) -> SearchAnswer {
    search.finish(found, &search.simulated(&search.shortlist(found)))
}

/// A plan with its seconds, to the bit, its peak and its group.
type Found = (Settings, u64, u64, FitGroup);

/// The group that a verdict is without a margin.
pub(super) fn group_of(verdict: Verdict) -> Option<FitGroup> {
    match verdict {
        Verdict::Fits => Some(FitGroup::Fits),
        Verdict::Tight => Some(FitGroup::Tight),
        Verdict::No | Verdict::Invalid => None,
    }
}

/// Every candidate of small axes by brute force: what resolves without an error, with the estimate's memory and time.
fn check_by_brute_force(file: &PlanFile, sizes: &[u64], mut request: Request) {
    request.limits.simulated = MOST_KEPT;
    request.limits.rows = MOST_KEPT;
    request.axes.micro_batch_size = Some(AxisValues::Values(vec![1, 2]));
    let schedules = request.axes.schedule.clone().unwrap();
    let sets = ["none", "full", "core_attn", "moe"];
    request.axes.recompute = Some(sets.map(|set| RecomputeWords(set.to_owned())).to_vec());
    let search = Search::new(&request).unwrap();
    let partial = all_of(&search);
    let dense = crate::fill::fill(file).plan.unwrap().model.moe.is_none();
    let mut brute: Vec<Found> = Vec::new();
    let mut evaluated = 0;
    // What no axis says is the same of all.
    let first = FitGroup::ALL.into_iter().find_map(|group| partial.group(group).best.first()).unwrap();
    let one = search.settings(&first.candidate).unwrap();
    let shardings: Vec<Option<Sharding>> = match &request.axes.fsdp_strategy {
        Some(named) => named.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let optimizers = request.axes.distributed_optimizer.clone();
    let optimizers = optimizers.unwrap_or_else(|| vec![one.distributed_optimizer]);
    let replicas = if request.axes.dp_replicate.is_some() { &[1][..] } else { sizes };
    let rest: Vec<Settings> = (1..=10)
        .flat_map(|vpp| schedules.iter().map(move |&schedule| (vpp, schedule)))
        .flat_map(|(vpp, schedule)| [1, 2].map(|micro_batch_size| (vpp, schedule, micro_batch_size)))
        .flat_map(|(vpp, schedule, micro_batch_size)| {
            let one = &one;
            sets.map(|set| Settings {
                vpp,
                schedule,
                micro_batch_size,
                recompute: RecomputeWords(set.to_owned()),
                pipeline_layout: None,
                first_stage_layers: None,
                last_stage_layers: None,
                account_for_embedding: false,
                account_for_loss: false,
                ..one.clone()
            })
        })
        .flat_map(|one| {
            optimizers.iter().map(move |&on| Settings { distributed_optimizer: on, ..one.clone() })
        })
        .flat_map(|one| shardings.iter().map(move |&on| Settings { fsdp_strategy: on, ..one.clone() }))
        .flat_map(|one| replicas.iter().map(move |&size| Settings { dp_replicate: size, ..one.clone() }))
        .collect();
    for &tp in sizes {
        for &cp in sizes {
            for &pp in sizes {
                for &ep in if dense { &[1] } else { sizes } {
                    for &etp in sizes.iter().filter(|etp| !dense || **etp == tp) {
                        for one in &rest {
                            if pp == 1 && one.schedule != Schedule::OneFOneB {
                                continue;
                            }
                            let settings = Settings { tp, sp: tp > 1, cp, pp, ep, etp, ..one.clone() };
                            let Some(plan) = Plan::judge(&settings.apply(file)).plan else { continue };
                            let memory = crate::memory::answer(&plan);
                            let seconds = crate::time::setup(&plan).unwrap().predict(&search.values).total();
                            let split = plan.split();
                            let settings = Settings {
                                dp: plan.layout.dp,
                                edp: plan.layout.edp,
                                pipeline_layout: split.listed.map(|(text, _)| text),
                                first_stage_layers: split.first_stage_layers,
                                last_stage_layers: split.last_stage_layers,
                                account_for_embedding: split.account_for_embedding,
                                account_for_loss: split.account_for_loss,
                                ..settings
                            };
                            evaluated += 1;
                            if let Some(group) = group_of(memory.verdict) {
                                brute.push((settings, seconds.to_bits(), memory.peak_bytes, group));
                            }
                        }
                    }
                }
            }
        }
    }
    let mut found: Vec<Found> = FitGroup::ALL
        .into_iter()
        .flat_map(|group| partial.group(group).best.iter().map(move |scored| (group, scored)))
        .map(|(group, scored)| {
            let settings = search.settings(&scored.candidate).unwrap();
            (settings, scored.seconds.to_bits(), scored.peak_bytes, group)
        })
        .collect();
    let order = |all: &mut Vec<Found>| all.sort_by_key(|(settings, ..)| format!("{settings:?}"));
    order(&mut found);
    order(&mut brute);
    assert!(brute.len() > 20, "{}", brute.len());
    assert_eq!(partial.valid, evaluated);
    if let Some((found, brute)) = found.iter().zip(&brute).find(|(found, brute)| found != brute) {
        panic!("{found:?}\n{brute:?}");
    }
    assert_eq!(found.len(), brute.len());
}

fn small(file: &PlanFile, schedules: &[Schedule]) -> Request {
    let mut request = Request::new(file.clone());
    request.axes.schedule = Some(schedules.to_vec());
    request.axes.dp_replicate = Some(AxisValues::Fixed(1));
    request
}

const ALL: [Schedule; 5] =
    [Schedule::OneFOneB, Schedule::Interleaved, Schedule::Gpipe, Schedule::ZbH1, Schedule::Zbv];

#[test]
fn candidates_are_those_that_brute_force_finds_with_the_estimates_memory_and_time() {
    let dense = file("tiny-dense", "megatron", gpus(4), json!({"global_batch_size": 8}));
    check_by_brute_force(&dense, &[1, 2, 4], small(&dense, &ALL));
    let moe = file("tiny-moe", "megatron", gpus(4), json!({"global_batch_size": 16}));
    check_by_brute_force(&moe, &[1, 2, 4], small(&moe, &ALL[..2]));
    // What is captured goes by what is recomputed.
    let graphs = json!({"global_batch_size": 16, "cuda_graphs": "scoped"});
    let graphs = file("tiny-moe", "megatron", gpus(4), graphs);
    check_by_brute_force(&graphs, &[1, 2, 4], small(&graphs, &ALL[..2]));
    let native = file("tiny-dense", "native", gpus(4), json!({"global_batch_size": 8}));
    check_by_brute_force(&native, &[1, 2, 4], small(&native, &ALL));
    let fsdp = file("tiny-moe", "fsdp2", gpus(4), json!({"global_batch_size": 8}));
    check_by_brute_force(&fsdp, &[1, 2, 4], small(&fsdp, &ALL));
    let megatron_fsdp = file("tiny-dense", "megatron_fsdp", gpus(4), json!({"global_batch_size": 8}));
    check_by_brute_force(&megatron_fsdp, &[1, 2, 4], small(&megatron_fsdp, &ALL[..1]));
}

#[test]
fn strategies_replicas_and_optimizers_are_all_looked_at() {
    let check = |runtime: &str, strategies: &[Sharding]| {
        let file = file("tiny-dense", runtime, gpus(4), json!({"global_batch_size": 8}));
        let mut request = small(&file, &ALL[..1]);
        request.axes.fsdp_strategy = Some(strategies.to_vec());
        request.axes.dp_replicate = None;
        check_by_brute_force(&file, &[1, 2, 4], request);
    };
    check("fsdp2", &Sharding::ALL[..2]);
    check("megatron_fsdp", &Sharding::ALL[2..]);
    let dense = file("tiny-dense", "megatron", gpus(4), json!({"global_batch_size": 8}));
    let mut request = small(&dense, &ALL[..2]);
    request.axes.distributed_optimizer = Some(vec![false, true]);
    check_by_brute_force(&dense, &[1, 2, 4], request);
}

/// Kept terms and plans computed one by one come to the same.
fn check_kept(preset: &str, nodes: u64, training: Value, change: impl Fn(&mut Request)) -> Partial {
    let cluster = json!({"gpu": "h100-sxm", "nodes": nodes});
    let mut request = Request::new(file(preset, "megatron", cluster, training));
    change(&mut request);
    let search = Search::new(&request).unwrap();
    let kept = all_of(&search);
    check_one_by_one(&search, &kept);
    kept
}

/// The same of what was found of all parts of any search.
pub(super) fn check_one_by_one(search: &Search, kept: &Partial) {
    let mut worker = Worker::one_by_one(search);
    let mut single = Partial::default();
    (0..search.parts()).for_each(|part| worker.run(part, &mut single));
    assert_eq!(kept.refused, single.refused);
    let counts = |partial: &Partial| [partial.valid, partial.fits.count, partial.tight.count];
    assert_eq!(counts(kept), counts(&single));
    for group in FitGroup::ALL {
        for (kept, single) in kept.group(group).best.iter().zip(&single.group(group).best) {
            assert_eq!(kept, single, "{:?}", search.settings(&single.candidate));
        }
    }
    // Bounds spare one of them most steps.
    assert!(kept.computed <= single.computed && single.computed <= single.valid);
    single.computed = kept.computed;
    assert!(*kept == single);
}

#[test]
fn kept_terms_come_to_what_plans_come_to_one_by_one() {
    let narrow = |request: &mut Request| {
        request.axes.tp = Some(AxisValues::Values(vec![1, 4]));
        request.axes.cp = Some(AxisValues::Values(vec![1, 2]));
        request.axes.micro_batch_size = Some(AxisValues::Values(vec![1, 4]));
        request.axes.schedule = Some(ALL.to_vec());
        request.axes.vpp = Some(AxisValues::Bounds(Bounds { min: 1, max: 3 }));
        request.axes.ep = Some(AxisValues::Values(vec![1, 8]));
        request.axes.etp = Some(AxisValues::Values(vec![1, 2]));
    };
    let checked = check_kept("llama-3-8b", 2, json!({"global_batch_size": 32}), narrow);
    assert!(checked.valid > 100, "{}", checked.valid);
    let checked = check_kept("deepseek-v3", 4, json!({"global_batch_size": 64}), narrow);
    assert!(checked.valid > 100, "{}", checked.valid);
    let all_groups = |request: &mut Request| {
        narrow(request);
        let settings = &mut request.axes.settings;
        settings.insert("layout.order".to_owned(), vec![json!("tp-cp-ep-dp-pp"), json!("tp-cp-ep-pp-dp")]);
        settings.insert("layout.cp_kind".to_owned(), vec![json!("p2p"), json!("a2a"), json!("all_gather")]);
    };
    let checked = check_kept("qwen3-30b-a3b", 2, json!({"global_batch_size": 32}), all_groups);
    assert!(checked.valid > 100, "{}", checked.valid);
    let fp8 = json!({"global_batch_size": 64, "dtype": "fp8_current", "bf16_first_layers": 2, "bf16_last_layers": 1});
    let checked = check_kept("qwen3-30b-a3b", 2, fp8, narrow);
    assert!(checked.fits.count > 0 && checked.tight.count > 0, "{checked:?}");
}

/// Candidates of a search, computed again as plans.
fn check_estimates(search: &Search, partial: &Partial, every: usize) -> usize {
    let groups = || [&partial.fits, &partial.tight].into_iter();
    let fronts = groups().flat_map(|kept| kept.fronts.values()).chain(partial.beyond.values());
    let best = groups().flat_map(|kept| &kept.best).chain(fronts.flat_map(|front| &front.0));
    let sample = best.chain(partial.smallest.values()).step_by(every);
    sample
        .map(|scored| {
            let settings = search.settings(&scored.candidate).unwrap();
            let resolved = Plan::resolve(&settings.apply(&search.request.plan));
            let plan = resolved.plan.unwrap_or_else(|| panic!("{settings:?} {:?}", resolved.findings));
            let seconds = crate::time::setup(&plan).unwrap().predict(&search.values).total();
            assert_eq!(seconds.to_bits(), scored.seconds.to_bits(), "{settings:?}");
            assert_eq!(crate::memory::answer(&plan).peak_bytes, scored.peak_bytes, "{settings:?}");
        })
        .count()
}

#[test]
fn memory_and_time_of_candidates_are_those_of_estimates_for_every_model() {
    let mut checked = 0;
    for (number, preset) in crate::model::presets().iter().enumerate() {
        let training = [
            json!({"global_batch_size": 64}),
            json!({"global_batch_size": 128, "dtype": "fp8_current", "fp8_param_gather": true}),
            json!({"global_batch_size": 48, "seq_len": 8192, "optimizer": {"distributed": false},
                   "overlap": {"param_gather": false}, "fused_gradient_accumulation": false, "hidden_dropout": 0.1}),
            json!({"global_batch_size": 64, "moe": {"dispatcher": "allgather"}, "cross_entropy": "native",
                   "optimizer": {"precision_aware": true, "exp_avg_dtype": "bf16"}}),
        ];
        let cluster = json!({"gpu": (["h100-sxm", "b200"][number % 2]), "nodes": 1 + number % 4});
        let mut request = Request::new(file(&preset.id, "megatron", cluster, training[number % 4].clone()));
        request.axes.schedule = Some(ALL.to_vec());
        request.axes.micro_batch_size = Some(AxisValues::Values(vec![1, 2]));
        request.axes.cp = Some(AxisValues::Values(vec![1, 2]));
        request.axes.vpp = Some(AxisValues::Bounds(Bounds { min: 1, max: 4 }));
        let search = Search::new(&request).unwrap();
        let partial = all_of(&search);
        checked += check_estimates(&search, &partial, 5);
    }
    assert!(checked > 1000, "{checked}");
}

#[test]
fn every_row_is_a_plan_with_the_numbers_of_its_estimate() {
    let cluster = json!({"gpu": "h100-sxm", "nodes": 4});
    let file = file("qwen3-30b-a3b", "megatron", cluster, json!({"global_batch_size": 64}));
    let mut request = Request::new(file.clone());
    request.axes.tp = Some(AxisValues::Values(vec![1, 2, 4]));
    request.axes.cp = Some(AxisValues::Fixed(1));
    request.axes.micro_batch_size = Some(AxisValues::Values(vec![1, 2]));
    let search = Search::new(&request).unwrap();
    let answer = whole(&search);
    assert_eq!(answer.rows.len(), 40);
    assert!(answer.rows.is_sorted_by_key(|row| row.group));
    for rows in answer.rows.chunk_by(|one, other| one.group == other.group) {
        // The first may be a simpler one that the time model can't tell from the fastest.
        let [first, rest @ ..] = rows else { panic!("no rows") };
        assert!(rest.is_sorted_by(|one, other| one.step_seconds <= other.step_seconds));
        let fastest = rest.first().map_or(first.step_seconds, |row| row.step_seconds);
        assert!(first.step_seconds <= fastest * (1.0 + candidate::ALIKE));
    }
    for row in answer.rows.iter().chain(&answer.front) {
        let estimate = estimate(&row.apply(&file));
        let memory = estimate.memory.unwrap();
        assert_eq!(memory.peak_bytes, row.peak_bytes);
        assert_eq!(memory.verdict, row.verdict);
        let close = |one: f64, other: f64| assert!((one / other - 1.0).abs() < 1e-7, "{one} {other} {row:?}");
        let closed = crate::time::answer(&Plan::resolve(&row.apply(&file)).plan.unwrap()).0.unwrap();
        close(closed.step_seconds, row.closed_form_seconds);
        // What the page says of the plan once the row is taken.
        let time = estimate.time.unwrap();
        assert_eq!(time.simulated, row.settings.pp > 1);
        if row.simulated {
            close(time.step_seconds, row.step_seconds);
            close(time.tokens_per_second_per_gpu, row.tokens_per_second_per_gpu);
            close(time.interval_seconds[1], row.interval_seconds[1]);
            close(time.mfu.unwrap(), row.mfu.unwrap());
        }
        assert_eq!(estimate.plan.unwrap().runtime, Some(Runtime::Megatron));
    }
    let read: SearchAnswer = serde_json::from_str(&serde_json::to_string(&answer).unwrap()).unwrap();
    assert_eq!((read.rows.len(), read.front.len()), (answer.rows.len(), answer.front.len()));
    let counts = &answer.counts;
    assert_eq!(counts.candidates, counts.refused + counts.valid);
    assert_eq!(counts.valid, counts.too_large + counts.endless + counts.fitting + counts.tight);
    assert!(answer.front.windows(2).all(|pair| pair[0].peak_bytes > pair[1].peak_bytes));
}

/// Where GPUs failed, too: a step is that of the ranks that are left, and its pipeline simulated.
#[test]
fn rows_of_a_cluster_with_failed_gpus_have_the_numbers_of_their_estimates() {
    let cluster = json!({"gpu": "h100-sxm", "nodes": 8, "failed": [{"rank": 5}]});
    let file = file("llama-3-70b", "megatron", cluster, json!({"global_batch_size": 256}));
    let mut request = Request::new(file.clone());
    request.axes.tp = Some(AxisValues::Fixed(8));
    request.axes.cp = Some(AxisValues::Fixed(1));
    let answer = whole(&Search::new(&request).unwrap());
    let simulated: Vec<_> = answer.rows.iter().filter(|row| row.simulated && row.settings.pp > 1).collect();
    assert!(simulated.len() > 3, "{:?}", answer.rows);
    for row in simulated {
        let time = estimate(&row.apply(&file)).time.unwrap();
        assert!(time.simulated);
        let numbers = [time.step_seconds, time.tokens_per_second_per_gpu, time.interval_seconds[1]];
        let of_row = [row.step_seconds, row.tokens_per_second_per_gpu, row.interval_seconds[1]];
        for (one, other) in numbers.into_iter().zip(of_row) {
            assert!((one / other - 1.0).abs() < 1e-6, "{numbers:?} {of_row:?}");
        }
    }
}

#[test]
fn parts_merge_to_the_same_answer_in_any_order() {
    let file = file("tiny-moe", "megatron", gpus(8), json!({"global_batch_size": 16}));
    let search = Search::new(&Request::new(file)).unwrap();
    let forward = all_of(&search);
    let mut backward = Partial::default();
    for part in (0..search.parts()).rev() {
        let text = serde_json::to_string(&search.run_part(part)).unwrap();
        search.merge(&mut backward, &serde_json::from_str(&text).unwrap());
    }
    assert!(forward.valid > 100);
    // How much bounds dismiss depends on what was found before.
    backward.computed = forward.computed;
    assert!(forward == backward);
}

#[test]
fn results_told_in_pieces_and_rows_known_from_before_come_to_the_same() {
    let file = file("tiny-moe", "megatron", gpus(8), json!({"global_batch_size": 16}));
    let search = Search::new(&Request::new(file)).unwrap();
    let ranking: Ranking = serde_json::from_str(&serde_json::to_string(search.ranking()).unwrap()).unwrap();
    assert_eq!(&ranking, search.ranking());
    let (mut cache, mut known) = (PartCache::default(), Known::default());
    let (mut found, mut merged) = (Partial::default(), Partial::default());
    for part in 0..search.parts() {
        cache.run(&search, part, &mut found);
        if part % 3 == 0 {
            ranking.merge(&mut merged, &found);
            search.so_far(&mut known, &merged, &[]);
            found = found.without_counts();
        }
    }
    ranking.merge(&mut merged, &found);
    let all = all_of(&search);
    assert!(merged == all);
    let simulated: Vec<Simulated> = search.shortlist(&all).iter().map(|one| search.simulate(one)).collect();
    assert_eq!(search.finish_with(&mut known, &merged, &simulated), search.finish(&all, &simulated));
}

#[test]
fn seconds_are_told_to_the_last_bit() {
    let file = file("tiny-moe", "megatron", gpus(8), json!({"global_batch_size": 16}));
    let search = Search::new(&Request::new(file)).unwrap();
    let scored = search.shortlist(&all_of(&search))[0];
    for number in 1..2000 {
        let seconds = Some(f64::from(number).sqrt() / 7.0).filter(|_| number % 100 != 0);
        let told = Simulated { seconds, ..search.simulate(&scored) };
        let read: Simulated = serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap();
        assert_eq!(read, told);
    }
}

#[test]
fn where_nothing_fits_it_says_what_would() {
    let file = file("llama-3.1-405b", "megatron", gpus(8), json!({"global_batch_size": 64}));
    let mut request = Request::new(file);
    request.axes.recompute = Some(vec![RecomputeWords::none()]);
    let answer = whole(&Search::new(&request).unwrap());
    assert!(answer.rows.is_empty());
    let relief = answer.relief.unwrap();
    assert!(relief.smallest.unwrap().missing_bytes > 0);
    insta::assert_snapshot!(relief.suggestions.join("\n"), @"128 GPUs: what is chosen then fits, with 66.58 GiB on the fullest GPU and 20.705 s a step");
}

#[test]
fn a_space_that_is_too_large_is_cut_down_and_says_so() {
    let file = file("tiny-moe", "megatron", gpus(8), json!({"global_batch_size": 64}));
    let mut request = Request::new(file);
    request.limits.candidates = 3000;
    let search = Search::new(&request).unwrap();
    assert!(search.candidates() <= 3000, "{}", search.candidates());
    let answer = whole(&search);
    assert_eq!(answer.left_out.first().map(String::as_str), Some("recomputation of single modules"));
    assert!(!answer.rows.is_empty());
    request.limits.candidates = 100;
    let search = Search::new(&request).unwrap();
    assert!(search.candidates() <= 100, "{}", search.candidates());
    let last = whole(&search).left_out.pop().unwrap();
    assert!(last.starts_with("the last ") && last.contains("bound some axis"), "{last}");
}

#[test]
fn bad_requests_are_findings() {
    let check = |change: fn(&mut Request), field: &str| {
        let mut request = Request::new(file("tiny-moe", "megatron", gpus(8), json!({})));
        change(&mut request);
        let findings = Search::new(&request).unwrap_err();
        assert_eq!(findings[0].field, field, "{findings:?}");
    };
    check(|request| request.version = 2, "search.version");
    check(|request| request.objective = Objective::Deadline, "deadline_days");
    check(|request| request.plan.cluster.gpu = "abacus".to_owned(), "cluster.gpu");
    check(|request| request.axes.gpu = Some(vec!["abacus".to_owned()]), "cluster.gpu");
    check(|request| request.plan.training.seq_len = Some(0), "training.seq_len");
    check(|request| request.axes.fsdp_strategy = Some(vec![Sharding::Optim]), "search.fsdp_strategy");
    check(|request| request.prices.extend([("h100-sxm".to_owned(), -1.0)]), "search.prices");
    check(|request| request.prices.extend([("h100".to_owned(), 1.0)]), "search.prices");
    check(|request| request.margin = Some(Margin::Share(1.0)), "search.margin");
    check(|request| request.margin = Some(Margin::Bytes(80 << 30)), "search.margin");
    check(
        |request| {
            request.plan.cluster.gpu = "cpu".to_owned();
            request.margin = Some(Margin::Bytes(1));
        },
        "search.margin",
    );
    let unlike = |request: &mut Request| {
        request.axes.gpu = Some(["h100-sxm", "b200"].map(str::to_owned).to_vec());
        request.objective = Objective::Cheapest;
        request.plan.cluster.price_per_gpu_hour = Some(2.0);
    };
    check(unlike, "search.prices");
    let text = json!({"plan": {"version": 1, "model": {"preset": "tiny-moe"}, "cluster": {"gpu": "cpu"}}, "axis": {}});
    assert!(serde_json::from_value::<Request>(text).is_err());
}

#[test]
fn prices_are_read_by_gpu() {
    let read = parse_prices(" h100-sxm = 2.5, b200=4,").unwrap();
    assert_eq!(read, [("h100-sxm".to_owned(), 2.5), ("b200".to_owned(), 4.0)].into());
    assert_eq!(parse_prices(" "), Ok(std::collections::BTreeMap::new()));
    for wrong in ["h100-sxm", "b200=much", "b200=NaN", "h100-sxm=1,=b"] {
        assert!(parse_prices(wrong).is_err_and(|said| said.contains("h100-sxm=2.5")), "{wrong}");
    }
}

#[test]
fn rows_have_the_ranges_of_their_estimates_on_any_network() {
    for (model, cluster) in [
        ("llama-3-70b", json!({"gpu": "h100-sxm", "nodes": 4, "nic_gbps": 50})),
        ("llama-3-70b", json!({"gpu": "h100-sxm", "nodes": 4, "oversubscription": 8})),
        ("qwen3-30b-a3b", json!({"gpu": "h100-sxm", "nodes": 2, "oversubscription": 3, "nic_gbps": 200})),
        ("llama-3-8b", json!({"gpu": "h100-sxm", "nodes": 2})),
    ] {
        let file = json!({"version": 1, "model": {"preset": model}, "cluster": cluster,
            "training": {"global_batch_size": 64}, "software": {"framework": "bridge 26.08"}});
        let request = Request::new(parse_plan(&file.to_string()).unwrap());
        let answer = whole(&Search::new(&request).unwrap());
        assert!(!answer.rows.is_empty(), "{model} {cluster}");
        for row in answer.rows.iter().filter(|row| row.simulated).take(12) {
            let time = crate::answer::estimate(&row.apply(&request.plan)).time.unwrap();
            let [low, high] = time.interval_seconds;
            let close = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-6;
            let same = close(low, row.interval_seconds[0]) && close(high, row.interval_seconds[1]);
            assert!(
                !time.simulated || same,
                "{model} {cluster}: {:?} {:?}",
                time.interval_seconds,
                row.interval_seconds
            );
        }
    }
}
