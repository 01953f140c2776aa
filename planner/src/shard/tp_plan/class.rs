//! Tensor-parallel plans that NeMo Automodel brings along: the default and those per model class.

use crate::layout::{Placement, SEQUENCE, Style};

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
    /// Gemma 3: like Llama, with norms behind the parts of a layer and two rotations.
    Gemma3,
    /// Phi-3: fused projections, whose columns are gathered behind attention and kept apart in the MLP.
    Phi3,
    /// Falcon-H1: Mamba-2 stays whole, and the MLP has another name; no sequence parallelism.
    FalconH1,
    /// Mistral 3 with its vision tower: like Llama, without sequence parallelism.
    Mistral3,
    /// Megatron-FSDP's default: embedding and output layer stay whole, no sequence parallelism.
    MegatronFsdp,
    /// Megatron-FSDP's under Megatron-LM and Megatron Bridge: ends are cut too.
    MegatronCore,
}

impl Class {
    /// The class of a `model_type` of transformers.
    pub fn of(model_type: Option<&str>) -> Class {
        match model_type {
            Some("llama" | "ministral3") => Class::Llama,
            Some("qwen2" | "qwen3") => Class::Qwen,
            Some("gemma3" | "gemma3_text") => Class::Gemma3,
            Some("phi3") => Class::Phi3,
            Some("falcon_h1") => Class::FalconH1,
            Some("mistral3") => Class::Mistral3,
            // Nemotron-NAS has a plan of its own too, which is the default one.
            _ => Class::Default,
        }
    }
}

const LAYER: &str = "model.layers.*";

/// The plan of a class, with sequence parallelism or without.
pub(crate) fn class_plan(class: Class, sequence_parallel: bool) -> Plan {
    if class == Class::Phi3 {
        return phi3_plan();
    }
    let mut plan = Plan::new();
    let mut add = |pattern: &str, style: Style| plan.push((pattern.to_owned(), style));
    let whole_sequence =
        matches!(class, Class::MegatronFsdp | Class::MegatronCore | Class::FalconH1 | Class::Mistral3);
    let sp = sequence_parallel && !whole_sequence;
    let mlp = if class == Class::FalconH1 { "feed_forward" } else { "mlp" };
    let row_out = if sp { SEQUENCE } else { Placement::Replicate };
    let whole_ends = class == Class::MegatronFsdp;
    if !whole_ends {
        add("model.embed_tokens", Style::Rowwise { input: Placement::Replicate, output: row_out });
    }
    let row = Style::Rowwise { input: Placement::Shard(-1), output: row_out };
    for name in ["q_proj", "k_proj", "v_proj"] {
        add(&format!("{LAYER}.self_attn.{name}"), Style::COLWISE);
    }
    add(&format!("{LAYER}.self_attn.o_proj"), row);
    for name in ["up_proj", "gate_proj"] {
        add(&format!("{LAYER}.{mlp}.{name}"), Style::COLWISE);
    }
    add(&format!("{LAYER}.{mlp}.down_proj"), row);
    if !whole_ends {
        let input = if sp { SEQUENCE } else { Placement::Replicate };
        let keep = matches!(
            class,
            Class::Llama | Class::Qwen | Class::Gemma3 | Class::Mistral3 | Class::MegatronCore
        );
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

/// Phi-3's (NeMo Automodel 36044ad): queries, keys and values are one matrix that can't be cut by columns, so it is cut
/// by its inputs. It has no sequence parallelism.
fn phi3_plan() -> Plan {
    let kept =
        Style::Colwise { input: Placement::Replicate, output: Placement::Shard(-1), keep_dtensor: true };
    let entries = [
        ("model.embed_tokens".to_owned(), Style::ROWWISE_REP),
        (format!("{LAYER}.self_attn.qkv_proj"), Style::ROWWISE_REP),
        (format!("{LAYER}.self_attn.o_proj"), Style::COLWISE_REP),
        (format!("{LAYER}.mlp.gate_up_proj"), kept),
        (format!("{LAYER}.mlp.down_proj"), Style::ROWWISE),
        ("lm_head".to_owned(), kept),
    ];
    entries.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::tp_plan::style_of;

    const REPLICATE: Placement = Placement::Replicate;
    const LAST: Placement = Placement::Shard(-1);

    #[test]
    fn the_default_plan() {
        let plan = class_plan(Class::Default, false);
        let of = |module: &str| style_of(&plan, module);
        assert_eq!(of("model.embed_tokens"), Some(Style::ROWWISE_REP));
        for name in
            ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.up_proj", "mlp.gate_proj"]
        {
            assert_eq!(of(&format!("model.layers.7.{name}")), Some(Style::COLWISE));
        }
        for name in ["self_attn.o_proj", "mlp.down_proj"] {
            assert_eq!(of(&format!("model.layers.7.{name}")), Some(Style::ROWWISE));
        }
        assert_eq!(of("lm_head"), Some(Style::COLWISE_REP));
        assert_eq!(of("model.norm"), None);
    }

    #[test]
    fn the_sequence_is_split_between_the_cuts() {
        let plan = class_plan(Class::Default, true);
        let of = |module: &str| style_of(&plan, module);
        assert_eq!(of("model.embed_tokens"), Some(Style::Rowwise { input: REPLICATE, output: SEQUENCE }));
        for name in
            ["model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"]
        {
            assert_eq!(of(name), Some(Style::SequenceParallel));
        }
        for name in ["self_attn.o_proj", "mlp.down_proj"] {
            let row = Style::Rowwise { input: LAST, output: SEQUENCE };
            assert_eq!(of(&format!("model.layers.0.{name}")), Some(row));
        }
        let head = Style::Colwise { input: SEQUENCE, output: REPLICATE, keep_dtensor: false };
        assert_eq!(of("lm_head"), Some(head));
    }

    #[test]
    fn classes_differ_at_their_ends_and_norms() {
        let head = |class, sp| style_of(&class_plan(class, sp), "lm_head");
        let kept = |input| Some(Style::Colwise { input, output: LAST, keep_dtensor: true });
        assert_eq!(head(Class::Llama, false), kept(REPLICATE));
        assert_eq!(head(Class::Qwen, true), kept(SEQUENCE));
        assert_eq!(head(Class::Gemma3, false), kept(REPLICATE));
        assert_eq!(head(Class::Gemma3, true), kept(SEQUENCE));
        assert_eq!(head(Class::MegatronFsdp, true), None);
        let of = |class, module: &str| style_of(&class_plan(class, true), module);
        assert_eq!(of(Class::Qwen, "model.layers.0.self_attn.q_norm"), Some(Style::SequenceParallel));
        assert_eq!(of(Class::Llama, "model.layers.0.self_attn.q_norm"), None);
        assert_eq!(
            of(Class::Gemma3, "model.layers.0.pre_feedforward_layernorm"),
            Some(Style::SequenceParallel)
        );
        assert_eq!(of(Class::MegatronFsdp, "model.norm"), None);
        assert_eq!(of(Class::Phi3, "model.layers.3.self_attn.qkv_proj"), Some(Style::ROWWISE_REP));
        assert_eq!(of(Class::Phi3, "model.layers.3.self_attn.o_proj"), Some(Style::COLWISE_REP));
        assert_eq!(of(Class::Phi3, "model.norm"), None);
        assert_eq!(of(Class::FalconH1, "model.layers.3.feed_forward.up_proj"), Some(Style::COLWISE));
        assert_eq!(of(Class::FalconH1, "model.layers.3.feed_forward.down_proj"), Some(Style::ROWWISE));
        assert_eq!(of(Class::FalconH1, "model.layers.3.mamba.in_proj"), None);
        assert_eq!(of(Class::FalconH1, "model.norm"), None);
        assert_eq!(head(Class::FalconH1, true), Some(Style::COLWISE_REP));
        assert_eq!(head(Class::Mistral3, true), kept(REPLICATE));
        assert_eq!(Class::of(Some("nemotron-nas")), Class::Default);
    }
}
