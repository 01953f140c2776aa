//! The model as flags.

use super::super::super::writer::Writer;
use super::super::number;
use super::Flags;
use crate::model::{
    Activation, Architecture, Attention, Balance, LayerKind, Mixer, Mlp, Moe, Norm, QkNorm, Score,
};

/// Appends the model's flags.
pub fn flags(writer: &mut Writer<'_>, flags: &mut Flags) {
    let plan = writer.plan;
    let model = &plan.model;
    flags.set("num-layers", model.num_layers);
    flags.set("hidden-size", model.hidden_size);
    flags.set("ffn-hidden-size", model.ffn_hidden_size);
    attention(writer, flags, &model.attention);
    mlp(writer, flags);
    flags.set("normalization", if model.norm == Norm::Rms { "RMSNorm" } else { "LayerNorm" });
    flags.set("norm-epsilon", number(model.norm_eps));
    flags.flag_if("untie-embeddings-and-output-weights", !model.tied_embeddings);
    positions(writer, flags);
    words(writer, flags);
    if let Some(moe) = &model.moe {
        experts(writer, flags, moe);
    }
    layers(writer, flags);
    if model.mtp_layers > 0 {
        flags.set("mtp-num-layers", model.mtp_layers);
        flags.flag_if("mtp-use-repeated-layer", model.mtp_shared);
    }
    others(writer);
}

fn attention(writer: &mut Writer<'_>, flags: &mut Flags, attention: &Attention) {
    let biased = writer.plan.model.mlp_bias;
    flags.set("num-attention-heads", attention.heads());
    match attention {
        Attention::Gqa {
            kv_heads,
            heads,
            head_dim,
            qk_norm,
            qkv_bias,
            out_bias,
            sinks,
            output_gate,
            values_are_keys,
            rotary_dim,
            shared_kv,
        } => {
            flags.set("kv-channels", head_dim);
            if kv_heads != heads {
                flags.flag("group-query-attention");
                flags.set("num-query-groups", kv_heads);
            }
            match qk_norm {
                QkNorm::None => {}
                QkNorm::PerHead | QkNorm::PerHeadLayer => {
                    flags.flag("qk-layernorm");
                    let layer = *qk_norm == QkNorm::PerHeadLayer;
                    if layer != (writer.plan.model.norm == Norm::Layer) {
                        let what = "norms of queries and keys are of the kind of the layers' norms";
                        writer.cannot(
                            "model.attention.qk_norm",
                            serde_json::to_value(qk_norm).unwrap_or_default(),
                            what,
                        );
                    }
                }
                QkNorm::Full => {
                    writer.cannot(
                        "model.attention.qk_norm",
                        "full",
                        "norms of queries and keys are per head",
                    );
                }
            }
            flags.flag_if("add-qkv-bias", *qkv_bias && !biased);
            if *out_bias != biased || (biased && !qkv_bias) {
                writer.cannot(
                    "model.attention.out_bias",
                    *out_bias,
                    "biases of attention and MLP go together",
                );
            }
            if *sinks {
                flags.set("softmax-type", "learnable");
            }
            flags.flag_if("attention-output-gate", *output_gate);
            if *values_are_keys {
                writer.cannot(
                    "model.attention.values_are_keys",
                    true,
                    "values are projected apart from keys",
                );
            }
            if *shared_kv {
                writer.cannot("model.attention.shared_kv", true, "layers have keys and values of their own");
            }
            if let Some(rotated) = rotary_dim.filter(|rotated| rotated != head_dim) {
                let part = rotated as f64 / (*head_dim).max(1) as f64;
                flags.set("rotary-percent", number(part));
                if (part * *head_dim as f64) as u64 != rotated {
                    writer.cannot("model.attention.rotary_dim", rotated, "no percentage gives this width");
                }
            }
        }
        Attention::Mla {
            q_lora_rank,
            kv_lora_rank,
            qk_nope_dim,
            qk_rope_dim,
            v_dim,
            qk_norm,
            indexer,
            output_gate,
            ..
        } => {
            flags.flag("multi-latent-attention");
            flags.flag_if("qk-layernorm", *qk_norm);
            if let Some(rank) = q_lora_rank {
                flags.set("q-lora-rank", rank);
            }
            flags.set("kv-lora-rank", kv_lora_rank);
            flags.set("qk-head-dim", qk_nope_dim);
            flags.set("qk-pos-emb-head-dim", qk_rope_dim);
            flags.set("v-head-dim", v_dim);
            flags.flag_if("attention-output-gate", *output_gate);
            if indexer.is_some() {
                let what = "sparse attention is a variant of its own (--experimental-attention-variant dsa), which is not written";
                writer.cannot("model.attention.indexer", serde_json::Value::Null, what);
            }
        }
        Attention::Shared { .. } => {
            let what = "there is no attention whose heads share one latent";
            writer.cannot("model.attention", attention.name(), what);
        }
    }
}

fn mlp(writer: &mut Writer<'_>, flags: &mut Flags) {
    let model = &writer.plan.model;
    match (model.gated, model.activation) {
        (true, Activation::Silu) => flags.flag("swiglu"),
        (true, Activation::Gelu) => {
            flags.flag("quick-geglu");
            writer.cannot("model.activation", "gelu", "the gated GELU is the quick one");
        }
        (false, Activation::Gelu) => {}
        (false, Activation::SquaredRelu) => flags.flag("squared-relu"),
        (gated, _) => {
            writer.cannot("model.gated", gated, "this activation has no flag with, or without, a gate");
        }
    }
    flags.flag_if("disable-bias-linear", !model.mlp_bias);
}

fn positions(writer: &mut Writer<'_>, flags: &mut Flags) {
    let plan = writer.plan;
    match plan.model.learned_positions {
        Some(positions) => {
            flags.set("position-embedding-type", "learned_absolute");
            flags.set("max-position-embeddings", positions);
        }
        None => {
            flags.set("position-embedding-type", "rope");
            flags.set("max-position-embeddings", plan.training.seq_len);
        }
    }
    let theta = plan.model.rope_theta;
    flags.set("rotary-base", number(theta));
    if theta.fract() != 0.0 {
        writer.cannot("model.rope_theta", theta, "the base of rotary positions is a whole number");
    }
    for name in plan.model.parts.keys() {
        writer.leaves_out(name);
    }
}

/// The vocabulary. Its padding follows from its size, tp and the divisor.
fn words(writer: &mut Writer<'_>, flags: &mut Flags) {
    let words = writer.plan.model.vocab_size;
    match writer.site.tokenizer.as_deref() {
        Some(name) => {
            let name = writer.shell("tokenizer", Some(name), None, "<TOKENIZER>");
            flags.set("tokenizer-type", "HuggingFaceTokenizer");
            flags.set("tokenizer-model", name);
            flags.set("vocab-size", words);
        }
        None => {
            flags.set("tokenizer-type", "NullTokenizer");
            flags.set("vocab-size", words);
            flags.set("null-tokenizer-eod-id", words.saturating_sub(1));
        }
    }
}

fn experts(writer: &mut Writer<'_>, flags: &mut Flags, moe: &Moe) {
    let biased = writer.plan.model.mlp_bias;
    flags.set("num-experts", moe.experts);
    flags.set("moe-router-topk", moe.top_k);
    flags.set("moe-ffn-hidden-size", moe.ffn_hidden_size);
    if moe.shared_ffn_hidden_size > 0 {
        flags.set("moe-shared-expert-intermediate-size", moe.shared_ffn_hidden_size);
        flags.flag_if("moe-shared-expert-gate", moe.shared_gate);
    }
    if let Some(width) = moe.latent_size {
        flags.set("moe-latent-size", width);
    }
    flags.flag_if("moe-router-enable-expert-bias", moe.router_bias_buffer > 0);
    if moe.router_bias_buffer > 0 && moe.router_bias_buffer != moe.experts {
        let what = "the router's balancing bias has a value for each expert";
        writer.cannot("model.moe.router_bias_buffer", moe.router_bias_buffer, what);
    }
    if moe.router_bias != biased {
        writer.cannot("model.moe.router_bias", moe.router_bias, "biases of router and MLP go together");
    }
    if moe.latent_norm || moe.scaled_branches {
        writer.cannot(
            "model.moe",
            serde_json::Value::Null,
            "norms and scales of the routed branch have no flag",
        );
    }
    routing(writer, flags, moe);
}

fn routing(writer: &mut Writer<'_>, flags: &mut Flags, moe: &Moe) {
    let routing = &moe.routing;
    let softmax = routing.score == Score::Softmax;
    flags.set("moe-router-score-function", if softmax { "softmax" } else { "sigmoid" });
    // One expert a token is weighed by its score, as softmax before the choice does.
    let alone = softmax && moe.top_k == 1 && routing.normalize;
    flags.flag_if("moe-router-pre-softmax", softmax && !routing.normalize);
    if alone || (!softmax && !routing.normalize) {
        let what = "weights of the chosen experts are scaled to one, or not, as the router's score decides";
        writer.cannot("model.moe.routing.normalize", routing.normalize, what);
    }
    if routing.scale != 1.0 {
        flags.set("moe-router-topk-scaling-factor", number(routing.scale));
    }
    if routing.groups > 1 {
        flags.set("moe-router-num-groups", routing.groups);
        flags.set("moe-router-group-topk", routing.group_top_k);
    }
    let balance = match routing.balance {
        Balance::None => "none",
        Balance::AuxLoss => "aux_loss",
        Balance::SeqAuxLoss => "seq_aux_loss",
        Balance::GlobalAuxLoss => "global_aux_loss",
        Balance::Forced => {
            flags.flag("moe-router-force-load-balancing");
            "none"
        }
    };
    flags.set("moe-router-load-balancing-type", balance);
    flags.set("moe-aux-loss-coeff", number(routing.aux_coefficient));
    flags.set("moe-router-bias-update-rate", number(routing.bias_update_rate));
}

/// Which layers are mixtures, where not all are.
fn layers(writer: &mut Writer<'_>, flags: &mut Flags) {
    let model = &writer.plan.model;
    let kinds: Vec<LayerKind> = (0..model.num_layers).map(|layer| model.layer_kind(layer)).collect();
    let plain = |kind: &LayerKind| {
        kind.mixer == Some(0) && matches!(kind.mlp, Mlp::Dense | Mlp::Moe) && kind.ffn.is_none()
    };
    if !kinds.iter().all(plain) {
        let what =
            "layers of other kinds than attention with an MLP need another script than pretrain_gpt.py";
        writer.cannot("model.pattern", serde_json::Value::Null, what);
        return;
    }
    if model.moe.is_some() && kinds.iter().any(|kind| kind.mlp == Mlp::Dense) {
        flags.set("moe-layer-freq", frequency(&kinds));
    }
}

/// `'([0]*3+[1]*58)'`: an entry for each layer, 1 for a mixture.
fn frequency(kinds: &[LayerKind]) -> String {
    let mut terms: Vec<(bool, u64)> = Vec::new();
    for kind in kinds {
        let experts = kind.mlp == Mlp::Moe;
        match terms.last_mut() {
            Some((last, count)) if *last == experts => *count += 1,
            _ => terms.push((experts, 1)),
        }
    }
    let text: Vec<String> =
        terms.iter().map(|(experts, count)| format!("[{}]*{count}", u8::from(*experts))).collect();
    format!("'({})'", text.join("+"))
}

fn others(writer: &mut Writer<'_>) {
    let model: &Architecture = &writer.plan.model;
    let wrong = [
        (model.post_norms, "model.post_norms", "norms after attention and MLP have no flag"),
        (model.hyper_connections > 0, "model.hyper_connections", "hyper-connections are not written"),
        (model.attention_residuals, "model.attention_residuals", "attention over earlier blocks has no flag"),
        (model.layer_inputs.is_some(), "model.layer_inputs", "inputs of single layers have no flag"),
        (model.alternating_updates > 0, "model.alternating_updates", "alternating updates have no flag"),
        (model.residual_rank > 0, "model.residual_rank", "low-rank paths around attention have no flag"),
        (
            !model.mtp_pattern.is_empty(),
            "model.mtp_pattern",
            "prediction modules are one layer of the last kind",
        ),
        (
            model.other_mixers.iter().any(|mixer| matches!(mixer, Mixer::Attention(_))),
            "model.other_mixers",
            "every layer has the same attention",
        ),
    ];
    for (_, field, what) in wrong.into_iter().filter(|(wrong, ..)| *wrong) {
        writer.cannot(field, serde_json::Value::Null, what);
    }
}
