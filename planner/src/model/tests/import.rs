//! config.json of every supported kind, and what people paste instead.

use serde_json::{Value, json};

use crate::finding::{Finding, Severity};
use crate::model::{Activation, Attention, Imported, LayerKind, Mlp, QkNorm, count, import_hf};

fn import(config: Value) -> Imported {
    import_hf(config.as_object().unwrap())
}

fn llama() -> Value {
    json!({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
           "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000})
}

/// The config with `changes` must be refused at `field` with a message that has `part` in it.
fn refused(changes: Value, field: &str, part: &str) {
    let mut config = llama();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    let imported = import(config);
    assert_eq!(imported.architecture, None);
    let finding =
        imported.findings.iter().find(|finding| finding.field == format!("model.hf_config.{field}"));
    let finding = finding.unwrap_or_else(|| panic!("{:?}", imported.findings));
    assert!(finding.message.contains(part), "{}", finding.message);
}

#[test]
fn wrong_fields_are_named_with_their_value() {
    refused(json!({"hidden_size": null}), "hidden_size", "has no `hidden_size`");
    refused(json!({"hidden_size": "big"}), "hidden_size", "\"big\"");
    refused(json!({"hidden_size": -4}), "hidden_size", "-4");
    refused(json!({"hidden_size": 0}), "hidden_size", "0");
    refused(json!({"hidden_size": 1.5}), "hidden_size", "1.5");
    refused(json!({"num_hidden_layers": [1, 2]}), "num_hidden_layers", "[1,2]");
    refused(json!({"tie_word_embeddings": "yes"}), "tie_word_embeddings", "true or false");
    refused(json!({"hidden_act": "mish"}), "hidden_act", "mish");
    refused(json!({"model_type": "gpt9", "vocab_size": null}), "model_type", "`gpt9`");
    refused(json!({"model_type": "bert"}), "model_type", "encoder");
    refused(json!({"model_type": null}), "model_type", "no `model_type`");
    refused(json!({"model_type": 7}), "model_type", "7");
    refused(json!({"model_type": "lama", "vocab_size": null}), "model_type", "llama");
}

#[test]
fn assumed_fields_are_listed() {
    let imported = import(llama());
    assert!(imported.architecture.is_some());
    assert!(imported.assumed.contains(&"model.hf_config.rope_theta".to_owned()));
    assert!(imported.assumed.contains(&"model.hf_config.head_dim".to_owned()));
    assert!(!imported.assumed.contains(&"model.hf_config.hidden_size".to_owned()));
}

#[test]
fn what_a_class_has_is_taken_and_listed() {
    let config = json!({"model_type": "deepseek_v3", "num_hidden_layers": 4});
    let imported = import(config);
    let Attention::Mla { kv_lora_rank, .. } = imported.architecture.unwrap().attention else { panic!() };
    assert_eq!(kv_lora_rank, 512);
    for key in ["kv_lora_rank", "hidden_size", "vocab_size", "n_routed_experts"] {
        assert!(
            imported.assumed.contains(&format!("model.hf_config.{key}")),
            "{key}: {:?}",
            imported.assumed
        );
    }
}

#[test]
fn an_unknown_type_is_read_as_a_decoder_and_says_what_it_did_not_understand() {
    let mut config = llama();
    config["model_type"] = json!("gpt9");
    config["strange_gate"] = json!(3);
    let imported = import(config.clone());
    let [finding] = imported.findings.as_slice() else { panic!("{:?}", imported.findings) };
    assert!(finding.message.contains("not understood: strange_gate"), "{}", finding.message);
    config["model_type"] = json!("llama");
    let count = |architecture| crate::model::count(&architecture).0;
    assert_eq!(count(imported.architecture.unwrap()), count(import(config).architecture.unwrap()));
}

#[test]
fn known_names_are_sorted_and_there_once() {
    let names = crate::model::hf::supported_model_types();
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
}

#[test]
fn what_a_kind_assumes_is_what_it_takes() {
    let assumed = |id: &str, without: &[&str]| {
        let mut config = presets_config(id);
        without.iter().for_each(|name| drop(config.as_object_mut().unwrap().remove(*name)));
        let imported = import(config);
        let names = imported.assumed.iter().map(|field| field.rsplit('.').next().unwrap().to_owned());
        (imported.architecture.unwrap(), names.collect::<Vec<_>>())
    };
    let (gemma, names) = assumed("gemma-3-27b", &["hidden_activation"]);
    assert!(gemma.tied_embeddings && gemma.activation == Activation::Gelu);
    assert!(names.contains(&"hidden_activation".to_owned()) && !names.contains(&"hidden_act".to_owned()));
    assert_eq!(names.iter().filter(|name| *name == "tie_word_embeddings").count(), 1);
    let (nemotron, names) = assumed("nemotron-3-nano", &["mlp_hidden_act"]);
    assert_eq!(nemotron.activation, Activation::SquaredRelu);
    assert!(names.contains(&"mlp_hidden_act".to_owned()) && !names.contains(&"hidden_act".to_owned()));
    let (_, names) = assumed("glm-5", &["index_n_heads", "hidden_act"]);
    assert!(names.contains(&"index_n_heads".to_owned()) && names.contains(&"hidden_act".to_owned()));
    let (_, names) = assumed("deepseek-v3", &["q_lora_rank"]);
    assert!(names.contains(&"q_lora_rank".to_owned()));
}

#[test]
fn kinds_differ_where_their_models_do() {
    let mut config = llama();
    let attention = |config: &Value| import(config.clone()).architecture.unwrap().attention;
    let of = |attention: Attention| match attention {
        Attention::Gqa { qkv_bias, qk_norm, head_dim, .. } => (qkv_bias, qk_norm, head_dim),
        _ => panic!("not grouped"),
    };
    assert_eq!(of(attention(&config)), (false, QkNorm::None, 16));
    config["model_type"] = json!("qwen2");
    assert_eq!(of(attention(&config)), (true, QkNorm::None, 16));
    config["model_type"] = json!("qwen3");
    config["head_dim"] = json!(32);
    assert_eq!(of(attention(&config)), (false, QkNorm::PerHead, 32));
}

#[test]
fn sparse_steps_and_dense_layers() {
    let mut config = llama();
    for (key, value) in [
        ("model_type", json!("qwen3_moe")),
        ("num_experts", json!(8)),
        ("num_experts_per_tok", json!(2)),
        ("moe_intermediate_size", json!(32)),
        ("num_hidden_layers", json!(6)),
        ("decoder_sparse_step", json!(2)),
        ("mlp_only_layers", json!([3])),
    ] {
        config[key] = value;
    }
    let model = import(config).architecture.unwrap();
    let moe: Vec<u64> = (0..6).filter(|&layer| model.layer_kind(layer) == LayerKind::MOE).collect();
    assert_eq!(moe, [1, 5]);
}

#[test]
fn layers_named_dense_are_dense() {
    let dense = |id: &str, change: Value, layers: u64| {
        let mut config = presets_config(id);
        config["num_hidden_layers"] = layers.into();
        for (key, value) in change.as_object().unwrap() {
            config[key] = value.clone();
        }
        let model = import(config).architecture.unwrap();
        (0..layers).filter(|&layer| model.layer_kind(layer).mlp == Mlp::Dense).collect::<Vec<u64>>()
    };
    let words = |words: &[&str]| json!({"mlp_layer_types": words});
    let listed = words(&["dense", "sparse", "dense", "sparse"]);
    // The list wins over the number of first dense layers, for every type that has both.
    for id in ["deepseek-v3", "deepseek-v3.2", "glm-5", "glm-4.5", "deepseek-v2-lite", "kimi-linear-48b-a3b"]
    {
        assert_eq!(dense(id, listed.clone(), 4), [0, 2], "{id}");
    }
    // GLM-4.7-Flash: the first layer is dense where its config.json says nothing.
    let mut flash =
        json!({"model_type": "glm4_moe_lite", "mlp_layer_types": null, "first_k_dense_replace": null});
    assert_eq!(dense("deepseek-v3", flash.clone(), 4), [0]);
    flash["mlp_layer_types"] = json!(["dense", "dense", "sparse", "sparse"]);
    assert_eq!(dense("deepseek-v3", flash, 4), [0, 1]);
    let absent = json!({"first_k_dense_replace": null});
    assert_eq!(dense("deepseek-v3", absent.clone(), 4), [0, 1, 2]);
    assert_eq!(dense("glm-4.5", absent.clone(), 4), [0]);
    assert_eq!(dense("deepseek-v2-lite", absent, 4), Vec::<u64>::new());
    let mut short = presets_config("glm-5");
    short["mlp_layer_types"] = json!(["dense"]);
    let imported = import(short);
    assert!(imported.findings.iter().any(|finding| finding.field.ends_with("mlp_layer_types")));
    assert_eq!(imported.architecture, None);
}

#[test]
fn any_field_of_any_config_may_be_anything() {
    let odd = [
        json!(null),
        json!(0),
        json!(1),
        json!(3),
        json!(-1),
        json!(0.5),
        json!(65_537),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!("M"),
        json!([]),
        json!([0, 7]),
        json!(["attention", "x"]),
        json!({"partial_rotary_factor": -1, "num_heads": u64::MAX}),
        json!(true),
    ];
    for preset in crate::model::presets() {
        let Some(config) = &preset.hf_config else { continue };
        for field in config.keys() {
            for value in &odd {
                let mut changed = config.clone();
                changed.insert(field.clone(), value.clone());
                let imported = import_hf(&changed);
                let refused = crate::finding::has_error(&imported.findings);
                assert_eq!(imported.architecture.is_none(), refused, "{} {field} {value}", preset.id);
                let Some(architecture) = imported.architecture else { continue };
                if crate::model::check_model(&architecture).is_empty() {
                    assert!(crate::model::count(&architecture).0 > 0, "{} {field} {value}", preset.id);
                }
            }
        }
    }
}

fn presets_config(id: &str) -> Value {
    let preset = crate::model::presets().iter().find(|preset| preset.id == id).unwrap();
    Value::Object(preset.hf_config.clone().unwrap())
}

#[test]
fn what_a_file_says_by_another_name_is_not_what_the_class_has() {
    for (model_type, name) in [("qwen3_moe", "num_local_experts"), ("mellum", "num_local_experts")] {
        let mut config = json!({"model_type": model_type});
        config[name] = json!(8);
        let imported = import(config);
        assert_eq!(imported.architecture.unwrap().moe.unwrap().experts, 8, "{model_type}");
        assert!(
            !imported.assumed.iter().any(|field| field.ends_with("num_experts")),
            "{:?}",
            imported.assumed
        );
    }
}

#[test]
fn files_that_are_no_config_are_said_to_be_what_they_are() {
    let check = |file: Value, expected: &str| {
        let imported = import(file.clone());
        let [finding] = imported.findings.as_slice() else { panic!("{file}: {:?}", imported.findings) };
        assert!(imported.architecture.is_none());
        assert!(finding.message.contains(expected), "{file}: {}", finding.message);
    };
    check(
        json!({"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.1-8B", "r": 16}),
        "base model (meta-llama/Llama-3.1-8B)",
    );
    check(json!({"weight_map": {"a": "b"}}), "index of safetensors files");
    check(json!({"version": "1.0", "added_tokens": [], "model": {"type": "BPE"}}), "a tokenizer's file");
    check(
        json!({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192}),
        "a tokenizer's file",
    );
    check(json!({"do_sample": true, "transformers_version": "5.0"}), "config of generation");
    check(
        json!({"w": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}),
        "header of a safetensors file",
    );
    check(json!({"hidden_size": 64, "architectures": ["LlamaForCausalLM"]}), "paste the whole file");
}

#[test]
fn what_a_checkpoint_has_beside_a_decoder_is_said() {
    let check = |changes: Value, expected: &str| {
        let mut config = llama();
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let imported = import(config);
        assert!(imported.architecture.is_some(), "{:?}", imported.findings);
        let said: Vec<&str> = imported.findings.iter().map(|finding| finding.message.as_str()).collect();
        assert!(said.iter().any(|message| message.contains(expected)), "{said:?}");
    };
    for method in ["fp8", "awq", "gptq", "compressed-tensors"] {
        check(json!({"quantization_config": {"quant_method": method}}), &format!("quantised ({method})"));
    }
    check(json!({"quantization_config": {"quant_algo": "NVFP4"}}), "quantised (NVFP4)");
    check(json!({"num_nextn_predict_layers": 1}), "multi-token-prediction modules");
    // SigLIP of Gemma 3 has 0.42 B, and the encoder of Qwen2.5-VL 0.67 B with what merges patches.
    let siglip = json!({"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27});
    check(
        json!({"text_config": llama(), "vision_config": siglip}),
        "vision encoder: about 0.41 B parameters",
    );
    let qwen = json!({"hidden_size": 1280, "intermediate_size": 3420, "depth": 32, "hidden_act": "silu"});
    check(json!({"text_config": llama(), "vision_config": qwen}), "vision encoder: about 0.63 B parameters");
}

/// What a config.json leaves out, or says that most programs refuse, is planned and named.
#[test]
fn sizes_that_are_taken_or_uneven_are_named() {
    let said = |config: Value| {
        let file =
            json!({"version": 1, "model": {"hf_config": config}, "cluster": {"gpu": "h100-sxm", "nodes": 1}});
        let resolved = crate::Plan::resolve(&crate::parse_plan(&file.to_string()).unwrap());
        let messages: Vec<String> = resolved.findings.into_iter().map(|finding| finding.message).collect();
        messages.join("\n")
    };
    let taken = said(json!({"model_type": "llama"}));
    assert!(taken.contains("hidden_size 4096, num_hidden_layers 32"), "{taken}");
    let whole = json!({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                       "num_attention_heads": 4, "vocab_size": 256});
    let with = |field: &str, value: Value| {
        let mut config = whole.clone();
        config[field] = value;
        said(config)
    };
    let plain = said(whole.clone());
    assert!(!plain.contains("of the class") && !plain.contains("don't divide"), "{plain}");
    let uneven = with("num_attention_heads", json!(3));
    assert!(uneven.contains("3 heads don't divide a hidden size of 64: 21 channels a head"), "{uneven}");
    // A width that is said is meant.
    assert!(!with("head_dim", json!(24)).contains("don't divide"));
}

/// DBRX says its attention and its experts in parts of their own.
#[test]
fn sizes_inside_parts_of_a_config_are_read() {
    let config = |model_type: &str| {
        json!({"model_type": model_type, "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100_352,
            "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500_000},
            "ffn_config": {"ffn_hidden_size": 10_752, "moe_num_experts": 16, "moe_top_k": 4}, "tie_word_embeddings": false})
    };
    let imported = import(config("dbrx"));
    // Half the bytes of databricks/dbrx-base, which is in bf16.
    assert_eq!(count(&imported.architecture.unwrap()).0, 131_596_523_520);
    // A type that nobody knows is read by the same names.
    let unknown = import(config("dbrx-2"));
    let architecture = unknown.architecture.unwrap();
    let moe = architecture.moe.as_ref().unwrap();
    assert_eq!((moe.experts, moe.top_k, moe.ffn_hidden_size), (16, 4, 10_752));
    assert!(count(&architecture).0.abs_diff(131_596_523_520) < 1_000_000);
    // What an encoder says is not the decoder's.
    let mut seeing = config("dbrx-2");
    seeing["vision_config"] = json!({"head_dim": 72, "num_key_value_heads": 16, "num_experts": 2});
    let seen = import(seeing).architecture.unwrap();
    assert_eq!(count(&seen), count(&architecture));
}

#[test]
fn experts_that_a_class_does_not_read_are_named() {
    let mut config = llama();
    config["num_local_experts"] = json!(8);
    let imported = import(config);
    let said: Vec<&str> = imported.findings.iter().map(|finding| finding.message.as_str()).collect();
    assert!(said.iter().any(|message| message.contains("`num_local_experts` is 8")), "{said:?}");
    assert!(import(llama()).findings.iter().all(|finding| !finding.message.contains("experts")));
}

#[test]
fn a_list_of_layers_that_ends_early_is_refused() {
    for model_type in ["gpt_oss", "qwen3", "gemma3", "olmo3", "cohere2"] {
        let mut config = llama();
        config["model_type"] = json!(model_type);
        config["sliding_window"] = json!(32);
        config["num_local_experts"] = json!(4);
        config["num_experts_per_tok"] = json!(2);
        config["layer_types"] = json!(["sliding_attention", "full_attention"]);
        assert!(import(config.clone()).architecture.is_some(), "{model_type}: {:?}", import(config).findings);
        config["layer_types"] = json!(["sliding_attention"]);
        let imported = import(config);
        let said: Vec<&str> = imported.findings.iter().map(|finding| finding.message.as_str()).collect();
        assert!(imported.architecture.is_none(), "{model_type}");
        assert!(
            said.iter().any(|message| message.contains("layer_types") && message.contains('2')),
            "{said:?}"
        );
    }
}

/// Parameters of a config that nothing is warned of.
fn parameters(config: Value) -> u64 {
    let imported = import_hf(config.as_object().unwrap());
    let warned = imported.findings.iter().any(|finding| finding.severity == Severity::Warning);
    assert!(!warned, "{:?}", imported.findings);
    count(&imported.architecture.unwrap()).0
}

#[test]
fn sizes_by_other_names_of_their_class_are_the_same() {
    let same = |one: Value, other: Value| assert_eq!(parameters(one.clone()), parameters(other), "{one}");
    same(
        json!({"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "num_attention_heads": 32, "vocab_size": 250_880}),
        json!({"model_type": "bloom", "hidden_size": 4096, "n_layer": 30, "n_head": 32, "vocab_size": 250_880}),
    );
    same(
        json!({"model_type": "gpt2", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "max_position_embeddings": 2048}),
        json!({"model_type": "gpt2", "n_embd": 1024, "n_layer": 24, "n_head": 16, "n_positions": 2048}),
    );
    same(
        json!({"model_type": "mpt", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}),
        json!({"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32}),
    );
    same(
        json!({"model_type": "gpt_neo", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}),
        json!({"model_type": "gpt_neo", "hidden_size": 768, "num_layers": 12, "num_heads": 12}),
    );
}

/// Falcon's first checkpoints name a class of their own code. Totals are those of transformers' class, on meta tensors.
#[test]
fn the_first_falcons_are_read() {
    let falcon = |kind: &str, sizes: Value| {
        let mut config = json!({"model_type": kind, "bias": false, "alibi": false, "parallel_attn": true, "vocab_size": 65_024});
        config.as_object_mut().unwrap().extend(sizes.as_object().unwrap().clone());
        parameters(config)
    };
    let small = json!({"hidden_size": 4544, "n_head": 71, "n_layer": 32, "multi_query": true});
    assert_eq!(falcon("RefinedWebModel", small), 6_921_720_704);
    let large = json!({"hidden_size": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60});
    assert_eq!(falcon("RefinedWeb", large), 41_303_293_952);
}

#[test]
fn sizes_that_are_those_of_the_class_are_warned_of() {
    let imported = import_hf(json!({"model_type": "llama", "vocab_size": 32_000}).as_object().unwrap());
    let warned: Vec<&Finding> =
        imported.findings.iter().filter(|finding| finding.severity == Severity::Warning).collect();
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].message.contains("hidden_size 4096, num_hidden_layers 32"), "{warned:?}");
}

#[test]
fn models_with_an_encoder_are_named() {
    for (model_type, part) in [
        ("t5", "attention to an encoder"),
        ("mt5", "attention to an encoder"),
        ("deberta-v2", "an encoder's layers"),
    ] {
        let config = json!({"model_type": model_type, "d_model": 512, "num_layers": 6, "num_heads": 8, "vocab_size": 32_128});
        let imported = import_hf(config.as_object().unwrap());
        assert_eq!(imported.architecture, None, "{model_type}");
        assert!(
            imported.findings.iter().any(|finding| finding.message.contains(part)),
            "{:?}",
            imported.findings
        );
    }
}

#[test]
fn what_gpt_oss_says_twice_is_no_part_of_it() {
    let config = |more: Value| {
        let mut config = json!({"model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1000, "num_local_experts": 8,
            "num_experts_per_tok": 4, "initial_context_length": 4096});
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        import(config).architecture.unwrap().parts
    };
    assert!(!config(json!({"experts_per_token": 4})).contains_key("experts_per_token"));
    assert!(!config(json!({})).contains_key("initial_context_length"));
    assert!(config(json!({"experts_per_token": 2})).contains_key("experts_per_token"));
}
