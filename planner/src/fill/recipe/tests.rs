//! What recipes set, and what of it a plan's own words take back.

use serde_json::{Value, json};

use crate::answer::estimate;
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::runtime::Runtime;
use crate::search::{AxisValues, Request, Search};
use crate::settings::{CudaGraphs, Granularity};
use crate::time::{constants::table, setup};
use crate::units::Dtype;
use crate::wire::{Answer, PlanFile};
use crate::{Finding, Severity};

/// A plan of Megatron Bridge.
fn file(preset: &str, gpu: &str, nodes: u64, layout: Value, more: Value) -> PlanFile {
    let mut file = json!({"version": 1, "model": {"preset": preset}, "cluster": {"gpu": gpu, "nodes": nodes},
        "layout": layout, "software": {"framework": "bridge 26.04"}});
    for (key, value) in more.as_object().unwrap() {
        file[key] = value.clone();
    }
    parse_plan(&file.to_string()).unwrap()
}

fn found<'a>(answer: &'a Answer, field: &str) -> Vec<&'a Finding> {
    answer.findings.iter().filter(|finding| finding.field == field).collect()
}

#[test]
fn a_recipe_fills_what_a_plan_does_not_say() {
    let training = json!({"dtype": "fp8_current", "global_batch_size": 256, "cross_entropy": "native"});
    let plan = file(
        "llama-3-70b",
        "h100-sxm",
        8,
        json!({"tp": 4, "pp": 8, "vpp": 5}),
        json!({"training": training}),
    );
    let answer = estimate(&plan);
    let framework = answer.framework.as_ref().unwrap();
    insta::assert_snapshot!(serde_json::to_string(framework).unwrap(), @r#"{"name":"bridge 26.04","recipe":"llama-3-70b on 64 h100, fp8_current","nearest":false,"source":"recipes of NVIDIA-NeMo/Megatron-Bridge to 067f987df03b","sets":{"training.cuda_graphs":"none","training.fp8_param_gather":true,"training.grad_dtype":"bf16","training.overlap.tp":true,"training.recompute.granularity":"none"}}"#);
    for path in framework.sets.keys() {
        assert!(answer.assumed.contains(path), "{path}");
    }
    let filled = answer.plan.as_ref().unwrap();
    assert_eq!(filled.training.overlap.tp, Some(true));
    assert_eq!(filled.training.fp8_param_gather, Some(true));
    // A filled plan is the same plan.
    let again = estimate(filled);
    assert_eq!((again.time, again.memory, again.plan), (answer.time, answer.memory, answer.plan));
}

#[test]
fn automodel_has_its_defaults_and_a_dispatcher_counts_under_fsdp2() {
    let of = |fsdp: Value, dispatcher: Value| {
        let more = json!({"runtime": "fsdp2", "software": {"framework": "automodel 0.7"},
            "training": {"moe": {"dispatcher": dispatcher}}});
        estimate(&file("qwen2-57b-a14b", "h100-sxm", 8, json!({"ep": 64, "fsdp": fsdp}), more))
    };
    let answer = of(json!({}), Value::Null);
    insta::assert_snapshot!(serde_json::to_string(&answer.framework.as_ref().unwrap().sets).unwrap(), @r#"{"layout.fsdp.checkpoint_selects":"matmuls","layout.fsdp.gradient_sync":"last","layout.fsdp.reshard_after_forward":"never","layout.fsdp.sharded_dtype":"bf16","training.moe.backend":"deepep","training.moe.dispatcher":"flex"}"#);
    let said = of(json!({"sharded_dtype": "fp32"}), "alltoall".into());
    let sets = &said.framework.as_ref().unwrap().sets;
    assert!(!sets.contains_key("layout.fsdp.sharded_dtype"), "{sets:?}");
    let peak = |answer: &Answer| answer.memory.as_ref().unwrap().peak_bytes;
    assert!(peak(&answer) < peak(&said));
    // DeepEP sends a token once to each node that has experts of it.
    let sent = |answer: &Answer| answer.time.as_ref().unwrap().breakdown.expert_parallel;
    assert!(sent(&answer) < 0.8 * sent(&said), "{} {}", sent(&answer), sent(&said));
}

#[test]
fn automodels_files_say_what_is_recomputed() {
    let of = |preset: &str, gpu: &str, layout: Value, training: Value| {
        let more =
            json!({"runtime": "fsdp2", "software": {"framework": "automodel 0.7"}, "training": training});
        estimate(&file(preset, gpu, 8, layout, more))
    };
    let recomputed = |answer: &Answer| answer.plan.as_ref().unwrap().training.recompute.granularity;
    let dense = of("llama-3-70b", "h100-sxm", json!({"tp": 2}), json!({}));
    let framework = dense.framework.as_ref().unwrap();
    insta::assert_snapshot!(serde_json::to_string(framework).unwrap(), @r#"{"name":"automodel 0.7","recipe":"llama-3-70b on 64 h100, bf16","nearest":false,"source":"NVIDIA-NeMo/Automodel 36044ad3d139, examples/llm_benchmark","sets":{"layout.fsdp.checkpoint_selects":"matmuls","layout.fsdp.compile":true,"layout.fsdp.gradient_sync":"every","layout.fsdp.reshard_after_forward":"always","layout.fsdp.sharded_dtype":"bf16","training.recompute.granularity":"full"}}"#);
    for path in framework.sets.keys() {
        assert!(dense.assumed.contains(path), "{path}");
    }
    // A filled plan is the same plan.
    let again = estimate(dense.plan.as_ref().unwrap());
    assert_eq!((again.time, again.memory, again.plan), (dense.time, dense.memory, dense.plan));

    let experts = json!({"ep": 64});
    let full = Some(Granularity::Full);
    assert_eq!(recomputed(&of("qwen3-30b-a3b", "h100-sxm", experts.clone(), json!({}))), full);
    let said = json!({"recompute": {"granularity": "none"}});
    let pinned = of("qwen3-30b-a3b", "h100-sxm", experts.clone(), said);
    assert_eq!(recomputed(&pinned), Some(Granularity::None));
    assert!(!pinned.framework.unwrap().sets.contains_key("training.recompute.granularity"));
    // One that was made for another GPU's memory says nothing of it, and is named.
    let other_gpu = of("qwen3-30b-a3b", "b200", experts, json!({}));
    assert_eq!(recomputed(&other_gpu), Some(Granularity::None));
    insta::assert_snapshot!(found(&other_gpu, "software.framework")[0].message, @"automodel 0.7 has no recipe for this model, GPU, number of GPUs and precision: what the nearest sets, that of qwen3-30b-a3b on 8 gb200, bf16, is taken instead");
    // Nor does another model's.
    let other_model = of("phi-4", "h100-sxm", json!({}), json!({}));
    assert_eq!(recomputed(&other_model), Some(Granularity::None));
    assert_eq!(other_model.framework.unwrap().recipe, "defaults");
}

#[test]
fn nemos_launcher_keeps_all_state_of_its_largest_model_in_bf16() {
    let model = |layers: u64| {
        json!({"architecture": {"num_layers": layers, "hidden_size": 18432, "ffn_hidden_size": 73728, "vocab_size": 256000,
            "gated": false, "activation": "squared_relu", "norm": "layer",
            "attention": {"kind": "gqa", "heads": 96, "kv_heads": 8, "head_dim": 192}}})
    };
    let of = |framework: &str, layers: u64, training: Value| {
        let more =
            json!({"model": model(layers), "software": {"framework": framework}, "training": training});
        estimate(&file("", "h100-sxm", 16, json!({"tp": 8, "pp": 8, "vpp": 12}), more))
    };
    let types = |answer: &Answer| {
        let optimizer = &answer.plan.as_ref().unwrap().training.optimizer;
        [optimizer.master_dtype, optimizer.exp_avg_dtype, optimizer.exp_avg_sq_dtype].map(Option::unwrap)
    };
    let (bf16, fp32) = ([Dtype::Bf16; 3], [Dtype::Fp32; 3]);
    let answer = of("nemo 24.07", 96, json!({}));
    assert_eq!((answer.framework.as_ref().unwrap().recipe.as_str(), types(&answer)), ("nemotron_340b", bf16));
    assert_eq!(answer.plan.as_ref().unwrap().training.recompute.modules, Some(vec!["core_attn".to_owned()]));
    // A filled plan is the same plan.
    let again = estimate(answer.plan.as_ref().unwrap());
    assert_eq!((again.time, again.memory), (answer.time.clone(), answer.memory.clone()));
    for (framework, layers, training) in [
        ("nemo 24.12", 96, json!({})),
        ("nemo 24.03", 96, json!({})),
        ("nemo 24.07", 192, json!({})),
        ("nemo 24.07", 96, json!({"optimizer": {"master_dtype": "fp32"}})),
        ("nemo 24.07", 96, json!({"optimizer": {"distributed": false}})),
    ] {
        assert_eq!(types(&of(framework, layers, training.clone())), fp32, "{framework} {layers} {training}");
    }
    // Another type of weights, or of one moment, does not go with it.
    let found = of("nemo 24.07", 96, json!({"optimizer": {"master_dtype": "bf16", "exp_avg_dtype": "fp32"}}));
    assert!(found.time.is_none());
    assert_eq!(self::found(&found, "training.optimizer.exp_avg_dtype").len(), 1, "{:?}", found.findings);
}

#[test]
fn what_a_plan_says_stays() {
    let training = json!({"grad_dtype": "fp32", "cuda_graphs": "none", "overlap": {"tp": false}, "moe": {"dispatcher": "alltoall"},
        "recompute": {"granularity": "full"}});
    let plan = file("qwen3-30b-a3b", "b200", 1, json!({"ep": 8}), json!({"training": training}));
    let answer = estimate(&plan);
    let sets = &answer.framework.unwrap().sets;
    for path in [
        "training.grad_dtype",
        "training.cuda_graphs",
        "training.moe.dispatcher",
        "training.recompute.granularity",
    ] {
        assert!(!sets.contains_key(path), "{path}");
    }
    let filled = answer.plan.unwrap().training;
    assert_eq!((filled.cuda_graphs, filled.overlap.tp), (Some(CudaGraphs::None), Some(false)));
}

#[test]
fn what_a_rule_excludes_is_left_out() {
    for (layout, training, path) in [
        (json!({"ep": 8}), json!({"recompute": {"granularity": "full"}}), "training.cuda_graphs"),
        (json!({"ep": 1}), json!({}), "training.moe.dispatcher"),
    ] {
        let plan = file("qwen3-30b-a3b", "b200", 1, layout, json!({"training": training}));
        let answer = estimate(&plan);
        assert!(answer.time.is_some(), "{:?}", answer.findings);
        assert!(!answer.framework.unwrap().sets.contains_key(path), "{path}");
    }
    let alone = estimate(&file("llama-3-8b", "h100-sxm", 1, json!({}), json!({})));
    assert!(!alone.framework.unwrap().sets.contains_key("training.overlap.tp"), "{:?}", alone.findings);
    let experts = estimate(&file(
        "deepseek-v3",
        "h100-sxm",
        128,
        json!({"tp": 2, "pp": 8, "ep": 64}),
        json!({"software": {"framework": "bridge 25.11"}}),
    ));
    assert!(!experts.framework.unwrap().sets.contains_key("training.overlap.ep"), "{:?}", experts.findings);
}

#[test]
fn versions_names_and_runtimes_that_do_not_go_are_said() {
    let answer = |software: &str, runtime: &str| {
        let more = json!({"software": {"framework": software}, "runtime": runtime});
        estimate(&file("llama-3-8b", "h100-sxm", 1, json!({}), more))
    };
    let other = answer("bridge 26.05", "megatron");
    assert_eq!(other.framework.as_ref().unwrap().name, "bridge 26.04.01");
    insta::assert_snapshot!(found(&other, "software.framework")[0].message, @"of this version of bridge nothing is known; bridge 26.04.01 is taken instead, the nearest of 26.08, 26.06.01, 26.06, 26.04.01, 26.04, 26.02.01, 26.02, 25.11, 25.09, 0.6");
    let against = answer("bridge 26.04", "fsdp2");
    assert_eq!(found(&against, "software.framework")[0].severity, Severity::Error);
    insta::assert_snapshot!(found(&against, "software.framework")[0].message, @"bridge 26.04 trains with runtime megatron or megatron_fsdp, and the plan's is fsdp2; change one of the two");
    assert_eq!(
        found(&against, "software.framework")[0].nearest,
        ["automodel 0.7", "torchtitan 0.3", "worker 0.1"]
    );
    let unknown = answer("brige 26.04", "megatron");
    insta::assert_snapshot!(found(&unknown, "software.framework")[0].message, @"software.framework is `brige 26.04`; it is a framework and its version, and known are megatron-lm, bridge, nemo, automodel, torchtitan, worker");
    assert_eq!(found(&unknown, "software.framework")[0].nearest[0], "bridge 26.08");
}

#[test]
fn the_nearest_recipe_is_named() {
    let answer = estimate(&file("phi-4", "h200", 4, json!({"tp": 2}), json!({})));
    let framework = answer.framework.as_ref().unwrap();
    assert!(framework.nearest && !framework.sets.contains_key("training.recompute.granularity"));
    insta::assert_snapshot!(found(&answer, "software.framework")[0].message, @"bridge 26.04 has no recipe for this model, GPU, number of GPUs and precision: what the nearest sets, that of qwen3-14b on 8 h100, bf16, is taken instead");
}

#[test]
fn a_plan_that_names_none_hears_of_one_that_changes_the_answer() {
    let mut plan = file(
        "llama-3-70b",
        "h100-sxm",
        8,
        json!({"tp": 4, "pp": 8, "vpp": 5}),
        json!({"training": {"dtype": "fp8_current"}}),
    );
    plan.software.framework = None;
    let said = estimate(&plan);
    let [said] = found(&said, "software.framework")[..] else { panic!("{:?}", said.findings) };
    assert_eq!(said.nearest, ["bridge 26.08"]);
    plan.software.framework = Some("bridge 26.08".to_owned());
    assert!(found(&estimate(&plan), "software.framework").is_empty());
    plan.software.framework = None;
    plan.runtime = Some(Runtime::Native);
    assert!(found(&estimate(&plan), "software.framework").is_empty());
}

#[test]
fn torchtitans_configurations_say_what_is_recomputed_and_compiled() {
    for (preset, recompute, compile) in [
        ("llama-3-8b", Granularity::Selective, false),
        ("llama-3-70b", Granularity::Full, false),
        ("llama-3.1-405b", Granularity::Full, true),
        ("qwen3-14b", Granularity::Selective, false),
    ] {
        let more = json!({"runtime": "fsdp2", "software": {"framework": "torchtitan 0.3"}});
        let answer = estimate(&file(preset, "h100-sxm", 16, json!({"tp": 8}), more));
        let filled = answer.plan.as_ref().unwrap();
        assert_eq!(filled.training.recompute.granularity, Some(recompute), "{preset}");
        assert_eq!(filled.layout.fsdp.compile, Some(compile), "{preset}");
        assert_eq!(filled.training.overlap.tp, Some(compile), "{preset}");
        let again = estimate(filled);
        assert_eq!((again.time, again.memory), (answer.time, answer.memory), "{preset}");
    }
}

#[test]
fn the_worker_gets_nothing_of_another_frameworks_recipe() {
    let more = json!({"training": {"recompute": {"granularity": "none"}}});
    for (preset, layout) in [("qwen3-30b-a3b", json!({"ep": 8})), ("llama-3-70b", json!({"tp": 8}))] {
        let named = file(preset, "h100-sxm", 2, layout, more.clone());
        let mut plain = named.clone();
        plain.software.framework = None;
        let native = |file: &PlanFile| Plan::resolve(&Plan::resolve(file).plan.unwrap().executed());
        let (named, plain) = (native(&named), native(&plain));
        assert!(named.plan.is_some(), "{:?}", named.findings);
        assert_eq!(named.plan.unwrap().training, plain.plan.unwrap().training, "{preset}");
    }
}

#[test]
fn a_search_finds_what_estimates_say() {
    let plan = file(
        "qwen3-30b-a3b",
        "h100-sxm",
        2,
        json!({}),
        json!({"training": {"global_batch_size": 64}, "software": {"framework": "bridge 25.11"}}),
    );
    let search = Search::new(&Request::new(plan.clone())).unwrap();
    let mut all = search.run_part(0);
    for part in 1..search.parts() {
        search.merge(&mut all, &search.run_part(part));
    }
    let shortlist = search.shortlist(&all);
    assert!(shortlist.len() > 5, "{}", shortlist.len());
    for scored in shortlist {
        let settings = search.settings(&scored.candidate).unwrap();
        let resolved = Plan::resolve(&settings.apply(&plan));
        let own = resolved.plan.unwrap_or_else(|| panic!("{settings:?} {:?}", resolved.findings));
        assert_eq!(crate::memory::answer(&own).peak_bytes, scored.peak_bytes, "{settings:?}");
        // A search shortlists as if graphs and hidden communication went with all recomputation and chunks; its rows don't.
        let again = &settings.recompute;
        let kept = again.granularity() != Granularity::Full
            && !again.modules().contains(&"moe".to_owned())
            && (settings.pp == 1 || settings.vpp > 1);
        let step = setup(&own).unwrap().predict(&table().values()).total();
        assert!(
            !kept || (scored.seconds / step - 1.0).abs() < 1e-9,
            "{settings:?}: {} {step}",
            scored.seconds
        );
    }
}

#[test]
fn a_search_finds_what_estimates_say_of_automodel() {
    for (preset, ep) in [("llama-3-70b", 1), ("qwen3-30b-a3b", 8)] {
        let more = json!({"runtime": "fsdp2", "training": {"global_batch_size": 64}, "software": {"framework": "automodel 0.7"}});
        let plan = file(preset, "h100-sxm", 4, json!({}), more);
        let mut request = Request::new(plan.clone());
        request.axes.ep = Some(AxisValues::Fixed(ep));
        let search = Search::new(&request).unwrap();
        let mut all = search.run_part(0);
        for part in 1..search.parts() {
            search.merge(&mut all, &search.run_part(part));
        }
        let shortlist = search.shortlist(&all);
        assert!(!shortlist.is_empty(), "{preset}");
        let mut recomputed = std::collections::BTreeSet::new();
        for scored in shortlist {
            let settings = search.settings(&scored.candidate).unwrap();
            let resolved = Plan::resolve(&settings.apply(&plan));
            let own = resolved.plan.unwrap_or_else(|| panic!("{settings:?} {:?}", resolved.findings));
            assert_eq!(crate::memory::answer(&own).peak_bytes, scored.peak_bytes, "{settings:?}");
            let step = setup(&own).unwrap().predict(&table().values()).total();
            assert!((scored.seconds / step - 1.0).abs() < 1e-9, "{settings:?}: {} {step}", scored.seconds);
            recomputed.insert(settings.recompute.0.clone());
        }
        // What its file recomputes is no more than a default: others are searched, too.
        assert!(recomputed.len() > 1, "{preset}: {recomputed:?}");
    }
}

/// Recipes of dense models on superchips keep whole layers on the host, which goes without a pipeline and recomputation alone.
#[test]
fn a_search_knows_what_a_recipe_keeps_on_the_host() {
    let (mut with, mut without) = (0, 0);
    let mut again = std::collections::BTreeSet::new();
    let cases =
        [("llama-3-70b", 8, 4096), ("apertus-70b", 16, 4096), ("llama-nemotron-super-49b", 8, 65_536)];
    for (preset, nodes, seq_len) in cases {
        // Hidden tensor-parallel communication has buffers, and a search's plans start without tensor parallelism.
        let overlap = json!({"tp": false});
        let training = json!({"global_batch_size": 1024, "seq_len": seq_len, "overlap": overlap});
        let more = json!({"training": training, "software": {"framework": "bridge 26.08"}});
        let plan = file(preset, "gb200", nodes, json!({}), more);
        let mut request = Request::new(plan.clone());
        request.limits.candidates = 20_000;
        let search = Search::new(&request).unwrap();
        let mut all = search.run_part(0);
        for part in 1..search.parts() {
            search.merge(&mut all, &search.run_part(part));
        }
        for scored in search.shortlist(&all) {
            let settings = search.settings(&scored.candidate).unwrap();
            let resolved = Plan::resolve(&settings.apply(&plan));
            let own = resolved.plan.unwrap_or_else(|| panic!("{settings:?} {:?}", resolved.findings));
            assert_eq!(crate::memory::answer(&own).peak_bytes, scored.peak_bytes, "{preset} {settings:?}");
            assert!(own.training.offload.layers == 0 || settings.pp == 1, "{preset} {settings:?}");
            *(if own.training.offload.layers > 0 { &mut with } else { &mut without }) += 1;
            again.insert(settings.recompute.0.clone());
        }
    }
    assert!(again.len() > 1, "{again:?} alone is recomputed");
    assert!(with > 0 && without > 0, "{with} with layers on the host, {without} without");
}
