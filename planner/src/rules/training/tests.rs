//! Settings that do not go together, and that what is offered instead is accepted.

mod owners;
mod rows;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::answer::estimate;
use crate::finding::Finding;
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::wire::PlanFile;

/// A plan on 16 GPUs with these parts besides.
fn file(preset: &str, parts: &Value) -> PlanFile {
    let mut file = json!({
        "version": 1, "model": {"preset": preset},
        "cluster": {"gpu": "b200", "nodes": 2}, "training": {"global_batch_size": 64}
    });
    for (part, fields) in parts.as_object().unwrap() {
        let slot = &mut file[part];
        match (slot.as_object_mut(), fields) {
            (Some(slot), Value::Object(fields)) => slot.extend(fields.clone()),
            _ => *slot = fields.clone(),
        }
    }
    parse_plan(&file.to_string()).unwrap()
}

fn errors(file: &PlanFile) -> Vec<Finding> {
    let findings = estimate(file).findings.into_iter();
    findings.filter(|finding| finding.severity == crate::Severity::Error).collect()
}

/// Heads and their width are one side of an output projection: 64 heads of 8 channels are 512.
#[test]
fn an_output_projections_side_is_all_heads() {
    let wrong = |hidden: u64, heads: u64, head_dim: u64| {
        let attention = json!({"kind": "gqa", "heads": heads, "kv_heads": heads, "head_dim": head_dim});
        let model = json!({"architecture": {
            "num_layers": 2, "hidden_size": hidden, "ffn_hidden_size": 512, "vocab_size": 1024, "gated": true,
            "activation": "silu", "attention": attention,
        }});
        let file = json!({
            "version": 1, "model": model, "cluster": {"gpu": "h100-sxm", "nodes": 1},
            "training": {"dtype": "fp8_blockwise", "global_batch_size": 64},
        });
        let found = errors(&parse_plan(&file.to_string()).unwrap()).into_iter();
        found.map(|finding| finding.message).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(wrong(512, 64, 8), "");
    assert!(wrong(512, 33, 8).contains("attention.proj.weight is 512 x 264"), "{}", wrong(512, 33, 8));
}

/// The errors of a plan with these parts, as fields; with every nearest value in its place, the error is gone.
fn check(preset: &str, parts: &Value, expected: &[&str]) {
    let file = file(preset, parts);
    let found = errors(&file);
    assert_eq!(
        found.iter().map(|finding| finding.field.as_str()).collect::<Vec<_>>(),
        expected,
        "{preset} {parts}: {found:?}"
    );
    nearest_is_accepted(&file, &found);
}

fn nearest_is_accepted(file: &PlanFile, errors_of_file: &[Finding]) {
    for finding in errors_of_file {
        assert!(!finding.rule.is_empty() && !finding.message.is_empty(), "{finding:?}");
        for value in &finding.nearest {
            let Some(changed) = replaced(file, finding, value) else { continue };
            let left = errors(&changed);
            let same = |other: &&Finding| {
                other.field == finding.field && other.rule == finding.rule && other.value == finding.value
            };
            assert_eq!(left.iter().find(same), None, "{value} in place of {finding:?}");
        }
    }
}

/// The file with a value in place of what the finding is about; none where a field is not in a file (`model`).
fn replaced(file: &PlanFile, finding: &Finding, value: &Value) -> Option<PlanFile> {
    let mut filled = serde_json::to_value(Plan::resolve(file).filled()?).unwrap();
    let slot = filled.pointer_mut(&format!("/{}", finding.field.replace('.', "/")))?;
    if finding.field == "model" {
        return None;
    }
    match slot {
        Value::Array(items) => {
            let wrong = items.iter_mut().filter(|item| **item == finding.value);
            wrong.for_each(|item| *item = value.clone());
        }
        slot => *slot = value.clone(),
    }
    parse_plan(&filled.to_string()).ok()
}

fn training(preset: &str, training: &Value, expected: &[&str]) {
    check(preset, &json!({ "training": training }), expected);
}

const MODULES: &str = "training.recompute.modules";
const METHOD: &str = "training.recompute.method";
const DTYPE: &str = "training.dtype";
const EP: &str = "training.overlap.ep";

#[test]
fn recomputation() {
    let check =
        |preset, value: Value, expected: &[&str]| training(preset, &json!({ "recompute": value }), expected);
    check("llama-3-8b", json!({"granularity": "selective", "modules": ["core_attn", "mlp"]}), &[]);
    check("llama-3-8b", json!({"granularity": "selective", "modules": ["moe_act"]}), &[MODULES]);
    check(
        "llama-3-8b",
        json!({"granularity": "selective", "modules": ["mla_up_proj", "x"]}),
        &[MODULES, MODULES],
    );
    check(
        "llama-3-8b",
        json!({"granularity": "selective", "modules": ["gdn_norm_out", "mhc"]}),
        &[MODULES, MODULES],
    );
    check("qwen3-next-80b-a3b", json!({"granularity": "selective", "modules": ["gdn_norm_out"]}), &[]);
    check(
        "deepseek-v3",
        json!({"granularity": "selective", "modules": ["mla_up_proj", "moe_act", "shared_experts"]}),
        &[],
    );
    check("llama-3-8b", json!({"granularity": "full"}), &[]);
    check("llama-3-8b", json!({"granularity": "full", "method": "uniform"}), &[]);
    check("llama-3-8b", json!({"granularity": "full", "method": "block"}), &[METHOD]);
    check("llama-3-8b", json!({"granularity": "full", "method": "all", "num_layers": 1}), &[METHOD]);
    check("llama-3-8b", json!({"granularity": "full", "method": "block", "num_layers": 1}), &[]);
    check("llama-3-8b", json!({"granularity": "selective", "method": "block"}), &[METHOD]);
    let act = json!({"granularity": "selective", "modules": ["moe_act", "layernorm"]});
    training("mixtral-8x7b", &json!({"recompute": act, "dtype": "fp8_delayed"}), &[MODULES, MODULES]);
    training("mixtral-8x7b", &json!({"recompute": act, "dtype": "fp8_current"}), &[]);
    training("mixtral-8x7b", &json!({"recompute": act, "moe": {"grouped_gemm": false}}), &[MODULES]);
    let shared = json!({"granularity": "selective", "modules": ["shared_experts"]});
    training(
        "deepseek-v3",
        &json!({"recompute": shared, "moe": {"shared_expert_overlap": true}}),
        &[MODULES],
    );
    let full = |sp: bool, tp: u64| {
        json!({
            "layout": {"tp": tp, "sp": sp, "etp": tp},
            "training": {"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1, "distribute_saved_activations": true}}
        })
    };
    let field = "training.recompute.distribute_saved_activations";
    super::tests::check("llama-3-8b", &full(false, 2), &[]);
    super::tests::check("llama-3-8b", &full(true, 2), &[field]);
    super::tests::check("llama-3-8b", &full(false, 1), &[field]);
}

#[test]
fn low_precision() {
    training("llama-3-8b", &json!({"dtype": "mxfp8", "fp8_param_gather": true}), &[]);
    training("llama-3-8b", &json!({"dtype": "nvfp4", "bf16_first_layers": 2, "bf16_last_layers": 4}), &[]);
    training("llama-3-8b", &json!({"fp8_param_gather": true}), &["training.fp8_param_gather"]);
    training(
        "llama-3-8b",
        &json!({"dtype": "fp8_current", "fp8_param_gather": true, "optimizer": {"distributed": false}}),
        &["training.fp8_param_gather"],
    );
    training(
        "llama-3-8b",
        &json!({"dtype": "fp8_delayed", "bf16_last_layers": 1}),
        &["training.bf16_last_layers"],
    );
    check(
        "llama-3-8b",
        &json!({"layout": {"pp": 16}, "training": {"dtype": "mxfp8", "bf16_first_layers": 3}}),
        &["training.bf16_first_layers"],
    );
    check(
        "llama-3-8b",
        &json!({"cluster": {"gpu": "a100-80gb-sxm"}, "training": {"dtype": "fp8_current"}}),
        &[DTYPE],
    );
    check("llama-3-8b", &json!({"cluster": {"gpu": "h100-sxm"}, "training": {"dtype": "fp8_current"}}), &[]);
    check("llama-3-8b", &json!({"cluster": {"gpu": "h100-sxm"}, "training": {"dtype": "mxfp8"}}), &[DTYPE]);
    check("llama-3-8b", &json!({"runtime": "native", "training": {"dtype": "mxfp8"}}), &[DTYPE]);
    check("llama-3-8b", &json!({"runtime": "fsdp2", "training": {"dtype": "nvfp4"}}), &[DTYPE]);
    check("llama-3-8b", &json!({"runtime": "fsdp2", "training": {"dtype": "mxfp8"}}), &[]);
    training("llama-3-8b", &json!({"dtype": "mxfp8", "implementation": "local"}), &[DTYPE]);
    training("llama-3-8b", &json!({"dtype": "fp64", "grad_dtype": "fp32"}), &["training.grad_dtype"]);
    // tp 16 leaves 8 key-value heads cut through; tokens of a rank must fill blocks.
    training("llama-3-8b", &json!({"dtype": "mxfp8", "seq_len": 4080}), &["training.seq_len"]);
    // 11008 / 16 is 688: a multiple of 16, not of 32.
    let tp = |dtype: &str| {
        json!({
            "model": {"architecture": {
                "num_layers": 4, "hidden_size": 4096, "ffn_hidden_size": 11008, "vocab_size": 32000,
                "attention": {"kind": "gqa", "heads": 32, "kv_heads": 32, "head_dim": 128}
            }},
            "layout": {"tp": 16}, "training": {"dtype": dtype}
        })
    };
    let own = |dtype: &str| {
        let mut parts = tp(dtype);
        parts["model"]["preset"] = Value::Null;
        parts
    };
    check("llama-3-8b", &own("mxfp8"), &[DTYPE]);
    check("llama-3-8b", &own("fp8_current"), &[]);
}

#[test]
fn optimizers() {
    let check =
        |value: Value, expected: &[&str]| training("llama-3-8b", &json!({ "optimizer": value }), expected);
    check(
        json!({"precision_aware": true, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "fp8", "master_dtype": "fp16"}),
        &[],
    );
    check(
        json!({"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "fp8", "master_dtype": "fp16"}),
        &[
            "training.optimizer.master_dtype",
            "training.optimizer.exp_avg_dtype",
            "training.optimizer.exp_avg_sq_dtype",
        ],
    );
    for more in [json!({}), json!({"precision_aware": true}), json!({"distributed": false})] {
        let mut optimizer = more;
        optimizer["master_dtype"] = "bf16".into();
        check(optimizer, &["training.optimizer.master_dtype"]);
    }
    check(json!({"precision_aware": true, "kind": "sgd"}), &["training.optimizer.precision_aware"]);
    check(
        json!({"offload_fraction": 0.5, "precision_aware": false}),
        &["training.optimizer.offload_fraction"],
    );
    check(json!({"offload_fraction": 0.5}), &[]);
    check(json!({"instances": 4}), &[]);
    check(json!({"instances": 5}), &["training.optimizer.instances"]);
    check(json!({"instances": 2, "distributed": false}), &["training.optimizer.instances"]);
    check(json!({"distributed": false}), &[]);
    training(
        "llama-3-8b",
        &json!({"optimizer": {"distributed": false}, "overlap": {"param_gather": true}}),
        &["training.overlap.param_gather"],
    );
    training(
        "llama-3-8b",
        &json!({"overlap": {"param_gather": true, "grad_reduce": false}}),
        &["training.overlap.param_gather"],
    );
    training("llama-3-8b", &json!({"overlap": {"grad_reduce": false}}), &[]);
    training(
        "llama-3-8b",
        &json!({"dtype": "mxfp8", "fp8_param_gather": true, "optimizer": {"offload_fraction": 1.0, "precision_aware": true}}),
        &["training.optimizer.offload_fraction"],
    );
    for runtime in ["fsdp2", "megatron_fsdp"] {
        super::tests::check(
            "llama-3-8b",
            &json!({"runtime": runtime, "training": {"optimizer": {"kind": "muon"}}}),
            &["training.optimizer.kind"],
        );
    }
    super::tests::check(
        "llama-3-8b",
        &json!({"runtime": "megatron_fsdp", "training": {"optimizer": {"distributed": false}}}),
        &["training.optimizer.distributed"],
    );
    super::tests::check(
        "mixtral-8x7b",
        &json!({"layout": {"ep": 8}, "training": {"optimizer": {"instances": 4}}}),
        &["training.optimizer.instances"],
    );
}

#[test]
fn experts() {
    let check =
        |preset, value: Value, expected: &[&str]| training(preset, &json!({ "moe": value }), expected);
    check("mixtral-8x7b", json!({"dispatcher": "flex"}), &["training.moe.dispatcher"]);
    check("mixtral-8x7b", json!({"dispatcher": "allgather"}), &[]);
    check("mixtral-8x7b", json!({"pad_to_capacity": true}), &["training.moe.pad_to_capacity"]);
    check("mixtral-8x7b", json!({"pad_to_capacity": true, "capacity_factor": 1.25}), &[]);
    check("mixtral-8x7b", json!({"load_imbalance": 0.5}), &["training.moe.load_imbalance"]);
    check("mixtral-8x7b", json!({"shared_expert_overlap": true}), &["training.moe.shared_expert_overlap"]);
    check("deepseek-v3", json!({"shared_expert_overlap": true}), &[]);
    check(
        "deepseek-v3",
        json!({"shared_expert_overlap": true, "dispatcher": "allgather"}),
        &["training.moe.shared_expert_overlap"],
    );
    super::tests::check(
        "mixtral-8x7b",
        &json!({"layout": {"ep": 8}, "training": {"moe": {"dispatcher": "flex", "capacity_factor": 1.0, "pad_to_capacity": true}}}),
        &["training.moe.pad_to_capacity"],
    );
    super::tests::check(
        "mixtral-8x7b",
        &json!({"layout": {"ep": 8}, "training": {"moe": {"dispatcher": "flex", "backend": "hybridep", "capacity_factor": 1.0, "pad_to_capacity": true}}}),
        &[],
    );
}

#[test]
fn overlaps() {
    check("llama-3-8b", &json!({"layout": {"tp": 2}, "training": {"overlap": {"tp": true}}}), &[]);
    check("llama-3-8b", &json!({"training": {"overlap": {"tp": true}}}), &["training.overlap.tp"]);
    check(
        "llama-3-8b",
        &json!({"layout": {"tp": 2, "sp": false}, "training": {"overlap": {"tp": true}}}),
        &["training.overlap.tp"],
    );
    let two =
        |p2p: bool, pp: u64| json!({"layout": {"pp": pp, "vpp": 2}, "training": {"overlap": {"p2p": p2p}}});
    check("llama-3-8b", &two(true, 2), &[]);
    check("llama-3-8b", &two(false, 2), &["training.overlap.p2p"]);
    check("llama-3-8b", &two(false, 4), &[]);
    let ep = |layout: Value, mut more: Value| {
        more["overlap"] = json!({"ep": true});
        json!({"layout": layout, "training": more})
    };
    let good = json!({"ep": 8});
    check("mixtral-8x7b", &ep(good.clone(), json!({})), &[]);
    check("mixtral-8x7b", &ep(json!({}), json!({})), &[EP]);
    check("mixtral-8x7b", &ep(json!({"ep": 4, "pp": 4}), json!({})), &[EP]);
    check("mixtral-8x7b", &ep(json!({"ep": 4, "pp": 4, "vpp": 2}), json!({})), &[]);
    check("mixtral-8x7b", &ep(good.clone(), json!({"moe": {"dispatcher": "allgather"}})), &[EP]);
    check("mixtral-8x7b", &ep(good.clone(), json!({"dtype": "fp32"})), &[EP]);
    let full = json!({"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}});
    check("mixtral-8x7b", &ep(good.clone(), full), &[EP]);
    let moe = json!({"recompute": {"granularity": "selective", "modules": ["moe"]}});
    check("mixtral-8x7b", &ep(good.clone(), moe), &[EP]);
    check("deepseek-v3", &ep(good.clone(), json!({"mtp_layers": 2})), &[EP]);
    let graphs = json!({"cuda_graphs": "scoped", "cuda_graph_modules": ["moe"], "moe": {"capacity_factor": 1.0, "pad_to_capacity": true}});
    check("mixtral-8x7b", &ep(good.clone(), graphs), &[EP]);
    let mut old = ep(good, json!({}));
    old["software"] = json!({"torch": "2.5.1"});
    check("mixtral-8x7b", &old, &[EP]);
    training("mixtral-8x7b", &json!({"overlap": {"delay_wgrad": true}}), &["training.overlap.delay_wgrad"]);
}

#[test]
fn offload_and_graphs() {
    let offload = |preset, modules: &[&str], expected: &[&str]| {
        training(preset, &json!({"offload": {"modules": modules}}), expected);
    };
    let field = "training.offload.modules";
    offload("mixtral-8x7b", &["core_attn", "attn_proj", "expert_fc1"], &[]);
    offload("mixtral-8x7b", &["attn_proj"], &[field]);
    offload("llama-3-8b", &["moe_act", "core_atn"], &[field, field]);
    training(
        "llama-3-8b",
        &json!({"offload": {"modules": ["core_attn"]}, "implementation": "local"}),
        &[field],
    );
    let inside = json!({"offload": {"modules": ["moe_act"]}, "recompute": {"granularity": "selective", "modules": ["moe"]}});
    training("mixtral-8x7b", &inside, &[field]);
    let graphs = |preset, value: Value, expected: &[&str]| training(preset, &value, expected);
    let modules = "training.cuda_graph_modules";
    graphs("llama-3-8b", json!({"cuda_graphs": "scoped", "cuda_graph_modules": ["attn", "mlp"]}), &[]);
    graphs(
        "llama-3-8b",
        json!({"cuda_graphs": "scoped", "cuda_graph_modules": ["atn", "moe_router"]}),
        &[modules, modules],
    );
    graphs("mixtral-8x7b", json!({"cuda_graphs": "scoped", "cuda_graph_modules": ["moe"]}), &[modules]);
    // No names are whole layers; left out, they are what can be captured.
    graphs("mixtral-8x7b", json!({"cuda_graphs": "scoped", "cuda_graph_modules": []}), &[modules]);
    graphs("mixtral-8x7b", json!({"cuda_graphs": "scoped"}), &[]);
    let padded = json!({"capacity_factor": 1.0, "pad_to_capacity": true});
    graphs("mixtral-8x7b", json!({"cuda_graphs": "scoped", "cuda_graph_modules": [], "moe": padded}), &[]);
    graphs(
        "mixtral-8x7b",
        json!({"cuda_graphs": "scoped", "cuda_graph_modules": ["moe_preprocess"]}),
        &[modules],
    );
    graphs("mixtral-8x7b", json!({"cuda_graphs": "scoped", "cuda_graph_modules": ["mlp"]}), &[modules]);
    graphs(
        "llama-3-8b",
        json!({"cuda_graphs": "iteration", "cuda_graph_modules": ["attn"]}),
        &["training.cuda_graphs"],
    );
    let whole = |moe: Value| json!({"cuda_graphs": "iteration", "moe": moe});
    for moe in [json!({}), json!({"dispatcher": "allgather"}), json!({"capacity_factor": 1.5})] {
        graphs("mixtral-8x7b", whole(moe), &["training.cuda_graphs"]);
    }
    let (flex, field) =
        (|backend| whole(json!({"dispatcher": "flex", "backend": backend})), "training.moe.dispatcher");
    graphs("mixtral-8x7b", flex("deepep"), &[field, "training.cuda_graphs"]);
    graphs("mixtral-8x7b", flex("hybridep"), &[field]);
    graphs("mixtral-8x7b", whole(json!({"capacity_factor": 1.5, "pad_to_capacity": true})), &[]);
    let experts = json!({"granularity": "selective", "modules": ["moe"]});
    let router = |graphs: &str| json!({"cuda_graphs": graphs, "cuda_graph_modules": ["attn", "moe_router"], "recompute": experts});
    graphs("mixtral-8x7b", router("scoped"), &[modules]);
    graphs("mixtral-8x7b", router("none"), &[]);
    let full = json!({"granularity": "full", "method": "uniform", "num_layers": 1});
    graphs("llama-3-8b", json!({"cuda_graphs": "scoped", "recompute": full}), &["training.cuda_graphs"]);
    graphs("llama-3-8b", json!({"cuda_graphs": "iteration", "recompute": full}), &[]);
    let mlp = json!({"granularity": "selective", "modules": ["mlp"]});
    graphs(
        "llama-3-8b",
        json!({"cuda_graphs": "scoped", "recompute": mlp, "hidden_dropout": 0.1}),
        &["training.cuda_graphs"],
    );
}

#[test]
fn models_and_context_parallel() {
    let a2a = |cp: u64| json!({"layout": {"cp": cp, "cp_kind": "a2a"}});
    check("llama-3-8b", &a2a(8), &[]);
    check("llama-3-8b", &a2a(16), &["layout.cp"]);
    check(
        "llama-3-8b",
        &json!({"layout": {"cp": 2}, "training": {"implementation": "local"}}),
        &["layout.cp"],
    );
    check("glm-5", &json!({"layout": {"cp": 2}}), &[]);
    check("glm-5", &json!({"layout": {"cp": 2, "cp_kind": "p2p"}}), &["layout.cp_kind"]);
}

#[test]
fn layouts_on_offer_keep_to_rules_of_settings() {
    let parts =
        json!({"training": {"overlap": {"tp": true}, "optimizer": {"instances": 2}, "dtype": "mxfp8"}});
    let file = file("tiny-moe", &parts);
    for choice in crate::resolve::valid_layouts_of(&file).unwrap() {
        assert_eq!(errors(&choice.apply(&file)), [], "{choice:?}");
        assert!(choice.tp > 1 && (choice.dp * choice.cp).is_multiple_of(2), "{choice:?}");
    }
}

proptest! {
    // Each case resolves dozens of plans.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any settings together: no panic, a rule with each error, and nearest values that mend it.
    #[test]
    fn any_settings_give_findings_whose_nearest_values_are_right(
        preset in prop_oneof![Just("tiny-dense"), Just("tiny-moe"), Just("deepseek-v3"), Just("nemotron-h-8b")],
        runtime in prop_oneof![Just("megatron"), Just("fsdp2"), Just("megatron_fsdp"), Just("native")],
        dtype in 0usize..9, moments in 0usize..3, kind in 0usize..3, dispatcher in 0usize..3,
        flags in any::<u32>(), tp in prop_oneof![Just(1u64), Just(2)], pp in prop_oneof![Just(1u64), Just(2)],
        ep in prop_oneof![Just(1u64), Just(4)], instances in 1u64..5, layers in 0u64..40,
        modules in proptest::collection::vec(prop_oneof![
            Just("core_attn"), Just("moe"), Just("moe_act"), Just("attn"), Just("mlp"), Just("attn_proj"),
            Just("layernorm"), Just("mhc"), Just("moe_router"), Just("x")], 0..4),
        granularity in 0usize..3, graphs in 0usize..3, factor in prop_oneof![Just(None), any::<f64>().prop_map(Some)],
    ) {
        let on = |bit: u32| flags >> bit & 1 == 1;
        let parts = json!({
            "runtime": runtime,
            "layout": {"tp": tp, "pp": pp, "ep": ep, "etp": 1, "vpp": if on(0) { 2 } else { 1 }},
            "training": {
                "dtype": crate::settings::Precision::ALL[dtype].name(),
                "fp8_param_gather": on(1), "bf16_first_layers": layers,
                "optimizer": {
                    "kind": (["adam", "sgd", "muon"][kind]), "distributed": on(2), "precision_aware": on(3),
                    "exp_avg_dtype": (["fp32", "bf16", "fp8"][moments]), "instances": instances,
                    "offload_fraction": if on(4) { 0.5 } else { 0.0 },
                },
                "recompute": {
                    "granularity": (["none", "selective", "full"][granularity]), "modules": modules,
                    "distribute_saved_activations": on(5),
                },
                "offload": {"modules": if on(6) { modules.clone() } else { vec![] }},
                "implementation": if on(7) { "local" } else { "transformer_engine" },
                "cuda_graphs": (["none", "scoped", "iteration"][graphs]),
                "cuda_graph_modules": if on(8) { modules.clone() } else { vec![] },
                "hidden_dropout": if on(9) { 0.1 } else { 0.0 },
                "overlap": {"grad_reduce": on(10), "param_gather": on(11), "tp": on(12), "ep": on(13), "p2p": on(14), "delay_wgrad": on(15)},
                "moe": {
                    "dispatcher": (["alltoall", "allgather", "flex"][dispatcher]),
                    "backend": if on(16) { "deepep" } else { "hybridep" }, "capacity_factor": factor,
                    "pad_to_capacity": on(17), "grouped_gemm": on(18), "shared_expert_overlap": on(19),
                },
            },
        });
        let file = file(preset, &parts);
        let found = errors(&file);
        nearest_is_accepted(&file, &found);
    }
}
