//! Import of a Hugging Face config.json.
//!
//! Every field that is read, and every one that had to be assumed, is reported. A field of the wrong type, a missing
//! one or an unknown architecture is a finding, never a panic.

use serde_json::{Map, Value};

use super::{Activation, Architecture, Attention, Moe, Norm, QkNorm};
use crate::finding::{Finding, has_error, nearest_names};

/// What came out of a config.json.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The architecture; none when a finding is an error.
    pub architecture: Option<Architecture>,
    /// What is wrong or worth knowing.
    pub findings: Vec<Finding>,
    /// Fields that were absent and took Hugging Face's default.
    pub assumed: Vec<String>,
}

/// `model_type`s that can be imported.
const MODEL_TYPES: &[&str] = &[
    "deepseek_v2",
    "deepseek_v3",
    "glm4_moe",
    "gpt_oss",
    "kimi_k2",
    "llama",
    "minimax_m2",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
];

/// The `model_type`s that `import_hf` knows, sorted.
pub fn supported_model_types() -> &'static [&'static str] {
    MODEL_TYPES
}

/// Reads fields and remembers what was wrong.
struct Reader<'a> {
    config: &'a Map<String, Value>,
    findings: Vec<Finding>,
    assumed: Vec<String>,
}

impl Reader<'_> {
    fn present(&self, name: &str) -> Option<&Value> {
        self.config.get(name).filter(|value| !value.is_null())
    }

    fn wrong_type(&mut self, name: &str, wanted: &str) {
        let value = self.config.get(name).cloned().unwrap_or_default();
        let shown = short(&value);
        self.findings.push(
            Finding::error(
                &format!("model.hf_config.{name}"),
                short_value(&value),
                format!("`{name}` in config.json is {shown}; it must be {wanted}"),
            )
            .rule("Hugging Face config.json"),
        );
    }

    fn missing(&mut self, name: &str) {
        self.findings.push(
            Finding::error(
                &format!("model.hf_config.{name}"),
                Value::Null,
                format!("config.json has no `{name}`, which this architecture needs; paste the whole file"),
            )
            .rule("Hugging Face config.json"),
        );
    }

    /// A positive whole number that must be there.
    fn need(&mut self, name: &str) -> u64 {
        match self.present(name) {
            None => {
                self.missing(name);
                1
            }
            Some(value) => match value.as_u64().filter(|&number| number > 0) {
                Some(number) => number,
                None => {
                    self.wrong_type(name, "a whole number of at least 1");
                    1
                }
            },
        }
    }

    /// A whole number, or the default.
    fn number(&mut self, name: &str, default: u64) -> u64 {
        match self.present(name).map(Value::as_u64) {
            None => {
                self.assumed.push(format!("model.hf_config.{name}"));
                default
            }
            Some(Some(number)) => number,
            Some(None) => {
                self.wrong_type(name, "a whole number of at least 0");
                default
            }
        }
    }

    fn real(&mut self, name: &str, default: f64) -> f64 {
        match self.present(name).map(Value::as_f64) {
            None => {
                self.assumed.push(format!("model.hf_config.{name}"));
                default
            }
            Some(Some(number)) if number > 0.0 => number,
            Some(_) => {
                self.wrong_type(name, "a number above 0");
                default
            }
        }
    }

    fn flag(&mut self, name: &str, default: bool) -> bool {
        match self.present(name).map(Value::as_bool) {
            None => {
                self.assumed.push(format!("model.hf_config.{name}"));
                default
            }
            Some(Some(flag)) => flag,
            Some(None) => {
                self.wrong_type(name, "true or false");
                default
            }
        }
    }

    fn list(&mut self, name: &str) -> Vec<u64> {
        match self.present(name) {
            None => Vec::new(),
            Some(value) => {
                let items =
                    value.as_array().map(|items| items.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
                match items {
                    Some(Some(items)) => items,
                    _ => {
                        self.wrong_type(name, "a list of whole numbers");
                        Vec::new()
                    }
                }
            }
        }
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 60 { format!("{}...", text.chars().take(57).collect::<String>()) } else { text }
}

fn short_value(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        other => Value::String(short(other)),
    }
}

/// The architecture of a Hugging Face config.json.
pub fn import_hf(config: &Map<String, Value>) -> Imported {
    let mut reader = Reader { config, findings: Vec::new(), assumed: Vec::new() };
    let architecture = read(&mut reader);
    let Reader { findings, assumed, .. } = reader;
    let architecture = architecture.filter(|_| !has_error(&findings));
    Imported { architecture, findings, assumed }
}

fn model_type(reader: &mut Reader<'_>) -> Option<String> {
    let field = "model.hf_config.model_type";
    match reader.present("model_type").cloned() {
        Some(Value::String(name)) if MODEL_TYPES.contains(&name.as_str()) => Some(name),
        Some(Value::String(name)) => {
            let near = nearest_names(&name, MODEL_TYPES.iter().copied(), 3);
            let message = format!(
                "config.json is of architecture `{}`, which can't be imported yet; known are {}; or give `model.architecture` in Shardplan's own words",
                short(&Value::String(name.clone())).trim_matches('"'),
                MODEL_TYPES.join(", ")
            );
            let shown =
                short_value(&Value::String(name)).as_str().unwrap_or_default().trim_matches('"').to_owned();
            reader.findings.push(
                Finding::error(field, shown, message)
                    .rule("architectures that can be imported")
                    .nearest(near),
            );
            None
        }
        Some(_) => {
            reader.wrong_type("model_type", "a name such as \"llama\"");
            None
        }
        None => {
            reader.findings.push(
                Finding::error(
                    field,
                    Value::Null,
                    "this JSON has no `model_type`, so it is not a Hugging Face config.json of a language model; paste the whole file",
                )
                .rule("Hugging Face config.json"),
            );
            None
        }
    }
}

fn read(reader: &mut Reader<'_>) -> Option<Architecture> {
    let kind = model_type(reader)?;
    let hidden_size = reader.need("hidden_size");
    let num_layers = reader.need("num_hidden_layers");
    let vocab_size = reader.need("vocab_size");
    let attention = match kind.as_str() {
        "deepseek_v2" | "deepseek_v3" | "kimi_k2" => latent_attention(reader),
        _ => grouped_attention(reader, &kind, hidden_size),
    };
    let moe = mixture(reader, &kind, num_layers);
    let ffn_hidden_size = reader.need("intermediate_size");
    let activation = match reader.present("hidden_act").and_then(Value::as_str) {
        None | Some("silu" | "swish") => Activation::Silu,
        Some("gelu" | "gelu_new" | "gelu_pytorch_tanh") => Activation::Gelu,
        Some(_) => {
            reader.wrong_type("hidden_act", "\"silu\" or \"gelu\"");
            Activation::Silu
        }
    };
    let mlp_bias = kind == "gpt_oss" || (kind == "llama" && reader.flag("mlp_bias", false));
    // Hugging Face ties by default; these architectures' own configurations set false.
    let tied = reader.flag("tie_word_embeddings", false);
    if reader.present("num_nextn_predict_layers").and_then(Value::as_u64).is_some_and(|layers| layers > 0) {
        reader.findings.push(
            Finding::info(
                "model.hf_config.num_nextn_predict_layers",
                reader.config.get("num_nextn_predict_layers").cloned().unwrap_or_default(),
                "config.json names multi-token-prediction modules; they are planned only when training.mtp_layers says how many",
            )
            .rule("model-card totals are without MTP modules"),
        );
    }
    Some(Architecture {
        num_layers,
        hidden_size,
        ffn_hidden_size,
        vocab_size,
        attention,
        moe,
        gated: true,
        activation,
        mlp_bias,
        norm: Norm::Rms,
        norm_eps: reader.real("rms_norm_eps", 1e-6),
        rope_theta: rope_theta(reader),
        tied_embeddings: tied,
        learned_positions: None,
        mtp_layers: 0,
    })
}

/// `rope_theta`, which newer configurations keep inside `rope_parameters`.
fn rope_theta(reader: &mut Reader<'_>) -> f64 {
    let nested =
        reader.present("rope_parameters").and_then(|inner| inner.get("rope_theta")).and_then(Value::as_f64);
    match nested {
        Some(theta) if theta > 0.0 => theta,
        _ => reader.real("rope_theta", 10_000.0),
    }
}

fn grouped_attention(reader: &mut Reader<'_>, kind: &str, hidden_size: u64) -> Attention {
    let heads = reader.need("num_attention_heads");
    let kv_heads = reader.number("num_key_value_heads", heads);
    let head_dim = reader.number("head_dim", hidden_size / heads.max(1));
    let qkv_bias = match kind {
        "qwen2" => true,
        "llama" | "qwen3" | "qwen3_moe" | "glm4_moe" => reader.flag("attention_bias", false),
        "gpt_oss" => reader.flag("attention_bias", true),
        _ => false,
    };
    let qk_norm = match kind {
        "qwen3" | "qwen3_moe" => QkNorm::PerHead,
        "glm4_moe" if reader.flag("use_qk_norm", false) => QkNorm::PerHead,
        "minimax_m2" if reader.flag("use_qk_norm", true) => QkNorm::Full,
        _ => QkNorm::None,
    };
    let rotary_dim = match reader.present("partial_rotary_factor").and_then(Value::as_f64) {
        Some(share) if share > 0.0 && share <= 1.0 => Some((share * head_dim as f64) as u64),
        _ => reader.present("rotary_dim").is_some().then(|| reader.number("rotary_dim", head_dim)),
    };
    Attention::Gqa {
        heads,
        kv_heads,
        head_dim,
        rotary_dim,
        qk_norm,
        qkv_bias,
        // Hugging Face's Llama, Qwen3 and gpt-oss put the same switch on the output projection.
        out_bias: qkv_bias && !matches!(kind, "qwen2" | "glm4_moe"),
        sinks: kind == "gpt_oss",
    }
}

fn latent_attention(reader: &mut Reader<'_>) -> Attention {
    Attention::Mla {
        heads: reader.need("num_attention_heads"),
        q_lora_rank: reader.present("q_lora_rank").is_some().then(|| reader.need("q_lora_rank")),
        kv_lora_rank: reader.need("kv_lora_rank"),
        qk_nope_dim: reader.need("qk_nope_head_dim"),
        qk_rope_dim: reader.need("qk_rope_head_dim"),
        v_dim: reader.need("v_head_dim"),
    }
}

fn mixture(reader: &mut Reader<'_>, kind: &str, num_layers: u64) -> Option<Moe> {
    // A list of layers is made below, so the number of layers must be sane before.
    let num_layers = num_layers.min(super::super::plan::MAX_LAYERS);
    let top_k = |reader: &mut Reader<'_>| reader.need("num_experts_per_tok");
    match kind {
        "mixtral" | "minimax_m2" | "gpt_oss" => {
            let experts = reader.need("num_local_experts");
            let router_bias = kind == "minimax_m2" && reader.flag("use_routing_bias", true);
            Some(Moe {
                experts,
                top_k: top_k(reader),
                ffn_hidden_size: reader.need("intermediate_size"),
                shared_ffn_hidden_size: 0,
                shared_gate: false,
                router_bias: kind == "gpt_oss",
                dense_layers: Vec::new(),
                router_bias_buffer: if router_bias { experts } else { 0 },
            })
        }
        "qwen3_moe" => {
            let step = reader.number("decoder_sparse_step", 1).max(1);
            let only = reader.list("mlp_only_layers");
            let dense = |&layer: &u64| only.contains(&layer) || !(layer + 1).is_multiple_of(step);
            Some(Moe {
                experts: reader.need("num_experts"),
                top_k: top_k(reader),
                ffn_hidden_size: reader.need("moe_intermediate_size"),
                shared_ffn_hidden_size: 0,
                shared_gate: false,
                router_bias: false,
                dense_layers: (0..num_layers).filter(dense).collect(),
                router_bias_buffer: 0,
            })
        }
        "deepseek_v2" | "deepseek_v3" | "kimi_k2" | "glm4_moe" => {
            reader.present("n_routed_experts")?;
            let experts = reader.need("n_routed_experts");
            let ffn = reader.need("moe_intermediate_size");
            let (first, every) =
                (reader.number("first_k_dense_replace", 0), reader.number("moe_layer_freq", 1).max(1));
            let dense = |&layer: &u64| layer < first || !layer.is_multiple_of(every);
            let shared = reader.number("n_shared_experts", 0);
            Some(Moe {
                experts,
                top_k: top_k(reader),
                ffn_hidden_size: ffn,
                shared_ffn_hidden_size: shared.saturating_mul(ffn),
                shared_gate: false,
                router_bias: false,
                dense_layers: (0..num_layers).filter(dense).collect(),
                router_bias_buffer: if kind == "deepseek_v2" { 0 } else { experts },
            })
        }
        _ => None,
    }
}
