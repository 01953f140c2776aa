//! Worked examples of FSDP2 and Megatron-FSDP plans.

use serde_json::{Value, json};

use crate::answer::estimate;
use crate::finding::Severity;
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::units::Dtype;
use crate::wire::{Answer, PlanFile, RankClass};

fn file(preset: &str, runtime: &str, gpus: u64, layout: Value) -> PlanFile {
    let nodes = if gpus > 8 && gpus.is_multiple_of(8) { gpus / 8 } else { 1 };
    let file = json!({
        "version": 1, "model": {"preset": preset}, "runtime": runtime, "layout": layout,
        "cluster": {"gpu": "h100-sxm", "nodes": nodes, "gpus_per_node": gpus / nodes},
        "training": {"global_batch_size": 48 * 16},
    });
    parse_plan(&file.to_string()).unwrap()
}

fn answer(preset: &str, runtime: &str, gpus: u64, layout: Value) -> Answer {
    estimate(&file(preset, runtime, gpus, layout))
}

fn plan(preset: &str, runtime: &str, gpus: u64, layout: Value) -> Plan {
    let resolved = Plan::resolve(&file(preset, runtime, gpus, layout));
    resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
}

fn class(answer: &Answer) -> &RankClass {
    &answer.memory.as_ref().unwrap_or_else(|| panic!("{:?}", answer.findings)).rank_classes[0]
}

/// Errors of an answer as `field: nearest`.
fn errors(answer: &Answer) -> Vec<String> {
    let errors = answer.findings.iter().filter(|finding| finding.severity == Severity::Error);
    errors.map(|finding| format!("{}: {}", finding.field, json!(finding.nearest))).collect()
}

const LLAMA_3_8B: u64 = 8_030_261_248;

#[test]
fn llama_3_8b_over_eight() {
    // Every first dim of this model is a multiple of 8.
    let answer = answer("llama-3-8b", "fsdp2", 8, json!({}));
    let class = class(&answer);
    let here = LLAMA_3_8B / 8;
    assert_eq!((class.weights_bytes, class.gradients_bytes), (4 * here, 4 * here));
    // Two moments, and one step counter for each of the 291 tensors.
    assert_eq!(class.optimizer_bytes, 8 * here + 4 * 291);
    assert_eq!(answer.parameters.as_ref().map(|counts| counts.per_rank_max), Some(here));
    // In a layer's backward: it and the root gathered, the layer before under way, the reduction of the layer after, and
    // the gradients of this one and of the output layer.
    let layer = 218_112_000;
    let root = LLAMA_3_8B - 32 * layer;
    let head = 128_256 * 4096;
    let plan = plan("llama-3-8b", "fsdp2", 8, json!({}));
    let moments = crate::memory::moments(&crate::memory::LayerTerms::new(&plan), 0);
    let beside = |gradients: u64| {
        moments.iter().any(|moment| {
            [moment.unsharded, moment.gather, moment.scatter, moment.gradients].map(u64::from)
                == [(layer + root) * 2, layer * 2, layer * 4, gradients]
        })
    };
    assert!(beside((layer + head) * 2), "{moments:#?}");
    // torch gives a unit back before it reduces its gradients (`FSDPParamGroup.post_backward`), the root too.
    let last = moments.iter().find(|moment| moment.phase == "reduction").unwrap();
    assert_eq!([last.unsharded, last.gradients, last.temporaries].map(u64::from), [0, root * 2, root * 4]);
}

#[test]
fn replicas_hold_the_same() {
    let halves = answer("llama-3-8b", "fsdp2", 16, json!({"dp_replicate": 2}));
    let whole = answer("llama-3-8b", "fsdp2", 8, json!({}));
    assert_eq!(class(&halves).weights_bytes, class(&whole).weights_bytes);
}

#[test]
fn f9_strategies_of_megatron_fsdp() {
    for (strategy, gb) in
        [("no_shard", 144.54), ("optim", 60.23), ("optim_grads", 32.12), ("optim_grads_params", 18.07)]
    {
        let answer = answer("llama-3-8b", "megatron_fsdp", 8, json!({"fsdp": {"strategy": strategy}}));
        let class = class(&answer);
        let bytes = class.weights_bytes + class.gradients_bytes + class.optimizer_bytes;
        assert_eq!(format!("{:.2}", bytes as f64 / 1e9), format!("{gb:.2}"), "{strategy}");
        let warned = answer
            .findings
            .iter()
            .any(|finding| finding.severity == Severity::Warning && finding.field == "layout.fsdp.strategy");
        assert_eq!(warned, strategy != "optim_grads_params");
    }
}

#[test]
fn f9_double_buffers() {
    let plan = plan("llama-3-8b", "megatron_fsdp", 8, json!({"fsdp": {"double_buffer": true}}));
    let bytes = crate::shard::double_buffer_bytes(&plan, &super::units_of_stage(&plan, 0));
    assert_eq!(u64::from(bytes), 2_617_344_000);
    assert_eq!(
        crate::shard::unit_sizes(&plan, &super::units_of_stage(&plan, 0)).largest.elements,
        218_112_000
    );
}

/// megatron_fsdp's groups of 8-bit parameters: a byte for each element of a matrix of a layer, of MXFP8 one more for its columns,
/// gathered by the direction that a pass computes with.
#[test]
fn parameters_in_8_bits_are_kept_and_gathered_in_bytes() {
    let of = |dtype: &str, gathered: bool, double: bool| {
        let mut file = file("llama-3-8b", "megatron_fsdp", 8, json!({"fsdp": {"double_buffer": double}}));
        file.training.dtype = serde_json::from_value(json!(dtype)).unwrap();
        file.training.fp8_param_gather = Some(gathered);
        file.training.grad_dtype = Some(Dtype::Bf16);
        let gpu = if dtype == "mxfp8" { "b200" } else { "h100-sxm" };
        file.cluster.gpu = serde_json::from_value(json!(gpu)).unwrap();
        let resolved = Plan::resolve(&file);
        resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
    };
    let weights = |plan: &Plan| -> u64 {
        crate::memory::answer(plan).rank_classes.iter().map(|class| class.weights_bytes).sum()
    };
    let wide = of("bf16", false, true);
    // Matrices of 32 layers, over 8 ranks.
    let (layer, matrices) = (218_112_000, 218_112_000 - 2 * 4096);
    for (dtype, buffers) in [("fp8_current", 1), ("fp8_blockwise", 1), ("mxfp8", 2)] {
        let narrow = of(dtype, true, true);
        assert_eq!(weights(&wide) - weights(&narrow), (2 - buffers) * 32 * matrices / 8, "{dtype}");
        assert_eq!(weights(&of(dtype, false, true)), weights(&wide), "{dtype}");
        let pairs = 2 * (4 * layer - (2 - buffers) * matrices);
        assert_eq!(
            u64::from(crate::shard::double_buffer_bytes(&narrow, &super::units_of_stage(&narrow, 0))),
            pairs,
            "{dtype}"
        );
        let gathered = crate::shard::unit_sizes(&narrow, &super::units_of_stage(&narrow, 0)).largest;
        assert_eq!(u64::from(gathered.bytes(&narrow, layer.into())), 2 * layer - matrices, "{dtype}");
    }
    // Embedding and output layer stay in the compute type, and 4 bits are gathered so whole.
    let whole = of("fp8_current", true, false);
    let units = super::units_of_stage(&whole, 0);
    assert_eq!(crate::shard::unit_sizes(&whole, &units).root.quantised, 0);
}

#[test]
fn the_outer_strategy_splits_states_once_more() {
    let of = |outer: &str| {
        let layout = json!({"dp_replicate": 2, "fsdp": {"outer_strategy": outer}});
        class(&answer("llama-3-8b", "megatron_fsdp", 16, layout)).clone()
    };
    let (one, two) = (of("no_shard"), of("optim"));
    assert_eq!(one.weights_bytes, two.weights_bytes);
    assert_eq!(one.optimizer_bytes, 2 * two.optimizer_bytes);
    let refused = answer(
        "llama-3-8b",
        "megatron_fsdp",
        16,
        json!({"dp_replicate": 2, "fsdp": {"strategy": "optim", "outer_strategy": "optim"}}),
    );
    assert_eq!(errors(&refused), ["layout.fsdp.outer_strategy: [\"no_shard\"]"]);
}

#[test]
fn without_data_parallelism_megatron_fsdp_is_left_out() {
    let answer = answer("llama-3-8b", "megatron_fsdp", 8, json!({"tp": 8}));
    let class = class(&answer);
    assert_eq!(class.gradients_bytes, class.weights_bytes);
    assert_eq!(class.optimizer_bytes, 2 * class.weights_bytes);
    let warning = answer.findings.iter().find(|finding| finding.severity == Severity::Warning).unwrap();
    assert!(warning.message.contains("not applied"), "{warning:?}");
}

#[test]
fn switches_of_megatron_fsdp() {
    let optimizer =
        |fsdp: Value| class(&answer("llama-3-8b", "megatron_fsdp", 8, json!({"fsdp": fsdp}))).optimizer_bytes;
    // fp32 master and two fp32 moments; without copies, two moments of fp32 gradients.
    assert_eq!(optimizer(json!({"preserve_fp32_weights": false})) * 3, optimizer(json!({})) * 2);
    let refused = |preset: &str, fsdp: Value, expected: &[&str]| {
        assert_eq!(errors(&answer(preset, "megatron_fsdp", 8, json!({"fsdp": fsdp}))), expected);
    };
    refused("llama-3-8b", json!({"nccl_ub": true}), &[]);
    refused(
        "llama-3-8b",
        json!({"nccl_ub": true, "double_buffer": false}),
        &["layout.fsdp.double_buffer: [true]"],
    );
    refused(
        "llama-3-8b",
        json!({"strategy": "no_shard", "init_meta": true}),
        &["layout.fsdp.init_meta: [false]"],
    );
    let warned = |preset: &str, fsdp: Value| {
        let answer = answer(preset, "megatron_fsdp", 8, json!({"fsdp": fsdp}));
        answer.findings.iter().any(|finding| finding.field == "layout.fsdp.init_meta")
    };
    assert!(warned("llama-3.1-405b", json!({})));
    assert!(!warned("llama-3.1-405b", json!({"init_meta": true})));
    assert!(!warned("llama-3-8b", json!({})));
}

#[test]
fn bogus_strategies_are_refused_with_the_one_that_was_meant() {
    for name in ["params", "grads_params", "zero4"] {
        let answer = answer("llama-3-8b", "megatron_fsdp", 8, json!({"fsdp": {"strategy": name}}));
        assert_eq!(errors(&answer).len(), 1, "{name}");
        if name != "zero4" {
            assert_eq!(errors(&answer), ["layout.fsdp.strategy: [\"optim_grads_params\"]"]);
            assert!(answer.findings[0].message.contains("old documentation"));
        }
    }
}

#[test]
fn experts_cut_by_tensor_parallelism_are_not_planned_yet() {
    for (runtime, expected) in
        [("megatron_fsdp", "not planned yet"), ("fsdp2", "not cut by tensor parallelism in this runtime")]
    {
        let file = json!({
            "version": 1, "model": {"preset": "tiny-moe"}, "runtime": runtime, "layout": {"tp": 2, "etp": 2},
            "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 8},
        });
        let found = estimate(&crate::parse::parse_plan(&file.to_string()).unwrap()).findings;
        let said =
            found.iter().any(|finding| finding.field == "layout.etp" && finding.message.contains(expected));
        assert!(said, "{runtime}: {found:?}");
    }
}

#[test]
fn rules_of_the_mesh() {
    for (preset, gpus, layout, expected) in [
        // F3.
        ("llama-3-8b", 8, json!({"dp_replicate": 8}), "layout.dp_replicate: [4,2]"),
        ("llama-3-8b", 8, json!({"dp_replicate": 3}), "layout.dp_replicate: [2,4]"),
        // F5.
        ("llama-3-8b", 12, json!({"tp": 8}), "layout.tp: [4,2]"),
        // F6: kv heads first.
        ("llama-3-8b", 16, json!({"tp": 16}), "layout.tp: [8,4]"),
        ("minimax-m2", 16, json!({"tp": 16}), "layout.tp: [8,4]"),
        // F10.
        ("minimax-m2", 16, json!({"ep": 12}), "layout.ep: [8,16]"),
        ("deepseek-v3", 8, json!({"tp": 2}), "layout.tp: [1]"),
        ("tiny-moe", 8, json!({"ep": 2, "etp": 2}), "layout.etp: [1]"),
        ("tiny-dense", 8, json!({"ep": 2}), "layout.ep: [1]"),
        ("llama-3-8b", 8, json!({"order": "tp-cp-ep-pp-dp"}), "layout.order: [\"tp-cp-ep-dp-pp\"]"),
        (
            "llama-3-8b",
            8,
            json!({"fsdp": {"reshard_after_forward": 3}}),
            "layout.fsdp.reshard_after_forward: [2,4]",
        ),
        ("llama-3-8b", 8, json!({"tp": 2, "tp_plan": "hf", "sp": true}), "layout.sp: [false]"),
        (
            "llama-3-8b",
            8,
            json!({"tp_plan": {"lm_head": "columnwise"}}),
            "layout.tp_plan: [\"colwise\",\"colwise_rep\"]",
        ),
    ] {
        let found = errors(&answer(preset, "fsdp2", gpus, layout.clone()));
        assert_eq!(found.first().map(String::as_str), Some(expected), "{preset} {layout} {found:?}");
    }
    let found = answer("llama-3-8b", "fsdp2", 16, json!({"tp": 16}));
    assert!(found.findings[0].message.starts_with("8 key-value heads"), "{:?}", found.findings[0]);
    let refused = |layout| errors(&answer("tiny-moe", "megatron_fsdp", 8, layout));
    assert_eq!(refused(json!({"pp": 2})), ["layout.pp: [1]"]);
    // Experts are split within a replica.
    assert_eq!(refused(json!({"ep": 4})), Vec::<String>::new());
    assert_eq!(refused(json!({"ep": 4, "dp_replicate": 4})), ["layout.ep: [2,1]"]);
}

#[test]
fn a_small_model_takes_what_a_memory_tracker_reads() {
    // torch FSDPMemTracker, 8 ranks: sharded parameters, optimizer state, and the buffers of one layer.
    let file = json!({
        "version": 1, "runtime": "fsdp2", "cluster": {"gpu": "cpu", "gpus_per_node": 8},
        "model": {"architecture": {
            "num_layers": 12, "hidden_size": 2048, "ffn_hidden_size": 8192, "vocab_size": 2048,
            "attention": {"kind": "gqa", "heads": 16, "kv_heads": 16, "head_dim": 128},
        }},
        "training": {"seq_len": 256},
    });
    let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
    let plan = resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings));
    let answer = crate::memory::answer(&plan);
    let class = &answer.rank_classes[0];
    assert_eq!(class.weights_bytes, 406_873_088);
    assert_eq!(class.gradients_bytes, 406_873_088);
    assert_eq!(class.optimizer_bytes, 813_746_620);
    let report = plan.rank_shards(0).fsdp.unwrap();
    let layer = &report.units[0];
    assert_eq!((layer.count, layer.gathered_elements, layer.reshard_after_forward), (11, 67_112_960, true));
    assert_eq!(layer.gathered_elements * report.param_dtype.size(), 134_225_920);
    assert_eq!(layer.gathered_elements * report.reduce_dtype.size(), 268_451_840);
    assert!(!report.units[1].reshard_after_forward);
    assert_eq!(report.unsharded_bytes, 2 * 813_746_176);
    assert_eq!(report.application_order, ["fsdp of experts and layers", "fsdp of the root"]);
}

#[test]
fn classes_are_the_ranks_own_lists() {
    for (preset, runtime, gpus, layout) in [
        ("tiny-dense", "fsdp2", 8, json!({})),
        ("tiny-dense", "fsdp2", 24, json!({"tp": 2, "dp_replicate": 3})),
        ("tiny-dense", "fsdp2", 12, json!({"tp": 2, "pp": 2})),
        ("tiny-moe", "fsdp2", 16, json!({"ep": 4})),
        ("tiny-moe", "fsdp2", 48, json!({"cp": 3, "tp": 2})),
        ("tiny-dense", "megatron_fsdp", 6, json!({"tp": 2})),
    ] {
        let mut file = file(preset, runtime, gpus, layout.clone());
        file.training.seq_len = Some(240);
        let resolved = Plan::resolve(&file);
        let plan = resolved.plan.unwrap_or_else(|| panic!("{preset} {layout}: {:?}", resolved.findings));
        let mut counted = std::collections::BTreeMap::<String, u64>::new();
        for rank in 0..gpus {
            let mut buffers = plan.rank_shards(rank).buffers;
            buffers.iter_mut().flat_map(|buffer| &mut buffer.states).for_each(|state| state.offset = Some(0));
            *counted.entry(format!("{:?}", (rank / (gpus / plan.layout.pp), buffers))).or_default() += 1;
        }
        let classes = (0..plan.layout.pp).flat_map(|stage| {
            let of = move |holders: crate::shard::Holders| {
                (format!("{:?}", (stage, holders.buffers)), holders.count)
            };
            crate::shard::holders(&plan, stage).into_iter().map(of).collect::<Vec<_>>()
        });
        assert_eq!(classes.collect::<std::collections::BTreeMap<_, _>>(), counted, "{preset} {layout}");
    }
}

#[test]
fn shards_on_the_host_leave_the_gpu() {
    let answer = answer("llama-3-8b", "fsdp2", 8, json!({"fsdp": {"offload": "cpu"}}));
    let class = class(&answer);
    assert_eq!(class.weights_bytes + class.gradients_bytes + class.optimizer_bytes, 0);
    let said = answer.findings.iter().find(|finding| finding.field == "layout.fsdp.offload").unwrap();
    assert!(said.message.contains("16060523660 bytes"), "{}", said.message);
}

#[test]
fn hugging_face_names_lose_no_parameter() {
    for preset in crate::model::presets() {
        let plan = plan(&preset.id, "fsdp2", 8, json!({}));
        let blocks = super::placed_blocks(&plan, 0);
        let params = blocks.iter().flat_map(|(_, _, params)| params.iter());
        let names: Vec<&str> = params.clone().map(|placed| placed.parameter.name.as_str()).collect();
        assert!(names.contains(&"model.embed_tokens.weight"), "{}: {names:?}", preset.id);
        let whole: u64 =
            params.map(|placed| placed.parameter.elements() * placed.parameter.per_layer.max(1)).sum();
        assert_eq!(whole, crate::model::count(&plan.model).0, "{}", preset.id);
        for (_, _, params) in &blocks {
            let mut names: Vec<&str> = params.iter().map(|placed| placed.parameter.name.as_str()).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{}: {names:?}", preset.id);
        }
    }
}

#[test]
fn llama_3_8b_with_tensor_parallelism() {
    // Norms (65 of 4096) stay whole on both; everything else is cut in two, then in four.
    let norms = 65 * 4096;
    for layout in [json!({"tp": 2}), json!({"tp": 2, "tp_plan": "hf"})] {
        let answer = answer("llama-3-8b", "fsdp2", 8, layout.clone());
        assert_eq!(class(&answer).weights_bytes, 4 * ((LLAMA_3_8B - norms) / 8 + norms / 4), "{layout}");
    }
    // Without its ends cut, as Megatron-FSDP's default plan leaves them.
    let ends = 2 * 128_256 * 4096;
    let answer = answer("llama-3-8b", "megatron_fsdp", 8, json!({"tp": 2}));
    assert_eq!(class(&answer).weights_bytes, 2 * ((LLAMA_3_8B - norms - ends) / 8 + (norms + ends) / 4));
}

#[test]
fn plans_of_a_user_are_held_against_the_model() {
    let errors_of = |preset: &str, pattern: &str| {
        errors(&answer(preset, "fsdp2", 8, json!({"tp": 2, "tp_plan": {pattern: "colwise"}})))
    };
    assert_eq!(errors_of("tiny-moe", "model.layers.*.self_attn.q_proj"), [""; 0]);
    assert_eq!(errors_of("tiny-moe", "model.layers.*.mlp.experts"), ["layout.tp_plan: []"]);
    assert_eq!(errors_of("tiny-moe", "model.layers.*.self_attn.w_q"), ["layout.tp_plan: []"]);
    assert_eq!(errors_of("tiny-dense", "model.layers.1.mlp.up_proj"), [""; 0]);
    // A dense model's plan may name what is not there; it is said.
    let answer = answer("tiny-dense", "fsdp2", 8, json!({"tp": 2, "tp_plan": {"model.w_q": "colwise"}}));
    assert!(answer.memory.is_some());
    assert!(answer.findings.iter().any(|finding| finding.message.contains("matches no module")));
    for wrong in [json!("huggingface"), json!([]), json!({}), json!(3)] {
        let found = errors(&self::answer("tiny-dense", "fsdp2", 8, json!({"tp": 2, "tp_plan": wrong})));
        assert_eq!(found, ["layout.tp_plan: [null,\"hf\"]"]);
    }
}

#[test]
fn parameters_are_named_and_shaped_as_in_transformers() {
    let totals: Value = serde_json::from_str(include_str!("../../../tests/data/hf_totals.json")).unwrap();
    // `tests/python/hf_names.py` prints it.
    let recorded: Value =
        serde_json::from_str(include_str!("../../../tests/data/transformers_names.json")).unwrap();
    let models = recorded["models"].as_object().unwrap();
    assert!(models.len() >= 7);
    for (name, expected) in models {
        let row = totals["rows"].as_array().unwrap().iter().find(|row| row["name"] == *name).unwrap();
        let file = json!({
            "version": 1, "model": {"hf_config": row["config"]}, "runtime": "fsdp2",
            "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 1},
        });
        let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        let plan = resolved.plan.unwrap_or_else(|| panic!("{name}: {:?}", resolved.findings));
        let params = plan.rank_shards(0).params;
        let found: serde_json::Map<String, Value> =
            params.into_iter().map(|param| (param.name, json!(param.shape))).collect();
        for (parameter, shape) in expected.as_object().unwrap() {
            assert_eq!(found.get(parameter), Some(shape), "{name}: {parameter}");
        }
        let more: Vec<&String> = found.keys().filter(|name| expected.get(name.as_str()).is_none()).collect();
        assert!(more.is_empty(), "{name}: {more:?}");
    }
}
