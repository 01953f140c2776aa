//! Rules that no published row shows: what each adds to a plan, worked out by hand.

use serde_json::{Value, json};

use super::{LayerTerms, Saver, answer, assumptions, peak_ranges};
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::wire::RankClass;

/// A small plan of Megatron-Core with these settings, where `change` says something else.
fn plan_of(change: impl Fn(&mut Value)) -> Plan {
    let mut plan = json!({
        "version": 1,
        "model": {"architecture": {
            "num_layers": 4, "hidden_size": 512, "ffn_hidden_size": 2048, "vocab_size": 4096,
            "attention": {"kind": "gqa", "heads": 8, "kv_heads": 8, "head_dim": 64}
        }},
        "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 8},
        "layout": {"tp": 2, "sp": false, "pp": 2},
        "training": {"seq_len": 1024, "micro_batch_size": 2, "global_batch_size": 16, "dtype": "bf16"},
        "software": {"expandable_segments": true},
    });
    change(&mut plan);
    let file = parse_plan(&plan.to_string()).unwrap();
    let resolved = Plan::resolve(&file);
    resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
}

/// Its last class.
fn last(change: impl Fn(&mut Value)) -> RankClass {
    answer(&plan_of(change)).rank_classes.pop().unwrap()
}

fn phase(class: &RankClass, name: &str) -> u64 {
    class.phases.iter().find(|phase| phase.name == name).unwrap().allocated_bytes
}

/// What a change of `training` adds to a phase, beside `base`.
#[track_caller]
fn check(base: Value, change: Value, phase_name: &str, added: i64) {
    let with = |more: &Value| {
        last(|plan| {
            for settings in [&base, more] {
                for (name, value) in settings.as_object().unwrap() {
                    plan["training"][name] = value.clone();
                }
            }
        })
    };
    let found = phase(&with(&change), phase_name) as i64 - phase(&with(&json!({})), phase_name) as i64;
    assert_eq!(found, added, "{base} {change}");
}

/// Tokens of a micro batch, hidden size, words of a rank.
const TOKENS: i64 = 2 * 1024;
const HIDDEN: i64 = 512;
const WORDS: i64 = 4096 / 2;

#[test]
fn an_mlp_keeps_what_its_operators_read() {
    let of = |gated: bool, fused: bool| {
        let plan = plan_of(|plan| {
            plan["model"]["architecture"]["gated"] = gated.into();
            plan["training"]["moe"] = json!({"fused_activation": fused});
        });
        let layer = LayerTerms::new(&plan).layer(plan.model.layer_kind(0));
        u64::from(layer.saved.get(Saver::Mlp))
    };
    // What each first matrix gives and what the last reads, half of 2,048 columns in two bytes; where the product with the gate
    // is an operator of its own, the activated gate too.
    let tensor = 2 * TOKENS as u64 * 1024;
    assert_eq!([of(true, true), of(true, false)], [3 * tensor, 4 * tensor]);
    assert_eq!([of(false, true), of(false, false)], [2 * tensor; 2]);
}

#[test]
fn waiting_gradients_of_the_output_layer() {
    // Of four micro batches the last one's is at work.
    let one = 2 * TOKENS * (WORDS + HIDDEN);
    check(json!({}), json!({"deferred_head_gradients": 2}), "head", 2 * one);
    check(json!({}), json!({"deferred_head_gradients": 0}), "head", 3 * one);
}

#[test]
fn softmax_in_steps() {
    let scores = 2 * (8 / 2) * 1024 * 1024;
    let local = json!({"implementation": "local", "attention_dropout": 0.1});
    // Two layers of one micro batch: fp32 instead of bf16, of which dropout keeps no copy.
    check(local, json!({"fused_softmax": false}), "forward", 2 * 2 * scores);
}

#[test]
fn checkpoints_over_tensor_parallel_ranks() {
    let full = json!({"granularity": "full", "method": "uniform", "num_layers": 1});
    let split = json!({"granularity": "full", "method": "uniform", "num_layers": 1, "distribute_saved_activations": true});
    check(json!({"recompute": full}), json!({"recompute": split}), "forward", -(2 * 2 * TOKENS * HIDDEN) / 2);
}

#[test]
fn the_norm_is_made_again_with_its_mlp() {
    let selective = json!({"granularity": "selective", "modules": ["mlp"]});
    // Of each of two layers: both parts of the MLP, and the norm's output with its statistics of four bytes.
    let layer = 2 * TOKENS * (2 * 2048 / 2) + 2 * TOKENS * (2048 / 2) + 2 * TOKENS * HIDDEN + 4 * TOKENS;
    check(json!({}), json!({"recompute": selective}), "forward", -2 * layer);
}

#[test]
fn adam_reads_fp16_state_in_fp32() {
    let state = |master: &str| json!({"optimizer": {"precision_aware": true, "master_dtype": master}});
    let of = |master: &str| {
        let class = last(|plan| plan["training"]["optimizer"] = state(master)["optimizer"].clone());
        (phase(&class, "optimizer"), class.optimizer_bytes)
    };
    let ((with, of_fp16), (without, of_fp32)) = (of("fp16"), of("fp32"));
    // Two bytes of a master weight either way, and copies of four bytes for each element.
    assert_eq!(of_fp16, of_fp32);
    assert_eq!(with - without, 4 * (of_fp16 / 10));
}

#[test]
fn delta_nets_of_plain_operators_keep_more() {
    let saved = |deterministic: bool| {
        let class = last(|plan| {
            plan["model"]["architecture"]["other_mixers"] = json!([{
                "delta_net": {"key_heads": 4, "value_heads": 8, "key_dim": 64, "value_dim": 64, "conv_kernel": 4}
            }]);
            plan["model"]["architecture"]["pattern"] = json!([{"count": 1, "mixer": 1, "mlp": "dense"}]);
            plan["training"]["deterministic"] = deterministic.into();
        });
        class.parts.iter().find(|part| part.name == "recurrence").unwrap().bytes
    };
    assert!(saved(true) > 4 * saved(false));
}

#[test]
fn the_core_keeps_masters_that_8_bit_weights_are_cast_from() {
    let of = |dtype: &str, said: Option<bool>| {
        let class = last(|plan| {
            plan["training"]["dtype"] = dtype.into();
            plan["training"]["grad_dtype"] = "bf16".into();
            plan["training"]["optimizer"] = json!({"precision_aware": true, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16", "core_master": said});
        });
        (
            class.optimizer_bytes,
            phase(&class, "optimizer") - class.phases.iter().map(|at| at.allocated_bytes).min().unwrap(),
        )
    };
    // The lower halves of masters and two moments, in two bytes each; or whole masters, and gradients in fp32 at the step.
    let (state, _) = of("bf16", None);
    let (whole, step) = of("bf16", Some(true));
    let elements = state / 6;
    assert_eq!((state, whole), (6 * elements, 8 * elements));
    assert!(step >= 4 * elements);
    assert_eq!([of("fp8_delayed", None).0, of("fp8_current", None).0], [6 * elements, 8 * elements]);
    assert_eq!(of("fp8_current", Some(false)).0, 6 * elements);
}

#[test]
fn nemos_own_optimizer_keeps_lower_halves_of_masters() {
    let of = |framework: &str, low: bool| {
        let class = last(|plan| {
            plan["software"] = json!({"framework": framework});
            plan["training"]["dtype"] = if low { "fp8_delayed" } else { "bf16" }.into();
            plan["training"]["fp8_param_gather"] = low.into();
        });
        class.optimizer_bytes
    };
    let whole = of("nemo 25.02", false);
    assert_eq!(whole % 12, 0);
    for release in ["nemo 24.12", "nemo 24.07", "nemo 24.03"] {
        assert_eq!(of(release, false), whole / 12 * 10, "{release}");
    }
    // Of weights in 8 bits there is no half to complete.
    assert_eq!(of("nemo 24.12", true), of("nemo 25.02", true));
}

#[test]
fn nemos_own_optimizer_updates_weights_alone_and_reads_gradients_as_they_are() {
    let of = |framework: &str, training: Value| {
        let class = last(|plan| {
            plan["software"] = json!({"framework": framework});
            plan["training"]["grad_dtype"] = "bf16".into();
            for (field, value) in training.as_object().unwrap() {
                plan["training"][field] = value.clone();
            }
        });
        let copies =
            phase(&class, "optimizer") - class.phases.iter().map(|at| at.allocated_bytes).min().unwrap();
        (class.optimizer_bytes, copies)
    };
    let state = json!({"master_dtype": "bf16"});
    let ((whole, copies), (fused, own)) = (of("nemo 25.02", json!({})), of("nemo 24.12", json!({})));
    let elements = whole / 12;
    assert_eq!((fused, copies - own), (10 * elements, 4 * elements));
    // Both moments, and no weights beside those of the model.
    assert_eq!(of("nemo 24.07", json!({"optimizer": state})), (4 * elements, own));
    // Weights in 8 bits are cast from others, which are bf16 then.
    let low = json!({"dtype": "fp8_delayed", "fp8_param_gather": true, "optimizer": state});
    assert_eq!(of("nemo 24.07", low).0, 6 * elements);
}

#[test]
fn ranges_are_wider_where_no_such_run_was_read_exactly() {
    let of = |change: &dyn Fn(&mut Value)| {
        let plan = plan_of(change);
        let class = answer(&plan).rank_classes.pop().unwrap();
        let [[low, high], _] = peak_ranges(&plan, &class);
        [low, high].map(|end| (1000 * end).div_ceil(class.peak_allocated_bytes))
    };
    assert_eq!(of(&|_| {}), [987, 1044]);
    assert_eq!(of(&|plan| plan["training"]["dtype"] = "fp8_current".into()), [940, 1130]);
    let experts = |plan: &mut Value, balance: &str| {
        plan["layout"] = json!({"tp": 1, "pp": 2, "ep": 4});
        plan["model"]["architecture"]["moe"] =
            json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 512, "routing": {"balance": balance}});
    };
    assert_eq!(of(&|plan| experts(plan, "forced")), [987, 1044]);
    assert_eq!(of(&|plan| experts(plan, "aux_loss"))[0], 940);
}

#[test]
fn what_is_taken_for_granted_is_said() {
    let fields = |change: &dyn Fn(&mut Value)| {
        let found = assumptions(&plan_of(change)).into_iter();
        found.map(|finding| finding.field).collect::<Vec<String>>()
    };
    let kernel = "training.attention_backend";
    assert_eq!(fields(&|_| {}), [kernel]);
    assert_eq!(
        fields(&|plan| plan["training"]["dtype"] = "fp8_current".into()),
        [kernel, "memory.interval_bytes"]
    );
    let torch = |plan: &mut Value, sp: bool| {
        plan["runtime"] = "fsdp2".into();
        plan["layout"] = json!({"tp": 2, "sp": sp, "fsdp": {"compile": true}});
    };
    assert_eq!(fields(&|plan| torch(plan, true)), ["layout.fsdp.compile"]);
    assert_eq!(fields(&|plan| torch(plan, false)), Vec::<String>::new());
}

/// TransformerEngine's cpu offload: at the fullest moment as many layers are there as stay.
#[test]
fn layers_that_wait_on_the_host_are_not_there_beside_those_that_stay() {
    let of = |layers: u64| {
        let file = serde_json::json!({
            "version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "gb200", "nodes": 2, "gpus_per_node": 4},
            "runtime": "megatron_fsdp", "training": {"offload": {"layers": layers}, "seq_len": 8192}
        });
        let file = crate::parse::parse_plan(&file.to_string()).unwrap();
        let resolved = crate::plan::Plan::resolve(&file);
        let plan = resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings));
        super::LayerTerms::new(&plan).stage(0).saved.total()
    };
    let layer = of(0) - of(1);
    for layers in [2, 16, 31] {
        assert_eq!(of(0) - of(layers), layers * layer, "{layers}");
    }
}

/// What an answer names at the peak is all that it counts there, in every program and phase.
#[test]
fn parts_at_the_peak_are_all_that_is_there() {
    let mut peaks = std::collections::BTreeSet::new();
    for model in ["llama-3-8b", "qwen3-30b-a3b", "deepseek-v3", "nemotron-3-nano"] {
        for runtime in ["megatron", "megatron_fsdp", "fsdp2", "native"] {
            for training in [
                json!({}),
                json!({"micro_batch_size": 2, "seq_len": 32768}),
                json!({"seq_len": 256, "recompute": {"granularity": "full"}}),
            ] {
                let file = json!({
                    "version": 1, "model": {"preset": model}, "cluster": {"gpu": "h100-sxm", "nodes": 4},
                    "runtime": runtime, "layout": {"pp": if runtime == "megatron_fsdp" { 1 } else { 2 }}, "training": training
                });
                let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
                let Some(plan) = resolved.plan else { continue };
                for class in answer(&plan).rank_classes {
                    let of = |category: &str| -> u64 {
                        let parts = class.parts.iter().filter(|part| part.category == category);
                        parts.map(|part| part.bytes).sum()
                    };
                    let sums = (of("activations"), of("transient"));
                    assert_eq!(sums, (class.activations_bytes, class.transient_bytes), "{file}");
                    peaks.insert((runtime, class.peak_phase));
                }
            }
        }
    }
    // Not one program or phase alone.
    assert!(peaks.len() >= 8, "{peaks:?}");
}
