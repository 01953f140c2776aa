use serde_json::json;

use super::*;

fn named(name: &str) -> Recorded {
    recorded().into_iter().find(|recorded| recorded.name == name).unwrap_or_else(|| panic!("no {name}"))
}

/// Where the elements of every parameter are, but for the names of tensors.
fn places(map: &WeightMap) -> Vec<(&str, u64, &[u64])> {
    let parts = map.parameters.iter().flat_map(|mapped| mapped.parts.iter().map(move |part| (mapped, part)));
    parts.map(|(mapped, part)| (mapped.name.as_str(), part.base, part.strides.as_slice())).collect()
}

fn refusal(recorded: &Recorded, present: &Present) -> String {
    hf_tensors(&recorded.model(), &recorded.config, Some(present)).unwrap_err().message
}

#[test]
fn tensors_of_models_of_several_modes_are_found_one_level_down() {
    let text = named("Llama 3");
    let (model, present) = (text.model(), text.present());
    let plain = hf_tensors(&model, &text.config, Some(&present)).unwrap();
    for (base, outer) in
        [("model.language_model.", ""), ("language_model.model.", "language_model."), ("", "")]
    {
        let renamed = |name: &String| match name.strip_prefix("model.") {
            Some(rest) => format!("{base}{rest}"),
            None => format!("{outer}{name}"),
        };
        let mut moved: Present = present.iter().map(|(name, shape)| (renamed(name), shape.clone())).collect();
        moved.insert("vision_tower.patch_embed.weight".to_owned(), vec![3, 3]);
        let map = hf_tensors(&model, &text.config, Some(&moved)).unwrap();
        assert_eq!(places(&map), places(&plain));
        assert_eq!(map.unused, Vec::<String>::new());
    }
    // GPT-2 as its publisher keeps it.
    let gpt2 = named("GPT-2");
    let bare =
        |(name, shape): (String, Vec<u64>)| (name.trim_start_matches("transformer.").to_owned(), shape);
    let mut present: Present = gpt2.present().into_iter().map(bare).collect();
    present.insert("h.0.attn.bias".to_owned(), vec![1, 1, 12, 12]);
    let map = hf_tensors(&gpt2.model(), &gpt2.config, Some(&present)).unwrap();
    assert_eq!(map.unused, Vec::<String>::new());
    // A text part inside a config of several modes.
    let inside = json!({"model_type": "gemma3", "text_config": named("Gemma 3").config});
    let map = hf_tensors(&named("Gemma 3").model(), inside.as_object().unwrap(), None).unwrap();
    assert!(map.parameters.iter().any(|mapped| mapped.parts[0].add == 1.0));
}

#[test]
fn experts_in_one_tensor_are_the_same_as_experts_by_themselves() {
    let mixtral = named("Mixtral");
    let mut present = mixtral.present();
    present.retain(|name, _| !name.contains("block_sparse_moe"));
    for layer in 0..2 {
        let name = |rest: &str| format!("model.layers.{layer}.mlp.{rest}");
        present.insert(name("gate.weight"), vec![4, 32]);
        present.insert(name("experts.gate_up_proj"), vec![4, 40, 32]);
        present.insert(name("experts.down_proj"), vec![4, 32, 20]);
    }
    let map = hf_tensors(&mixtral.model(), &mixtral.config, Some(&present)).unwrap();
    assert_eq!(map.unused, Vec::<String>::new());
    let expert =
        map.parameters.iter().find(|mapped| mapped.name == "layers.1.moe.experts.2.fc1.weight").unwrap();
    let [part] = expert.parts.as_slice() else { panic!("{expert:?}") };
    assert_eq!((part.base, part.strides.as_slice()), (2 * 40 * 32, &[20 * 32, 32, 1][..]));
}

#[test]
fn what_is_missing_or_of_another_shape_or_unknown_is_named() {
    let llama = named("Llama 3");
    let mut present = llama.present();
    let name = "model.layers.1.self_attn.k_proj.weight";
    present.insert(name.to_owned(), vec![16, 31]);
    assert_eq!(
        refusal(&llama, &present),
        format!("tensor `{name}` is of shape [16, 31], and [16, 32] is planned")
    );
    present.remove(name);
    let said = refusal(&llama, &present);
    assert_eq!(
        said,
        format!(
            "tensor `{name}`, which `layers.1.attention.qkv.weight` is read from, is in none of the model's files"
        )
    );
    let mut present = llama.present();
    present.insert("model.layers.0.self_attn.q_norm.weight".to_owned(), vec![8]);
    let map = hf_tensors(&llama.model(), &llama.config, Some(&present)).unwrap();
    assert_eq!(map.unused, ["model.layers.0.self_attn.q_norm.weight"]);
    present.insert(format!("{name}_scale"), vec![1]);
    assert!(
        refusal(&llama, &present).contains("with factors in `model.layers.1.self_attn.k_proj.weight_scale`")
    );
    // A parameter that the type has no name for, and a type that is unknown.
    let mut model = llama.model();
    model.embedding_norm = true;
    let said = hf_tensors(&model, &llama.config, None).unwrap_err().message;
    assert!(
        said.starts_with("`embedding.norm.weight` has no tensor that is known in files of `llama`"),
        "{said}"
    );
    for config in [json!({"model_type": "jamba"}), json!({"model_type": ":usual"}), json!({})] {
        let said = hf_tensors(&llama.model(), config.as_object().unwrap(), None).unwrap_err().message;
        assert!(said.contains("are not mapped") || said.contains("no tensor that is known"), "{said}");
    }
}

#[test]
fn each_tensor_is_missed_by_its_name_and_each_other_is_said() {
    for (number, recorded) in recorded().iter().enumerate() {
        let (model, present) = (recorded.model(), recorded.present());
        let before = hf_tensors(&model, &recorded.config, Some(&present)).unwrap();
        for name in present.keys().skip(number % 5).step_by(5).filter(|name| !before.unused.contains(*name)) {
            let mut fewer = present.clone();
            let shape = fewer.remove(name).unwrap();
            fewer.insert(format!("{name}.strange"), shape);
            match hf_tensors(&model, &recorded.config, Some(&fewer)) {
                Err(finding) => {
                    assert!(finding.message.contains(&format!("`{name}`")), "{}", finding.message)
                }
                // What no parameter is read from.
                Ok(_) => assert!([".beta", ".eps"].iter().any(|end| name.ends_with(end)), "{name}"),
            }
        }
        let mut more = present.clone();
        more.insert("model.layers.1.strange.weight".to_owned(), vec![1]);
        let map = hf_tensors(&model, &recorded.config, Some(&more)).unwrap();
        assert!(map.unused.contains(&"model.layers.1.strange.weight".to_owned()), "{}", recorded.name);
    }
}

#[test]
fn absurd_sizes_are_refused() {
    let ernie = named("ERNIE 4.5");
    let mut model = ernie.model();
    if let crate::model::Attention::Gqa { rotary_dim, .. } = &mut model.attention {
        *rotary_dim = Some(u64::MAX);
    }
    assert!(hf_tensors(&model, &ernie.config, None).unwrap_err().message.contains("attention.qkv.weight"));
    model.vocab_size = u64::MAX;
    assert!(hf_tensors(&model, &ernie.config, None).unwrap_err().message.contains("too large"));
    let mixtral = named("Mixtral");
    let mut model = mixtral.model();
    model.moe.as_mut().unwrap().experts = 1 << 40;
    assert!(hf_tensors(&model, &mixtral.config, None).unwrap_err().message.contains("too large"));
}

#[test]
fn eight_bits_have_the_factors_of_their_blocks() {
    let mut deepseek = named("DeepSeek-V3");
    let quantised = json!({"quant_method": "fp8", "weight_block_size": [16, 8]});
    deepseek.config.insert("quantization_config".to_owned(), quantised);
    let mut present = deepseek.present();
    let name = "model.layers.1.mlp.experts.3.up_proj.weight";
    present.insert(format!("{name}_scale_inv"), vec![1, 4]);
    let map = hf_tensors(&deepseek.model(), &deepseek.config, Some(&present)).unwrap();
    let parts: Vec<&BoxPart> = map.parameters.iter().flat_map(|mapped| &mapped.parts).collect();
    let storage = Storage::Fp8Blocks { scales: format!("{name}_scale_inv"), block: [16, 8] };
    assert_eq!(parts.iter().find(|part| part.tensor == name).unwrap().storage, storage);
    assert_eq!(parts.iter().filter(|part| part.storage != Storage::Plain).count(), 1);
    assert_eq!(map.unused, Vec::<String>::new());
    present.insert(format!("{name}_scale_inv"), vec![2, 4]);
    assert!(refusal(&deepseek, &present).ends_with("is of shape [2, 4], and [1, 4] is planned"));
}

#[test]
fn four_bits_keep_experts_by_rows() {
    let mut oss = named("gpt-oss");
    oss.config.insert("intermediate_size".to_owned(), json!(64));
    let wide = |name: &str| {
        let last = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        last(&["gate_up_proj", "down_proj", "gate_up_proj_bias"])
    };
    let mut present = oss.present();
    present.retain(|name, _| !wide(name));
    for layer in 0..2 {
        for (name, rows, columns) in [("gate_up_proj", 128, 32), ("down_proj", 32, 64)] {
            let name = format!("model.layers.{layer}.mlp.experts.{name}");
            present.insert(format!("{name}_blocks"), vec![4, rows, columns / 32, 16]);
            present.insert(format!("{name}_scales"), vec![4, rows, columns / 32]);
            present.insert(format!("{name}_bias"), vec![4, rows]);
        }
    }
    let map = hf_tensors(&oss.model(), &oss.config, Some(&present)).unwrap();
    assert_eq!(map.unused, Vec::<String>::new());
    let part =
        |name: &str| map.parameters.iter().find(|mapped| mapped.name == name).unwrap().parts[0].clone();
    let first = part("layers.1.moe.experts.3.fc1.weight");
    assert_eq!(first.hf_shape, [4, 128, 32]);
    // Gates and up projections in turn, each row's inputs next to each other.
    assert_eq!((first.base, first.strides), (3 * 128 * 32, vec![32, 64, 1]));
    let scales = "model.layers.1.mlp.experts.gate_up_proj_scales".to_owned();
    assert_eq!(first.storage, Storage::Mxfp4 { scales });
    let second = part("layers.0.moe.experts.1.fc2.weight");
    assert_eq!((second.base, second.strides), (32 * 64, vec![64, 1]));
}

#[test]
fn modules_of_prediction_are_layers_behind_the_last() {
    let deepseek = named("DeepSeek-V3");
    let mut model = deepseek.model();
    model.mtp_layers = 1;
    let map = hf_tensors(&model, &deepseek.config, None).unwrap();
    let tensor = |name: &str| {
        let mapped =
            map.parameters.iter().find(|mapped| mapped.name == name).unwrap_or_else(|| panic!("no {name}"));
        mapped.parts[0].tensor.clone()
    };
    for (ours, theirs) in [
        ("mtp.0.embedding_norm.weight", "enorm.weight"),
        ("mtp.0.hidden_norm.weight", "hnorm.weight"),
        ("mtp.0.proj.weight", "eh_proj.weight"),
        ("mtp.0.final_norm.weight", "shared_head.norm.weight"),
        ("mtp.0.attention.kv_up.weight", "self_attn.kv_b_proj.weight"),
        ("mtp.0.moe.experts.1.fc2.weight", "mlp.experts.1.down_proj.weight"),
    ] {
        assert_eq!(tensor(ours), format!("model.layers.2.{theirs}"));
    }
    let bias = ("mtp.0.moe.router".to_owned(), "model.layers.2.mlp.gate.e_score_correction_bias".to_owned());
    assert_eq!(map.router_biases.last(), Some(&bias));
    // Copies of embedding and output layer beside such a module, and modules that are not planned, are not read.
    let mut present: Present = map.tensors().map(|(name, shape)| (name.to_owned(), shape.to_vec())).collect();
    present.extend(map.router_biases.iter().map(|(_, tensor)| (tensor.clone(), vec![4])));
    present.insert("model.layers.2.embed_tokens.weight".to_owned(), vec![16, 32]);
    for model in [&model, &deepseek.model()] {
        let map = hf_tensors(model, &deepseek.config, Some(&present)).unwrap();
        assert_eq!(map.unused, Vec::<String>::new());
    }
    let mut llama = named("Llama 3").model();
    llama.mtp_layers = 1;
    assert!(hf_tensors(&llama, &named("Llama 3").config, None).unwrap_err().message.starts_with("`mtp.0."));
}

#[test]
fn names_are_those_of_shards() {
    for recorded in &recorded() {
        let file = json!({
            "version": 1, "model": {"hf_config": recorded.config}, "layout": {"tp": 1},
            "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 1},
        });
        let resolved = crate::plan::Plan::resolve(&crate::parse::parse_plan(&file.to_string()).unwrap());
        let plan = resolved.plan.unwrap_or_else(|| panic!("{}: {:?}", recorded.name, resolved.findings));
        let shards: BTreeMap<String, Vec<u64>> =
            plan.rank_shards(0).params.into_iter().map(|shard| (shard.name, shard.shape)).collect();
        let map = hf_tensors(&recorded.model(), &recorded.config, None).unwrap();
        assert_eq!(shards.len(), map.parameters.len(), "{}", recorded.name);
        for mapped in &map.parameters {
            let shape = &shards[&mapped.name];
            assert_eq!(shape[1..], mapped.shape[1..], "{}", mapped.name);
            assert!(shape[0] >= mapped.shape[0]);
        }
    }
}

#[test]
fn every_catalogue_model_is_mapped_or_refused_by_name() {
    let mut mapped = 0;
    for preset in crate::model::presets() {
        let Some(config) = &preset.hf_config else { continue };
        match hf_tensors(&model(config), config, None) {
            Ok(map) => {
                mapped += 1;
                let planned: u64 = map.parameters.iter().map(|mapped| elements(&mapped.shape)).sum();
                let kept: u64 = map.tensors().map(|(_, shape)| elements(shape)).sum();
                assert_eq!(planned, kept, "{}", preset.id);
            }
            Err(finding) => assert!(finding.message.contains('`'), "{}: {}", preset.id, finding.message),
        }
    }
    assert!(mapped >= 61, "{mapped}");
}
