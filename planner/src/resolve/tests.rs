//! Worked examples of whole plans.

mod offers;
mod ranges;

use serde_json::{Value, json};

use crate::answer::estimate;
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::settings::{Precision, Usual};
use crate::wire::{Answer, PlanFile, Setting, Verdict};

fn plan(value: &Value) -> PlanFile {
    parse_plan(&value.to_string()).unwrap()
}

fn answer(preset: &str, nodes: u64, gpus: u64, layout: Value) -> Answer {
    estimate(&plan(&json!({
        "version": 1, "model": {"preset": preset},
        "cluster": {"gpu": "h100-sxm", "nodes": nodes, "gpus_per_node": gpus}, "layout": layout
    })))
}

/// Errors of an answer as `field: nearest`.
fn errors(answer: &Answer) -> Vec<String> {
    let errors = answer.findings.iter().filter(|finding| finding.severity == crate::Severity::Error);
    errors.map(|finding| format!("{}: {}", finding.field, json!(finding.nearest))).collect()
}

#[test]
fn minimax_m2_weights_are_those_of_the_sizing_table() {
    // source: MiniMax-M2 config.json; bf16 weights per GPU in GB, ETP 1.
    for (nodes, layout, gb) in [
        (1, json!({"tp": 2, "ep": 4}), "116.40"),
        (2, json!({"tp": 2, "ep": 8}), "60.23"),
        (2, json!({"tp": 1, "ep": 16}), "36.10"),
        (8, json!({"tp": 2, "ep": 32}), "18.10"),
        (1, json!({"tp": 2, "ep": 4, "etp": 2}), "60.23"),
    ] {
        let answer = answer("minimax-m2", nodes, 8, layout.clone());
        let memory = answer.memory.expect("valid");
        assert_eq!(format!("{:.2}", memory.rank_classes[0].weights_bytes as f64 / 1e9), gb, "{layout}");
    }
    let answer = answer("minimax-m2", 8, 8, json!({"tp": 2, "ep": 32}));
    let counts = answer.parameters.unwrap();
    assert_eq!(counts.total, 228_689_748_992);
    // 62 routers with a balancing bias for each of 256 experts.
    let preset = crate::model::presets().iter().find(|preset| preset.id == "minimax-m2").unwrap();
    let model = crate::model::import_hf(preset.hf_config.as_ref().unwrap()).architecture.unwrap();
    assert_eq!(counts.total + crate::model::untrained_elements(&model), 228_689_764_864);
    // With embedding and head.
    assert_eq!(counts.active / 10_000_000, 1_103);
    let class = &answer.memory.unwrap().rank_classes[0];
    let training = class.weights_bytes + class.gradients_bytes + class.optimizer_bytes;
    assert_eq!(training / 1_000_000_000, 97, "6 P + 12 (dense / 32 + experts / 2)");
}

#[test]
fn links_of_a_board_end_with_its_node() {
    for (gpu, gpus, domain) in [("h200", 4, 4), ("h200", 8, 8), ("gb200", 4, 72), ("h100-nvl", 8, 2)] {
        let file = json!({"version": 1, "model": {"preset": "llama-3-8b"},
            "cluster": {"gpu": gpu, "nodes": 18, "gpus_per_node": gpus}});
        let filled = estimate(&plan(&file)).plan.unwrap();
        assert_eq!(filled.cluster.nvlink_domain, Some(domain), "{gpu}");
    }
}

#[test]
fn a_plan_that_takes_eight_gpus_for_a_node_of_four_is_told() {
    let told = |cluster: Value| {
        let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": cluster});
        let findings = estimate(&plan(&file)).findings.into_iter();
        let mut told = findings.filter(|one| one.field == "cluster.gpus_per_node");
        told.next().map(|one| (one.value, one.nearest))
    };
    assert_eq!(told(json!({"gpu": "gb300", "nodes": 2})), Some((json!(8), vec![json!(4)])));
    for count in [4, 8] {
        assert_eq!(told(json!({"gpu": "gb300", "nodes": 2, "gpus_per_node": count})), None);
    }
    assert_eq!(told(json!({"gpu": "b300", "nodes": 2})), None);
}

#[test]
fn checkpoints_by_operators_compute_again() {
    let step = |training: Value| {
        let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"}, "runtime": "fsdp2",
            "layout": {"fsdp": {"checkpoint_selects": "matmuls"}}, "training": {"recompute": training}});
        estimate(&plan(&file)).time.unwrap().step_seconds
    };
    let [none, selective, full] =
        ["none", "selective", "full"].map(|kind| step(json!({"granularity": kind})));
    assert!(none < selective && selective < full, "{none} {selective} {full}");
}

#[test]
fn experts_that_do_not_divide_are_refused_with_the_nearest_sizes() {
    let answer = answer("minimax-m2", 48, 8, json!({"ep": 48}));
    assert_eq!(answer.memory, None);
    assert!(errors(&answer).contains(&"layout.ep: [32,64]".to_owned()), "{:?}", errors(&answer));
}

#[test]
fn tp_3_is_refused_with_2_and_4() {
    let answer = answer("llama-3-8b", 1, 8, json!({"tp": 3}));
    let first = &answer.findings[0];
    assert_eq!((first.field.as_str(), &first.value), ("layout.tp", &json!(3)));
    assert_eq!(first.nearest, [json!(2), json!(4)]);
    assert_eq!(answer.memory, None);
}

#[test]
fn absurd_sizes_are_findings() {
    for layout in [
        json!({"tp": 0}),
        json!({"tp": u64::MAX, "pp": u64::MAX, "ep": u64::MAX}),
        json!({"pp": 1_000_000_007u64}),
        json!({"vpp": 0, "pp": 0}),
        json!({"first_stage_layers": u64::MAX, "last_stage_layers": u64::MAX, "pp": 2}),
        json!({"etp": u64::MAX, "cp": u64::MAX}),
        json!({"microbatch_group_size": u64::MAX, "pp": 2, "vpp": 2}),
    ] {
        for preset in ["llama-3-8b", "deepseek-v3"] {
            assert!(!errors(&answer(preset, 1, 8, layout.clone())).is_empty(), "{preset} {layout}");
        }
    }
    for cluster in
        [json!({"gpu": "h100-sxm", "nodes": u64::MAX, "gpus_per_node": u64::MAX}), json!({"gpu": "h101"})]
    {
        let answer =
            estimate(&plan(&json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": cluster})));
        assert!(!errors(&answer).is_empty());
    }
    for training in [
        json!({"seq_len": u64::MAX}),
        json!({"seq_len": 1u64 << 32, "micro_batch_size": 1 << 20}),
        json!({"global_batch_size": 0}),
        json!({"global_batch_size": 255}),
        json!({"moe": {"load_imbalance": 0.5}}),
    ] {
        let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"}, "training": training});
        assert!(!errors(&estimate(&plan(&file))).is_empty(), "{training}");
    }
}

#[test]
fn a_filled_plan_answers_the_same() {
    let first = answer(
        "deepseek-v3",
        32,
        8,
        json!({"tp": 2, "pp": 8, "ep": 16, "first_stage_layers": 6, "last_stage_layers": 7}),
    );
    assert_eq!(errors(&first), [""; 0]);
    let filled = first.plan.clone().unwrap();
    let again = estimate(&parse_plan(&serde_json::to_string(&filled).unwrap()).unwrap());
    assert_eq!(again.assumed, [""; 0]);
    assert_eq!((again.memory, again.plan), (first.memory, first.plan));
}

#[test]
fn a_filled_plan_shows_every_training_field() {
    // Of what is not done nothing is filled.
    const NOT_DONE: [&str; 4] = [
        "training.loss_scale.",
        "training.recompute.method",
        "training.recompute.num_layers",
        "training.optimizer.momentum",
    ];
    let filled = serde_json::to_value(answer("tiny-moe", 1, 8, json!({})).plan.unwrap()).unwrap();
    let training = Setting::all().filter(|setting| setting.path.starts_with("training."));
    for Setting { path, usual, .. } in training {
        let value = path.split('.').try_fold(&filled, |place, key| place.get(key)).unwrap_or(&Value::Null);
        let open = *usual == Usual::Nothing || NOT_DONE.iter().any(|part| path.starts_with(part));
        assert_eq!(value.is_null(), open, "{path}: {value}");
    }
}

#[test]
fn precisions_have_the_names_of_plan_files() {
    for precision in Precision::ALL {
        assert_eq!(json!(precision), json!(precision.name()));
        let file = json!({
            "version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "b200"},
            "training": {"dtype": precision.name()}
        });
        let training = Plan::resolve(&plan(&file)).plan.unwrap().training;
        assert_eq!((training.dtype, training.low_precision), (precision.dtype(), precision.low_precision()));
    }
}

#[test]
fn training_settings_out_of_range_are_findings() {
    for (field, training) in [
        ("training.grad_dtype", json!({"grad_dtype": "fp8"})),
        ("training.optimizer.master_dtype", json!({"optimizer": {"master_dtype": "fp8"}})),
        ("training.optimizer.offload_fraction", json!({"optimizer": {"offload_fraction": 1.5}})),
        ("training.optimizer.instances", json!({"optimizer": {"instances": 0}})),
        ("training.offload.fraction", json!({"offload": {"fraction": -1}})),
        ("training.hidden_dropout", json!({"hidden_dropout": 1e300})),
        ("training.moe.capacity_factor", json!({"moe": {"capacity_factor": 0}})),
        ("training.cuda_graph_modules", json!({"cuda_graph_modules": vec!["attn"; 65]})),
    ] {
        let file = json!({"version": 1, "model": {"preset": "tiny-moe"}, "cluster": {"gpu": "h100-sxm"}, "training": training});
        let found = errors(&estimate(&plan(&file)));
        assert!(found.iter().any(|error| error.starts_with(field)), "{field}: {found:?}");
    }
}

#[test]
fn a_link_gives_the_plan_back_and_is_short() {
    let file = plan(
        &json!({"version": 1, "model": {"preset": "minimax-m2"}, "cluster": {"gpu": "h100-sxm", "nodes": 8}, "layout": {"tp": 2, "ep": 32}}),
    );
    let link = crate::link::encode_link(&file);
    assert!(link.len() < 300, "{} characters", link.len());
    for link in [link.clone(), format!("#{link}"), format!("{link}&v=ranks"), format!("v=ranks&{link}")] {
        assert_eq!(crate::link::decode_link(&link).unwrap(), file);
    }
    for bad in ["", "p=2.abc", "p=1.%%%", "p=1.AAAA", "p=1.", &link[..link.len() - 5]] {
        assert!(crate::link::decode_link(bad).is_err(), "{bad}");
    }
}

/// A rank's own list must agree with its stage's families and tile every tensor once per replica.
fn check_tiling(preset: &str, nodes: u64, gpus: u64, layout: &Value) {
    let file = plan(&json!({
        "version": 1, "model": {"preset": preset},
        "cluster": {"gpu": "h100-sxm", "nodes": nodes, "gpus_per_node": gpus}, "layout": layout
    }));
    let resolved = Plan::resolve(&file);
    let plan = resolved.plan.unwrap_or_else(|| panic!("{layout}: {:?}", resolved.findings));
    let world = plan.world_size();
    let mut covered = std::collections::BTreeMap::<String, (u64, u64)>::new();
    for rank in 0..world {
        let shards = plan.rank_shards(rank);
        let stage = crate::layout::coordinates(&plan.layout, rank).pp;
        let mut buffers = crate::shard::stage_buffers(&plan, stage);
        for (buffer, own) in buffers.iter_mut().zip(&shards.buffers) {
            for (state, own) in buffer.states.iter_mut().zip(&own.states) {
                state.offset = own.offset;
            }
        }
        assert_eq!(buffers, shards.buffers, "rank {rank} of {layout}");
        for param in &shards.params {
            let end = param.buffer_offset + param.elements();
            assert!(end <= shards.buffers[param.buffer].elements, "{}", param.name);
            for (dim, extent) in param.shape.iter().enumerate() {
                assert!(param.offset[dim] + param.local_shape[dim] <= *extent, "{}", param.name);
            }
            let whole: u64 = param.shape.iter().product();
            covered.entry(param.name.clone()).or_insert((whole, 0)).1 += param.elements();
        }
        let per_rank: u64 = shards.params.iter().map(super::shard::ParamShard::elements).sum();
        assert_eq!(per_rank, super::shard::parameters_of_stage(&plan, stage), "rank {rank} of {layout}");
    }
    for (name, (whole, sum)) in covered {
        assert_eq!(sum % whole, 0, "{name} of {layout}");
        let (expert, replicas) = (name.contains(".experts."), sum / whole);
        let cut =
            plan.rank_shards(0).params.iter().find(|param| param.name == name).map(|param| param.cut_by);
        if let (true, Some(Some(_))) = (plan.layout.pp == 1, cut) {
            assert_eq!(
                replicas,
                if expert { plan.layout.edp } else { plan.layout.dp * plan.layout.cp },
                "{name}"
            );
        }
    }
}

#[test]
fn shards_tile_every_tensor_once_per_replica() {
    check_tiling("tiny-dense", 1, 4, &json!({"tp": 2}));
    check_tiling("tiny-dense", 1, 8, &json!({"tp": 2, "pp": 2}));
    check_tiling("tiny-dense", 2, 8, &json!({"tp": 8}));
    check_tiling("tiny-moe", 1, 8, &json!({"tp": 2, "ep": 4}));
    check_tiling("tiny-moe", 1, 8, &json!({"tp": 2, "ep": 2, "etp": 2, "pp": 2}));
    check_tiling("tiny-moe", 2, 8, &json!({"cp": 2, "ep": 4, "pp": 2, "vpp": 2}));
    check_tiling("tiny-moe", 1, 8, &json!({"tp": 2, "ep": 4, "pp": 2, "order": "tp-cp-ep-dp-pp"}));
}

#[test]
fn verdicts_follow_capacity() {
    let verdict = |answer: Answer| answer.memory.map(|memory| memory.verdict);
    assert_eq!(verdict(answer("llama-3-8b", 1, 8, json!({"tp": 2}))), Some(Verdict::Fits));
    assert_eq!(verdict(answer("llama-3.1-405b", 1, 8, json!({"tp": 8}))), Some(Verdict::No));
    assert_eq!(verdict(answer("llama-3.1-405b", 1, 8, json!({"tp": 5}))), None);
}

#[test]
fn low_precision_does_not_ask_for_blocks_of_convolutions() {
    for dtype in ["fp8_current", "mxfp8"] {
        let answer = estimate(&plan(&json!({
            "version": 1, "model": {"preset": "nemotron-3-nano"}, "cluster": {"gpu": "b200"}, "layout": {"ep": 8},
            "training": {"dtype": dtype, "seq_len": 8192, "global_batch_size": 512}
        })));
        assert_eq!(errors(&answer), Vec::<String>::new(), "{dtype}");
    }
}

#[test]
fn mixers_without_a_tensor_parallel_plan_are_refused_under_fsdp() {
    for (preset, tp, expected) in [
        ("qwen3-next-80b-a3b", 2, true),
        ("qwen3-next-80b-a3b", 1, false),
        ("nemotron-h-8b", 2, true),
        ("llama-3-8b", 2, false),
    ] {
        let answer = estimate(&plan(&json!({
            "version": 1, "model": {"preset": preset}, "cluster": {"gpu": "h100-sxm"}, "runtime": "fsdp2",
            "layout": {"tp": tp}
        })));
        let refused = errors(&answer).iter().any(|error| error.starts_with("layout.tp"));
        assert_eq!(refused, expected, "{preset} tp {tp}: {:?}", errors(&answer));
    }
}

#[test]
fn learning_rates_warm_up_and_fall() {
    let check = |run: Value, expected: [f64; 6]| {
        let file =
            json!({"version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu"}, "run": run});
        let run = Plan::resolve(&plan(&file)).plan.unwrap().run;
        let rates: Vec<f64> = (1..=6).map(|step| run.learning_rate(step)).collect();
        let close = rates.iter().zip(expected).all(|(rate, expected)| (rate - expected).abs() < 1e-15);
        assert!(close, "{rates:?}");
    };
    check(json!({"lr": 1.0, "warmup_steps": 4}), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
    check(json!({"lr": 0.5}), [0.5; 6]);
    let linear =
        json!({"lr": 1.0, "warmup_steps": 1, "lr_schedule": "linear", "lr_decay_steps": 5, "min_lr": 0.5});
    check(linear, [1.0, 0.875, 0.75, 0.625, 0.5, 0.5]);
    let half = std::f64::consts::FRAC_1_SQRT_2 / 2.0;
    let cosine = json!({"lr": 1.0, "steps": 4, "lr_schedule": "cosine"});
    check(cosine, [0.5 + half, 0.5, 0.5 - half, 0.0, 0.0, 0.0]);
}

#[test]
fn whole_layers_are_recomputed_without_a_method() {
    let whole = |runtime: &str| {
        let file = plan(&json!({
            "version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"}, "runtime": runtime,
            "training": {"recompute": "full"}
        }));
        Plan::resolve(&file)
    };
    for runtime in ["fsdp2", "megatron", "megatron_fsdp", "native"] {
        let resolved = whole(runtime);
        // Each layer by itself, which is said to be assumed.
        for field in ["training.recompute.method", "training.recompute.num_layers"] {
            assert!(resolved.assumed.iter().any(|assumed| assumed == field), "{:?}", resolved.assumed);
        }
        let training = resolved.plan.unwrap().training;
        assert_eq!(
            (training.recompute_method.as_deref(), training.recompute_layers),
            (Some("uniform"), Some(1))
        );
    }
}

/// The answer of a model with experts on four nodes.
fn experts(moe: Value) -> Answer {
    estimate(&plan(&json!({
        "version": 1, "model": {"preset": "mixtral-8x7b"}, "cluster": {"gpu": "h100-sxm", "nodes": 4},
        "layout": {"tp": 2, "ep": 8}, "training": {"moe": moe}
    })))
}

#[test]
fn a_load_that_is_said_is_a_statement() {
    let high = |answer: &Answer| answer.memory.as_ref().unwrap().interval_bytes[1];
    let [unsaid, said, forced] =
        [json!({}), json!({"load_imbalance": 1.0}), json!({"force_balance": true})].map(experts);
    assert!(high(&said) < high(&unsaid), "{} and {}", high(&said), high(&unsaid));
    assert_eq!(high(&forced), high(&said));
    let warned = |answer: &Answer| {
        answer.findings.iter().any(|finding| finding.field == "training.moe.load_imbalance")
    };
    assert_eq!([&unsaid, &said, &forced].map(warned), [true, false, false]);
    let grows = |answer: &Answer| answer.plan.as_ref().unwrap().training.moe.load_may_grow;
    assert_eq!([&unsaid, &said, &forced].map(grows), [Some(true), Some(false), Some(false)]);
    // Whatever was said, a filled plan says it too.
    for first in [unsaid, said, forced] {
        let text = serde_json::to_string(first.plan.as_ref().unwrap()).unwrap();
        let again = estimate(&parse_plan(&text).unwrap());
        assert_eq!((again.memory, again.assumed), (first.memory, Vec::new()));
    }
    assert_eq!(errors(&experts(json!({"force_balance": true, "load_imbalance": 1.5}))).len(), 1);
}

#[test]
fn fewer_layers_and_another_capacity() {
    let with = |model: Value, cluster: Value| {
        estimate(&plan(&json!({"version": 1, "model": model, "cluster": cluster})))
    };
    let eight = with(json!({"preset": "llama-3-8b", "num_layers": 8}), json!({"gpu": "h100-sxm"}));
    let whole = with(json!({"preset": "llama-3-8b"}), json!({"gpu": "h100-sxm", "memory_gib": 96}));
    let total = |answer: &Answer| answer.parameters.as_ref().unwrap().total;
    // 32 layers of 218,112,000 parameters.
    assert_eq!(total(&whole) - total(&eight), 24 * 218_112_000);
    assert_eq!(eight.plan.as_ref().unwrap().model.num_layers, Some(8));
    let capacity = |answer: &Answer| answer.memory.as_ref().unwrap().capacity_bytes.unwrap();
    assert_eq!(capacity(&eight), 84_932_978_278);
    assert_eq!(capacity(&whole), 101_919_573_934);
    for assumed in [&eight.assumed, &whole.assumed] {
        assert!(!assumed.iter().any(|field| field == "cluster.memory_gib" || field == "model.num_layers"));
    }
    let deep = with(json!({"preset": "deepseek-v3", "num_layers": 100}), json!({"gpu": "h100-sxm"}));
    assert!(errors(&deep)[0].starts_with("model.num_layers"), "{:?}", errors(&deep));
    let host = with(json!({"preset": "tiny-dense"}), json!({"gpu": "cpu", "memory_gib": 64}));
    assert!(errors(&host)[0].starts_with("cluster.memory_gib"), "{:?}", errors(&host));
    for memory in [0.0, -1.0, 1e9] {
        let wrong = with(json!({"preset": "tiny-dense"}), json!({"gpu": "h100-sxm", "memory_gib": memory}));
        assert!(errors(&wrong)[0].starts_with("cluster.memory_gib"), "{:?}", errors(&wrong));
    }
}

#[test]
fn what_a_recipe_sets_is_no_error_beside_one_of_the_plans_own() {
    for framework in ["bridge 26.08", "nemo 25.04"] {
        for layout in [json!({"tp": 1, "pp": 8, "ep": 8}), json!({"tp": 3}), json!({"pp": 7})] {
            let file = json!({"version": 1, "model": {"preset": "llama-3.1-405b"}, "cluster": {"gpu": "h100-sxm", "nodes": 64},
                "layout": layout, "software": {"framework": framework}});
            let answer = estimate(&plan(&file));
            let sets = answer.framework.unwrap().sets;
            let errors = answer.findings.iter().filter(|finding| finding.severity == crate::Severity::Error);
            let errors: Vec<&str> = errors.map(|finding| finding.field.as_str()).collect();
            assert!(!errors.is_empty() && !sets.is_empty(), "{framework} {layout}");
            assert!(
                errors.iter().all(|field| !sets.contains_key(*field)),
                "{framework} {layout}: {errors:?}"
            );
        }
    }
}

#[test]
fn gradients_of_a_recipe_are_of_the_type_of_computing() {
    for framework in ["bridge 26.08", "nemo 25.04"] {
        for (dtype, gradients) in [("bf16", "bf16"), ("fp16", "fp16"), ("fp8_current", "bf16")] {
            let file = json!({"version": 1, "model": {"preset": "llama-3-70b"}, "cluster": {"gpu": "h100-sxm", "nodes": 16},
                "layout": {"tp": 4, "pp": 4}, "training": {"dtype": dtype}, "software": {"framework": framework}});
            let plan = Plan::resolve(&plan(&file)).plan.unwrap();
            assert_eq!(plan.training.grad_dtype.name(), gradients, "{framework} {dtype}");
        }
    }
}
