//! How far a token sees in each layer, which layers know no positions, and how scores are scaled, for the families whose
//! reading is written out in code.

use serde_json::Value;

use super::reader::Reader;
use crate::model::{Architecture, Attention, LayerKind, MAX_LAYERS, Mixer, Positions, Scores, fold};

/// Puts what becomes of scores into each layer of a model that was read as `model_type`.
pub(super) fn keep(reader: &mut Reader, model_type: &str, architecture: &mut Architecture) {
    let layers = architecture.num_layers.min(MAX_LAYERS);
    let scale = scale(reader, model_type, &architecture.attention);
    let soft_cap = (model_type == "gemma2").then(|| reader.real("attn_logit_softcapping", 50.0));
    let soft_cap = soft_cap.filter(|&cap| cap > 0.0);
    let Some(limits) = limits(reader, model_type, layers) else { return };
    let scores = limits.into_iter().map(|limit| Scores { scale, soft_cap, ..limit });
    spread(architecture, scores.collect());
}

/// What scores are multiplied by, where it is not what a head's width says.
fn scale(reader: &mut Reader, model_type: &str, attention: &Attention) -> Option<f64> {
    let &Attention::Gqa { head_dim, .. } = attention else { return None };
    match model_type {
        "gemma2" | "gemma3" => {
            let width = reader.real("query_pre_attn_scalar", 256.0);
            (width > 0.0 && width != head_dim as f64).then(|| 1.0 / libm::sqrt(width))
        }
        // Its norms of queries and keys stand in for it.
        "gemma3n" => Some(1.0),
        _ => None,
    }
}

/// Window, chunk and positions of each layer; none where all layers see everything, by rotation.
fn limits(reader: &mut Reader, model_type: &str, layers: u64) -> Option<Vec<Scores>> {
    // Layers from 0 without a limit, where the file does not list them.
    let (limit, is_full): (Scores, Box<dyn Fn(u64) -> bool>) = match model_type {
        "gemma2" | "gpt_oss" => (window(reader)?, every(2)),
        "gemma3" => (window(reader)?, pattern(reader, 6)),
        "gemma3n" => (window(reader)?, every(5)),
        "olmo3" => (window(reader)?, every(4)),
        "exaone4" => (window(reader)?, pattern(reader, 4)),
        "ministral" | "ministral3" | "mistral" | "mixtral" | "phi3" | "starcoder2" => {
            (window(reader)?, Box::new(|_| false))
        }
        "qwen2" | "qwen2_5_vl" | "qwen2_moe" | "qwen2_vl" | "qwen3" | "qwen3_moe" => {
            let windowed = reader.present("use_sliding_window").and_then(Value::as_bool);
            windowed.filter(|&windowed| windowed)?;
            let first = reader.number("max_window_layers", 28);
            (window(reader)?, Box::new(move |layer| layer < first))
        }
        "llama4" => {
            let chunk = reader.number("attention_chunk_size", 8192);
            (Scores { chunk: Some(chunk).filter(|&chunk| chunk > 0), ..Scores::default() }, unrotated(reader))
        }
        "smollm3" => (Scores::default(), unrotated(reader)),
        _ => return None,
    };
    let listed = if model_type == "smollm3" { None } else { reader.words("layer_types") };
    let full = Scores {
        positions: match model_type {
            "exaone4" | "llama4" | "smollm3" => Positions::None,
            _ => Positions::Rotary,
        },
        ..Scores::default()
    };
    let is_full = |layer: u64| match &listed {
        Some(types) => types.get(layer as usize).is_some_and(|word| word == "full_attention"),
        None => is_full(layer),
    };
    let limits = (0..layers).map(|layer| if is_full(layer) { full.clone() } else { limit.clone() });
    Some(limits.collect())
}

/// A window of as many tokens as the file says; none where it says that there is none.
fn window(reader: &mut Reader) -> Option<Scores> {
    let window = reader.some("sliding_window")?;
    Some(Scores { window: Some(window), ..Scores::default() })
}

/// Every `step`-th layer.
fn every(step: u64) -> Box<dyn Fn(u64) -> bool> {
    Box::new(move |layer| step > 0 && (layer + 1).is_multiple_of(step))
}

/// Layers without a window by `sliding_window_pattern`: a number for every so many, or letters for each layer, of which `G`
/// sees everything (EXAONE 4: `LLLG`).
fn pattern(reader: &mut Reader, usual: u64) -> Box<dyn Fn(u64) -> bool> {
    match reader.present("sliding_window_pattern").and_then(Value::as_str).map(str::to_owned) {
        Some(letters) if !letters.is_empty() => {
            let length = letters.len() as u64;
            Box::new(move |layer| letters.as_bytes().get((layer % length) as usize) == Some(&b'G'))
        }
        _ => every(reader.some("sliding_window_pattern").unwrap_or(usual)),
    }
}

/// Layers whose queries and keys are not rotated: 0 in the list, else every fourth.
fn unrotated(reader: &mut Reader) -> Box<dyn Fn(u64) -> bool> {
    let rotated = reader.list("no_rope_layers");
    if rotated.is_empty() {
        return every(reader.some("no_rope_layer_interval").unwrap_or(4));
    }
    Box::new(move |layer| rotated.get(layer as usize) == Some(&0))
}

/// Gives each layer's attention its scores: layers that differ in them have mixers of their own.
fn spread(architecture: &mut Architecture, scores: Vec<Scores>) {
    let mut mixers: Vec<Mixer> = Vec::new();
    let mut kinds = Vec::new();
    for (layer, scores) in (0..).zip(scores) {
        let mut kind = architecture.layer_kind(layer);
        if let Some(mut mixer) = mixer_of(architecture, kind) {
            if let Mixer::Attention(attention) = &mut mixer {
                *attention.scores_mut() = scores;
            }
            let known = mixers.iter().position(|known| *known == mixer);
            kind.mixer = Some(known.unwrap_or(mixers.len()) as u64);
            if known.is_none() {
                mixers.push(mixer);
            }
        }
        kinds.push(kind);
    }
    // The first is the model's attention; a model whose first layer has none keeps its mixers as they are.
    let mut mixers = mixers.into_iter();
    let Some(Mixer::Attention(first)) = mixers.next() else { return };
    architecture.attention = first;
    architecture.other_mixers = mixers.collect();
    let plain = architecture.moe.is_none() && kinds.iter().all(|kind| *kind == LayerKind::DENSE);
    architecture.pattern = if plain { Vec::new() } else { fold(&kinds) };
}

fn mixer_of(architecture: &Architecture, kind: LayerKind) -> Option<Mixer> {
    match kind.mixer?.checked_sub(1) {
        None => Some(Mixer::Attention(architecture.attention.clone())),
        Some(other) => architecture.other_mixers.get(usize::try_from(other).ok()?).cloned(),
    }
}
