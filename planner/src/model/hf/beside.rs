//! What a config.json has beside a decoder: encoders of images and sound, quantised weights, modules of prediction; and
//! files that are no config.json at all. Each is said in one sentence.

use serde_json::{Map, Value};

use super::reader::Reader;
use crate::finding::Finding;

/// Configs of encoders inside that of a model of several modes, and what they read.
const ENCODERS: &[(&str, &str)] = &[
    ("vision_config", "vision encoder"),
    ("vit_config", "vision encoder"),
    ("audio_config", "audio encoder"),
    ("speech_config", "speech encoder"),
    ("thinker_config", "encoders inside `thinker_config`"),
];

/// Encoders of a model of several modes, each with its parameters as its sizes have them, in words.
pub(super) fn encoders(config: &Map<String, Value>) -> String {
    let found = ENCODERS.iter().filter_map(|(key, name)| {
        let inner = config.get(*key)?.as_object()?;
        Some(match parameters(inner) {
            Some(parameters) => format!("{name}: about {:.2} B parameters", parameters / 1e9),
            None => format!("{name}: of a size that its config does not say"),
        })
    });
    found.collect::<Vec<_>>().join("; ")
}

/// Says, at a key of a model of several modes, that its encoders are not planned.
pub(super) fn tell_encoders(reader: &mut Reader, key: &str, encoders: &str) {
    let encoders = match encoders {
        "" => String::new(),
        encoders => format!(": {encoders}, not planned"),
    };
    let message = format!(
        "this is a model of several modes: its language model is planned; what reads images or sound is not counted{encoders}"
    );
    let finding = Finding::info(&reader.field(key), Value::Null, message);
    reader.findings.push(finding.rule("text part of a config.json"));
}

/// Leaves encoders out that stand beside the sizes of the language model, and says so.
pub(super) fn encoders_apart(reader: &mut Reader) {
    let told = encoders(&reader.config);
    let keys = ENCODERS.iter().map(|(key, _)| *key).filter(|key| *key != "thinker_config");
    let found: Vec<&str> = keys.filter(|key| reader.config.get(*key).is_some_and(Value::is_object)).collect();
    if let Some(first) = found.first() {
        tell_encoders(reader, first, &told);
        for key in &found {
            reader.config.remove(*key);
        }
    }
}

/// Parameters of a transformer that encodes, by the names that most give its sizes: four matrices of attention and two or
/// three of an MLP in each layer.
fn parameters(config: &Map<String, Value>) -> Option<f64> {
    let number = |names: &[&str]| names.iter().find_map(|name| config.get(*name).and_then(Value::as_f64));
    let hidden = number(&["embed_dim", "hidden_size", "width", "d_model"])?;
    let layers = number(&["num_hidden_layers", "depth", "layers", "encoder_layers", "vt_num_hidden_layers"])?;
    let ratio = number(&["mlp_ratio"]).unwrap_or(4.0);
    let width = number(&["intermediate_size", "encoder_ffn_dim"]).unwrap_or(ratio * hidden);
    let gated = ["hidden_act", "hidden_activation"]
        .iter()
        .any(|name| config.get(*name).and_then(Value::as_str) == Some("silu"));
    let matrices = if gated { 3.0 } else { 2.0 };
    let all = layers * hidden * (4.0 * hidden + matrices * width);
    (all.is_finite() && all > 0.0).then_some(all)
}

/// Says what training does with weights that the checkpoint has in few bits.
pub(super) fn quantised(reader: &mut Reader) {
    let Some(Value::Object(settings)) = reader.present("quantization_config").cloned() else { return };
    let named = ["quant_method", "quant_algo", "quantization_method"]
        .iter()
        .find_map(|name| settings.get(*name).and_then(Value::as_str))
        .unwrap_or("a method without a name");
    let message = format!(
        "this checkpoint's weights are quantised ({}): training keeps them in training.dtype, or in what training.dtype's recipe says, so their bytes here are not those of the files; convert them before training begins",
        crate::finding::clip(named)
    );
    reader.note("quantization_config", "quantised checkpoints", message);
}

/// Says that modules of multi-token prediction are planned only where the plan says how many.
pub(super) fn prediction(reader: &mut Reader) {
    for name in ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "num_mtp_modules"] {
        if !reader.filled.contains(&name)
            && reader.present(name).and_then(Value::as_u64).is_some_and(|layers| layers > 0)
        {
            reader.note(
                name,
                "model-card totals are without MTP modules",
                "config.json names multi-token-prediction modules; they are planned only when training.mtp_layers says how many".to_owned(),
            );
        }
    }
}

/// What a file without a `model_type` is, and what to give in its place.
pub(super) fn no_config(config: &Map<String, Value>) -> String {
    let has = |name: &str| config.contains_key(name);
    let text = |name: &str| config.get(name).and_then(Value::as_str).map(crate::finding::clip);
    if has("peft_type") || has("base_model_name_or_path") {
        let base = text("base_model_name_or_path").map_or(String::new(), |base| format!(" ({base})"));
        return format!(
            "this is the config of an adapter, which is trained beside a model that stays as it is and can't be planned; give the config.json of its base model{base}"
        );
    }
    if has("weight_map") {
        return "this is an index of safetensors files; give the model's config.json first, and the index beside it".to_owned();
    }
    if has("added_tokens") || has("added_tokens_decoder") || has("pre_tokenizer") || has("tokenizer_class") {
        return "this is a tokenizer's file; give the model's config.json, which lies beside it".to_owned();
    }
    if has("transformers_version") && !has("hidden_size") && !has("architectures") {
        return "this is a config of generation or of a processor; give the model's config.json, which lies beside it".to_owned();
    }
    if has("data_offsets") || config.values().any(|value| value.get("data_offsets").is_some()) {
        return "this is the header of a safetensors file; give the model's config.json first, and the file beside it".to_owned();
    }
    "this JSON has no `model_type`, so it is not a Hugging Face config.json of a language model; paste the whole file".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::model::import_hf;

    #[test]
    fn an_encoder_beside_the_sizes_of_the_language_model_is_said() {
        let encoder = json!({"depth": 32, "hidden_size": 1280, "intermediate_size": 3420});
        let sizes = json!({"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
            "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152_064});
        for (model_type, tied) in [("qwen2_5_vl", Some(false)), ("nobodys_own", None)] {
            let mut config = sizes.as_object().unwrap().clone();
            config.insert("model_type".to_owned(), model_type.into());
            config.insert("vision_config".to_owned(), encoder.clone());
            if let Some(tied) = tied {
                config.insert("tie_word_embeddings".to_owned(), tied.into());
            }
            let found = import_hf(&config);
            let model = found.architecture.unwrap();
            assert!(!model.parts.contains_key("vision_config"), "{:?}", model.parts);
            let said = |text: &str| found.findings.iter().any(|finding| finding.message.contains(text));
            assert!(said("vision encoder: about 0."), "{:?}", found.findings);
            // Of a class that nobody here knows transformers may tie what its file leaves out.
            assert_eq!(said("`tie_word_embeddings` is not in it"), tied.is_none(), "{:?}", found.findings);
        }
    }
}
