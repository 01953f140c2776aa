//! What a config.json says that changes what a model computes and none of its sizes, kept by name.
//!
//! This is an allow-list. A field that reading did not ask for says nothing of the mathematics (`SILENT`), or has a value
//! with which it changes nothing (`is_off`); every other one is kept, so that the worker can refuse to train a model
//! without it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::reader::{Reader, short_value};
use super::rope::not_understood;
use crate::model::{Architecture, Attention, Branches, QkNorm};

/// Epsilon of the norms of low-rank streams in transformers' latent attention.
const LOW_RANK_EPSILON: f64 = 1e-6;

/// Most parts that are kept of one model, and that a plan may name.
pub(crate) const MOST_PARTS: usize = 256;

/// Model types whose code, as transformers 5.23 has it, computes what `Architecture` says: some are compared in tests of
/// the worker, the others were read. Whatever else is read is planned, and not run.
const COMPUTED: &[&str] = &[
    "afmoe",
    "apertus",
    "arcee",
    "cohere",
    "cohere2",
    "cwm",
    "deepseek_v2",
    "deepseek_v3",
    "dots1",
    "ernie4_5",
    "exaone4",
    "exaone_moe",
    "falcon",
    "flex_olmo",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma4",
    "glm",
    "glm4",
    "glm4_moe",
    "glm4_moe_lite",
    "gpt2",
    "gpt_neox",
    "gpt_oss",
    "gptj",
    "granite",
    "granitemoe",
    "granitemoeshared",
    "helium",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "hy_v3",
    "jais2",
    "kimi_k2",
    "llama",
    "llama4",
    "minimax_m2",
    "ministral",
    "ministral3",
    "mistral",
    "mixtral",
    "nemotron",
    "nemotron-nas",
    "olmo",
    "olmo2",
    "olmo3",
    "olmoe",
    "phi",
    "phi3",
    "qwen2",
    "qwen2_5_vl",
    "qwen2_moe",
    "qwen2_vl",
    "qwen3",
    "qwen3_moe",
    "qwen3_vl",
    "qwen3_vl_moe",
    "seed_oss",
    "smollm3",
    "solar_open",
    "stablelm",
    "starcoder2",
];

/// Fields that say nothing of what is computed: names, ids of words, how weights are stored, started, loaded and cached,
/// what is returned, and multi-token prediction, which the plan's own setting decides. How routers are balanced is
/// `routing`'s, which transformers' code does only where `output_router_logits` says so.
const SILENT: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "auto_map",
    "aux_loss_alpha",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "dtype",
    // In which type a sum is made.
    "enable_moe_fp32_combine",
    "ep_size",
    "gradient_checkpointing",
    "id2label",
    "initial_context_length",
    "initializer_factor",
    "initializer_range",
    "label2id",
    "max_length",
    "max_position_embeddings",
    "mamba_ssm_dtype",
    "max_window_layers",
    "model_type",
    "n_ctx",
    "n_positions",
    "num_mtp_modules",
    "num_mtp_layers",
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "original_max_position_embeddings",
    "output_attentions",
    "output_hidden_states",
    "pretraining_tp",
    "problem_type",
    "quantization",
    "quantization_config",
    "reorder_and_upcast_attn",
    "return_dict",
    "rope_interleave",
    "router_aux_loss_coef",
    "seq_aux",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "transformers_version",
    "use_bfloat16",
    "use_cache",
    "use_mtp",
];

/// Beginnings and ends of such fields.
const SILENT_STARTS: &[&str] = &["mtp_", "summary_"];
const SILENT_ENDS: &[&str] = &["_token_id", "_token_ids"];

/// Switches, probabilities, coefficients: nothing happens with false or 0.
const OFF_AT_ZERO: &[&str] = &[
    "attention_bias",
    "attention_dropout",
    "attn_pdrop",
    "bias",
    "dropout",
    "embd_pdrop",
    "embedding_dropout",
    "hidden_dropout",
    "hidden_dropout_prob",
    "input_jitter_noise",
    "is_encoder_decoder",
    "add_cross_attention",
    "apply_residual_connection_post_layernorm",
    "jitter_noise",
    "layernorm1p",
    "mlp_bias",
    "moe_input_jitter_eps",
    "output_router_logits",
    "post_norm",
    "resid_pdrop",
    "residual_dropout",
    "router_jitter_noise",
    "router_z_loss_coef",
    "scale_attn_by_inverse_layer_idx",
    "qkv_bias",
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
    "use_bias",
    "use_cla",
    "use_mrope",
    "use_qk_norm",
    "use_sliding_window",
    "z_loss_coef",
];

/// Multipliers: nothing happens with 1.
const OFF_AT_ONE: &[&str] = &[
    "embedding_multiplier",
    "embedding_scale",
    "num_expert_groups",
    "num_limited_groups",
    "layernorm_full_attention_beta",
    "layernorm_linear_attention_beta",
    "layernorm_mlp_beta",
    "logit_scale",
    "logits_scaling",
    "moe_layer_freq",
    "partial_rotary_factor",
    "residual_multiplier",
    "routed_scaling_factor",
];

/// The model's parts, once the rest of its config.json was read as a `kind`.
pub(super) fn keep(reader: &Reader, model_type: &str, architecture: &mut Architecture) {
    let mut parts = BTreeMap::new();
    let latent = matches!(architecture.attention, Attention::Mla { .. });
    if let Some(name) = not_understood(reader) {
        parts.insert(name.to_owned(), reader.config.get(name).map(short_value).unwrap_or_default());
    }
    for (name, value) in &reader.config {
        // What the file does not say and nobody asks for is no part of it.
        if reader.filled.contains(&name.as_str()) && !reader.was_asked(name) {
            continue;
        }
        let read = reader.was_asked(name) || matches!(name.as_str(), "rope_scaling" | "rope_theta");
        if !(read && !misread(name, value) || is_silent(name) || is_off(reader, architecture, name, value)) {
            parts.insert(name.clone(), short_value(value));
        }
    }
    if !COMPUTED.contains(&model_type) {
        parts.insert("model_type".to_owned(), Value::from(model_type));
    }
    // Norms of low-rank streams have an epsilon of their own there, whatever the others' is.
    if latent && COMPUTED.contains(&model_type) && architecture.norm_eps != LOW_RANK_EPSILON {
        parts.insert("epsilon of low-rank norms".to_owned(), Value::from(LOW_RANK_EPSILON));
    }
    architecture.parts = crate::order::map(parts.into_iter().take(MOST_PARTS));
}

/// Whether a field was read, and its value stands for something else than what was taken for it.
fn misread(name: &str, value: &Value) -> bool {
    let word = value.as_str();
    match name {
        // Planned as SiLU.
        "hidden_act" | "hidden_activation" | "mlp_hidden_act" => matches!(word, Some("swigluoai" | "situ")),
        "swiglu_alpha" => value.as_f64() != Some(1.702),
        "scoring_func" => !matches!(word, Some("softmax" | "sigmoid") | None),
        "block_configs" => !super::searched::is_read(value),
        _ => false,
    }
}

fn is_silent(name: &str) -> bool {
    SILENT.contains(&name)
        || SILENT_STARTS.iter().any(|start| name.starts_with(start))
        || SILENT_ENDS.iter().any(|end| name.ends_with(end))
}

/// Whether a field that was not read changes nothing with this value.
fn is_off(reader: &Reader, architecture: &Architecture, name: &str, value: &Value) -> bool {
    let (number, word) = (value.as_f64(), value.as_str());
    let all =
        |wanted: &dyn Fn(&Value) -> bool| value.as_array().is_some_and(|items| items.iter().all(wanted));
    let attention = &architecture.attention;
    match name {
        _ if value.is_null() || value.as_array().is_some_and(Vec::is_empty) => true,
        // gpt-oss says it twice.
        "experts_per_token" => reader.config.get("num_experts_per_tok") == Some(value),
        "use_qk_norm" if *value == true => {
            matches!(attention, Attention::Gqa { qk_norm, .. } if *qk_norm != QkNorm::None)
        }
        _ if OFF_AT_ZERO.contains(&name) => *value == Value::Bool(false) || number == Some(0.0),
        _ if OFF_AT_ONE.contains(&name) => number == Some(1.0),
        "sliding_window" => reader.config.get("use_sliding_window") == Some(&Value::Bool(false)),
        // Which layers have a window says nothing where there is none.
        "layer_types" => all(&|word| matches!(word.as_str(), Some("full_attention" | "sliding_attention"))),
        "attn_type_list" | "no_rope_layers" => all(&|flag| flag.as_u64() == Some(1)),
        "activation_function" => value.as_str() == Some("gelu_new"),
        "topk_method" => match value.as_str() {
            Some("noaux_tc") => true,
            Some("greedy") => architecture.moe.as_ref().is_none_or(|moe| moe.routing.groups <= 1),
            _ => false,
        },
        "no_rope_layer_interval" => reader.config.get("no_rope_layers").is_some_and(Value::is_array),
        "qk_norm_type" => value.as_str() == Some("per_layer"),
        // Text alone is causal there.
        "use_bidirectional_attention" => value.as_str() == Some("vision"),
        // Words of a table that a model without inputs of single layers does not have.
        "vocab_size_per_layer_input" => architecture.layer_inputs.is_none(),
        // Of the model before, whose code read them.
        "mlp_intermediate_size" | "shared_moe_mode" => {
            reader.config.get("model_type").and_then(Value::as_str) == Some("minimax_m2")
        }
        "position_embedding_type" => matches!(word, Some("rope" | "rope_gptj")),
        // What Cohere's files say of the class besides.
        "order_of_interleaved_layers" => word == Some("local_attn_first"),
        "qk_norm" => {
            let normed = matches!(attention, Attention::Gqa { qk_norm, .. } if *qk_norm != QkNorm::None);
            *value == Value::Bool(normed)
        }
        "layernorm_epsilon" | "norm_eps" => number == Some(architecture.norm_eps),
        "rotary_pct" => number == Some(1.0),
        "rotary" | "route_norm" => *value == Value::Bool(true),
        "score_func" => word == Some("sigmoid"),
        // Which layers have a window is listed.
        "full_attention_interval" | "global_attn_every_n_layers" | "sliding_window_pattern" => {
            reader.config.get("layer_types").is_some_and(Value::is_array)
        }
        // Hunyuan's experts, a value for each layer or one for all: its class has a width and a shared expert of it.
        "attention_head_dim" => {
            matches!(attention, Attention::Gqa { head_dim, .. } if value.as_u64() == Some(*head_dim))
        }
        "moe_intermediate_size" | "num_shared_expert" | "use_mixed_mlp_moe" => {
            let widths =
                architecture.moe.as_ref().map(|moe| (moe.ffn_hidden_size, moe.shared_ffn_hidden_size));
            let usual = |value: &Value| match name {
                "moe_intermediate_size" => widths.is_some_and(|(width, _)| value.as_u64() == Some(width)),
                "num_shared_expert" => {
                    widths.is_some_and(|(width, shared)| value.as_u64() == Some(shared / width.max(1)))
                }
                _ => *value == Value::Bool(true),
            };
            reader.config.get("model_type").is_some_and(|kind| kind == "hunyuan_v1_moe")
                && (usual(value) || all(&usual))
        }
        // Falcon's newer decoders don't ask for these, and its older ones with one key-value head not for their number.
        "multi_query" | "parallel_attn" => {
            *value == Value::Bool(true)
                && reader.config.get("new_decoder_architecture") == Some(&Value::Bool(true))
        }
        "num_kv_heads" => reader.config.get("multi_query") == Some(&Value::Bool(true)),
        "use_embedding_sharing" => *value == Value::Bool(architecture.tied_embeddings),
        "use_gated_activation" => *value == Value::Bool(architecture.gated),
        "use_parallel_block" => *value == Value::Bool(architecture.branches == Branches::OneNorm),
        "use_parallel_embedding" => *value == Value::Bool(false),
        "scale_attn_weights" => *value == Value::Bool(true),
        // Latent attention has as many keys as queries, and says its widths one by one.
        "num_key_value_heads" => value.as_u64() == Some(attention.heads()),
        "head_dim" | "qk_head_dim" => matches!(attention, Attention::Mla { .. }),
        _ => false,
    }
}
