//! Tensor-parallel plans that NeMo Automodel brings along: the default and those per model class.

use super::style::{Placement, SEQUENCE, Style};

/// A plan: module patterns and styles, later entries winning.
pub type Plan = Vec<(String, Style)>;

/// Classes that have a plan of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Any other: the default plan.
    Default,
    /// Llama: the output layer keeps its columns apart.
    Llama,
    /// Qwen2 and Qwen3: like Llama; norms of queries and keys under sequence parallelism.
    Qwen,
    /// Gemma 3: embedding and output layer are one tensor and stay whole.
    Gemma3,
    /// Megatron-FSDP's default: embedding and output layer stay whole, no sequence parallelism.
    MegatronFsdp,
}

impl Class {
    /// The class of a `model_type` of transformers.
    pub fn of(model_type: Option<&str>) -> Class {
        match model_type {
            Some("llama") => Class::Llama,
            Some("qwen2" | "qwen3") => Class::Qwen,
            Some("gemma3" | "gemma3_text") => Class::Gemma3,
            _ => Class::Default,
        }
    }
}

const LAYER: &str = "model.layers.*";

/// The plan of a class, with sequence parallelism or without.
pub fn class_plan(class: Class, sequence_parallel: bool) -> Plan {
    let mut plan = Plan::new();
    let mut add = |pattern: &str, style: Style| plan.push((pattern.to_owned(), style));
    let sp = sequence_parallel && class != Class::MegatronFsdp;
    let row_out = if sp { SEQUENCE } else { Placement::Replicate };
    let whole_ends = matches!(class, Class::Gemma3 | Class::MegatronFsdp);
    if !whole_ends {
        add("model.embed_tokens", Style::Rowwise { input: Placement::Replicate, output: row_out });
    }
    let row = Style::Rowwise { input: Placement::Shard(-1), output: row_out };
    for name in ["q_proj", "k_proj", "v_proj"] {
        add(&format!("{LAYER}.self_attn.{name}"), Style::COLWISE);
    }
    add(&format!("{LAYER}.self_attn.o_proj"), row);
    for name in ["up_proj", "gate_proj"] {
        add(&format!("{LAYER}.mlp.{name}"), Style::COLWISE);
    }
    add(&format!("{LAYER}.mlp.down_proj"), row);
    if !whole_ends {
        let input = if sp { SEQUENCE } else { Placement::Replicate };
        let keep = matches!(class, Class::Llama | Class::Qwen);
        let output = if keep { Placement::Shard(-1) } else { Placement::Replicate };
        add("lm_head", Style::Colwise { input, output, keep_dtensor: keep });
    }
    if sp {
        add("model.norm", Style::SequenceParallel);
        for name in ["input_layernorm", "post_attention_layernorm"] {
            add(&format!("{LAYER}.{name}"), Style::SequenceParallel);
        }
        match class {
            Class::Qwen => {
                add("model.rotary_emb", Style::PrepareInput);
                add(&format!("{LAYER}.self_attn.q_norm"), Style::SequenceParallel);
                add(&format!("{LAYER}.self_attn.k_norm"), Style::SequenceParallel);
            }
            Class::Gemma3 => {
                add("model.embed_tokens", Style::PrepareInput);
                add("model.rotary_emb", Style::PrepareInput);
                add("model.rotary_emb_local", Style::PrepareInput);
                for name in ["pre_feedforward_layernorm", "post_feedforward_layernorm"] {
                    add(&format!("{LAYER}.{name}"), Style::SequenceParallel);
                }
            }
            _ => {}
        }
    }
    plan
}
