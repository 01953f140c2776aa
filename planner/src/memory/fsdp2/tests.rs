//! Rules of FSDP2 that no tracker's case shows: what each setting changes, worked out by hand.

use serde_json::{Value, json};

use super::layer::layer;
use super::{Moment, moments};
use crate::memory::stage::LayerTerms;
use crate::memory::{answer, live_chunks};
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::units::Quantity;

/// A plan of eight layers, four micro batches on two stages, where `change` says nothing else.
fn plan(change: impl Fn(&mut Value)) -> Plan {
    let mut plan = json!({
        "version": 1,
        "model": {"architecture": {
            "num_layers": 8, "hidden_size": 512, "ffn_hidden_size": 2048, "vocab_size": 4096,
            "attention": {"kind": "gqa", "heads": 8, "kv_heads": 2, "head_dim": 64}
        }},
        "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 8},
        "runtime": "fsdp2",
        "layout": {"pp": 2},
        "training": {"seq_len": 1024, "micro_batch_size": 1, "global_batch_size": 8},
    });
    change(&mut plan);
    let file = parse_plan(&plan.to_string()).unwrap();
    let resolved = Plan::resolve(&file);
    resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
}

fn layer_elements() -> u64 {
    // Queries, keys, values, output; both parts of the MLP; two norms.
    512 * (8 + 2 * 2) * 64 + 8 * 64 * 512 + 3 * 512 * 2048 + 2 * 512
}

/// The fullest moment of a phase.
fn fullest(plan: &Plan, phase: &str) -> Moment {
    let found = moments(&LayerTerms::new(plan), 0).into_iter().filter(|moment| moment.phase == phase);
    found.max_by(|one, other| one.total().total_cmp(&other.total())).unwrap()
}

#[test]
fn an_interleaved_schedule_reduces_chunk_by_chunk() {
    let of = |vpp: u64, batch: u64| {
        let plan = plan(|plan| {
            plan["layout"]["vpp"] = vpp.into();
            plan["training"]["global_batch_size"] = batch.into();
        });
        assert_eq!(live_chunks(&plan, 0).1, vpp);
        let embedding = 4096 * 512;
        u64::from(fullest(&plan, "backward").gradients).saturating_sub(4 * embedding) / 4 / layer_elements()
    };
    // Four layers on a stage: all of their sums in fp32 are alive with one chunk, or with a second round of micro
    // batches, and those of two of them where each chunk's last micro batch comes before the next chunk's first.
    assert_eq!([of(1, 8), of(2, 8), of(2, 16)], [4, 2, 4]);
}

#[test]
fn logits_that_wait_or_are_held_have_the_output_type() {
    let of = |dtype: &str, keeps: bool| {
        let plan = plan(|plan| {
            plan["layout"]["fsdp"] = json!({"output_dtype": dtype, "keeps_logits": keeps});
        });
        let last = moments(&LayerTerms::new(&plan), 1).into_iter().filter(|moment| moment.phase == "head");
        last.map(|moment| moment.total()).reduce(f64::max).unwrap()
    };
    // Of both micro batches until the end of the step, by the pipeline, and of one through its backward, by the loop.
    let logits = 1024.0 * 4096.0;
    assert_eq!(of("fp32", false) - of("bf16", false), 2.0 * 2.0 * logits);
    assert_eq!(of("bf16", true) - of("bf16", false), 2.0 * logits);
    assert_eq!(of("fp32", true) - of("fp32", false), 4.0 * logits);
}

#[test]
fn linear_layers_are_gathered_in_8_bits() {
    let of = |gather: bool| {
        let plan = plan(|plan| {
            plan["training"]["dtype"] = "fp8_current".into();
            plan["training"]["fp8_param_gather"] = gather.into();
        });
        u64::from(fullest(&plan, "backward").unsharded)
    };
    // Norms, embedding and output layer stay as they are.
    assert_eq!(of(false) - of(true), 4 * (layer_elements() - 2 * 512));
}

#[test]
fn the_stream_of_reductions_keeps_last_steps_gradients() {
    let one = plan(|plan| plan["layout"]["pp"] = 1.into());
    let head = fullest(&one, "head");
    // None of this step's gradients are there yet, and all that the step before had are kept.
    assert_eq!((head.reduced_before, head.absent), (head.absent, head.absent));
    let absent = u64::from(head.absent);
    assert!(absent >= 8 * layer_elements() * 4 / 8);
    let class = answer(&one).rank_classes.pop().unwrap();
    assert!(class.peak_reserved_bytes >= class.peak_allocated_bytes + absent);
    // With one rank nothing is reduced.
    let alone = plan(|plan| {
        plan["layout"]["pp"] = 1.into();
        plan["cluster"]["gpus_per_node"] = 1.into();
    });
    assert_eq!(fullest(&alone, "head").reduced_before, Quantity::ZERO);
}

/// One layer of a kind, as the plan recomputes all of them.
fn one(plan: &Plan, terms: &LayerTerms<'_>, kind: crate::model::LayerKind) -> super::layer::TorchLayer {
    layer(terms, kind, plan.training.recompute)
}

#[test]
fn by_method_block_layers_behind_the_first_keep_everything() {
    for runs in ["torchtitan", "worker"] {
        let of = |recompute: Value| {
            let plan = plan(|plan| {
                plan["layout"] = json!({});
                plan["software"] = json!({"framework": runs});
                plan["training"]["recompute"] = recompute.clone();
            });
            let found = moments(&LayerTerms::new(&plan), 0);
            found.iter().map(|moment| u64::from(moment.activations.total())).max().unwrap()
        };
        let block = |layers: u64| of(json!({"granularity": "full", "method": "block", "num_layers": layers}));
        let none = of(json!({"granularity": "none"}));
        let layers = 8;
        let all = of(json!({"granularity": "full", "method": "uniform", "num_layers": 1}));
        assert_eq!(block(layers), all, "{runs}");
        // A layer that keeps everything keeps as much wherever it stands.
        let each = none - block(1);
        assert!(each > 0);
        for again in 1..layers - 1 {
            assert_eq!(block(again) - block(again + 1), each, "{runs}: {again}");
        }
    }
}

#[test]
fn context_parallelism_gathers_keys_and_values() {
    let of = |cp: u64, value_dim: u64| {
        let plan = plan(|plan| {
            plan["model"]["architecture"]["attention"]["value_dim"] = value_dim.into();
            plan["layout"] = json!({"cp": cp});
            plan["training"]["seq_len"] = (65_536 * cp).into();
        });
        u64::from(one(&plan, &LayerTerms::new(&plan), plan.model.layer_kind(0)).forward)
    };
    // Keys and values of 65,536 tokens on a rank, of eight heads, in two bytes.
    let pair = |value_dim: u64| 2 * 65_536 * 8 * (64 + value_dim);
    for value_dim in [64, 32] {
        assert_eq!(of(8, value_dim) - of(4, value_dim), 4 * pair(value_dim));
    }
}

#[test]
fn tensor_parallel_matrices_keep_whole_inputs() {
    let of = |sp: bool| {
        let plan = plan(|plan| {
            plan["layout"] = json!({"tp": 2, "sp": sp});
        });
        u64::from(fullest(&plan, "forward").activations.total())
    };
    // Without sequence parallelism the norms' inputs and statistics are of the whole sequence too; their outputs, which
    // matrices read, always are.
    let more = 1024 - 1024 / 2;
    assert_eq!(of(false) - of(true), 8 * 2 * more * (2 * 512 + 4));
}

/// What a layer keeps under torchtitan's selective checkpoints, of a model with this attention and these experts.
fn selected(attention: Value, moe: Value, layout: Value) -> u64 {
    let plan = plan(|plan| {
        plan["model"]["architecture"]["attention"] = attention.clone();
        plan["model"]["architecture"]["moe"] = moe.clone();
        plan["layout"] = layout.clone();
        plan["layout"]["fsdp"] = json!({"checkpoint_selects": "matmuls"});
        plan["training"]["recompute"] = json!({"granularity": "selective"});
    });
    u64::from(one(&plan, &LayerTerms::new(&plan), plan.model.layer_kind(0)).saved.total())
}

#[test]
fn selective_checkpoints_keep_every_second_product() {
    let (tokens, hidden) = (1024, 512);
    let grouped = json!({"kind": "gqa", "heads": 8, "kv_heads": 2, "head_dim": 64});
    // Input, query, value, output of attention, its statistics; gate and down projection.
    let attention = 2 * tokens * (hidden + 512 + 128 + 512) + 4 * tokens * 8;
    let of_mlp = 2 * tokens * (2048 + hidden);
    assert_eq!(selected(grouped.clone(), Value::Null, json!({})), attention + of_mlp);
    // Values of half a head's width: of the values' product, and of attention's output.
    let mut narrow = grouped.clone();
    narrow["value_dim"] = 32.into();
    let less = 2 * tokens * (64 + 256);
    assert_eq!(selected(narrow, Value::Null, json!({})), attention + of_mlp - less);
    // Scores and numbers of the chosen experts; none of the grouped products.
    let moe = json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 256});
    let chosen = 12 * tokens * 2;
    assert_eq!(selected(grouped.clone(), moe.clone(), json!({})), attention + chosen);
    // With expert parallelism what was received and what came back too.
    let exchanged = 2 * hidden * (2 * tokens + 2 * tokens);
    assert_eq!(selected(grouped.clone(), moe, json!({"ep": 4})), attention + chosen + exchanged);
    // Gate and down projection of a shared expert, after four products of attention.
    let shared = json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 256, "shared_ffn_hidden_size": 128});
    assert_eq!(
        selected(grouped, shared.clone(), json!({})),
        attention + chosen + 2 * tokens * (128 + hidden)
    );
    let latent = json!({"kind": "mla", "heads": 8, "q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_dim": 32, "qk_rope_dim": 16, "v_dim": 32});
    // Input, the queries' and the keys' down projections, output of attention with statistics, and its projection, the
    // fifth product; of the shared expert the up projection alone, the seventh.
    let kept = 2 * tokens * (hidden + 96 + (64 + 16) + 8 * 32 + hidden) + 4 * tokens * 8;
    assert_eq!(selected(latent.clone(), shared.clone(), json!({})), kept + chosen + 2 * tokens * 128);
    // Without a low rank for queries there is one product less: the queries, the keys' and values' up projection, and
    // gate and down projection.
    let mut plain = latent;
    plain["q_lora_rank"] = Value::Null;
    let kept = 2 * tokens * (hidden + 8 * 48 + 8 * 64 + 8 * 32) + 4 * tokens * 8;
    assert_eq!(selected(plain, shared, json!({})), kept + chosen + 2 * tokens * (128 + hidden));
}

/// Warnings of a plan of a preset with these settings about recomputation that spares nothing.
fn unspared(preset: &str, runtime: &str, fsdp: Value, recompute: Value) -> Vec<String> {
    let mut plan = json!({"version": 1, "model": {"preset": preset}, "runtime": runtime,
                          "cluster": {"gpu": "b200", "nodes": 4}, "training": {"recompute": recompute}});
    if runtime == "fsdp2" {
        plan["layout"] = json!({"fsdp": fsdp});
    }
    let findings = Plan::resolve(&parse_plan(&plan.to_string()).unwrap()).findings;
    assert!(!crate::finding::has_error(&findings), "{findings:?}");
    let about = |finding: &crate::Finding| finding.rule == "selective recomputation spares something";
    findings.into_iter().filter(about).map(|finding| finding.message).collect()
}

#[test]
fn selective_recomputation_that_spares_nothing_is_said() {
    let selective = || json!({"granularity": "selective"});
    let core = || json!({"granularity": "selective", "modules": ["core_attn"]});
    let matmuls = || json!({"checkpoint_selects": "matmuls"});
    for preset in ["llama-3-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "mixtral-8x7b", "phi-4"] {
        assert_eq!(unspared(preset, "fsdp2", matmuls(), selective()), Vec::<String>::new(), "{preset}");
    }
    let said = unspared("qwen3-next-80b-a3b", "fsdp2", matmuls(), selective()).join("; ");
    assert!(said.contains("layers of gated delta net") && said.contains("not known"), "{said}");
    for runtime in ["megatron", "fsdp2", "native", "megatron_fsdp"] {
        let said = unspared("llama-3-8b", runtime, json!({}), selective()).join("; ");
        assert!(
            said.contains("any layer") && said.contains("training.recompute.modules"),
            "{runtime}: {said}"
        );
    }
    assert_eq!(unspared("llama-3-8b", "megatron", json!({}), core()), Vec::<String>::new());
    // torch's attention keeps its output and statistics whatever is named.
    let said = unspared("llama-3-8b", "fsdp2", json!({}), core()).join("; ");
    assert!(said.contains("core_attn keeps nothing"), "{said}");
}

/// Selective checkpoints hold less than none at all, and more than whole layers, for every preset whose layers are known.
#[test]
fn selective_checkpoints_hold_less_than_none() {
    for preset in crate::model::presets() {
        let of = |recompute: Value| {
            let plan = json!({"version": 1, "model": {"preset": preset.id}, "runtime": "fsdp2",
                              "cluster": {"gpu": "b200", "nodes": 1, "gpus_per_node": 1},
                              "layout": {"fsdp": {"checkpoint_selects": "matmuls"}},
                              "training": {"seq_len": 1024, "recompute": recompute}});
            let resolved = Plan::resolve(&parse_plan(&plan.to_string()).unwrap());
            let unknown = resolved.findings.iter().any(|finding| finding.message.contains("not known"));
            let plan = resolved.plan.unwrap_or_else(|| panic!("{}: {:?}", preset.id, resolved.findings));
            let terms = LayerTerms::new(&plan);
            let kinds = plan.model.layer_kinds();
            let kept = |kind: crate::model::LayerKind| u64::from(one(&plan, &terms, kind).saved.total());
            (kinds.iter().map(|&(kind, count)| count * kept(kind)).sum::<u64>(), unknown)
        };
        let (none, _) = of(json!({}));
        let (selective, unknown) = of(json!({"granularity": "selective"}));
        let (full, _) = of(json!({"granularity": "full", "method": "uniform", "num_layers": 1}));
        assert!(
            full < selective && (selective < none || unknown),
            "{}: {full} {selective} {none}",
            preset.id
        );
    }
}

/// Experts on eight ranks of as many, whose gradients wait for a second micro batch, all as NeMo Automodel's recipe has it.
fn of_mixture(framework: Option<&str>, biased: bool, forced: bool) -> Plan {
    plan(|plan| {
        plan["model"]["architecture"]["moe"] = json!({"experts": 16, "top_k": 2, "ffn_hidden_size": 1024});
        plan["model"]["architecture"]["mlp_bias"] = biased.into();
        plan["layout"] = json!({"ep": 8, "fsdp": {"sharded_dtype": "bf16", "reduce_dtype": "fp32", "gradient_sync": "last",
            "reshard_after_forward": "never"}});
        plan["training"]["global_batch_size"] = 16.into();
        plan["training"]["moe"] = json!({"dispatcher": "flex", "force_balance": forced});
        if let Some(framework) = framework {
            plan["software"] = json!({"framework": framework});
        }
    })
}

/// NeMo Automodel leaves experts out of FSDP that no second rank shares: nothing of them is gathered, and their gradients are there
/// from the first micro batch on in their own type, not in that of a reduction.
#[test]
fn whole_experts_are_left_out_by_automodel() {
    let [named, unnamed] = [Some("automodel 0.7"), None].map(|name| of_mixture(name, false, false));
    // Two experts of a rank in each of eight layers.
    let experts = 8 * 2 * 3 * 512 * 1024;
    let [own, all] = [&named, &unnamed].map(|plan| fullest(plan, "forward"));
    assert_eq!(all.unsharded - own.unsharded, Quantity::from(2 * experts));
    assert_eq!(all.gradients - own.gradients, Quantity::from(4 * experts));
    assert_eq!(all.absent - own.absent, Quantity::from(2 * experts));
    // What the update takes is the same.
    let [own, all] = [&named, &unnamed].map(|plan| fullest(plan, "optimizer").temporaries);
    assert_eq!(own, all);
}

/// Behind a dispatcher that sorts as it sends, its experts keep no sorted or padded copies; of a bias that the tokens' weights multiply
/// they keep what those weights' gradients need, where they have any.
#[test]
fn automodels_experts_keep_a_bias_where_weights_have_gradients() {
    let kept = |framework: Option<&str>, biased: bool, forced: bool| {
        let plan = of_mixture(framework, biased, forced);
        let terms = LayerTerms::new(&plan);
        let (kind, _) = *plan.model.layer_kinds().first().unwrap();
        layer(&terms, kind, plan.training.recompute).saved.total()
    };
    let rows = Quantity::of(1024 * 2 * 512);
    let automodel = Some("automodel 0.7");
    assert!(kept(None, false, true) >= kept(automodel, false, true) + 3 * 2 * rows);
    let plain = kept(automodel, true, true);
    assert_eq!(kept(automodel, true, false), plain + 4 * rows);
}
