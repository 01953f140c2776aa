//! What of a model follows from several options.

use serde_json::{Map, Value, json};

use super::mixers::{delta_net, mamba, mix_otherwise, scores};
use super::pattern::{HybridPattern, frequency_kinds};
use crate::import::Arguments;
use crate::megatron_lm::rows::{OFFSET, PARTS, read_scaling};
use crate::number::plain_digits;
use planner::finding::clip;
use planner::model::{LayerKind, Mixer, fold};

/// Words of the GPT-2 tokenizer, Megatron-LM's usual one.
const GPT2_WORDS: u64 = 50_257;
/// Words of Llama 2's tokenizer.
const LLAMA2_WORDS: u64 = 32_000;
/// Words of the SentencePiece model that Nemotron-4 is trained with, and the end of its file's name.
const NEMOTRON_WORDS: u64 = 256_000;
const NEMOTRON_FILE: &str = "nemotron_2_256k";

/// Completes what the rows have read of a model, and says how many layers each stage has where its pattern cuts it.
///
/// # Errors
/// What is missing or can't be read, as a sentence.
pub(super) fn complete(arguments: &Arguments, model: &mut Value) -> Result<Option<Vec<u64>>, String> {
    let need = |value: &Value, name: &str| value.as_u64().ok_or_else(|| format!("--{name} is missing"));
    let hidden = need(&model["hidden_size"], "hidden-size")?;
    let heads = need(&model["attention"]["heads"], "num-attention-heads")?;
    if heads == 0 || hidden == 0 {
        return Err("--hidden-size and --num-attention-heads must be at least 1".to_owned());
    }
    let usual = |place: &mut Value, value: Value| {
        if place.is_null() {
            *place = value;
        }
    };
    let behind_gate = model["activation"] == "silu";
    let wide = hidden.saturating_mul(4);
    let width = if behind_gate { wide.saturating_mul(2) / 3 / 64 * 64 } else { wide };
    usual(&mut model["ffn_hidden_size"], width.into());
    let biased = model["mlp_bias"] == true;
    let attention = &mut model["attention"];
    if attention["kind"] == "gqa" {
        usual(&mut attention["head_dim"], (hidden / heads).into());
        usual(&mut attention["kv_heads"], heads.into());
        attention["out_bias"] = biased.into();
        if biased {
            attention["qkv_bias"] = true.into();
        }
    }
    if model["moe"]["experts"].is_null() {
        model["moe"] = Value::Null;
    } else {
        let width = model["ffn_hidden_size"].clone();
        let moe = &mut model["moe"];
        usual(&mut moe["ffn_hidden_size"], width);
        moe["router_bias"] = biased.into();
        // Of as many groups as there are.
        let groups = moe["routing"]["groups"].clone();
        if !groups.is_null() {
            usual(&mut moe["routing"]["group_top_k"], groups);
        }
    }
    model["vocab_size"] = vocabulary(arguments)?.into();
    if let Some(scaling) = read_scaling(arguments)? {
        let attention = &mut model["attention"];
        let width = attention["qk_nope_dim"].as_u64().zip(attention["qk_rope_dim"].as_u64());
        let width = width.map(|(plain, rotated)| plain.saturating_add(rotated));
        if let Some(scale) = width.and_then(|width| scaling.latent_scale(width)) {
            attention["scores"] = json!({"scale": scale});
        }
        model["rope_scaling"] = serde_json::to_value(scaling).unwrap_or_default();
    }
    let stages = layers(arguments, model, hidden)?;
    model["parts"] = parts(arguments).into();
    Ok(stages)
}

/// Sets layers and their kinds.
fn layers(arguments: &Arguments, model: &mut Value, hidden: u64) -> Result<Option<Vec<u64>>, String> {
    let set = |place: &mut Value, value: Result<Value, serde_json::Error>| {
        *place = value.unwrap_or_default();
    };
    // Neither rotates anything.
    if let Some(kind @ ("none" | "alibi")) = arguments.word("position-embedding-type").as_deref() {
        model["attention"]["scores"]["positions"] = kind.into();
    }
    let hybrid = arguments.word("hybrid-layer-pattern").or(arguments.word("hybrid-override-pattern"));
    if let Some(text) = hybrid {
        let pattern = HybridPattern::read(&text)?;
        model["num_layers"] = pattern.layers.len().into();
        set(&mut model["pattern"], serde_json::to_value(fold(&pattern.layers)));
        set(&mut model["mtp_pattern"], serde_json::to_value(fold(&pattern.mtp)));
        set(&mut model["other_mixers"], serde_json::to_value([Mixer::Mamba2(mamba(arguments, hidden)?)]));
        return Ok(pattern.stages);
    }
    let layers = model["num_layers"].as_u64().ok_or("--num-layers is missing")?;
    let has_experts = !model["moe"].is_null();
    let mut kinds = frequency_kinds(arguments.word("moe-layer-freq").as_deref(), layers)?;
    if !has_experts {
        kinds.fill(LayerKind::DENSE);
    }
    let delta = delta_net(arguments)?;
    if let Some(delta) = &delta {
        mix_otherwise(&mut kinds, arguments.word("linear-attention-freq").as_deref())?;
        set(&mut model["other_mixers"], serde_json::to_value([Mixer::DeltaNet(delta.clone())]));
    }
    if let (Some(_), Some(name)) =
        (&delta, ["window-size", "no-rope-freq"].into_iter().find(|name| arguments.has(name)))
    {
        return Err(format!("--{name} beside --experimental-attention-variant is not planned"));
    }
    let others = scores(arguments, &mut kinds, &mut model["attention"])?;
    if !others.is_empty() {
        model["other_mixers"] = others.into_iter().map(|other| json!({"attention": other})).collect();
    }
    if kinds.iter().any(|kind| *kind != LayerKind::DENSE) {
        set(&mut model["pattern"], serde_json::to_value(fold(&kinds)));
    }
    Ok(None)
}

/// Words before padding.
fn vocabulary(arguments: &Arguments) -> Result<u64, String> {
    let tokenizer = arguments.word("tokenizer-type");
    let words = arguments.number("vocab-size")?;
    if let Some(padded) = arguments.number("padded-vocab-size")? {
        return Ok(padded);
    }
    match (tokenizer.as_deref(), words) {
        // One more word, for the end of a document. The tokenizer of numbers counts that among its words since core_v0.18.
        (Some("NullMultimodalTokenizer"), Some(words)) => Ok(words.saturating_add(1)),
        (_, Some(words)) => Ok(words),
        (None | Some("GPT2BPETokenizer"), None) => Ok(GPT2_WORDS),
        (Some("Llama2Tokenizer"), None) => Ok(LLAMA2_WORDS),
        (Some(_), None)
            if arguments.word("tokenizer-model").is_some_and(|file| file.contains(NEMOTRON_FILE)) =>
        {
            Ok(NEMOTRON_WORDS)
        }
        (Some(other), None) => Err(format!(
            "the vocabulary of tokenizer {other} is in a file that is not read; say it with --vocab-size"
        )),
    }
}

/// What a model computes beside, by the options' names; a coefficient of 0 is none.
fn parts(arguments: &Arguments) -> Map<String, Value> {
    let mut parts = Map::new();
    let text = |name: &str| arguments.values(name).map(|values| values.join(" "));
    for row in PARTS {
        let Some(text) = text(row.option).filter(|text| plain_digits(text).parse::<f64>() != Ok(0.0)) else {
            continue;
        };
        let value = if text.is_empty() { json!(true) } else { clip(&text).into() };
        parts.insert(row.option.to_owned(), value);
    }
    // Beside the quick gate alone they are what the plan's model says.
    let quick = arguments.flag("quick-geglu");
    let clamped = text("activation-func-clamp-value").filter(|_| !quick);
    let offset = text("glu-linear-offset").filter(|text| {
        let offset = plain_digits(text).parse::<f64>().unwrap_or(f64::NAN);
        offset != 0.0 && !(quick && offset == OFFSET)
    });
    for (name, value) in [("activation-func-clamp-value", clamped), ("glu-linear-offset", offset)] {
        parts.extend(value.map(|value| (name.to_owned(), clip(&value).into())));
    }
    for (name, plain) in [
        ("position-embedding-type", &["learned_absolute", "rope", "yarn", "none", "alibi"][..]),
        ("rope-type", &["rope", "yarn"][..]),
    ] {
        if let Some(kind) = text(name).filter(|kind| !plain.contains(&kind.as_str())) {
            parts.insert(name.to_owned(), clip(&kind).into());
        }
    }
    parts
}
