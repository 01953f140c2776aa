//! What the worker can execute of what planner can plan.
//!
//! This is an allow-list. Structs of a model are taken apart field by field and enums case by case, without `..` or `_`, so that
//! whatever is added to a model is refused by the compiler until somebody says here whether it is executed; of the parts that a
//! model has by name alone, those are executed that stand in `executes_part`. Of settings of `training` their rows say it.

use serde_json::{Value, json};

use super::remarks::holds;
use crate::finding::Finding;
use crate::model::{
    Activation, Architecture, Attention, Balance, Branches, LayerKind, MixerRef, Mlp, Moe, Norm, Positions,
    QkNorm, Routing, Score, Scores,
};
use crate::plan::Plan;
use crate::settings::{Granularity, OfRow};
use crate::wire::{Setting, Trained};

/// What keeps `shardplan-rank` from executing this plan; empty when it can. The page asks before it offers to run,
/// the rank before it allocates.
pub fn executor_limits(plan: &Plan) -> Vec<Finding> {
    let mut limits = model_limits(plan);
    limits.extend(part_limits(plan));
    if let Some(moe) = &plan.model.moe {
        limits.extend(expert_limits(plan, moe));
    }
    limits.extend(training_limits(plan));
    let over_steps = plan.model.moe.as_ref().is_some_and(|moe| moe.routing.balance == Balance::GlobalAuxLoss);
    if plan.nonuniform.is_some() && over_steps {
        limits.push(limit(
            "model",
            "global_aux_loss",
            "balancing over the global batch counts what all replicas route in the same turn. Where replicas have different numbers of micro batches, one of them has two of a turn one behind the other, and the gradient of the first would need the routing of the second: no order of micro batches trains what replicas without failures train. Balance with aux_loss or seq_aux_loss, or go on with fewer replicas (--on-failure drop)",
        ));
    }
    if let Some((field, value, why)) = plan.unknown_documents() {
        limits.push(limit(field, value, why));
    }
    limits
}

fn limit(field: &str, value: impl Into<Value>, what: impl Into<String>) -> Finding {
    Finding::error(field, value, what.into()).rule("what shardplan-rank executes so far")
}

fn model_limits(plan: &Plan) -> Vec<Finding> {
    let (model, tp): (&Architecture, u64) = (&plan.model, plan.layout.tp);
    let Architecture {
        num_layers: _,
        hidden_size: _,
        ffn_hidden_size: _,
        vocab_size: _,
        // Of each kind of layer by itself, below.
        attention: _,
        other_mixers: _,
        pattern: _,
        moe: _,
        gated,
        activation,
        mlp_bias: _,
        norm: Norm::Rms | Norm::Layer | Norm::LayerWeight | Norm::PlainRms | Norm::PlainLayer,
        norm_eps: _,
        rope_theta: _,
        rope_scaling: _,
        tied_embeddings: _,
        learned_positions: _,
        mtp_layers: _,
        mtp_shared,
        mtp_pattern: _,
        post_norms: _,
        no_pre_norms: _,
        no_final_norm,
        embedding_norm,
        branches: Branches::InTurn | Branches::SideBySide | Branches::OneNorm,
        head_bias: _,
        embedding_multiplier: _,
        residual_multiplier: _,
        logit_multiplier: _,
        logit_cap: _,
        activation_limit: _,
        extras,
        hyper_connections,
        hyper_unmixed: _,
        layers_together,
        attention_residuals,
        layer_inputs,
        alternating_updates,
        residual_rank,
        // By name, in `part_limits`.
        parts: _,
    } = model;
    let mut limits = Vec::new();
    let mut refuse = |there: bool, field: &str, what: &str| {
        if there {
            limits.push(limit("model", field, format!("the executor has no {what} yet")));
        }
    };
    let known = match activation {
        Activation::Silu
        | Activation::Gelu
        | Activation::SquaredRelu
        | Activation::GeluErf
        | Activation::QuickGelu
        | Activation::Relu
        | Activation::GptOss => true,
        // Its scalars are an MLP's; experts have none.
        Activation::Xielu => !gated && model.moe.is_none(),
        Activation::Situ | Activation::Other => false,
    };
    refuse(!known, "activation", "activation of this kind");
    refuse(*no_final_norm, "no_final_norm", "models without a final norm");
    refuse(*embedding_norm, "embedding_norm", "norm of word embeddings");
    for extra in extras {
        refuse(true, crate::finding::clip(&extra.name).as_ref(), "parameter of this name");
    }
    for mixer in model.mixers() {
        limits.extend(mixer_limit(model, mixer, tp));
    }
    if *hyper_connections > 0 || *attention_residuals {
        limits.push(limit(
            "model",
            "residual stream",
            "the executor adds to one residual stream, and this model mixes several or attends to earlier ones",
        ));
    }
    if layer_inputs.is_some() || *alternating_updates > 0 || *residual_rank > 0 {
        let what =
            "the executor has no inputs of single layers, alternating updates or low-rank residual paths";
        limits.push(limit("model", "layers", what));
    }
    if *layers_together > 1 {
        let what = "the executor has no experts whose output comes behind a later layer";
        limits.push(limit("model", "layers_together", what));
    }
    if model.pattern.iter().any(|run| run.unnormed) {
        limits.push(limit("model", "unnormed", "the executor has a norm before every mixer"));
    }
    if *mtp_shared && model.mtp_layers > 1 {
        let what = "the executor runs no prediction module several times; set training.mtp_layers to 1";
        limits.push(limit("training.mtp_layers", model.mtp_layers, what));
    }
    limits
}

/// Parts that the model has by name, and that the executor does not know.
fn part_limits(plan: &Plan) -> Vec<Finding> {
    let unknown = plan.model.parts.iter().filter(|(name, value)| !executes_part(plan, name, value));
    let said = |(name, value): (&String, &Value)| {
        let what = format!(
            "the executor does not run `{}` ({}) of this model, and would train another one without it; take a model without, or write a script for a framework that has it",
            crate::finding::clip(name),
            crate::finding::clip(&value.to_string())
        );
        limit("model", crate::finding::clip(name), what)
    };
    unknown.map(said).collect()
}

/// Whether a part is executed: a window or a chunk that is as long as the sequence leaves nothing out, and norms of
/// low-rank streams take the epsilon that is said.
pub(super) fn executes_part(plan: &Plan, name: &str, value: &Value) -> bool {
    match name {
        "sliding_window" | "attention_chunk_size" => {
            value.as_u64().is_some_and(|tokens| tokens >= plan.training.seq_len)
        }
        "epsilon of low-rank norms" => value.as_f64().is_some_and(|epsilon| epsilon > 0.0),
        _ => false,
    }
}

fn expert_limits(plan: &Plan, moe: &Moe) -> Vec<Finding> {
    let Moe {
        experts: _,
        top_k: _,
        ffn_hidden_size: _,
        shared_ffn_hidden_size: _,
        shared_gate: _,
        router_bias: _,
        latent_size: _,
        latent_norm: _,
        scaled_branches: _,
        weighs_inputs: _,
        identity_experts,
        router_bias_buffer: _,
        routing:
            Routing {
                score,
                normalize: _,
                scale: _,
                groups: _,
                group_top_k: _,
                group_experts: _,
                balance,
                aux_coefficient: _,
                z_coefficient: _,
                bias_update_rate: _,
            },
    } = moe;
    let mut limits = Vec::new();
    if !matches!(score, Score::Softmax | Score::Sigmoid) {
        limits.push(limit("model", "score", "the executor has routers by softmax and sigmoid alone"));
    }
    if *identity_experts > 0 {
        let what = "the executor's routers have no choices without an expert yet";
        limits.push(limit("model", "experts", what));
    }
    let again = plan.training.recompute == Granularity::Full
        || plan.training.recompute_modules.iter().any(|module| module == "moe");
    match balance {
        Balance::GlobalAuxLoss if again => limits.push(limit(
            "training.recompute.granularity",
            "moe",
            "the executor can't recompute experts whose balancing loss follows the micro batches so far; balance with aux_loss or seq_aux_loss, or don't recompute them",
        )),
        Balance::None
        | Balance::AuxLoss
        | Balance::SeqAuxLoss
        | Balance::GlobalAuxLoss
        | Balance::Forced => {}
    }
    limits
}

/// What of an attention's scores is not executed.
fn score_limit(scores: &Scores) -> Option<&'static str> {
    let Scores {
        window: _,
        chunk: _,
        positions,
        rope: _,
        scale: _,
        soft_cap: _,
        temperature: _,
        norm_after_rotation: _,
    } = scores;
    match positions {
        Positions::Rotary | Positions::None => None,
        Positions::Alibi => Some("no biases by distance (ALiBi)"),
    }
}

/// Why a mixer can't be executed.
fn mixer_limit(model: &Architecture, mixer: MixerRef<'_>, tp: u64) -> Option<Finding> {
    let missing = |what: &str| Some(limit("model", "attention", format!("the executor has {what} yet")));
    let of_scores =
        || mixer.attention().and_then(|attention| score_limit(attention.scores())).and_then(missing);
    let of_sizes = match mixer {
        MixerRef::Attention(Attention::Gqa { shared_kv: true, .. }) => {
            missing("no keys and values of an earlier layer")
        }
        MixerRef::Attention(Attention::Gqa { value_dim: Some(_), .. }) => {
            missing("no values of another width")
        }
        MixerRef::Attention(
            Attention::Gqa { head_gate: true, .. } | Attention::Mla { head_gate: true, .. },
        ) => missing("no gates of whole heads"),
        MixerRef::Attention(Attention::Mla { sinks: true, .. }) => missing("no sinks in latent attention"),
        MixerRef::Attention(Attention::Mla { joint_gate: true, .. }) => {
            missing("no queries and gates of one matrix")
        }
        MixerRef::Attention(Attention::Mla { qk_norm: false, .. }) => {
            missing("no latent attention without norms")
        }
        MixerRef::Attention(Attention::Gqa {
            qk_norm: QkNorm::Full | QkNorm::EachHead, kv_heads, ..
        }) if *kv_heads < tp => Some(limit(
            "layout.tp",
            tp,
            format!(
                "the executor has no norms of queries and keys with weights for each head where {kv_heads} key-value heads are on {tp} ranks; lower tp to a divisor of {kv_heads}"
            ),
        )),
        MixerRef::Attention(Attention::Mla { indexer: Some(_), .. }) => {
            missing("no sparse attention by an indexer")
        }
        MixerRef::Attention(
            Attention::Gqa {
                heads: _,
                kv_heads: _,
                head_dim: _,
                rotary_dim: _,
                qk_norm: _,
                qkv_bias: _,
                out_bias: _,
                sinks: _,
                output_gate: _,
                values_are_keys: _,
                value_norm: _,
                shared_kv: false,
                value_dim: None,
                head_gate: false,
                // Above.
                scores: _,
            }
            | Attention::Mla {
                heads: _,
                q_lora_rank: _,
                kv_lora_rank: _,
                qk_nope_dim: _,
                qk_rope_dim: _,
                v_dim: _,
                qk_norm: true,
                indexer: None,
                output_gate: _,
                joint_gate: false,
                sinks: false,
                head_gate: false,
                scores: _,
            },
        ) => None,
        MixerRef::Attention(Attention::Shared { .. }) => missing("no key shared by all heads"),
        MixerRef::Linear => None,
        // What is not known to be executed is not.
        _ => {
            let kinds = model.layer_kinds();
            let kind = kinds.iter().find(|(kind, _)| model.mixer(*kind) == Some(mixer));
            let named = LayerKind::new(kind.map_or(Some(0), |(kind, _)| kind.mixer), Mlp::None);
            missing(&format!("no {}", model.kind_in_words(named)))
        }
    };
    of_sizes.or_else(of_scores)
}

/// Why these settings can't be executed: by their rows, of which those that say nothing are executed with their usual values alone.
fn training_limits(plan: &Plan) -> Vec<Finding> {
    let (said, experts) = (json!({"training": plan.file.training}), plan.model.moe.is_some());
    let refused = Setting::all().filter_map(|setting| {
        let value = setting.path.split('.').try_fold(&said, |place, key| place.get(key))?;
        let why = match setting.trained {
            Trained::Words(words, why) if !value.as_str().is_some_and(|word| words.contains(&word)) => why,
            Trained::Usual(why) if *value != Value::of(setting.usual) => why,
            _ => return None,
        };
        let is_idle = setting.given.is_some_and(|given| !holds(given, &plan.file, experts));
        (!is_idle).then(|| limit(setting.path, value.clone(), why))
    });
    refused.collect()
}
