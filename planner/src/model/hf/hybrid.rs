//! Models whose layers mix tokens in different ways: Qwen3-Next and 3.5, Nemotron-H and 3, Kimi Linear.

use serde_json::Value;

use super::common::{activation, base, grouped_attention, pattern_by};
use super::latent::latent_attention;
use super::mixture::{biased_beside_experts, dense_layers, experts, qwen_dense, qwen_experts, routing};
use super::reader::{Reader, short_value};
use crate::finding::Finding;
use crate::model::{
    Activation, Architecture, Attention, DeltaNet, KimiDelta, LayerKind, LayerRun, Mamba2, Mixer, Mlp,
    Positions, Score, fold,
};

/// Qwen3-Next and Qwen3.5: gated delta nets, and attention in every `full_attention_interval`-th layer.
pub(super) fn qwen_next(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = grouped_attention(reader, kind);
    let mut architecture = base(reader, attention);
    let delta = DeltaNet {
        key_heads: reader.number("linear_num_key_heads", 16),
        value_heads: reader.number("linear_num_value_heads", 32),
        key_dim: reader.number("linear_key_head_dim", 128),
        value_dim: reader.number("linear_value_head_dim", 128),
        conv_kernel: reader.number("linear_conv_kernel_dim", 4),
    };
    architecture.other_mixers = vec![Mixer::DeltaNet(delta)];
    let dense: Box<dyn Fn(u64) -> bool> = if kind == "qwen3_5" {
        Box::new(|_| true)
    } else {
        qwen_experts(reader, kind, &mut architecture);
        Box::new(qwen_dense(reader))
    };
    let types = reader.words("layer_types");
    let every = if types.is_none() { reader.number("full_attention_interval", 4).max(1) } else { 1 };
    architecture.pattern = pattern_by(architecture.num_layers, |layer| {
        let linear = match &types {
            Some(types) => types.get(layer as usize).is_some_and(|word| word == "linear_attention"),
            None => !(layer + 1).is_multiple_of(every),
        };
        let mlp = if dense(layer) { Mlp::Dense } else { Mlp::Moe };
        LayerKind::new(Some(u64::from(linear)), mlp)
    });
    let width = architecture.moe.as_ref().map_or(1, |moe| moe.ffn_hidden_size);
    architecture.ffn_hidden_size = if kind == "qwen3_5" {
        reader.need("intermediate_size")
    } else {
        reader.number("intermediate_size", width)
    };
    architecture
}

/// Nemotron-H and Nemotron 3: layers of one part each, Mamba-2, attention, MLP or experts.
pub(super) fn nemotron_h(reader: &mut Reader, kind: &str) -> Architecture {
    let said =
        ["hybrid_override_pattern", "layers_block_type"].iter().any(|name| reader.present(name).is_some());
    if !said {
        usual_layers(reader);
    }
    let kinds = block_kinds(reader, "hybrid_override_pattern", "layers_block_type");
    match (&kinds, reader.present("num_hidden_layers").and_then(Value::as_u64)) {
        (None, _) => reader.missing("hybrid_override_pattern"),
        (Some(kinds), Some(layers)) if layers != kinds.len() as u64 => {
            let message =
                format!("num_hidden_layers is {layers}, and the pattern has {} layers", kinds.len());
            reader.refuse("num_hidden_layers", "layer pattern of Nemotron-H", message);
        }
        (Some(kinds), _) => {
            reader.config.insert("num_hidden_layers".to_owned(), kinds.len().into());
        }
    }
    let attention = grouped_attention(reader, kind);
    let norm_eps = reader.real("layer_norm_epsilon", 1e-5);
    reader.config.insert("rms_norm_eps".to_owned(), norm_eps.into());
    // The MLP's activation has a name of its own here.
    let assumed = reader.assumed.len();
    let mut architecture = base(reader, attention);
    reader.take_back(assumed, &["hidden_act"]);
    architecture.gated = false;
    architecture.activation = if reader.present("mlp_hidden_act").is_some() {
        activation(reader, "mlp_hidden_act")
    } else {
        reader.assume("mlp_hidden_act");
        Activation::SquaredRelu
    };
    architecture.mlp_bias = reader.flag("mlp_bias", false);
    // Its class asks for neither.
    for name in ["attention_bias", "tie_word_embeddings"] {
        if reader.present(name) == Some(&Value::Bool(true)) {
            let message =
                format!("{name} is true, and the class of Nemotron-H does not ask for it: read as false");
            reader.note(name, "Hugging Face config.json", message);
        }
    }
    architecture.tied_embeddings = false;
    if let Attention::Gqa { qkv_bias, out_bias, scores, .. } = &mut architecture.attention {
        (*qkv_bias, *out_bias) = (false, false);
        // Mamba layers know the order of tokens; nothing is rotated.
        scores.positions = Positions::None;
    }
    architecture.ffn_hidden_size = reader.need("intermediate_size");
    architecture.other_mixers = vec![Mixer::Mamba2(Mamba2 {
        heads: reader.need("mamba_num_heads"),
        head_dim: reader.need("mamba_head_dim"),
        groups: reader.need("n_groups"),
        state: reader.need("ssm_state_size"),
        conv_kernel: reader.number("conv_kernel", 4),
        conv_bias: reader.flag("use_conv_bias", true),
        proj_bias: reader.flag("use_bias", false),
        out_norm: true,
    })];
    let kinds = kinds.unwrap_or_default();
    let has_experts = kinds.iter().any(|kind| kind.mlp == Mlp::Moe);
    if has_experts {
        biased_beside_experts(reader, architecture.mlp_bias);
        let mut moe = experts(reader, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size");
        if reader.number("n_shared_experts", 1) > 0 {
            moe.shared_ffn_hidden_size = reader.need("moe_shared_expert_intermediate_size");
        }
        moe.latent_size = reader.some("moe_latent_size");
        moe.router_bias_buffer = moe.experts;
        moe.routing = routing(reader, Score::Sigmoid, true);
        architecture.moe = Some(moe);
    }
    architecture.pattern = fold(&kinds);
    let modules =
        block_kinds(reader, "mtp_hybrid_override_pattern", "mtp_layers_block_type").unwrap_or_default();
    architecture.mtp_pattern = modules.into_iter().map(LayerKind::run).collect::<Vec<LayerRun>>();
    architecture
}

/// Puts the layers of Nemotron-H's class into a file that leaves its pattern out. The class has as many as that, whatever
/// number stands there.
fn usual_layers(reader: &mut Reader) {
    const LAYERS: &[&str] = &["linear_attention", "moe", "full_attention", "mlp"];
    reader.assume("layers_block_type");
    reader.config.insert("layers_block_type".to_owned(), LAYERS.into());
    let other = reader.config.insert("num_hidden_layers".to_owned(), LAYERS.len().into());
    if let Some(other) = other.filter(|other| other.as_u64() != Some(LAYERS.len() as u64)) {
        let message = format!(
            "num_hidden_layers is {}, and the file has no hybrid_override_pattern or layers_block_type, which says what they are: \
             read are the {} layers that its class has then; add the pattern",
            short_value(&other),
            LAYERS.len()
        );
        let field = reader.field("num_hidden_layers");
        reader
            .findings
            .push(Finding::warning(&field, short_value(&other), message).rule("layer pattern of Nemotron-H"));
    }
}

/// Layers by letters (`M*-E`) or by names.
fn block_kinds(reader: &mut Reader, letters: &str, names: &str) -> Option<Vec<LayerKind>> {
    let (field, blocks): (&str, Vec<String>) = if reader.present(letters).is_some() {
        let Some(text) = reader.present(letters).and_then(Value::as_str) else {
            reader.wrong_type(letters, "letters such as \"MEM*E\"");
            return None;
        };
        (letters, text.chars().map(String::from).collect())
    } else {
        (names, reader.words(names)?)
    };
    let (none, mamba) = (None, Some(1));
    let kinds: Result<Vec<LayerKind>, &String> = blocks
        .iter()
        .take(crate::model::MAX_LAYERS as usize + 1)
        .map(|block| match block.as_str() {
            "M" | "mamba" | "linear_attention" => Ok(LayerKind::new(mamba, Mlp::None)),
            "*" | "attention" | "full_attention" => Ok(LayerKind::new(Some(0), Mlp::None)),
            "-" | "mlp" => Ok(LayerKind::new(none, Mlp::Dense)),
            "E" | "moe" => Ok(LayerKind::new(none, Mlp::Moe)),
            _ => Err(block),
        })
        .collect();
    match kinds {
        Ok(kinds) => Some(kinds),
        Err(block) => {
            let message = format!(
                "`{}` in the pattern is no kind of layer; known are M (mamba), * (attention), - (mlp), E (moe)",
                crate::finding::clip(block)
            );
            reader.refuse(field, "layer pattern of Nemotron-H", message);
            None
        }
    }
}

/// Kimi Linear and Kimi-K3: delta attention, and latent attention in the layers that are listed (from 1).
pub(super) fn kimi_linear(reader: &mut Reader, kind: &str) -> Architecture {
    let mut attention = latent_attention(reader, kind);
    if let Attention::Mla { output_gate, .. } = &mut attention {
        *output_gate = reader.flag("mla_use_output_gate", false);
    }
    let mut architecture = base(reader, attention);
    // Its class has an output layer of its own, whatever a file says.
    architecture.tied_embeddings = false;
    architecture.ffn_hidden_size = reader.need("intermediate_size");
    let mut full = Vec::new();
    if let Some(mut linear) = reader.inside("linear_attn_config") {
        full = linear.list("full_attn_layers");
        architecture.other_mixers = vec![Mixer::KimiDelta(KimiDelta {
            heads: linear.need("num_heads"),
            head_dim: linear.need("head_dim"),
            conv_kernel: linear.number("short_conv_kernel_size", 4),
            full_rank_gate: linear.flag("use_full_rank_gate", false),
            full_rank_decay: false,
        })];
        reader.absorb(linear);
    } else {
        // As transformers' own class names the same.
        architecture.other_mixers = vec![Mixer::KimiDelta(KimiDelta {
            heads: reader.need("linear_num_heads"),
            head_dim: reader.need("linear_head_dim"),
            conv_kernel: reader.number("linear_conv_kernel_dim", 4),
            full_rank_gate: false,
            full_rank_decay: false,
        })];
        let types = reader.words("layer_types");
        full.extend((1..=architecture.num_layers.min(crate::model::MAX_LAYERS)).filter(
            |&layer| match &types {
                Some(types) => types.get(layer as usize - 1).is_some_and(|word| word == "full_attention"),
                None => layer > 4 && layer % 4 == 1,
            },
        ));
    }
    let mut dense: Box<dyn Fn(u64) -> bool> = Box::new(|_| true);
    // The second names are those of transformers' own class.
    let first = |reader: &Reader, names: [&'static str; 2]| {
        names.into_iter().find(|name| reader.present(name).is_some()).unwrap_or(names[0])
    };
    let number = first(reader, ["num_experts", "num_local_experts"]);
    if reader.present(number).is_some() {
        let top_k = first(reader, ["num_experts_per_token", "num_experts_per_tok"]);
        let mut moe = experts(reader, number, top_k, "moe_intermediate_size");
        let named = first(reader, ["num_shared_experts", "n_shared_experts"]);
        let shared = reader.number(named, 0);
        moe.shared_ffn_hidden_size = shared.saturating_mul(moe.ffn_hidden_size);
        moe.router_bias_buffer = moe.experts;
        moe.routing = routing(reader, Score::Sigmoid, true);
        moe.latent_size = reader.some("routed_expert_hidden_size");
        moe.latent_norm = moe.latent_size.is_some() && reader.flag("latent_moe_use_norm", false);
        architecture.moe = Some(moe);
        dense = Box::new(dense_layers(reader, architecture.num_layers, 1));
    }
    architecture.pattern = pattern_by(architecture.num_layers, |layer| {
        let mixer = u64::from(!full.contains(&(layer + 1)));
        LayerKind::new(Some(mixer), if dense(layer) { Mlp::Dense } else { Mlp::Moe })
    });
    architecture.attention_residuals = reader.present("attn_res_block_size").is_some();
    architecture
}
