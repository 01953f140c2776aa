//! Mixtures of experts on grouped-query attention.

use serde_json::Value;

use super::common::{base, dense_where, grouped_attention};
use super::reader::Reader;
use crate::model::{Architecture, Moe, Routing, Score};

/// Which layers are dense: those that `mlp_layer_types` names, where it is there, else by `first_k_dense_replace` (`usual`
/// where it is absent too) and `moe_layer_freq`, a number or an entry for each layer.
pub(super) fn dense_layers(reader: &mut Reader, layers: u64, usual: u64) -> impl Fn(u64) -> bool + use<> {
    let words = reader.words("mlp_layer_types");
    if let Some(words) = &words {
        let known = |word: &String| matches!(word.as_str(), "dense" | "sparse" | "moe" | "hash_moe");
        if !words.iter().all(known) || words.len() as u64 != layers {
            let message = format!(
                "`mlp_layer_types` must be `dense` or `sparse` for each of the {layers} layers, and names {}",
                words.len()
            );
            reader.refuse("mlp_layer_types", "layers with a dense MLP (transformers)", message);
        }
        // The list wins over both.
        for name in ["first_k_dense_replace", "moe_layer_freq"] {
            reader.present(name);
        }
    }
    let first = if words.is_none() { reader.number("first_k_dense_replace", usual) } else { 0 };
    let by_layer = reader
        .present("moe_layer_freq")
        .is_some_and(|value| value.is_array())
        .then(|| reader.list("moe_layer_freq"));
    let every = match (&words, &by_layer) {
        (None, None) => reader.number("moe_layer_freq", 1).max(1),
        _ => 1,
    };
    move |layer| match (&words, &by_layer) {
        (Some(words), _) => words.get(layer as usize).is_some_and(|word| word == "dense"),
        (None, Some(list)) => list.get(layer as usize) == Some(&0),
        (None, None) => layer < first || !layer.is_multiple_of(every),
    }
}

/// Experts without extras.
pub(super) fn experts(reader: &mut Reader, number: &str, top_k: &str, ffn: &str) -> Moe {
    Moe {
        experts: reader.need(number),
        top_k: reader.need(top_k),
        ffn_hidden_size: reader.need(ffn),
        shared_ffn_hidden_size: 0,
        shared_gate: false,
        router_bias: false,
        latent_size: None,
        latent_norm: false,
        scaled_branches: false,
        weighs_inputs: false,
        identity_experts: 0,
        router_bias_buffer: 0,
        routing: Routing::default(),
    }
}

/// How a config.json names routing: scores, whether weights are normalised, their factor, groups. What it does not say
/// is as the family's code has it: `score`, `normalize`, no factor, no groups.
pub(super) fn routing(reader: &mut Reader, score: Score, normalize: bool) -> Routing {
    let number = |reader: &Reader, name: &str| reader.present(name).and_then(Value::as_u64).unwrap_or(1);
    let word = reader.present("scoring_func").and_then(Value::as_str);
    Routing {
        score: match word {
            Some("sigmoid") => Score::Sigmoid,
            Some("softmax") => Score::Softmax,
            _ => score,
        },
        normalize: reader.present("norm_topk_prob").and_then(Value::as_bool).unwrap_or(normalize),
        scale: reader.present("routed_scaling_factor").and_then(Value::as_f64).unwrap_or(1.0),
        groups: number(reader, "n_group"),
        group_top_k: number(reader, "topk_group"),
        z_coefficient: ["router_z_loss_coef", "z_loss_coef"]
            .into_iter()
            .find_map(|name| reader.present(name).and_then(Value::as_f64))
            .unwrap_or(0.0),
        ..Routing::default()
    }
}

/// Mixtral, MiniMax-M2, gpt-oss: experts in every layer.
pub(super) fn local_experts(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = grouped_attention(reader, kind);
    let mut moe = experts(reader, "num_local_experts", "num_experts_per_tok", "intermediate_size");
    moe.router_bias = kind == "gpt_oss";
    let score = if kind == "minimax_m2" { Score::Sigmoid } else { Score::Softmax };
    moe.routing = routing(reader, score, true);
    if kind == "minimax_m2" && reader.flag("use_routing_bias", true) {
        moe.router_bias_buffer = moe.experts;
    }
    Architecture {
        ffn_hidden_size: moe.ffn_hidden_size,
        moe: Some(moe),
        mlp_bias: kind == "gpt_oss",
        ..base(reader, attention)
    }
}

/// MiniMax-M3: a shared expert, dense layers first.
pub(super) fn minimax_m3(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = grouped_attention(reader, kind);
    let mut moe = experts(reader, "num_local_experts", "num_experts_per_tok", "intermediate_size");
    moe.routing = routing(reader, Score::Sigmoid, true);
    if reader.flag("use_routing_bias", true) {
        moe.router_bias_buffer = moe.experts;
    }
    let shared = reader.number("n_shared_experts", 1);
    moe.shared_ffn_hidden_size =
        reader.number("shared_intermediate_size", moe.ffn_hidden_size).saturating_mul(shared);
    let architecture = base(reader, attention);
    let dense = dense_layers(reader, architecture.num_layers, 0);
    let pattern = dense_where(architecture.num_layers, dense);
    Architecture {
        ffn_hidden_size: reader.number("dense_intermediate_size", moe.ffn_hidden_size),
        moe: Some(moe),
        pattern,
        ..architecture
    }
}

/// Experts of the Qwen models: every `decoder_sparse_step`-th layer but those of `mlp_only_layers`.
pub(super) fn qwen_experts(reader: &mut Reader, kind: &str, architecture: &mut Architecture) {
    let mut moe = experts(reader, "num_experts", "num_experts_per_tok", "moe_intermediate_size");
    // Qwen2's and Qwen3's code normalises only where the config says so; later code always does.
    moe.routing = routing(reader, Score::Softmax, !matches!(kind, "qwen2_moe" | "qwen3_moe"));
    if kind != "qwen3_moe" {
        moe.shared_ffn_hidden_size = reader.need("shared_expert_intermediate_size");
        moe.shared_gate = true;
    }
    architecture.moe = Some(moe);
}

/// Which layers of a Qwen model are dense.
pub(super) fn qwen_dense(reader: &mut Reader) -> impl Fn(u64) -> bool + use<> {
    let step = reader.number("decoder_sparse_step", 1).max(1);
    if reader.present("mlp_only_layers").is_none() {
        reader.assume("mlp_only_layers");
    }
    let only = reader.list("mlp_only_layers");
    move |layer| only.contains(&layer) || !(layer + 1).is_multiple_of(step)
}

/// Qwen2-MoE and Qwen3-MoE.
pub(super) fn qwen(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = grouped_attention(reader, kind);
    let mut architecture = base(reader, attention);
    qwen_experts(reader, kind, &mut architecture);
    let dense = qwen_dense(reader);
    architecture.pattern = dense_where(architecture.num_layers, dense);
    architecture.ffn_hidden_size = reader.need("intermediate_size");
    architecture
}

/// Refuses biases that a class gives its dense MLPs and shared experts and not its routed ones.
pub(super) fn biased_beside_experts(reader: &mut Reader, biased: bool) {
    if biased {
        let message =
            "mlp_bias is true, which gives shared experts biases and routed ones none; that can't be planned"
                .to_owned();
        reader.refuse("mlp_bias", "parts of models that are not planned", message);
    }
}

/// Experts as DeepSeek's configs name them, and the pattern of their layers; none without `n_routed_experts`.
pub(super) fn routed_experts(reader: &mut Reader, kind: &str, architecture: &mut Architecture) {
    if reader.present("n_routed_experts").is_none() {
        return;
    }
    let second = kind == "deepseek_v2";
    // Its class leaves open how many a token goes to, and its models all have six.
    if second && reader.present("num_experts_per_tok").is_none() {
        reader.assume("num_experts_per_tok");
        reader.config.insert("num_experts_per_tok".to_owned(), 6.into());
    }
    let mut moe = experts(reader, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size");
    if second {
        let biased = reader.flag("mlp_bias", false);
        biased_beside_experts(reader, biased);
    }
    moe.routing = routing(reader, if second { Score::Softmax } else { Score::Sigmoid }, !second);
    let shared = reader.number("n_shared_experts", 0);
    moe.shared_ffn_hidden_size = shared.saturating_mul(moe.ffn_hidden_size);
    moe.router_bias_buffer = if kind == "deepseek_v2" { 0 } else { moe.experts };
    // As transformers' configurations of these types have it.
    let usual = match kind {
        "deepseek_v3" | "deepseek_v32" | "glm_moe_dsa" => 3,
        "glm4_moe" | "glm4_moe_lite" => 1,
        _ => 0,
    };
    let dense = dense_layers(reader, architecture.num_layers, usual);
    architecture.pattern = dense_where(architecture.num_layers, dense);
    architecture.moe = Some(moe);
}

/// GLM-4.5: DeepSeek's experts on grouped-query attention.
pub(super) fn deepseek_experts(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = grouped_attention(reader, kind);
    let mut architecture = base(reader, attention);
    routed_experts(reader, kind, &mut architecture);
    architecture.ffn_hidden_size = reader.need("intermediate_size");
    architecture
}

/// Llama 4: experts in every `interleave_moe_layer_step`-th layer, each layer with a shared one.
pub(super) fn llama4(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = grouped_attention(reader, kind);
    let mut architecture = base(reader, attention);
    let mut moe = experts(reader, "num_local_experts", "num_experts_per_tok", "intermediate_size");
    moe.shared_ffn_hidden_size = moe.ffn_hidden_size;
    moe.routing = routing(reader, Score::Sigmoid, false);
    let listed = reader.present("moe_layers").is_some().then(|| reader.list("moe_layers"));
    let step = reader.number("interleave_moe_layer_step", 1).max(1);
    architecture.pattern = dense_where(architecture.num_layers, |layer| match &listed {
        Some(layers) => !layers.contains(&layer),
        None => !(layer + 1).is_multiple_of(step),
    });
    architecture.ffn_hidden_size = reader.number("intermediate_size_mlp", 16_384);
    architecture.moe = Some(moe);
    architecture
}
