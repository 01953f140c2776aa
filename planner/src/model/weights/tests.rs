use serde_json::{Map, Value, json};

use super::*;
use crate::model::import_hf;

fn config() -> Map<String, Value> {
    let config = json!({
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 1000,
        "num_attention_heads": 4, "num_key_value_heads": 2, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
    });
    config.as_object().unwrap().clone()
}

/// Tensors of that model, as a header has them.
fn tensors() -> Vec<(String, Vec<u64>)> {
    let mut found = vec![
        ("model.embed_tokens.weight".to_owned(), vec![1000, 64]),
        ("model.norm.weight".to_owned(), vec![64]),
        ("lm_head.weight".to_owned(), vec![1000, 64]),
    ];
    for layer in 0..2 {
        for (name, shape) in [
            ("self_attn.q_proj.weight", vec![64, 64]),
            ("self_attn.k_proj.weight", vec![32, 64]),
            ("self_attn.v_proj.weight", vec![32, 64]),
            ("self_attn.o_proj.weight", vec![64, 64]),
            ("mlp.gate_proj.weight", vec![128, 64]),
            ("mlp.up_proj.weight", vec![128, 64]),
            ("mlp.down_proj.weight", vec![64, 128]),
            ("input_layernorm.weight", vec![64]),
            ("post_attention_layernorm.weight", vec![64]),
        ] {
            found.push((format!("model.layers.{layer}.{name}"), shape));
        }
    }
    found
}

fn header(tensors: &[(String, Vec<u64>)]) -> Vec<u8> {
    let mut at = 0;
    let mut header = Map::new();
    for (name, shape) in tensors {
        let bytes = 2 * shape.iter().product::<u64>();
        header
            .insert(name.clone(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [at, at + bytes]}));
        at += bytes;
    }
    serde_json::to_vec(&header).unwrap()
}

/// What is said of these tensors beside that model's config.json.
fn check(tensors: &[(String, Vec<u64>)], expected: &str) {
    let (config, weights) = (config(), read_header(&header(tensors), None).unwrap());
    let model = import_hf(&config).architecture.unwrap();
    let findings = compare_weights(&config, &model, &weights);
    let said: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
    assert!(said.iter().any(|message| message.contains(expected)), "{said:#?}");
}

#[test]
fn tensors_of_the_model_are_those_that_are_planned() {
    check(&tensors(), "21 tensors are those that are planned: 202048 parameters");
}

#[test]
fn the_tensor_that_does_not_match_is_named() {
    let mut more = tensors();
    more.push(("model.layers.1.self_attn.q_norm.weight".to_owned(), vec![16]));
    check(&more, "layer 1 has 37008 parameters in the files, and 36992 are planned");
    check(&more, "`model.layers.1.self_attn.q_norm.weight` is as large as that");
    let mut wider = tensors();
    wider[3].1 = vec![96, 64];
    check(&wider, "layer 0 has");
    let mut deeper = tensors();
    deeper.push(("model.layers.2.input_layernorm.weight".to_owned(), vec![64]));
    check(&deeper, "`model.layers.2.input_layernorm.weight` is of a layer that is not planned");
    check(&tensors()[..12], "no tensor is of layer 1");
    check(
        &tensors().into_iter().filter(|one| one.0 != "lm_head.weight").collect::<Vec<_>>(),
        "no tensor is an output layer",
    );
    let mut seeing = tensors();
    seeing.push(("visual.patch_embed.proj.weight".to_owned(), vec![1 << 20, 40]));
    check(&seeing, "what reads images or sound: 1 tensors, 0.04 B parameters; not planned");
}

#[test]
fn an_index_checks_the_sum_of_bytes() {
    let config = config();
    let model = import_hf(&config).architecture.unwrap();
    let check = |bytes: u64, expected: &str| {
        let map: Map<String, Value> =
            tensors().into_iter().map(|(name, _)| (name, json!("model.safetensors"))).collect();
        let index = json!({"metadata": {"total_size": bytes}, "weight_map": map});
        let weights = read_index(index.as_object().unwrap()).unwrap();
        let findings = compare_weights(&config, &model, &weights);
        assert!(findings.iter().any(|finding| finding.message.contains(expected)), "{findings:#?}");
    };
    check(404_096, "21 tensors are those that are planned");
    check(807_680, "the index says 807680 bytes, 403840 parameters of 2 bytes, and 202048 are planned");
}

#[test]
fn what_lies_about_sizes_is_one_sentence() {
    let check = |text: &str, behind: Option<u64>, expected: &str| {
        let message = read_header(text.as_bytes(), behind).unwrap_err().message;
        assert!(message.contains(expected), "{text}: {message}");
    };
    check("[]", None, "is no JSON");
    check(r#"{"a": {"dtype": "BF16", "shape": [4, 4], "data_offsets": [0, 16]}}"#, None, "must agree");
    check(r#"{"a": {"dtype": "BF16", "shape": [4, 4], "data_offsets": [0, 32]}}"#, Some(16), "is cut short");
    check(r#"{"a": {"dtype": "XX", "shape": [4], "data_offsets": [0, 4]}}"#, None, "must agree");
    let huge =
        format!(r#"{{"a": {{"dtype": "F32", "shape": [{0}, {0}], "data_offsets": [0, 4]}}}}"#, u64::MAX);
    check(&huge, None, "must agree");
    assert!(header_bytes(u64::MAX.to_le_bytes()).unwrap_err().message.contains("another kind"));
    // Up to what the format allows, and no further.
    assert_eq!(header_bytes(100_000_000_u64.to_le_bytes()).unwrap(), 100_000_000);
    assert!(header_bytes(100_000_001_u64.to_le_bytes()).is_err());
    let index = json!({"metadata": {}, "weights": {}});
    assert!(read_index(index.as_object().unwrap()).unwrap_err().message.contains("weight_map"));
}

#[test]
fn the_beginning_of_a_file_is_enough() {
    let text = |tensors: &[(String, Vec<u64>)]| {
        let header = header(tensors);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.extend([0xff, 0x00, 0x7b]);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let check = |text: &str, expected: &str| {
        let findings = compare_text(&config(), text);
        assert!(findings.iter().any(|finding| finding.message.contains(expected)), "{findings:#?}");
    };
    let whole = text(&tensors());
    check(&whole, "21 tensors are those that are planned");
    check(&whole[..200], "does not end in the");
    check("PK", "neither a safetensors file nor the index");
    check(r#"{"weight_map": {"model.layers.7.x": "a"}}"#, "is of a layer that is not planned");
}
