//! What of a plan Megatron-LM has no flag for.

use super::rows::is_hybrid;
use crate::Holds::{Idle, Nothing, Where};
use crate::gap::{Gap, each, evaluation, gap, weights};
use planner::model::{
    Activation, Architecture, Attention, Branches, Mixer, MixerRef, Norm, Positions, QkNorm, Scores,
};
use planner::plan::Plan;
use planner::settings::Granularity;
use planner::wire::OF_FULLY_SHARD;

const MODEL: &str = "megatron/core/models/gpt/gpt_layer_specs.py";
const ATTENTION: &str = "megatron/core/transformer/attention.py";
const SCHEDULES: &str = "megatron/core/pipeline_parallel/schedules.py";
const GROUPS: &str = "megatron/core/parallel_state.py";
const ARGUMENTS: &str = "megatron/training/arguments.py";
const CONFIG: &str = "megatron/core/transformer/transformer_config.py";
const DDP: &str = "megatron/core/distributed/distributed_data_parallel_config.py";
const OPTIMIZER: &str = "megatron/core/optimizer/optimizer_config.py";
const TRAINING: &str = "megatron/training/config/training_config.py";

const fn never(field: &'static str, what: &'static str, source: &'static str) -> Gap {
    gap(field, Nothing, what, source)
}

/// A part of a model that is said where it is there.
const fn part(field: &'static str, there: fn(&Plan) -> bool, what: &'static str) -> Gap {
    gap(field, Where(there), what, MODEL)
}

fn is_fsdp(plan: &Plan) -> bool {
    plan.runtime.facts().flat_units
}

/// An attention of other sizes among a model's other mixers.
fn has_attentions(model: &Architecture) -> bool {
    let other = |mixer: &Mixer| match mixer {
        Mixer::Attention(attention) => !attention.is_but_for_scores(&model.attention),
        _ => false,
    };
    model.other_mixers.iter().any(other)
}

/// Scores of a layer that no flag says: all but windows of one size.
fn has_scores(model: &Architecture) -> bool {
    let mixers = model.mixers();
    let scores: Vec<&Scores> =
        mixers.iter().filter_map(|mixer| mixer.attention()).map(Attention::scores).collect();
    let mut windows = scores.iter().filter_map(|scores| scores.window);
    let first = windows.next();
    // Positions that are learned have a flag, layers without rotation are listed, and YaRN's factor scales the scores of
    // latent attention there too.
    let usual = |scores: &Scores| {
        let positions = scores.positions;
        let scale = scores.scale.filter(|scale| !is_of_yarn(model, *scale));
        let kept = Scores { positions, window: scores.window, ..Scores::default() };
        kept == Scores { scale, ..scores.clone() } && positions != Positions::Alibi
    };
    windows.any(|window| Some(window) != first) || !scores.into_iter().all(usual)
}

/// Whether scores of latent attention are multiplied by what YaRN's `mscale_all_dim` makes of them.
fn is_of_yarn(model: &Architecture, scale: f64) -> bool {
    let Attention::Mla { qk_nope_dim, qk_rope_dim, .. } = model.attention else { return false };
    let Some(scaling) = &model.rope_scaling else { return false };
    let usual = scaling.latent_scale(qk_nope_dim.saturating_add(qk_rope_dim));
    usual.is_some_and(|usual| (scale / usual - 1.0).abs() < 1e-9)
}

/// Whether layers differ in more than experts and windows, which no list of layers says.
fn has_other_layers(model: &Architecture) -> bool {
    let but_for_listed =
        |scores: &Scores| Scores { window: None, positions: Positions::None, ..scores.clone() };
    let first = but_for_listed(model.attention.scores());
    let other = |mixer: &Mixer| match mixer {
        Mixer::Attention(attention) => but_for_listed(attention.scores()) != first,
        _ => false,
    };
    model.other_mixers.iter().any(other) || model.pattern.iter().any(|run| run.unnormed)
}

/// Of every plan.
pub(super) const GAPS: &[Gap] = &[
    gap(
        "model.attention",
        Where(|plan| matches!(plan.model.attention, Attention::Shared { .. })),
        "there is no attention whose heads share one latent",
        ATTENTION,
    ),
    gap(
        "model.attention.indexer",
        Where(|plan| matches!(plan.model.attention, Attention::Mla { indexer: Some(_), .. })),
        "sparse attention is a variant of its own (--experimental-attention-variant dsa), which is not written",
        CONFIG,
    ),
    part(
        "model.attention.qk_norm",
        |plan| {
            let mixers = plan.model.mixers().into_iter().filter_map(|mixer| mixer.attention());
            let without = |attention: &Attention| {
                matches!(attention, Attention::Gqa { qk_norm: QkNorm::Plain | QkNorm::EachHead, .. })
            };
            mixers.into_iter().any(without)
        },
        "norms of queries and keys have a weight that all heads share",
    ),
    part("model.extras", |plan| !plan.model.extras.is_empty(), "parameters of one family alone have no flag"),
    part(
        "model.branches",
        |plan| plan.model.branches != Branches::InTurn,
        "attention and MLP stand one after the other",
    ),
    part(
        "model.no_pre_norms",
        |plan| plan.model.no_pre_norms || plan.model.no_final_norm || plan.model.embedding_norm,
        "norms stand before attention and MLP and behind the last layer",
    ),
    part("model.head_bias", |plan| plan.model.head_bias, "the output layer has no bias"),
    part(
        "model.norm",
        |plan| !matches!(plan.model.norm, Norm::Rms | Norm::Layer),
        "norms have weights, and LayerNorm has biases",
    ),
    part(
        "model.activation_limit",
        |plan| {
            plan.model.activation_limit.is_some()
                && !(plan.model.gated && plan.model.activation == Activation::GptOss)
        },
        "gates are bounded beside gpt-oss's activation alone",
    ),
    part(
        "model.logit_cap",
        |plan| {
            let model = &plan.model;
            let factors = [model.embedding_multiplier, model.residual_multiplier, model.logit_multiplier];
            model.logit_cap.is_some() || factors.into_iter().any(|factor| factor != 1.0)
        },
        "embeddings, stream and logits have no multipliers, and logits no cap",
    ),
    part(
        "model.moe.weighs_inputs",
        |plan| plan.model.moe.as_ref().is_some_and(|moe| moe.weighs_inputs),
        "what experts are given is weighed by a flag that is not written",
    ),
    part("model.post_norms", |plan| plan.model.post_norms, "norms after attention and MLP have no flag"),
    part(
        "model.hyper_connections",
        |plan| plan.model.hyper_connections > 0,
        "hyper-connections are not written",
    ),
    part(
        "model.attention_residuals",
        |plan| plan.model.attention_residuals,
        "attention over earlier blocks has no flag",
    ),
    part(
        "model.layer_inputs",
        |plan| plan.model.layer_inputs.is_some(),
        "inputs of single layers have no flag",
    ),
    part(
        "model.alternating_updates",
        |plan| plan.model.alternating_updates > 0,
        "alternating updates have no flag",
    ),
    part(
        "model.residual_rank",
        |plan| plan.model.residual_rank > 0,
        "low-rank paths around attention have no flag",
    ),
    part(
        "model.mtp_pattern",
        |plan| !plan.model.mtp_pattern.is_empty() && !is_hybrid(plan),
        "prediction modules are one layer of the last kind",
    ),
    part(
        "model.other_mixers",
        |plan| has_attentions(&plan.model),
        "every layer has attention of the same sizes",
    ),
    part(
        "model.pattern",
        |plan| has_other_layers(&plan.model),
        "layers differ in experts, windows and rotation alone, and all have norms",
    ),
    part(
        "model.layers_together",
        |plan| plan.model.layers_together > 1,
        "experts' output comes in their own layer",
    ),
    part(
        "model.attention.joint_gate",
        |plan| matches!(plan.model.attention, Attention::Mla { joint_gate: true, .. }),
        "queries and gates are matrices of their own",
    ),
    part(
        "model.attention.value_norm",
        |plan| {
            let normed = |attention: &Attention| matches!(attention, Attention::Gqa { value_norm: true, .. });
            plan.model.mixers().into_iter().filter_map(MixerRef::attention).any(normed)
        },
        "values have no norm",
    ),
    part(
        "model.attention.scores",
        |plan| has_scores(&plan.model),
        "of what becomes of scores, windows of one size and layers without rotation have flags here; chunks, caps and scales are left out",
    ),
    never("model", "its sizes are options; parts are said by their names", ARGUMENTS),
    gap(
        "layout.schedule",
        Where(|plan| !plan.layout.schedule.kind().in_megatron),
        "Megatron-Core has 1F1B and its interleaved form only",
        SCHEDULES,
    ),
    gap(
        "layout.order",
        Where(|plan| {
            let order = plan.file.layout.order.as_deref();
            order.is_some_and(|order| !["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"].contains(&order))
        }),
        "ranks count along tp-cp-ep-dp-pp or tp-cp-ep-pp-dp",
        GROUPS,
    ),
    gap(
        "layout.fsdp.preserve_fp32_weights",
        Where(|plan| is_fsdp(plan) && plan.file.layout.fsdp.preserve_fp32_weights == Some(false)),
        "the optimizer works on copies of the parameters in a type of its own (--megatron-fsdp-main-params-dtype)",
        "megatron/core/distributed/fsdp",
    ),
    never(
        "cluster.failed",
        "options of an entry point of its own, or the script leaves the nodes out",
        "pull request 4585: examples/nonuniform/pretrain_gpt_nonuniform.py",
    ),
    // The script says it, which knows the site's data.
    never("run.data", "a site's tokenized data, or data that Megatron-LM makes up", ARGUMENTS),
    gap(
        "run.documents.eod_token",
        Where(|plan| plan.run.documents.eod_token.is_some()),
        "the tokenizer says which token ends a document",
        "megatron/core/datasets/gpt_dataset.py",
    ),
    never("training.moe.force_balance", "the model's router, which an option of its own forces", CONFIG),
    never("training.optimizer.core_master", "follows from the precision", OPTIMIZER),
    never("layout.tp_plan", "FSDP2's", "megatron/core/tensor_parallel/layers.py"),
    gap("training.optimizer.instances", Idle(is_fsdp), "those of Megatron-FSDP are its replicas", DDP),
    gap(
        "training.recompute.granularity",
        Idle(|plan| {
            plan.training.recompute == Granularity::Selective && plan.training.recompute_modules.is_empty()
        }),
        "without modules nothing is recomputed",
        CONFIG,
    ),
    weights(TRAINING),
    evaluation(TRAINING),
];

/// What FSDP2 alone is told.
pub(super) const OF_FSDP2: &[Gap] = &each(OF_FULLY_SHARD, "FSDP2's", DDP);
