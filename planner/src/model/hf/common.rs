//! Fields that most architectures share.

use serde_json::Value;

use super::reader::Reader;
use crate::model::{Activation, Architecture, Attention, LayerKind, MAX_LAYERS, QkNorm, Scores, fold};

/// Everything but attention, experts and pattern, as most configs name it.
pub(super) fn base(reader: &mut Reader, attention: Attention) -> Architecture {
    let (num_layers, hidden_size) = (reader.need("num_hidden_layers"), reader.need("hidden_size"));
    let vocab_size = reader.need("vocab_size");
    Architecture {
        activation: activation(reader, "hidden_act"),
        norm_eps: reader.real("rms_norm_eps", 1e-6),
        rope_theta: rope_theta(reader),
        // Hugging Face ties by default; these architectures' own configurations set false.
        tied_embeddings: reader.flag("tie_word_embeddings", false),
        ..Architecture::of(num_layers, hidden_size, 1, vocab_size, attention)
    }
}

pub(super) fn activation(reader: &mut Reader, name: &str) -> Activation {
    let named = reader.present(name).map(|value| value.as_str().unwrap_or_default().to_owned());
    match named.as_deref() {
        None => {
            reader.assume(name);
            Activation::Silu
        }
        Some("silu" | "swish") => Activation::Silu,
        Some("gelu" | "gelu_fast" | "gelu_new" | "gelu_pytorch_tanh") => Activation::Gelu,
        Some("relu2") => Activation::SquaredRelu,
        Some("swigluoai" | "situ") => {
            reader.note(
                name,
                "activations by size",
                "this activation is planned as SiLU with a gate, which has the same sizes".to_owned(),
            );
            Activation::Silu
        }
        Some(_) => {
            reader.wrong_type(name, "\"silu\", \"gelu\" or \"relu2\"");
            Activation::Silu
        }
    }
}

/// `rope_theta`, which newer configurations keep inside `rope_parameters`.
pub(super) fn rope_theta(reader: &mut Reader) -> f64 {
    let nested = reader.present("rope_parameters").and_then(|inner| {
        let inner = inner.get("full_attention").unwrap_or(inner);
        inner.get("rope_theta").and_then(Value::as_f64)
    });
    match nested {
        Some(theta) if theta > 0.0 => theta,
        _ => reader.real("rope_theta", 10_000.0),
    }
}

/// Width of a head that is rotated, where it is not all of it.
pub(super) fn rotary_dim(reader: &mut Reader, kind: &str, head_dim: u64) -> Option<u64> {
    let nested = reader.present("rope_parameters").and_then(|inner| inner.get("partial_rotary_factor"));
    let named = if kind == "gpt_neox" { "rotary_pct" } else { "partial_rotary_factor" };
    // As transformers' configurations of these types have it.
    let usual = match kind {
        "glm" | "glm4" | "glm4_moe" | "nemotron" => Some(0.5),
        "gpt_neox" | "qwen3_next" | "qwen3_5" | "qwen3_5_moe" => Some(0.25),
        _ => None,
    };
    match reader.present(named).or(nested).and_then(Value::as_f64).or(usual) {
        // Angles are for pairs of channels: an odd one takes its neighbour along.
        Some(share) if share > 0.0 && share < 1.0 => {
            Some(((share * head_dim as f64) as u64).next_multiple_of(2))
        }
        Some(_) => None,
        None => reader.some("rotary_dim"),
    }
}

pub(super) fn grouped_attention(reader: &mut Reader, kind: &str) -> Attention {
    let hidden_size = reader.need("hidden_size");
    let heads = reader.need("num_attention_heads");
    let kv_heads = reader.number("num_key_value_heads", heads);
    let of_class = matches!(
        kind,
        "gemma" | "gemma2" | "gemma3" | "gemma3n" | "gemma4" | "qwen3_next" | "qwen3_5" | "qwen3_5_moe"
    );
    let head_dim = reader.number("head_dim", if of_class { 256 } else { hidden_size / heads.max(1) });
    let is_uneven = hidden_size > 1 && !hidden_size.is_multiple_of(heads.max(1));
    if !of_class && reader.present("head_dim").is_none() && is_uneven {
        let message = format!(
            "{heads} heads don't divide a hidden size of {hidden_size}: {head_dim} channels a head are planned, {} in all, and many programs refuse that; say head_dim where it is meant",
            head_dim * heads
        );
        reader.note("num_attention_heads", "Hugging Face config.json", message);
    }
    let qkv_bias = match kind {
        "qwen2" => true,
        "qwen2_moe" => reader.flag("qkv_bias", true),
        "gpt_oss" => reader.flag("attention_bias", true),
        "mistral" | "mixtral" | "phi3" | "minimax_m2" | "minimax_m3" => false,
        _ => reader.flag("attention_bias", false),
    };
    let qk_norm = match kind {
        "qwen3" | "qwen3_moe" | "qwen3_next" | "qwen3_5" | "qwen3_5_moe" | "gemma3" | "gemma3n"
        | "gemma4" => QkNorm::PerHead,
        "dots1" => QkNorm::PerHead,
        "glm4_moe" if reader.flag("use_qk_norm", false) => QkNorm::PerHead,
        "minimax_m3" if reader.flag("use_qk_norm", true) => QkNorm::PerHead,
        "minimax_m2" if reader.flag("use_qk_norm", true) => QkNorm::Full,
        _ => QkNorm::None,
    };
    Attention::Gqa {
        heads,
        kv_heads,
        head_dim,
        rotary_dim: rotary_dim(reader, kind, head_dim),
        qk_norm,
        qkv_bias,
        // Most put the same switch on the output projection; these three don't.
        out_bias: qkv_bias && !matches!(kind, "qwen2" | "qwen2_moe" | "glm4_moe"),
        sinks: kind == "gpt_oss",
        output_gate: match kind {
            "qwen3_next" => true,
            "qwen3_5" | "qwen3_5_moe" => reader.flag("attn_output_gate", true),
            "minimax_m3" => reader.flag("attention_output_gate", false),
            _ => false,
        },
        values_are_keys: false,
        value_norm: false,
        shared_kv: false,
        value_dim: None,
        head_gate: false,
        scores: Scores::default(),
    }
}

/// The pattern of layers given by a function of the layer. A list is made, so the number of layers is held within
/// bounds; beyond them is a finding elsewhere.
pub(super) fn pattern_by(num_layers: u64, kind: impl Fn(u64) -> LayerKind) -> Vec<crate::model::LayerRun> {
    fold(&(0..num_layers.min(MAX_LAYERS)).map(kind).collect::<Vec<_>>())
}

/// Dense where `dense` says so, else experts.
pub(super) fn dense_where(num_layers: u64, dense: impl Fn(u64) -> bool) -> Vec<crate::model::LayerRun> {
    pattern_by(num_layers, |layer| if dense(layer) { LayerKind::DENSE } else { LayerKind::MOE })
}
