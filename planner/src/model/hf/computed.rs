//! What a family's code computes beside what its sizes say: multipliers, caps, activations, where norms stand, rotations.
//! Values that a config.json leaves out are those of transformers' class.

use serde_json::Value;

use super::reader::Reader;
use super::rope::{Angles, angles};
use crate::model::{
    Activation, Architecture, Attention, Branches, Mixer, Positions, QkNorm, Rope, RopeKind, RopeScaling,
    Temperature,
};

/// Bases of rotary angles of classes that have another than 10,000.
const THETAS: &[(&[&str], f64)] = &[
    (&["gpt_oss"], 150_000.0),
    (&["ernie4_5", "llama4", "olmo3", "qwen3_vl", "qwen3_vl_moe"], 500_000.0),
    (&["gemma3", "gemma3n", "gemma4", "ministral3", "mixtral", "qwen2_5_vl", "qwen2_vl"], 1_000_000.0),
    (&["smollm3"], 2_000_000.0),
    (&["minimax_m2", "minimax_m3", "minimax_m3_vl"], 5_000_000.0),
];

/// Epsilons of norms of classes that have another than 1e-6.
const EPSILONS: &[(&[&str], f64)] = &[
    (
        &[
            "arcee",
            "bamba",
            "ernie4_5",
            "exaone4",
            "falcon_h1",
            "glm4_moe",
            "glm4_moe_lite",
            "glm4v_moe",
            "glm_moe_dsa",
            "gpt_oss",
            "hunyuan_v1_dense",
            "kimi_linear",
            "llama4",
            "ministral3",
            "mixtral",
            "olmo2",
            "olmo3",
            "olmoe",
            "phi3",
            "qwen2_5_vl",
            "qwen2_vl",
        ],
        1e-5,
    ),
    (&["glm", "glm4"], 1.5625e-7),
];

/// Base of the angles of Gemma's layers with a window.
const LOCAL_THETA: f64 = 10_000.0;

fn usual(table: &[(&[&str], f64)], model_type: &str) -> Option<f64> {
    table.iter().find(|(types, _)| types.contains(&model_type)).map(|(_, value)| *value)
}

/// Puts all that into a model that was read as `model_type`.
pub(super) fn keep(reader: &mut Reader, model_type: &str, architecture: &mut Architecture) {
    if let (Some(epsilon), false) = (usual(EPSILONS, model_type), reader.config.contains_key("rms_norm_eps"))
    {
        architecture.norm_eps = epsilon;
    }
    rotate(reader, model_type, architecture);
    activate(reader, model_type, architecture);
    let number = |reader: &Reader, name: &str| reader.present(name).and_then(Value::as_f64);
    match model_type {
        "gemma" | "gemma2" | "gemma3" | "gemma3n" | "gemma4" => {
            architecture.embedding_multiplier = libm::sqrt(architecture.hidden_size as f64);
            let said = reader.config.contains_key("final_logit_softcapping");
            let usual = (model_type == "gemma2" && !said).then_some(30.0);
            let cap = number(reader, "final_logit_softcapping").or(usual);
            architecture.logit_cap = cap.filter(|&cap| cap > 0.0);
        }
        "exaone4" | "olmo2" | "olmo3" => (architecture.no_pre_norms, architecture.post_norms) = (true, true),
        "gpt_neox" if reader.flag("use_parallel_residual", true) => {
            architecture.branches = Branches::SideBySide;
        }
        "granite" | "granitemoe" | "granitemoehybrid" | "granitemoeshared" => {
            let multiplier = |reader: &Reader, name: &str| number(reader, name).unwrap_or(1.0);
            architecture.embedding_multiplier = multiplier(reader, "embedding_multiplier");
            architecture.residual_multiplier = multiplier(reader, "residual_multiplier");
            architecture.logit_multiplier = 1.0 / multiplier(reader, "logits_scaling");
            let scale = multiplier(reader, "attention_multiplier");
            each_attention(architecture, |attention| attention.scores_mut().scale = Some(scale));
        }
        "hunyuan_v1_dense" => {
            each_attention(architecture, |attention| attention.scores_mut().norm_after_rotation = true);
        }
        "llama4" => llama4(reader, architecture),
        "ministral3" => {
            let beta = ["rope_parameters", "rope_scaling"]
                .into_iter()
                .find_map(|name| reader.present(name)?.get("llama_4_scaling_beta")?.as_f64());
            let tokens = architecture.rope_scaling.as_ref().and_then(|scaling| scaling.original_positions);
            let temperature =
                beta.zip(tokens).map(|(factor, tokens)| Temperature { tokens, factor, shift: 0 });
            each_attention(architecture, |attention| {
                attention.scores_mut().temperature.clone_from(&temperature);
            });
        }
        _ => {}
    }
}

fn each_attention(architecture: &mut Architecture, mut change: impl FnMut(&mut Attention)) {
    change(&mut architecture.attention);
    for mixer in &mut architecture.other_mixers {
        match mixer {
            Mixer::Attention(attention) => change(attention),
            Mixer::Parallel(both) => change(&mut both.attention),
            _ => {}
        }
    }
}

/// Base and scaling of the angles of all layers, and of those that have their own.
pub(super) fn rotate(reader: &Reader, model_type: &str, architecture: &mut Architecture) {
    let Angles { theta, scaling, stretch } = angles(reader, "full_attention");
    let named = if model_type == "gpt_neox" { "rotary_emb_base" } else { "rope_theta" };
    let outside = reader.present(named).and_then(Value::as_f64).filter(|&theta| theta > 0.0);
    if let Some(theta) = theta.or(outside).or(usual(THETAS, model_type)) {
        architecture.rope_theta = theta;
    }
    if let (Some(alpha), Attention::Gqa { head_dim, .. }) = (stretch, &architecture.attention) {
        let width = *head_dim as f64;
        architecture.rope_theta *= libm::pow(alpha, width / (width - 2.0).max(1.0));
    }
    let named = reader.present("rope_scaling").is_some() || reader.present("rope_parameters").is_some();
    architecture.rope_scaling = match model_type {
        "gpt_oss" if !named => Some(RopeScaling {
            kind: RopeKind::Yarn,
            factor: 32.0,
            original_positions: Some(4096),
            fast_slow: Some(RopeScaling::YARN_BOUNDS),
            untruncated: true,
            ..RopeScaling::default()
        }),
        "apertus" if !named => Some(RopeScaling {
            kind: RopeKind::Llama3,
            factor: 8.0,
            original_positions: Some(8192),
            fast_slow: Some([4.0, 1.0]),
            ..RopeScaling::default()
        }),
        "gemma4" if !named => {
            Some(RopeScaling { kind: RopeKind::Proportional, factor: 1.0, ..RopeScaling::default() })
        }
        _ => scaling,
    };
    match model_type {
        // Their layers with a window have a rotation of their own.
        "gemma3" | "gemma3n" | "gemma4" | "olmo3" => {
            let own = angles(reader, "sliding_attention");
            let nested = reader.present("rope_parameters").and_then(|inner| inner.get("sliding_attention"));
            let said = reader.present("rope_local_base_freq").and_then(Value::as_f64);
            let local = if model_type == "olmo3" { architecture.rope_theta } else { LOCAL_THETA };
            let theta = nested.and(own.theta).or(said).unwrap_or(local);
            let rope = Rope { theta, scaling: nested.and(own.scaling) };
            let same = rope.theta == architecture.rope_theta && rope.scaling == architecture.rope_scaling;
            each_attention(architecture, |attention| {
                let scores = attention.scores_mut();
                if scores.window.is_some() && !same {
                    scores.rope = Some(rope.clone());
                }
            });
        }
        _ => {}
    }
    if let Some(scaling) = architecture.rope_scaling.clone() {
        each_attention(architecture, |attention| {
            if let Attention::Mla { qk_nope_dim, qk_rope_dim, scores, .. } = attention {
                let width = qk_nope_dim.saturating_add(*qk_rope_dim);
                scores.scale = scaling.latent_scale(width).or(scores.scale);
            }
        });
    }
}

fn activate(reader: &mut Reader, model_type: &str, architecture: &mut Architecture) {
    if model_type == "gpt_oss" {
        architecture.activation = Activation::GptOss;
        architecture.activation_limit = Some(reader.real("swiglu_limit", 7.0)).filter(|&limit| limit > 0.0);
        reader.present("swiglu_alpha");
        return;
    }
    let named = ["hidden_activation", "hidden_act"].into_iter().find_map(|name| {
        let value = reader.present(name)?;
        value.as_str().map(str::to_owned)
    });
    match (named.as_deref(), model_type) {
        (Some("gelu"), _) | (None, "gpt_neox") => architecture.activation = Activation::GeluErf,
        (None, "starcoder2") => architecture.activation = Activation::Gelu,
        (None, "arcee") => architecture.activation = Activation::SquaredRelu,
        _ => {}
    }
}

/// Llama 4: layers with rotation have norms without weights behind it, those without have a temperature.
fn llama4(reader: &mut Reader, architecture: &mut Architecture) {
    let normed = reader.flag("use_qk_norm", true);
    // Files have a number here, too.
    let tuned = reader.present("attn_temperature_tuning").is_none_or(|value| {
        value.as_bool().unwrap_or_else(|| value.as_f64().is_some_and(|number| number != 0.0))
    });
    let (tokens, factor) = (reader.number("floor_scale", 8192).max(1), reader.real("attn_scale", 0.1));
    each_attention(architecture, |attention| {
        if let Attention::Gqa { qk_norm, scores, .. } = attention {
            match scores.positions {
                Positions::Rotary if normed => (*qk_norm, scores.norm_after_rotation) = (QkNorm::Plain, true),
                Positions::None if tuned => {
                    scores.temperature = Some(Temperature { tokens, factor, shift: 1 });
                }
                _ => {}
            }
        }
    });
    if let Some(moe) = &mut architecture.moe {
        moe.weighs_inputs = true;
    }
}
