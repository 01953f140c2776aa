//! Dense models: the Llama shape, GPT-2, Nemotron.

use super::common::{base, grouped_attention};
use super::reader::Reader;
use crate::model::{Activation, Architecture, Attention, Norm, QkNorm, Scores};

/// Llama and all that differ from it in attention only. Matrices that a checkpoint keeps fused (Phi-3) are the same
/// parameters.
pub(super) fn plain(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = grouped_attention(reader, kind);
    Architecture {
        ffn_hidden_size: reader.need("intermediate_size"),
        mlp_bias: kind == "llama" && reader.flag("mlp_bias", false),
        ..base(reader, attention)
    }
}

/// GPT-2: learned positions, LayerNorm, biases, no gate.
pub(super) fn gpt2(reader: &mut Reader, _: &str) -> Architecture {
    if reader.present("add_cross_attention").and_then(serde_json::Value::as_bool) == Some(true) {
        let message =
            "`add_cross_attention` of this config.json attends to an encoder, which can't be planned";
        reader.refuse("add_cross_attention", "parts of models that are not planned", message.to_owned());
    }
    let hidden_size = reader.need("n_embd");
    let heads = reader.need("n_head");
    let ffn = reader.number("n_inner", hidden_size.saturating_mul(4));
    let attention = Attention::Gqa {
        heads,
        kv_heads: heads,
        head_dim: hidden_size / heads,
        rotary_dim: None,
        qk_norm: QkNorm::None,
        qkv_bias: true,
        out_bias: true,
        sinks: false,
        output_gate: false,
        values_are_keys: false,
        value_norm: false,
        shared_kv: false,
        value_dim: None,
        head_gate: false,
        scores: Scores::default(),
    };
    let (num_layers, vocab_size) = (reader.need("n_layer"), reader.need("vocab_size"));
    Architecture {
        gated: false,
        activation: Activation::Gelu,
        mlp_bias: true,
        norm: Norm::Layer,
        norm_eps: reader.real("layer_norm_epsilon", 1e-5),
        tied_embeddings: reader.flag("tie_word_embeddings", true),
        learned_positions: Some(reader.need("n_positions")),
        ..Architecture::of(num_layers, hidden_size, ffn, vocab_size, attention)
    }
}

/// Nemotron-4 and Minitron: LayerNorm, squared ReLU, no gate.
pub(super) fn nemotron(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = grouped_attention(reader, kind);
    let norm_eps = reader.real("norm_eps", 1e-5);
    reader.config.entry("rms_norm_eps").or_insert_with(|| norm_eps.into());
    Architecture {
        ffn_hidden_size: reader.need("intermediate_size"),
        gated: false,
        activation: Activation::SquaredRelu,
        mlp_bias: reader.flag("mlp_bias", false),
        norm: Norm::Layer,
        norm_eps,
        ..base(reader, attention)
    }
}
