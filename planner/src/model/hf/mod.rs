//! Import of a Hugging Face config.json.
//!
//! Every field that is read, and every one that had to be assumed, is reported. A field of the wrong type, a missing
//! one or an unknown architecture is a finding, never a panic.

mod beside;
mod common;
mod computed;
mod dense;
mod expression;
mod families;
mod gemma;
mod hybrid;
mod latent;
mod mamba;
mod mixture;
mod parts;
mod reader;
mod relatives;
mod rope;
mod searched;
mod spans;

use serde_json::{Map, Value};

use super::{Architecture, Mixer};
use crate::finding::{Finding, has_error, nearest_names};
pub(super) use parts::MOST_PARTS;
use reader::{Reader, short, short_value};

/// What came out of a config.json.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The architecture; none when a finding is an error.
    pub architecture: Option<Architecture>,
    /// What is wrong or worth knowing.
    pub findings: Vec<Finding>,
    /// Fields that were absent and took Hugging Face's default.
    pub assumed: Vec<String>,
}

type Read = fn(&mut Reader, &str) -> Architecture;

/// `model_type`s that can be imported, sorted, each with what reads it and the kind by which that knows it. A model
/// type of a text part (`..._text`) is read as the same without the ending.
const KNOWN: &[(&str, Read, &str)] = &[
    ("arcee", relatives::relative, "arcee"),
    ("bamba", mamba::bamba, "bamba"),
    ("deepseek_v2", latent::deepseek, "deepseek_v2"),
    ("deepseek_v3", latent::deepseek, "deepseek_v3"),
    ("deepseek_v32", latent::deepseek, "deepseek_v32"),
    ("deepseek_v4", latent::deepseek_v4, "deepseek_v4"),
    ("dots1", mixture::deepseek_experts, "dots1"),
    ("ernie4_5", relatives::relative, "ernie4_5"),
    ("exaone4", relatives::relative, "exaone4"),
    ("falcon_h1", mamba::falcon_h1, "falcon_h1"),
    ("gemma", gemma::gemma, "gemma"),
    ("gemma2", gemma::gemma, "gemma2"),
    ("gemma3", gemma::gemma, "gemma3"),
    ("gemma3n", gemma::gemma3n, "gemma3n"),
    ("gemma4", gemma::gemma4, "gemma4"),
    ("gemma4_unified", gemma::gemma4, "gemma4_unified"),
    ("glm", relatives::relative, "glm"),
    ("glm4", relatives::relative, "glm4"),
    ("glm4_moe", mixture::deepseek_experts, "glm4_moe"),
    ("glm4_moe_lite", latent::deepseek, "glm4_moe_lite"),
    ("glm4v_moe", mixture::deepseek_experts, "glm4_moe"),
    ("glm_moe_dsa", latent::deepseek, "glm_moe_dsa"),
    ("gpt2", dense::gpt2, "gpt2"),
    ("gpt_neox", relatives::relative, "gpt_neox"),
    ("gpt_oss", mixture::local_experts, "gpt_oss"),
    ("granite", dense::plain, "llama"),
    ("granitemoe", mamba::granite_experts, "granitemoe"),
    ("granitemoehybrid", mamba::granite_hybrid, "granitemoehybrid"),
    ("granitemoeshared", mamba::granite_experts, "granitemoeshared"),
    ("hunyuan_v1_dense", relatives::relative, "hunyuan_v1_dense"),
    ("kimi_k2", latent::deepseek, "deepseek_v3"),
    ("kimi_k3", hybrid::kimi_linear, "kimi_linear"),
    ("kimi_linear", hybrid::kimi_linear, "kimi_linear"),
    ("llama", dense::plain, "llama"),
    ("llama4", mixture::llama4, "llama4"),
    ("minimax_m2", mixture::local_experts, "minimax_m2"),
    ("minimax_m3", mixture::minimax_m3, "minimax_m3"),
    ("minimax_m3_vl", mixture::minimax_m3, "minimax_m3"),
    ("ministral", dense::plain, "mistral"),
    ("ministral3", dense::plain, "mistral"),
    ("mistral", dense::plain, "mistral"),
    ("mixtral", mixture::local_experts, "mixtral"),
    ("nemotron", dense::nemotron, "nemotron"),
    ("nemotron-nas", searched::nemotron_nas, "nemotron-nas"),
    ("nemotron_h", hybrid::nemotron_h, "nemotron_h"),
    ("olmo2", relatives::relative, "olmo2"),
    ("olmo3", relatives::relative, "olmo3"),
    ("olmoe", relatives::relative, "olmoe"),
    ("phi3", dense::plain, "phi3"),
    ("qwen2", dense::plain, "qwen2"),
    ("qwen2_5_vl", dense::plain, "qwen2"),
    ("qwen2_moe", mixture::qwen, "qwen2_moe"),
    ("qwen2_vl", dense::plain, "qwen2"),
    ("qwen3", dense::plain, "qwen3"),
    ("qwen3_5", hybrid::qwen_next, "qwen3_5"),
    ("qwen3_5_moe", hybrid::qwen_next, "qwen3_5_moe"),
    ("qwen3_moe", mixture::qwen, "qwen3_moe"),
    ("qwen3_next", hybrid::qwen_next, "qwen3_next"),
    ("qwen3_vl", dense::plain, "qwen3"),
    ("qwen3_vl_moe", mixture::qwen, "qwen3_moe"),
    ("seed_oss", relatives::relative, "seed_oss"),
    ("smollm3", dense::plain, "llama"),
    ("starcoder2", relatives::relative, "starcoder2"),
];

/// The `model_type`s that `import_hf` knows, sorted.
pub fn supported_model_types() -> &'static [&'static str] {
    static NAMES: std::sync::OnceLock<Vec<&'static str>> = std::sync::OnceLock::new();
    NAMES.get_or_init(|| {
        let table = families::names().filter(|name| families::refused(name).is_none());
        let mut names: Vec<&str> = KNOWN.iter().map(|(name, ..)| *name).chain(table).collect();
        crate::order::sort(&mut names);
        names
    })
}

/// Where vision-language models keep the config of their language model.
pub(super) const TEXT_CONFIGS: &[&str] = &["text_config", "llm_config", "language_config"];

/// The architecture of a Hugging Face config.json.
pub fn import_hf(config: &Map<String, Value>) -> Imported {
    let mut reader = Reader::new(config.clone());
    // A text part alone is not the model where images or sound enter its layers.
    let whole = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    if families::refused(whole).is_none() {
        match TEXT_CONFIGS.iter().find(|name| config.get(**name).is_some_and(Value::is_object)) {
            Some(name) => reader = text_part(reader, name),
            None => beside::encoders_apart(&mut reader),
        }
    }
    let architecture = read(&mut reader);
    let Reader { findings, assumed, .. } = reader;
    let architecture = architecture.filter(|_| !has_error(&findings));
    Imported { architecture, findings, assumed }
}

/// The language model inside a model of several modes.
fn text_part(mut outer: Reader, name: &str) -> Reader {
    let encoders = beside::encoders(&outer.config);
    beside::tell_encoders(&mut outer, name, &encoders);
    // Said of the whole model, and true of its text part.
    beside::quantised(&mut outer);
    let Some(mut inner) = outer.inside(name) else { return outer };
    if let (false, Some(value)) = (inner.config.contains_key("model_type"), outer.present("model_type")) {
        inner.config.insert("model_type".to_owned(), value.clone());
    }
    // The whole model's class ties its output layer, whatever its text part says of itself.
    if let Some(value) = outer.present("tie_word_embeddings") {
        inner.config.insert("tie_word_embeddings".to_owned(), value.clone());
    }
    inner.findings.append(&mut outer.findings);
    inner
}

fn read(reader: &mut Reader) -> Option<Architecture> {
    let name = model_type(reader)?;
    let plain = name.strip_suffix("_text").unwrap_or(&name);
    if let Some(part) = families::refused(&name) {
        let message = format!(
            "config.json is of `{}`, which has {part}; that can't be planned: plan a decoder without, or give `model.architecture` in Shardplan's own words",
            short(&Value::String(name.clone())).trim_matches('"')
        );
        reader.refuse("model_type", "parts of models that are not planned", message);
        return None;
    }
    reader.filled = families::fill(&mut reader.config, &name);
    // Before what nobody asked for is kept as a part of the model.
    beside::prediction(reader);
    let mut architecture = read_as(reader, &name, plain)?;
    lead_with_the_first(&mut architecture);
    score_groups(&mut architecture, &name);
    beside::quantised(reader);
    unread_experts(reader, &architecture);
    every_layer_is_named(reader, architecture.num_layers);
    let mut sizes = Vec::new();
    for key in reader.filled.clone() {
        let (field, asked) = (reader.field(key), reader.was_asked(key));
        if asked && ["num_hidden_layers", "n_layer", "hidden_size", "n_embd"].contains(&key) {
            sizes.push(format!("{key} {}", short(&reader.config[key])));
        }
        if asked && !reader.assumed.contains(&field) {
            reader.assumed.push(field);
        }
    }
    if !sizes.is_empty() {
        // A file that was saved without what its class has anyway, or one that somebody cut short.
        let message = format!(
            "config.json leaves out sizes for which transformers takes those of the class: {}. Where the model has others, paste the whole file",
            sizes.join(", ")
        );
        let (field, value) = (reader.field("model_type"), short(&reader.config["model_type"]));
        reader.findings.push(Finding::warning(&field, value, message).rule("Hugging Face config.json"));
    }
    Some(architecture)
}

/// Groups of experts are scored by their best one in DeepSeek-V2, and by their best two in all that came after it.
fn score_groups(architecture: &mut Architecture, name: &str) {
    let Some(moe) = architecture.moe.as_mut().filter(|moe| moe.routing.groups > 1) else { return };
    let together = if name == "deepseek_v2" { 1 } else { 2 };
    if together != moe.routing.usual_together(moe.top_k) {
        moe.routing.group_experts = Some(together);
    }
}

/// Of two attentions the first layer's is the model's, whichever its family's description begins with.
fn lead_with_the_first(architecture: &mut Architecture) {
    let Some(first) = architecture.layer_kind(0).mixer.filter(|mixer| *mixer > 0) else { return };
    let place = usize::try_from(first - 1).ok().and_then(|place| architecture.other_mixers.get_mut(place));
    let Some(Mixer::Attention(other)) = place else { return };
    std::mem::swap(other, &mut architecture.attention);
    for run in architecture.pattern.iter_mut().chain(&mut architecture.mtp_pattern) {
        run.mixer = match run.mixer {
            Some(0) => Some(first),
            Some(mixer) if mixer == first => Some(0),
            other => other,
        };
    }
}

/// A config.json as one of a model type, filled with what its class has.
fn read_as(reader: &mut Reader, name: &str, plain: &str) -> Option<Architecture> {
    let known = KNOWN.iter().find(|(known, ..)| *known == name || *known == plain);
    if let (None, Some(family)) = (known, families::find(name).or_else(|| families::find(plain))) {
        let mut architecture = families::build(reader, family);
        architecture.pattern.truncate(crate::model::MAX_LAYERS as usize);
        computed::rotate(reader, name, &mut architecture);
        parts::keep(reader, name, &mut architecture);
        return Some(architecture);
    }
    if known.is_none() && families::looks_like_a_decoder(&reader.config) {
        return Some(unknown(reader, name));
    }
    let Some((known_type, read, kind)) = known else {
        let near = nearest_names(name, supported_model_types().iter().copied(), 3);
        let shown = short(&Value::String(name.to_owned()));
        let shown = shown.trim_matches('"');
        let message = format!(
            "config.json is of architecture `{shown}`, which can't be imported yet; known are {}; or give `model.architecture` in Shardplan's own words",
            supported_model_types().join(", ")
        );
        reader.findings.push(
            Finding::error(&reader.field("model_type"), shown, message)
                .rule("architectures that can be imported")
                .nearest(near),
        );
        return None;
    };
    let mut architecture = read(reader, kind);
    spans::keep(reader, known_type, &mut architecture);
    computed::keep(reader, known_type, &mut architecture);
    // The pattern is about layers that may be too many to be listed; that is a finding elsewhere.
    architecture.pattern.truncate(crate::model::MAX_LAYERS as usize);
    parts::keep(reader, known_type, &mut architecture);
    Some(architecture)
}

/// Where some decoders keep what their layers' halves are. What other parts say, such as an encoder's, is not of the decoder.
const PARTS: &[&str] = &["attn_config", "attention_config", "ffn_config", "mlp_config", "moe_config"];

/// Puts what these parts of a config.json say beside the rest, where that says nothing of it.
fn lift(reader: &mut Reader) {
    let parts: Vec<Map<String, Value>> =
        PARTS.iter().filter_map(|part| reader.config.get(*part)?.as_object().cloned()).collect();
    for (key, value) in parts.into_iter().flatten().filter(|(_, value)| value.is_number()) {
        reader.config.entry(key).or_insert(value);
    }
}

/// Refuses a list of kinds of layers that ends before the layers do, as transformers does.
fn every_layer_is_named(reader: &mut Reader, layers: u64) {
    let names = reader.config.get("layer_types").and_then(Value::as_array).map(Vec::len);
    let Some(names) = names.filter(|names| (*names as u64) < layers) else { return };
    let field = reader.field("layer_types");
    if reader.findings.iter().any(|finding| finding.field == field) {
        return;
    }
    let message =
        format!("`layer_types` must name a kind for each of the {layers} layers, and names {names}");
    reader.refuse("layer_types", "kinds of layers (transformers)", message);
}

/// Experts that a config.json says and its class does not read.
fn unread_experts(reader: &mut Reader, architecture: &Architecture) {
    let says = |key: &&String| {
        key.contains("experts")
            && reader.config.get(*key).and_then(Value::as_u64).is_some_and(|many| many > 1)
    };
    let Some(key) = architecture.parts.keys().find(says).filter(|_| architecture.moe.is_none()).cloned()
    else {
        return;
    };
    let message = format!(
        "`{key}` is {}, and models of this model_type have no experts: it is planned without",
        reader.config[&key]
    );
    let value = short_value(&reader.config[&key]);
    let finding = Finding::warning(&reader.field(&key), value, message);
    reader.findings.push(finding.rule("Hugging Face config.json"));
}

/// A decoder of a type that nobody here knows, by the names that most use; what was not understood is named.
fn unknown(reader: &mut Reader, name: &str) -> Architecture {
    lift(reader);
    let latent = reader.present("kv_lora_rank").is_some();
    let mut architecture = match families::find(if latent { "_any_mla" } else { "_any" }) {
        Some(family) => families::build(reader, family),
        None => Architecture::of(1, 1, 1, 1, super::Attention::grouped(1, 1, 1)),
    };
    parts::keep(reader, name, &mut architecture);
    let strange: Vec<String> = architecture
        .parts
        .keys()
        .filter(|key| *key != "model_type")
        .map(|key| crate::finding::clip(key))
        .collect();
    let not_understood = match strange.as_slice() {
        [] => "every key of it was understood".to_owned(),
        keys => format!("not understood: {}", keys.join(", ")),
    };
    let shown = short(&Value::String(name.to_owned()));
    let shown = shown.trim_matches('"');
    // Classes of their own mostly leave it to transformers, whose fourth version ties where nothing is said.
    let tied = match reader.present("tie_word_embeddings") {
        Some(_) => "",
        None => "; `tie_word_embeddings` is not in it: embeddings are planned untied",
    };
    let message = format!(
        "config.json is of architecture `{shown}`, which is not known: it is read as a decoder with RMSNorm before attention and a gated MLP, without biases or norms that it does not name; {not_understood}{tied}. Compare the number of parameters with the model's own, or give `model.architecture`"
    );
    let near = nearest_names(name, supported_model_types().iter().copied(), 3);
    reader.findings.push(
        Finding::warning(&reader.field("model_type"), shown, message)
            .rule("architectures that can be imported")
            .nearest(near),
    );
    architecture
}

fn model_type(reader: &mut Reader) -> Option<String> {
    match reader.present("model_type") {
        Some(Value::String(name)) => Some(name.clone()),
        Some(_) => {
            reader.wrong_type("model_type", "a name such as \"llama\"");
            None
        }
        None => {
            reader.findings.push(
                Finding::error(
                    &reader.field("model_type"),
                    short_value(&Value::Null),
                    beside::no_config(&reader.config),
                )
                .rule("Hugging Face config.json"),
            );
            None
        }
    }
}
