//! Import of Megatron-Core's `TransformerConfig` fields, as its logs, recipes and measurements name them.

use serde_json::{Map, Value};

use super::{
    Activation, Architecture, Attention, Balance, LayerKind, LayerRun, Moe, Norm, QkNorm, Routing, Score,
    fold,
};

/// What stands beside the `TransformerConfig`: arguments of the model and the tokenizer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside {
    /// Words, before padding.
    pub vocab_size: u64,
    /// `untie_embeddings_and_output_weights` is off.
    pub tied_embeddings: bool,
    /// Learned positions, for `learned_absolute`.
    pub learned_positions: Option<u64>,
}

/// The architecture of a Megatron-Core `TransformerConfig`, absent fields at Megatron's defaults.
///
/// # Errors
/// The name of the field that is missing, or of the wrong type.
pub fn import_megatron(config: &Map<String, Value>, beside: Beside) -> Result<Architecture, String> {
    let number = |name: &str| match config.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            value.as_u64().map(Some).ok_or_else(|| format!("`{name}` is {value}, not a whole number"))
        }
    };
    let need = |name: &str| number(name)?.ok_or_else(|| format!("`{name}` is missing"));
    let flag = |name: &str| config.get(name).and_then(Value::as_bool).unwrap_or(false);
    let word = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (hidden_size, num_layers) = (need("hidden_size")?, need("num_layers")?);
    let heads = need("num_attention_heads")?;
    let biased = flag("add_bias_linear");
    let attention = if flag("multi_latent_attention") {
        Attention::Mla {
            heads,
            q_lora_rank: number("q_lora_rank")?,
            kv_lora_rank: need("kv_lora_rank")?,
            qk_nope_dim: need("qk_head_dim")?,
            qk_rope_dim: need("qk_pos_emb_head_dim")?,
            v_dim: need("v_head_dim")?,
            indexer: None,
            output_gate: false,
        }
    } else {
        Attention::Gqa {
            heads,
            kv_heads: number("num_query_groups")?.unwrap_or(heads),
            head_dim: number("kv_channels")?.unwrap_or(hidden_size / heads.max(1)),
            rotary_dim: None,
            qk_norm: if flag("qk_layernorm") { QkNorm::PerHead } else { QkNorm::None },
            qkv_bias: biased || flag("add_qkv_bias"),
            out_bias: biased,
            sinks: word("softmax_type") == "learnable",
            output_gate: flag("attention_output_gate"),
            values_are_keys: false,
        }
    };
    let ffn_hidden_size = number("ffn_hidden_size")?.unwrap_or(4 * hidden_size);
    let moe = match number("num_moe_experts")? {
        None => None,
        Some(experts) => Some(Moe {
            experts,
            top_k: number("moe_router_topk")?.unwrap_or(2),
            ffn_hidden_size: number("moe_ffn_hidden_size")?.unwrap_or(ffn_hidden_size),
            shared_ffn_hidden_size: number("moe_shared_expert_intermediate_size")?.unwrap_or(0),
            shared_gate: flag("moe_shared_expert_gate"),
            router_bias: biased,
            latent_size: number("moe_latent_size")?,
            latent_norm: false,
            scaled_branches: false,
            router_bias_buffer: if flag("moe_router_enable_expert_bias") { experts } else { 0 },
            routing: routing(config),
        }),
    };
    Ok(Architecture {
        num_layers,
        hidden_size,
        ffn_hidden_size,
        vocab_size: beside.vocab_size,
        attention,
        other_mixers: Vec::new(),
        pattern: pattern(config.get("moe_layer_freq"), num_layers)?,
        moe,
        gated: flag("gated_linear_unit"),
        activation: if word("activation_func") == "silu" { Activation::Silu } else { Activation::Gelu },
        mlp_bias: biased,
        norm: if word("normalization") == "RMSNorm" { Norm::Rms } else { Norm::Layer },
        norm_eps: 1e-5,
        rope_theta: 10_000.0,
        tied_embeddings: beside.tied_embeddings,
        learned_positions: beside.learned_positions,
        mtp_layers: number("mtp_num_layers")?.unwrap_or(0),
        mtp_shared: flag("mtp_use_repeated_layer"),
        mtp_pattern: Vec::new(),
        post_norms: false,
        hyper_connections: 0,
        attention_residuals: false,
    })
}

/// The router's switches; sigmoid scores are always normalised, softmax scores unless softmax comes first.
fn routing(config: &Map<String, Value>) -> Routing {
    let usual = Routing::default();
    let word = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let flag = |name: &str| config.get(name).and_then(Value::as_bool).unwrap_or(false);
    let real = |name: &str, otherwise: f64| config.get(name).and_then(Value::as_f64).unwrap_or(otherwise);
    let number = |name: &str| config.get(name).and_then(Value::as_u64).unwrap_or(1);
    let score = if word("moe_router_score_function") == "sigmoid" { Score::Sigmoid } else { Score::Softmax };
    Routing {
        score,
        normalize: score == Score::Sigmoid || !flag("moe_router_pre_softmax"),
        scale: real("moe_router_topk_scaling_factor", usual.scale),
        groups: number("moe_router_num_groups"),
        group_top_k: number("moe_router_group_topk"),
        balance: match word("moe_router_load_balancing_type") {
            _ if flag("moe_router_force_load_balancing") => Balance::Forced,
            "aux_loss" => Balance::AuxLoss,
            "seq_aux_loss" => Balance::SeqAuxLoss,
            "global_aux_loss" => Balance::GlobalAuxLoss,
            _ => Balance::None,
        },
        aux_coefficient: real("moe_aux_loss_coeff", usual.aux_coefficient),
        bias_update_rate: real("moe_router_bias_update_rate", usual.bias_update_rate),
    }
}

/// `moe_layer_freq`: a number n makes every n-th layer from the first a mixture; a list says it for each.
fn pattern(frequency: Option<&Value>, num_layers: u64) -> Result<Vec<LayerRun>, String> {
    let wrong = || "`moe_layer_freq` is neither a number nor a list with an entry for each layer".to_owned();
    let kind = |experts: bool| if experts { LayerKind::MOE } else { LayerKind::DENSE };
    match frequency {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() as u64 == num_layers => {
            let kinds: Vec<LayerKind> = list.iter().map(|entry| kind(entry.as_u64() != Some(0))).collect();
            Ok(fold(&kinds))
        }
        Some(value) => {
            let every = value.as_u64().filter(|&every| every > 0).ok_or_else(wrong)?;
            let kinds: Vec<LayerKind> =
                (0..num_layers).map(|layer| kind(layer.is_multiple_of(every))).collect();
            Ok(fold(&kinds))
        }
    }
}
