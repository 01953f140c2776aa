//! Attention: grouped queries, or latent attention.

use crate::Kind::{Alone, Beside, Flag, Follows, Number, Own, Partly, Real, Words};
use crate::kind::Options;
use crate::{Effect, Row};
use planner::model::{Attention, Norm, QkNorm};
use planner::plan::Plan;
use planner::units::number;

use super::{ARGUMENTS, MODEL, is_latent, on, row, says, unless, whole};

const SIZE: &str = "sizes of the model: parameters and activations of every layer";
const LATENT: Effect = Effect::Bytes("latent attention: compressed and expanded queries, keys, values");

fn is_grouped(plan: &Plan) -> bool {
    matches!(plan.model.attention, Attention::Gqa { .. })
}

fn latent(said: Options) -> bool {
    on(said, "multi-latent-attention")
}

fn grouped(said: Options) -> bool {
    !latent(said)
}

/// Something of grouped-query attention.
fn gqa<T>(plan: &Plan, of: impl Fn(&Attention) -> T) -> Option<T> {
    is_grouped(plan).then(|| of(&plan.model.attention))
}

fn norm_of_queries(plan: &Plan) -> QkNorm {
    match plan.model.attention {
        Attention::Gqa { qk_norm, .. } => qk_norm,
        _ => QkNorm::None,
    }
}

/// Width that is rotated, where that is not the whole, and width of the head.
fn rotated(plan: &Plan) -> Option<(u64, u64)> {
    match plan.model.attention {
        Attention::Gqa { rotary_dim, head_dim, .. } => {
            Some((rotary_dim.filter(|rotated| *rotated != head_dim)?, head_dim))
        }
        _ => None,
    }
}

/// Biases of queries, keys and values, and of the output.
fn biases(plan: &Plan) -> (bool, bool) {
    match plan.model.attention {
        Attention::Gqa { qkv_bias, out_bias, .. } => (qkv_bias, out_bias),
        _ => (false, false),
    }
}

/// Width of a head of a job.
fn head_dim(said: Options) -> Option<u64> {
    let divided = || Some(whole(said, "hidden-size")? / whole(said, "num-attention-heads")?.max(1));
    whole(said, "kv-channels").or_else(divided)
}

pub(super) const ATTENTION: &[Row] = &[
    row("kv-channels", "model.attention.head_dim", Beside(grouped, &Number), MODEL)
        .when(is_grouped)
        .bytes(SIZE),
    // Latent attention has widths of its own, and this one is divided anyway where it is not said.
    row(
        "kv-channels",
        "",
        Follows(|plan| match plan.model.attention {
            Attention::Mla { heads, v_dim, .. } => {
                (!plan.model.hidden_size.is_multiple_of(heads)).then(|| v_dim.to_string())
            }
            _ => None,
        }),
        ARGUMENTS,
    )
    .bytes(SIZE),
    // Without this option the number of groups says nothing.
    row(
        "group-query-attention",
        "",
        Alone {
            write: |plan| gqa(plan, |one| one.kv_heads() != one.heads()) == Some(true),
            read: |_, _| None,
        },
        ARGUMENTS,
    )
    .bytes(SIZE),
    row(
        "num-query-groups",
        "model.attention.kv_heads",
        Beside(|said| grouped(said) && on(said, "group-query-attention"), &Number),
        MODEL,
    )
    .when(|plan| gqa(plan, |one| one.kv_heads() != one.heads()) == Some(true))
    .usual("1")
    .bytes(SIZE),
    row(
        "multi-latent-attention",
        "model.attention.kind",
        Alone { write: is_latent, read: |there, _| Some(if there { "mla" } else { "gqa" }.into()) },
        MODEL,
    )
    .usual("false")
    .has(LATENT),
    row(
        "qk-layernorm",
        "model.attention.qk_norm",
        Alone {
            write: |plan| match &plan.model.attention {
                Attention::Mla { qk_norm, .. } => *qk_norm,
                _ => matches!(norm_of_queries(plan), QkNorm::PerHead | QkNorm::PerHeadLayer),
            },
            read: |there, said| {
                if latent(said) {
                    return Some(there.into());
                }
                let rms = said("normalization").is_some_and(|word| word == "RMSNorm");
                serde_json::to_value(QkNorm::per_head(there, !rms)).ok()
            },
        },
        MODEL,
    )
    .usual("false")
    .bytes(SIZE),
    says(
        "model.attention.qk_norm",
        |plan| {
            let of_layers = plan.model.norm == Norm::Layer;
            match norm_of_queries(plan) {
                QkNorm::None => Ok(()),
                QkNorm::Full => Err("norms of queries and keys are per head"),
                kind => unless(
                    (kind == QkNorm::PerHeadLayer) != of_layers,
                    "norms of queries and keys are of the kind of the layers' norms",
                ),
            }
        },
        MODEL,
    ),
    row(
        "add-qkv-bias",
        "model.attention.qkv_bias",
        Alone {
            write: |plan| biases(plan).0 && !plan.model.mlp_bias,
            read: |there, said| (there && grouped(said)).then(|| true.into()),
        },
        MODEL,
    )
    .when(|plan| !plan.model.mlp_bias)
    .bytes(SIZE),
    says(
        "model.attention.out_bias",
        |plan| {
            let (qkv, out) = biases(plan);
            let biased = plan.model.mlp_bias;
            let apart = is_grouped(plan) && (out != biased || (biased && !qkv));
            unless(apart, "biases of attention and MLP go together")
        },
        MODEL,
    ),
    row(
        "softmax-type",
        "model.attention.sinks",
        Beside(grouped, &Partly(&Words { known: &[("learnable", "true"), ("", "false")], lacks: "" })),
        MODEL,
    )
    .when(is_grouped)
    .bytes("one weight for each head"),
    says(
        "model.attention.values_are_keys",
        |plan| {
            let so = matches!(plan.model.attention, Attention::Gqa { values_are_keys: true, .. });
            unless(so, "values are projected apart from keys")
        },
        MODEL,
    ),
    says(
        "model.attention.shared_kv",
        |plan| {
            let so = matches!(plan.model.attention, Attention::Gqa { shared_kv: true, .. });
            unless(so, "layers have keys and values of their own")
        },
        MODEL,
    ),
    row("q-lora-rank", "model.attention.q_lora_rank", Beside(latent, &Number), MODEL)
        .when(is_latent)
        .has(LATENT),
    row("kv-lora-rank", "model.attention.kv_lora_rank", Beside(latent, &Number), MODEL)
        .when(is_latent)
        .usual("32")
        .has(LATENT),
    row("qk-head-dim", "model.attention.qk_nope_dim", Beside(latent, &Number), MODEL)
        .when(is_latent)
        .usual("128")
        .has(LATENT),
    row("qk-pos-emb-head-dim", "model.attention.qk_rope_dim", Beside(latent, &Number), MODEL)
        .when(is_latent)
        .usual("64")
        .has(LATENT),
    row("v-head-dim", "model.attention.v_dim", Beside(latent, &Number), MODEL)
        .when(is_latent)
        .usual("128")
        .has(LATENT),
    row("attention-output-gate", "model.attention.output_gate", Flag, MODEL)
        .when(|plan| is_grouped(plan) || is_latent(plan))
        .bytes(SIZE),
    says(
        "model.attention.output_gate",
        |plan| {
            let gated = matches!(plan.model.attention, Attention::Mla { output_gate: true, .. });
            unless(gated, "Megatron-LM does not start with a gate behind latent attention (core_v0.19)")
        },
        MODEL,
    ),
    row(
        "rotary-percent",
        "model.attention.rotary_dim",
        Beside(
            grouped,
            &Own {
                write: |plan| {
                    Ok(rotated(plan).map(|(rotated, width)| number(rotated as f64 / width.max(1) as f64)))
                },
                read: |word, said| {
                    let part = Real.read(word, said)?.and_then(|part| part.as_f64()).unwrap_or(1.0);
                    let width = head_dim(said).filter(|_| part > 0.0 && part < 1.0);
                    Ok(width.map(|width| ((part * width as f64) as u64).into()))
                },
            },
        ),
        ARGUMENTS,
    )
    .when(|plan| rotated(plan).is_some())
    .bytes("learned positions on the first stage; rotary ones have no weights"),
    says(
        "model.attention.rotary_dim",
        |plan| {
            let inexact = rotated(plan).is_some_and(|(rotated, width)| {
                (rotated as f64 / width.max(1) as f64 * width as f64) as u64 != rotated
            });
            unless(inexact, "no percentage gives this width")
        },
        ARGUMENTS,
    ),
];
