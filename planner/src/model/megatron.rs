//! Import of Megatron-Core's `TransformerConfig` fields, as its logs, recipes and measurements name them.

use serde_json::{Map, Value};

use super::{
    Activation, Architecture, Attention, Balance, DeltaNet, Indexer, LayerKind, LayerRun, Mixer, Mlp, Moe,
    Norm, QkNorm, Routing, Score, Scores, fold,
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
            qk_norm: flag("qk_layernorm"),
            indexer: indexer(config)?,
            output_gate: false,
            joint_gate: false,
            sinks: false,
            head_gate: false,
            scores: Scores::default(),
        }
    } else {
        Attention::Gqa {
            heads,
            kv_heads: number("num_query_groups")?.unwrap_or(heads),
            head_dim: number("kv_channels")?.unwrap_or(hidden_size / heads.max(1)),
            rotary_dim: None,
            qk_norm: QkNorm::per_head(flag("qk_layernorm"), word("normalization") == "LayerNorm"),
            qkv_bias: biased || flag("add_qkv_bias"),
            out_bias: biased,
            sinks: word("softmax_type") == "learnable",
            output_gate: flag("attention_output_gate"),
            values_are_keys: false,
            value_norm: false,
            shared_kv: false,
            value_dim: None,
            head_gate: false,
            scores: Scores::default(),
        }
    };
    let delta = matches!(word("experimental_attention_variant"), "gdn" | "gated_delta_net");
    let other_mixers = if delta { vec![Mixer::DeltaNet(delta_net(config)?)] } else { Vec::new() };
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
            weighs_inputs: false,
            identity_experts: 0,
            router_bias_buffer: if flag("moe_router_enable_expert_bias") { experts } else { 0 },
            routing: routing(config),
        }),
    };
    Ok(Architecture {
        pattern: pattern(config, !other_mixers.is_empty(), num_layers)?,
        other_mixers,
        moe,
        gated: flag("gated_linear_unit"),
        activation: if word("activation_func") == "silu" { Activation::Silu } else { Activation::Gelu },
        mlp_bias: biased,
        norm: if word("normalization") == "RMSNorm" { Norm::Rms } else { Norm::Layer },
        tied_embeddings: beside.tied_embeddings,
        learned_positions: beside.learned_positions,
        mtp_layers: number("mtp_num_layers")?.unwrap_or(0),
        mtp_shared: flag("mtp_use_repeated_layer"),
        ..Architecture::of(num_layers, hidden_size, ffn_hidden_size, beside.vocab_size, attention)
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
        group_experts: None,
        balance: match word("moe_router_load_balancing_type") {
            _ if flag("moe_router_force_load_balancing") => Balance::Forced,
            "aux_loss" => Balance::AuxLoss,
            "seq_aux_loss" => Balance::SeqAuxLoss,
            "global_aux_loss" => Balance::GlobalAuxLoss,
            _ => Balance::None,
        },
        aux_coefficient: real("moe_aux_loss_coeff", usual.aux_coefficient),
        z_coefficient: real("moe_z_loss_coeff", usual.z_coefficient),
        bias_update_rate: real("moe_router_bias_update_rate", usual.bias_update_rate),
    }
}

/// A positive whole number, or Megatron's default.
fn size(config: &Map<String, Value>, name: &str, usual: u64) -> Result<u64, String> {
    match config.get(name) {
        None | Some(Value::Null) => Ok(usual),
        Some(value) => {
            let size = value.as_u64().filter(|&size| size > 0);
            size.ok_or_else(|| format!("`{name}` is {value}, not a whole number above 0"))
        }
    }
}

/// The gated delta net of `experimental_attention_variant`.
fn delta_net(config: &Map<String, Value>) -> Result<DeltaNet, String> {
    Ok(DeltaNet {
        key_heads: size(config, "linear_num_key_heads", 16)?,
        value_heads: size(config, "linear_num_value_heads", 32)?,
        key_dim: size(config, "linear_key_head_dim", 128)?,
        value_dim: size(config, "linear_value_head_dim", 128)?,
        conv_kernel: size(config, "linear_conv_kernel_dim", 4)?,
    })
}

/// What chooses tokens in sparse attention, where that is the variant.
fn indexer(config: &Map<String, Value>) -> Result<Option<Indexer>, String> {
    if config.get("experimental_attention_variant").and_then(Value::as_str) != Some("dsa") {
        return Ok(None);
    }
    let need = |name: &str| match size(config, name, 0)? {
        0 => Err(format!("`{name}` is missing")),
        size => Ok(size),
    };
    Ok(Some(Indexer { heads: need("dsa_indexer_n_heads")?, head_dim: need("dsa_indexer_head_dim")? }))
}

/// Kinds of the layers. `moe_layer_freq`: a number n makes every n-th layer from the first a mixture; a list says it for
/// each. `linear_attention_freq`, where there is a delta net: of n layers the last has attention; a list has 1 for each
/// layer without.
fn pattern(config: &Map<String, Value>, delta: bool, num_layers: u64) -> Result<Vec<LayerRun>, String> {
    let set = |name: &str| config.get(name).filter(|value| !value.is_null());
    let (experts, linear) = (set("moe_layer_freq"), set("linear_attention_freq"));
    if delta && linear.is_none() {
        return Err("`linear_attention_freq` is missing".to_owned());
    }
    if experts.is_none() && !delta {
        return Ok(Vec::new());
    }
    let experts = every(experts, "moe_layer_freq", num_layers, |layer, n| layer.is_multiple_of(n))?;
    let linear = if delta { linear } else { None };
    let linear =
        every(linear, "linear_attention_freq", num_layers, |layer, n| !(layer + 1).is_multiple_of(n))?;
    let kind = |layer: usize| {
        let mixer = u64::from(delta && linear.get(layer) == Some(&true));
        let mlp = if experts.get(layer) == Some(&false) { Mlp::Dense } else { Mlp::Moe };
        LayerKind::new(Some(mixer), mlp)
    };
    let layers = usize::try_from(num_layers).map_err(|_| "too many layers".to_owned())?;
    Ok(fold(&(0..layers).map(kind).collect::<Vec<_>>()))
}

/// A frequency, or a list with an entry for each layer; empty where neither is there.
fn every(
    value: Option<&Value>,
    name: &str,
    num_layers: u64,
    by_number: impl Fn(u64, u64) -> bool,
) -> Result<Vec<bool>, String> {
    let wrong = || format!("`{name}` is neither a number nor a list with an entry for each layer");
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() as u64 == num_layers => {
            Ok(list.iter().map(|entry| entry.as_u64() != Some(0)).collect())
        }
        Some(value) => {
            let n = value.as_u64().filter(|&n| n > 0).ok_or_else(wrong)?;
            Ok((0..num_layers).map(|layer| by_number(layer, n)).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::count;

    /// Parameters of a `TransformerConfig`.
    fn parameters(config: Value) -> Result<u64, String> {
        let beside = Beside { vocab_size: 1000, tied_embeddings: true, learned_positions: None };
        import_megatron(config.as_object().unwrap(), beside).map(|model| count(&model).0)
    }

    fn base() -> Value {
        json!({"num_layers": 4, "hidden_size": 64, "ffn_hidden_size": 96, "num_attention_heads": 4, "kv_channels": 16,
               "num_query_groups": 2, "normalization": "RMSNorm", "gated_linear_unit": true})
    }

    #[test]
    fn delta_nets_stand_where_the_frequency_says() {
        let with = |more: Value| {
            let mut config = base();
            config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            parameters(config)
        };
        let plain = with(json!({})).unwrap();
        let net = json!({"experimental_attention_variant": "gated_delta_net", "linear_num_key_heads": 2,
                         "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8});
        let freq = |value: Value| {
            let mut more = net.clone();
            more["linear_attention_freq"] = value;
            with(more)
        };
        // Projections in, convolution, decay and step of each value head, norm, projection out; instead of attention.
        let inner = 2 * 16 + 2 * 32 + 2 * 4;
        let of_net = 64 * inner + 4 * (2 * 16 + 32) + 2 * 4 + 8 + 32 * 64;
        let of_attention = 64 * (4 + 2 * 2) * 16 + 4 * 16 * 64;
        assert_eq!(freq(json!(4)).unwrap(), plain + 3 * of_net - 3 * of_attention);
        assert_eq!(freq(json!([1, 0, 0, 0])).unwrap(), plain + of_net - of_attention);
        assert!(freq(Value::Null).unwrap_err().contains("linear_attention_freq"));
        assert!(freq(json!([1, 0])).unwrap_err().contains("linear_attention_freq"));
    }

    #[test]
    fn every_second_layer_from_the_first_has_experts() {
        let mut config = base();
        let moe = json!({"num_moe_experts": 4, "moe_ffn_hidden_size": 32, "moe_layer_freq": 2});
        config.as_object_mut().unwrap().extend(moe.as_object().unwrap().clone());
        let plain = parameters(base()).unwrap();
        let (dense, mixture) = (3 * 64 * 96, 4 * 3 * 64 * 32 + 4 * 64);
        assert_eq!(parameters(config.clone()).unwrap(), plain + 2 * mixture - 2 * dense);
        config["moe_layer_freq"] = json!([0, 1, 1, 1]);
        assert_eq!(parameters(config).unwrap(), plain + 3 * mixture - 3 * dense);
    }
}
