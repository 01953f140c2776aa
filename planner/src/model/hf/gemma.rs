//! Gemma 1 to 4, and 3n: norms on both sides, windows of tokens, layers that share keys and values, inputs of single
//! layers.

use serde_json::Value;

use super::common::{activation, base, grouped_attention, pattern_by};
use super::reader::Reader;
use crate::model::{Activation, Architecture, Attention, LayerInputs, LayerKind, Mixer, Mlp, Moe, Routing};

/// Share of a head's channels that turn in Gemma 4's full attention where a file says nothing of rotation.
const FULL_TURNED: f64 = 0.25;

/// Gemma 1 to 3.
pub(super) fn gemma(reader: &mut Reader, kind: &str) -> Architecture {
    let ffn_hidden_size = reader.need("intermediate_size");
    Architecture { ffn_hidden_size, ..common(reader, kind) }
}

/// What all have, without the MLP's width.
fn common(reader: &mut Reader, kind: &str) -> Architecture {
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

/// Gemma 4: layers of a window and layers of full attention, whose heads differ; experts beside a dense MLP; in the
/// small ones inputs of single layers, and last layers with the keys and values of earlier ones.
pub(super) fn gemma4(reader: &mut Reader, kind: &str) -> Architecture {
    let mut window = grouped_attention(reader, "gemma4");
    // Norms of queries and keys stand in for a scale.
    window.scores_mut().scale = Some(1.0);
    if let Attention::Gqa { value_norm, .. } = &mut window {
        *value_norm = true;
    }
    let mut full = window.clone();
    window.scores_mut().window = reader.some("sliding_window");
    let same_kv = reader.flag("attention_k_eq_v", false);
    if let Attention::Gqa { kv_heads, head_dim, rotary_dim, values_are_keys, .. } = &mut full {
        // Layer by layer where a file was written by transformers, all of its full layers alike.
        let listed = reader.present("per_layer_config").and_then(|layers| {
            layers.as_object()?.values().find_map(|layer| layer.get("head_dim")?.as_u64())
        });
        *head_dim = listed.unwrap_or_else(|| reader.number("global_head_dim", 512));
        *rotary_dim = turned(reader, *head_dim);
        *values_are_keys = same_kv;
        if same_kv {
            *kv_heads = reader.number("num_global_key_value_heads", *kv_heads);
        }
    }
    let experts = reader.flag("enable_moe_block", false);
    let mut architecture = gemma(reader, "gemma4");
    architecture.layer_inputs = (kind == "gemma4").then(|| layer_inputs(reader)).flatten();
    let shared = reader.number("num_kv_shared_layers", 0);
    let wide = reader.flag("use_double_wide_mlp", false) && shared > 0;
    architecture.attention = window.clone();
    architecture.other_mixers = vec![Mixer::Attention(full.clone())];
    if shared > 0 {
        architecture.other_mixers.extend([window, full].map(sharing));
    }
    let types = reader.words("layer_types");
    if types.is_none() && reader.present("layer_types").is_none() {
        reader.assume("layer_types");
    }
    let (layers, width) = (architecture.num_layers, architecture.ffn_hidden_size);
    let first_shared = layers.saturating_sub(shared);
    architecture.pattern = pattern_by(layers, |layer| {
        let full = match &types {
            Some(types) => types.get(layer as usize).is_some_and(|word| word == "full_attention"),
            None => (layer + 1).is_multiple_of(6),
        };
        // The last one always is, whatever the list says.
        let full = full || layer + 1 == layers;
        let shares = layer >= first_shared;
        let ffn = (wide && shares).then(|| width.saturating_mul(2));
        LayerKind { ffn, ..LayerKind::new(Some(u64::from(full) + 2 * u64::from(shares)), Mlp::Moe) }
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
            weighs_inputs: false,
            identity_experts: 0,
            router_bias_buffer: 0,
            routing: Routing::default(),
        });
        if wide {
            let message = "MLPs of double width beside experts can't be planned yet".to_owned();
            reader.refuse("use_double_wide_mlp", "Gemma 4 as planned so far", message);
        }
    }
    architecture
}

/// Channels of a head of full attention that turn, where not all do; the class has a quarter of them.
fn turned(reader: &Reader, head_dim: u64) -> Option<u64> {
    let share = match reader.present("rope_parameters") {
        None => FULL_TURNED,
        Some(all) => {
            let own = all.get("full_attention").unwrap_or(all);
            own.get("partial_rotary_factor").and_then(Value::as_f64).unwrap_or(1.0)
        }
    };
    let pairs = (share.clamp(0.0, 1.0) * head_dim as f64 / 2.0) as u64;
    Some(2 * pairs).filter(|&channels| channels < head_dim)
}

/// Gemma 3n: several copies of the stream, a low-rank path around attention, inputs of single layers, and last layers
/// with the keys and values of earlier ones.
pub(super) fn gemma3n(reader: &mut Reader, kind: &str) -> Architecture {
    let widths = if reader.present("intermediate_size").is_some_and(|value| value.is_array()) {
        reader.list("intermediate_size")
    } else {
        vec![reader.need("intermediate_size")]
    };
    let mut architecture = common(reader, kind);
    if let Attention::Gqa { value_norm, .. } = &mut architecture.attention {
        *value_norm = true;
    }
    let layers = architecture.num_layers;
    if widths.len() > 1 && widths.len() as u64 != layers {
        let message =
            format!("`intermediate_size` has {} widths, and there are {layers} layers", widths.len());
        reader.refuse("intermediate_size", "widths of Gemma 3n", message);
    }
    let first = widths.first().copied().unwrap_or(0);
    architecture.ffn_hidden_size = first;
    architecture.layer_inputs = layer_inputs(reader);
    architecture.alternating_updates = reader.number("altup_num_inputs", 4);
    architecture.residual_rank = reader.number("laurel_rank", 64);
    let shared = reader.number("num_kv_shared_layers", 15);
    if shared > 0 {
        architecture.other_mixers = vec![sharing(architecture.attention.clone())];
    }
    let first_shared = layers.saturating_sub(shared);
    architecture.pattern = pattern_by(layers, |layer| {
        let ffn = widths.get(layer as usize).copied().filter(|&width| width != first);
        LayerKind { ffn, ..LayerKind::new(Some(u64::from(layer >= first_shared)), Mlp::Dense) }
    });
    architecture
}

/// The same attention with the keys and values of an earlier layer.
fn sharing(mut attention: Attention) -> Mixer {
    if let Attention::Gqa { shared_kv, values_are_keys, .. } = &mut attention {
        (*shared_kv, *values_are_keys) = (true, false);
    }
    Mixer::Attention(attention)
}

fn layer_inputs(reader: &mut Reader) -> Option<LayerInputs> {
    let width = reader.number("hidden_size_per_layer_input", 256);
    (width > 0)
        .then(|| LayerInputs { vocab_size: reader.number("vocab_size_per_layer_input", 262_144), width })
}
