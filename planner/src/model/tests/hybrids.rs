//! Patterns of layers, and models of several kinds of layers from import to shards.

use serde_json::{Map, Value, json};

use crate::answer::estimate;
use crate::layout::GroupKind;
use crate::model::{
    Attention, LayerKind, MixerRef, Mlp, Module, Parameter, count, fold, import_hf, layer_parameters,
    mtp_parameters, presets,
};
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::shard::{padded_vocabulary, stage_families};
use crate::wire::PlanFile;

fn kinds(letters: &str) -> Vec<LayerKind> {
    letters.chars().map(|letter| if letter == 'd' { LayerKind::DENSE } else { LayerKind::MOE }).collect()
}

#[test]
fn patterns_are_folded_to_what_repeats() {
    assert_eq!(fold(&kinds("mmmm")), []);
    let runs = |letters: &str| -> Vec<(u64, bool)> {
        fold(&kinds(letters)).iter().map(|run| (run.count, run.mlp == Mlp::Moe)).collect()
    };
    assert_eq!(runs("dddd"), [(1, false)]);
    assert_eq!(runs("dmdm"), [(1, false), (1, true)]);
    assert_eq!(runs("dmdmd"), [(1, false), (1, true)]);
    assert_eq!(runs("dddmm"), [(3, false), (2, true)]);
    assert_eq!(runs("ddmddmdd"), [(2, false), (1, true)]);
}

#[test]
fn folded_patterns_give_the_layers_back() {
    for letters in ["mmmm", "d", "dmdmd", "dddmm", "mdmmdmmd", "ddmmdmmmdd"] {
        let mut model = import_hf(preset("mixtral-8x7b").as_object().unwrap()).architecture.unwrap();
        model.num_layers = letters.len() as u64;
        model.pattern = fold(&kinds(letters));
        let back: Vec<LayerKind> = (0..model.num_layers).map(|layer| model.layer_kind(layer)).collect();
        assert_eq!(back, kinds(letters), "{letters}");
    }
}

fn preset(id: &str) -> Value {
    let preset = presets().iter().find(|preset| preset.id == id).unwrap();
    Value::Object(preset.hf_config.clone().unwrap())
}

fn plan(model: Value, layout: Value, gpus: u64) -> PlanFile {
    let file = json!({
        "version": 1, "model": model, "layout": layout,
        "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": gpus},
        "training": {"global_batch_size": 64, "seq_len": 64},
    });
    parse_plan(&file.to_string()).unwrap()
}

#[test]
fn every_preset_is_planned_with_all_its_parameters_on_one_rank() {
    for preset in presets() {
        let file = plan(json!({"preset": preset.id}), json!({}), 1);
        let resolved = Plan::resolve(&file);
        let plan = resolved.plan.unwrap_or_else(|| panic!("{}: {:?}", preset.id, resolved.findings));
        let held: u64 =
            stage_families(&plan, 0).iter().map(|family| family.count * family.local_elements()).sum();
        let copies = if plan.model.tied_embeddings { 1 } else { 2 };
        let padding = (padded_vocabulary(&plan) - plan.model.vocab_size) * plan.model.hidden_size * copies;
        assert_eq!(held, count(&plan.model).0 + padding, "{}", preset.id);
        let memory = estimate(&file).memory.unwrap();
        let phases = &memory.rank_classes[0].phases;
        assert!(phases.iter().any(|phase| phase.activations_bytes > 0), "{}", preset.id);
    }
}

/// Small versions of models with every kind of mixer.
fn small() -> Vec<(&'static str, Value)> {
    let change = |id: &str, changes: Value| {
        let mut config = preset(id);
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    };
    let layers = |number: u64| json!({"num_hidden_layers": number});
    vec![
        ("qwen3-next-80b-a3b", change("qwen3-next-80b-a3b", layers(8))),
        ("qwen3.5-27b", change("qwen3.5-27b", layers(8))),
        ("gemma-4-26b-a4b", change("gemma-4-26b-a4b", layers(12))),
        ("llama-4-maverick", change("llama-4-maverick", layers(4))),
        ("glm-5", change("glm-5", layers(4))),
        ("deepseek-v4-flash", change("deepseek-v4-flash", layers(6))),
        ("kimi-k3", change("kimi-k3", layers(8))),
        ("gemma-3n-e4b", change("gemma-3n-e4b", json!({"num_hidden_layers": 6, "num_kv_shared_layers": 2}))),
        ("llama-nemotron-super-49b", {
            let mut config = change("llama-nemotron-super-49b", layers(8));
            config["block_configs"] = json!([
                {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 2.625}},
                {"attention": {"no_op": true}, "ffn": {"ffn_mult": 0.5}},
                {"attention": {"replace_with_linear": true}, "ffn": {"ffn_mult": 5.25}},
                {"attention": {"n_heads_in_group": 16}, "ffn": {"no_op": true}},
                {"attention": {"no_op": true}, "ffn": {"no_op": true}},
                {"attention": {"no_op": true}, "ffn": {"replace_with_linear": true}},
                {"attention": {"n_heads_in_group": 8}, "ffn": {"intermediate_size": 1024}},
                {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 5.25}},
            ]);
            config
        }),
        ("falcon_h1", falcon_h1()),
        ("nemotron-3-super", {
            change("nemotron-3-super", json!({"num_hidden_layers": 8, "hybrid_override_pattern": "MEM*EM-E"}))
        }),
    ]
}

fn falcon_h1() -> Value {
    json!({
        "model_type": "falcon_h1", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 2048, "mamba_d_ssm": 1024,
        "mamba_n_heads": 16, "mamba_d_head": 64, "mamba_n_groups": 2, "mamba_d_state": 128
    })
}

#[test]
fn searched_layers_have_sizes_of_their_own() {
    let config = small().into_iter().find(|(name, _)| *name == "llama-nemotron-super-49b").unwrap().1;
    let architecture = import_hf(config.as_object().unwrap()).architecture.unwrap();
    let kinds: Vec<String> =
        (0..8).map(|layer| architecture.kind_in_words(architecture.layer_kind(layer))).collect();
    insta::assert_snapshot!(kinds.join("\n"), @r"
    attention and dense MLP of width 14336
    dense MLP of width 2816
    one matrix and dense MLP
    attention of another shape
    nothing
    one matrix as MLP
    attention and dense MLP of width 1024
    attention and dense MLP
    ");
    // Of a layer with 8 query heads for each kv head: 64 query and 8 kv heads of 128, and a third of the factor twice.
    let first: u64 =
        layer_parameters(&architecture, architecture.layer_kind(0)).iter().map(Parameter::elements).sum();
    assert_eq!(first, 2 * 8192 + 8192 * 128 * (64 + 8 + 8) + 64 * 128 * 8192 + 3 * 8192 * 14_336);
    assert_eq!(layer_parameters(&architecture, architecture.layer_kind(4)), []);
}

#[test]
fn what_blocks_can_not_be_is_said() {
    let refused = |block: Value, part: &str| {
        let mut config = preset("llama-nemotron-super-49b");
        config["block_configs"][3] = block;
        let imported = import_hf(config.as_object().unwrap());
        assert_eq!(imported.architecture, None);
        let finding = &imported.findings[0];
        assert_eq!(finding.field, "model.hf_config.block_configs");
        assert!(finding.message.contains(part), "{}", finding.message);
    };
    let ffn = json!({"ffn_mult": 1.0});
    refused(json!({"ffn": ffn}), "layer 3 of `block_configs`: it has no `attention`");
    refused(json!(7), "it has no `attention`");
    refused(
        json!({"attention": {"n_heads_in_group": 7}, "ffn": ffn}),
        "groups of 7 heads don't divide 64 heads",
    );
    refused(json!({"attention": {}, "ffn": ffn}), "n_heads_in_group");
    refused(json!({"attention": {"no_op": true}, "ffn": {"ffn_mult": -1}}), "ffn_mult");
    refused(json!({"attention": {"no_op": true}, "ffn": {"intermediate_size": 0}}), "intermediate_size");
    refused(json!({"attention": {"mamba": {}}, "ffn": ffn}), "`attention.mamba` can't be planned yet");
    let mut config = preset("llama-nemotron-super-49b");
    config["num_hidden_layers"] = json!(79);
    assert!(import_hf(config.as_object().unwrap()).findings[0].message.contains("80 layers"));
    config["block_configs"] = Value::Null;
    assert!(import_hf(config.as_object().unwrap()).architecture.is_none());
}

#[test]
fn two_mixers_of_a_layer_are_both_counted() {
    let config = falcon_h1();
    let memory = |config: &Value| {
        let file = plan(json!({"hf_config": config}), json!({}), 1);
        let memory = estimate(&file).memory.unwrap();
        memory.rank_classes[0].activations_bytes
    };
    let whole = memory(&config);
    // Half of Mamba's heads keep fewer bytes, and so do half of attention's.
    for (field, half) in [("mamba_n_heads", 8), ("num_attention_heads", 4)] {
        let mut smaller = config.clone();
        smaller[field] = json!(half);
        smaller["mamba_d_ssm"] = json!(64 * smaller["mamba_n_heads"].as_u64().unwrap());
        assert!(memory(&smaller) < whole, "{field}");
    }
    let mut wrong = config.clone();
    wrong["mamba_d_ssm"] = json!(1000);
    assert_eq!(import_hf(wrong.as_object().unwrap()).architecture, None);
    let names: Vec<String> = {
        let architecture = import_hf(config.as_object().unwrap()).architecture.unwrap();
        layer_parameters(&architecture, architecture.layer_kind(0)).into_iter().map(|p| p.name).collect()
    };
    assert!(names.contains(&"layers.{layer}.attention.proj.weight".to_owned()), "{names:?}");
    assert!(names.contains(&"layers.{layer}.mamba.proj.weight".to_owned()), "{names:?}");
}

#[test]
fn stages_and_cuts_hold_every_parameter_once() {
    for (name, config) in small() {
        let whole = count(&import_hf(config.as_object().unwrap()).architecture.unwrap()).0;
        let model = json!({"hf_config": config});
        // Hyper-connections exclude pipelines.
        let pp: u64 = if name == "deepseek-v4-flash" { 1 } else { 2 };
        for layout in
            [json!({"tp": 2, "pp": pp}), json!({"tp": 2, "pp": pp, "ep": 2}), json!({"tp": 1, "pp": pp})]
        {
            let file = plan(model.clone(), layout.clone(), 4);
            let resolved = Plan::resolve(&file);
            let Some(plan) = resolved.plan else {
                // The one that is dense has no experts to spread.
                let dense = ["qwen3.5-27b", "gemma-3n-e4b", "llama-nemotron-super-49b", "falcon_h1"];
                assert!(dense.contains(&name) && layout["ep"] == json!(2), "{name}: {:?}", resolved.findings);
                continue;
            };
            let held: u64 = (0..pp)
                .flat_map(|stage| stage_families(&plan, stage))
                .map(|family| {
                    let experts = if family.parameter.module == Module::Expert { plan.layout.ep } else { 1 };
                    let cut = family.cut.map_or(1, |(group, _)| plan.group_size(group));
                    assert_eq!(
                        family.local_elements() * cut,
                        family.parameter.elements(),
                        "{name}: {} does not divide",
                        family.parameter.name
                    );
                    family.count * experts * family.local_elements() * cut
                })
                .sum();
            let rows = padded_vocabulary(&plan) - plan.model.vocab_size;
            let padding = 2 * rows * plan.model.hidden_size;
            let tied_copy =
                if plan.model.tied_embeddings { plan.model.vocab_size * plan.model.hidden_size } else { 0 };
            assert_eq!(held, whole + padding + tied_copy, "{name} {layout}");
        }
    }
}

#[test]
fn heads_and_groups_that_do_not_divide_are_findings_with_nearest_sizes() {
    let refused = |id: &str, layout: Value, field: &str, near: Value, part: &str| {
        let resolved = Plan::resolve(&plan(json!({"preset": id}), layout, 48));
        let named = resolved.findings.iter().filter(|finding| finding.field == field);
        let finding = named.into_iter().find(|finding| finding.message.contains(part));
        let finding = finding.unwrap_or_else(|| panic!("{id}: {:?}", resolved.findings));
        assert_eq!(json!(finding.nearest), near, "{}", finding.message);
        assert!(resolved.plan.is_none());
    };
    // 64 heads in 8 groups of Mamba; 2 kv heads: tp 16 fits all but the groups.
    refused("nemotron-3-nano", json!({"tp": 16}), "layout.tp", json!([8, 4]), "8 groups of Mamba");
    refused("nemotron-3-nano", json!({"tp": 3}), "layout.tp", json!([2, 4]), "64 heads of Mamba");
    refused("nemotron-3-nano", json!({"tp": 8, "cp": 3}), "layout.cp", json!([2, 1]), "8 heads in 1 groups");
    // 16 key heads of the delta net on tp x cp.
    refused("qwen3-next-80b-a3b", json!({"tp": 8, "cp": 3}), "layout.cp", json!([2, 1]), "16 key heads");
    refused("qwen3-next-80b-a3b", json!({"tp": 3}), "layout.tp", json!([2, 4]), "16 key heads");
    refused(
        "deepseek-v4-flash",
        json!({"tp": 16}),
        "layout.tp",
        json!([8, 4]),
        "8 groups of the attention's output",
    );
}

#[test]
fn the_language_model_of_a_vision_model_is_imported() {
    let mut inner = preset("qwen3.5-35b-a3b");
    inner["model_type"] = json!("qwen3_5_moe_text");
    inner.as_object_mut().unwrap().remove("rms_norm_eps");
    let mut outer = Map::new();
    outer.insert("model_type".to_owned(), json!("qwen3_5_moe"));
    outer.insert("tie_word_embeddings".to_owned(), json!(true));
    outer.insert("vision_config".to_owned(), json!({"depth": 27}));
    outer.insert("text_config".to_owned(), inner);
    let imported = import_hf(&outer);
    let architecture = imported.architecture.unwrap();
    assert!(architecture.tied_embeddings, "the outer config's");
    assert_eq!(count(&architecture).0, 34_660_610_688 - 248_320 * 2048);
    let note =
        imported.findings.iter().find(|finding| finding.field == "model.hf_config.text_config").unwrap();
    assert!(note.message.contains("not counted"), "{}", note.message);
    assert!(imported.assumed.contains(&"model.hf_config.text_config.rms_norm_eps".to_owned()));

    outer["text_config"]["num_experts"] = json!("many");
    let imported = import_hf(&outer);
    assert_eq!(imported.architecture, None);
    assert!(
        imported.findings.iter().any(|finding| finding.field == "model.hf_config.text_config.num_experts")
    );
    // A language model of an architecture that isn't known is refused there, and the outer one doesn't matter.
    outer["text_config"]["model_type"] = json!("nothing_yet");
    assert!(
        import_hf(&outer)
            .findings
            .iter()
            .any(|finding| finding.field == "model.hf_config.text_config.model_type")
    );
}

#[test]
fn patterns_of_nemotron_are_checked() {
    let refused = |changes: Value, field: &str, part: &str| {
        let mut config = preset("nemotron-3-nano");
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        let imported = import_hf(config.as_object().unwrap());
        assert_eq!(imported.architecture, None);
        let field = format!("model.hf_config.{field}");
        let finding = imported.findings.iter().find(|finding| finding.field == field);
        let finding = finding.unwrap_or_else(|| panic!("{:?}", imported.findings));
        assert!(finding.message.contains(part), "{}", finding.message);
    };
    refused(json!({"hybrid_override_pattern": "MEX"}), "hybrid_override_pattern", "`X`");
    refused(json!({"hybrid_override_pattern": 7}), "hybrid_override_pattern", "7");
    // Without one the class has four layers, and says no more than that.
    let mut open = preset("nemotron-3-nano");
    open["hybrid_override_pattern"] = Value::Null;
    let imported = import_hf(open.as_object().unwrap());
    assert_eq!(imported.architecture.map(|model| model.num_layers), Some(4));
    assert!(imported.findings.iter().any(|finding| finding.message.contains("add the pattern")));
    refused(json!({"num_hidden_layers": 51}), "num_hidden_layers", "52 layers");
}

#[test]
fn prediction_modules_may_have_layers_of_their_own() {
    let mut architecture = import_hf(preset("nemotron-3-super").as_object().unwrap()).architecture.unwrap();
    // A layer of attention and one of experts, as `mtp_hybrid_override_pattern` says.
    assert_eq!(architecture.mtp_kinds().len(), 2);
    let without = count(&architecture).0;
    architecture.mtp_layers = 1;
    let hidden = architecture.hidden_size;
    let layers: u64 = architecture
        .mtp_kinds()
        .into_iter()
        .flat_map(|kind| layer_parameters(&architecture, kind))
        .map(|parameter| parameter.per_layer * parameter.elements())
        .sum();
    assert_eq!(count(&architecture).0 - without, layers + 2 * hidden * hidden + 3 * hidden);
    let mut names: Vec<String> = mtp_parameters(&architecture).into_iter().map(|p| p.name).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "names are different");
}

#[test]
fn kimi_k3_is_what_its_checkpoint_holds() {
    // No released transformers builds it. Elements of the published safetensors (1,560,860,324,864 bytes: routed
    // experts of 4 bits with scales, the rest bf16 and fp32), less vision tower and projector.
    let stored = 57_179_884_544 + 11_122_432 + 2_722_740_830_208 - 802_428_928 / 2 - 92_289_024 / 2;
    let imported = import_hf(preset("kimi-k3").as_object().unwrap());
    let architecture = imported.architecture.unwrap();
    // Stored besides: the router's balancing biases, and decays of 128 instead of 96 heads.
    let (biases, padding) = (92 * 896, 69 * (128 - 96));
    assert_eq!(count(&architecture).0 + biases + padding, stored);
    let layer = layer_parameters(&architecture, LayerKind::new(Some(1), Mlp::Moe));
    let expert: u64 = layer.iter().filter(|p| p.module == Module::Expert).map(Parameter::elements).sum();
    assert_eq!(expert, 33_030_144);
    let full = (0..93).filter(|&layer| architecture.layer_kind(layer).mixer == Some(0)).count();
    assert_eq!(full, 24);
}

#[test]
fn kv_heads_of_each_kind_of_layer_are_cut_by_themselves() {
    // Window layers have 8 kv heads and whole groups on tp 4; full ones have 2, and the groups are cut through.
    let file = plan(json!({"preset": "gemma-4-26b-a4b"}), json!({"tp": 4}), 4);
    let resolved = Plan::resolve(&file);
    let plan = resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings));
    let shapes: Vec<Vec<u64>> = stage_families(&plan, 0)
        .into_iter()
        .filter(|family| family.parameter.name.ends_with("attention.qkv.weight"))
        .inspect(|family| assert_eq!(family.cut, Some((GroupKind::Tp, 0))))
        .map(|family| family.local_shape)
        .collect();
    assert_eq!(shapes, [vec![2, 4, 256, 2816], vec![2 * 9 * 512 / 4, 2816]]);
    let mixers = plan.model.mixers();
    assert_eq!(mixers.len(), 2);
    assert!(matches!(
        mixers[1],
        MixerRef::Attention(Attention::Gqa { values_are_keys: true, kv_heads: 2, head_dim: 512, .. })
    ));
}

#[test]
fn kinds_of_layers_in_words() {
    let of = |id: &str| {
        let architecture = import_hf(preset(id).as_object().unwrap()).architecture.unwrap();
        let kinds = architecture.layer_kinds();
        kinds
            .iter()
            .map(|(kind, layers)| format!("{layers} {}", architecture.kind_in_words(*kind)))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("qwen3-next-80b-a3b"), ["36 gated delta net and experts", "12 attention and experts"]);
    assert_eq!(of("nemotron-3-nano"), ["23 Mamba-2", "23 experts", "6 attention"]);
    assert_eq!(of("deepseek-v3"), ["3 latent attention and dense MLP", "58 latent attention and experts"]);
    assert_eq!(of("llama-3-8b"), ["32 attention and dense MLP"]);
}
