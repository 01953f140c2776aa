//! Dense models: the Llama shape, Gemma, GPT-2, Nemotron.

use super::common::{activation, base, grouped_attention, pattern_by};
use super::reader::Reader;
use crate::model::{Activation, Architecture, Attention, LayerKind, Mixer, Mlp, Moe, Norm, QkNorm};

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

/// Gemma 1 to 3.
pub(super) fn gemma(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = grouped_attention(reader, kind);
    // The second name came with the second release and wins.
    let named =
        if reader.present("hidden_activation").is_some() { "hidden_activation" } else { "hidden_act" };
    let activation = if reader.present(named).is_some() {
        activation(reader, named)
    } else {
        reader.assume("hidden_activation");
        Activation::Gelu
    };
    Architecture {
        ffn_hidden_size: reader.need("intermediate_size"),
        activation,
        tied_embeddings: reader.flag("tie_word_embeddings", true),
        post_norms: kind != "gemma",
        ..gemma_base(reader, attention)
    }
}

/// Gemma's configs have no `hidden_act` that counts, and tie unless they say otherwise.
fn gemma_base(reader: &mut Reader, attention: Attention) -> Architecture {
    let assumed = reader.assumed.len();
    let act = reader.config.remove("hidden_act");
    let architecture = base(reader, attention);
    reader.config.extend(act.map(|act| ("hidden_act".to_owned(), act)));
    // What the usual reading assumed is not what is taken.
    reader.take_back(assumed, &["tie_word_embeddings", "hidden_act"]);
    architecture
}

/// Gemma 4: layers of a window and layers of full attention, whose heads differ; experts beside a dense MLP.
pub(super) fn gemma4(reader: &mut Reader, kind: &str) -> Architecture {
    for field in ["hidden_size_per_layer_input", "num_kv_shared_layers"] {
        if reader.number(field, 0) > 0 {
            let message = format!(
                "`{field}` above 0 (the small Gemma 4 models) can't be planned yet; models without it can"
            );
            reader.refuse(field, "Gemma 4 as planned so far", message);
        }
    }
    let window = grouped_attention(reader, kind);
    let mut full = window.clone();
    let same_kv = reader.flag("attention_k_eq_v", false);
    if let Attention::Gqa { kv_heads, head_dim, rotary_dim, values_are_keys, .. } = &mut full {
        *head_dim = reader.number("global_head_dim", 512);
        *rotary_dim = None;
        *values_are_keys = same_kv;
        if same_kv {
            *kv_heads = reader.number("num_global_key_value_heads", *kv_heads);
        }
    }
    let experts = reader.flag("enable_moe_block", false);
    let mut architecture = gemma(reader, "gemma4");
    architecture.attention = window;
    architecture.other_mixers = vec![Mixer::Attention(full)];
    let types = reader.words("layer_types");
    if types.is_none() && reader.present("layer_types").is_none() {
        reader.assume("layer_types");
    }
    let layers = architecture.num_layers;
    architecture.pattern = pattern_by(layers, |layer| {
        let full = match &types {
            Some(types) => types.get(layer as usize).is_some_and(|word| word == "full_attention"),
            // Every sixth, and the last whatever its number.
            None => (layer + 1).is_multiple_of(6) || layer + 1 == layers,
        };
        LayerKind { mixer: Some(u64::from(full)), mlp: Mlp::Moe }
    });
    if experts {
        architecture.moe = Some(Moe {
            experts: reader.need("num_experts"),
            top_k: reader.need("top_k_experts"),
            ffn_hidden_size: reader.need("moe_intermediate_size"),
            // The dense MLP runs beside the experts for every token, as a shared expert does.
            shared_ffn_hidden_size: architecture.ffn_hidden_size,
            shared_gate: false,
            router_bias: false,
            latent_size: None,
            latent_norm: false,
            scaled_branches: true,
            router_bias_buffer: 0,
            routing: crate::model::Routing::default(),
        });
    }
    architecture
}

/// GPT-2: learned positions, LayerNorm, biases, no gate.
pub(super) fn gpt2(reader: &mut Reader, _: &str) -> Architecture {
    let hidden_size = reader.need("n_embd");
    let heads = reader.need("n_head");
    let ffn = reader.number("n_inner", hidden_size.saturating_mul(4));
    Architecture {
        num_layers: reader.need("n_layer"),
        hidden_size,
        ffn_hidden_size: ffn,
        vocab_size: reader.need("vocab_size"),
        attention: Attention::Gqa {
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
        },
        other_mixers: Vec::new(),
        pattern: Vec::new(),
        moe: None,
        gated: false,
        activation: Activation::Gelu,
        mlp_bias: true,
        norm: Norm::Layer,
        norm_eps: reader.real("layer_norm_epsilon", 1e-5),
        rope_theta: 10_000.0,
        tied_embeddings: reader.flag("tie_word_embeddings", true),
        learned_positions: Some(reader.need("n_positions")),
        mtp_layers: 0,
        mtp_shared: false,
        mtp_pattern: Vec::new(),
        post_norms: false,
        hyper_connections: 0,
        attention_residuals: false,
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
