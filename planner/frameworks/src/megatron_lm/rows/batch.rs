//! Batch, steps and the types in which things are computed and kept.

use crate::Kind::{Alone, Asked, AtLeast, Beside, Flag, Number, Own, Partly, Read, Words};
use crate::kind::Options;
use crate::{Effect, Kind, Row};
use planner::plan::Plan;
use planner::settings::Precision;
use planner::units::Dtype;

use super::optimizer::SAMPLES;
use super::{ARGUMENTS, DDP, MODEL, OPTIMIZER, TRAINING, is_fsdp, on, row, says, shards, unless};

const TOKENS: &str = "tokens of a micro batch, micro batches of a step";
const TYPES: Effect = Effect::Bytes("types of weights and gradients");
const SAVED: Effect = Effect::Bytes("what matrices save of their inputs; quantised weights and their copies");

pub(super) const BATCH: &[Row] = &[
    row("encoder-seq-length", "training.seq_len", Read(&Number), ARGUMENTS).bytes(TOKENS),
    row("seq-length", "training.seq_len", Number, ARGUMENTS).bytes(TOKENS),
    row("micro-batch-size", "training.micro_batch_size", Number, TRAINING).usual("1").bytes(TOKENS),
    row("global-batch-size", "training.global_batch_size", Number, TRAINING).bytes(TOKENS),
    row("train-iters", "run.steps", AtLeast(1.0, &Partly(&Number)), TRAINING)
        .no_bytes("how long, not how large"),
    row("train-samples", "run.steps", SAMPLES, TRAINING).no_bytes("how long, not how large"),
];

/// Types of main gradients and of the optimizer's state.
pub(super) const STATE_TYPES: Kind = Words {
    known: &[("fp32", "fp32"), ("bf16", "bf16"), ("fp16", "fp16"), ("fp8", "fp8"), ("auto", "fp32")],
    lacks: "there are fp32, bf16 and fp16",
};

fn precision(plan: &Plan) -> Precision {
    plan.file.training.dtype.unwrap_or(Precision::Bf16)
}

/// `--fp8-recipe`.
fn recipe(plan: &Plan) -> Option<String> {
    Some(
        match precision(plan) {
            Precision::Fp8Delayed => "delayed",
            Precision::Fp8Current => "tensorwise",
            Precision::Fp8Blockwise => "blockwise",
            Precision::Mxfp8 => "mxfp8",
            _ => return None,
        }
        .to_owned(),
    )
}

fn precision_of(recipe: &str) -> Option<Precision> {
    Some(match recipe {
        "delayed" => Precision::Fp8Delayed,
        "tensorwise" => Precision::Fp8Current,
        "blockwise" => Precision::Fp8Blockwise,
        "mxfp8" => Precision::Mxfp8,
        _ => return None,
    })
}

fn in_8_bits(plan: &Plan) -> bool {
    recipe(plan).is_some()
}

fn in_4_bits(plan: &Plan) -> bool {
    precision(plan) == Precision::Nvfp4
}

/// Whether a job computes in 8 bits.
fn has_fp8(said: Options) -> bool {
    said("fp8-format").or(said("fp8")).is_some()
}

/// The word of 8 bits alone is the recipe that is usual.
const FP8: Kind = Own {
    write: |plan| Ok(in_8_bits(plan).then(|| "hybrid".to_owned())),
    read: |_, _| Ok(Some(Precision::Fp8Delayed.name().into())),
};
const FP4: Kind = Own {
    write: |plan| Ok(in_4_bits(plan).then(|| "e2m1".to_owned())),
    read: |_, _| Ok(Some(Precision::Nvfp4.name().into())),
};

fn keeps_layers(plan: &Plan) -> bool {
    plan.training.bf16_first_layers + plan.training.bf16_last_layers > 0
}

fn keeps(said: Options) -> bool {
    on(said, "first-last-layers-bf16")
}

pub(super) const PRECISION: &[Row] = &[
    row(
        "fp16",
        "training.dtype",
        Alone {
            write: |plan| plan.training.dtype == Dtype::Fp16,
            read: |there, _| Some(if there { "fp16" } else { "fp32" }.into()),
        },
        ARGUMENTS,
    )
    .usual("false")
    .has(TYPES),
    row(
        "bf16",
        "training.dtype",
        Alone {
            write: |plan| plan.training.dtype == Dtype::Bf16,
            read: |there, _| there.then(|| "bf16".into()),
        },
        ARGUMENTS,
    )
    .has(TYPES),
    says(
        "training.dtype",
        |plan| {
            let known = [Dtype::Bf16, Dtype::Fp16, Dtype::Fp32].contains(&plan.training.dtype);
            unless(!known, "there are bf16, fp16 and fp32")
        },
        ARGUMENTS,
    ),
    row("fp8", "training.dtype", Read(&FP8), MODEL).has(SAVED),
    row("fp8-format", "training.dtype", FP8, MODEL).has(SAVED),
    row(
        "fp8-recipe",
        "training.dtype",
        Beside(
            has_fp8,
            &Own {
                write: |plan| Ok(recipe(plan)),
                read: |word, _| match precision_of(word) {
                    Some(precision) => Ok(Some(precision.name().into())),
                    None => Err("and there are delayed, tensorwise, blockwise and mxfp8"),
                },
            },
        ),
        MODEL,
    )
    .has(SAVED),
    row("fp8-param-gather", "training.fp8_param_gather", Flag, MODEL).when(in_8_bits).has(SAVED),
    row(
        "reuse-grad-buf-for-mxfp8-param-ag",
        "",
        Alone {
            write: |plan| precision(plan) == Precision::Mxfp8 && plan.training.fp8_param_gather,
            read: |_, _| None,
        },
        OPTIMIZER,
    )
    .no_bytes("counted where parameters are gathered in mxfp8"),
    row("fp4", "training.dtype", Read(&FP4), MODEL).has(SAVED),
    row("fp4-format", "training.dtype", FP4, MODEL).has(SAVED),
    row("fp4-recipe", "", Asked(true), MODEL).has(SAVED),
    row("fp4-param-gather", "training.fp8_param_gather", Flag, MODEL).when(in_4_bits).has(SAVED),
    row("fp8-output-proj", "training.fp8_output", Flag, MODEL)
        .when(|plan| plan.training.fp8_output)
        .no_bytes("a faster output layer; what it keeps is counted in the compute type"),
    says(
        "training.fp8_attention",
        |plan| {
            unless(
                plan.training.fp8_attention,
                "attention in 8 bits has no option of the command line; the script computes it in 16 bits",
            )
        },
        ARGUMENTS,
    ),
    row(
        "first-last-layers-bf16",
        "training.bf16_first_layers",
        Alone { write: keeps_layers, read: |there, _| there.then(|| 1.into()) },
        MODEL,
    )
    .has(SAVED),
    row(
        "first-last-layers-bf16",
        "training.bf16_last_layers",
        Alone { write: |_| false, read: |there, _| there.then(|| 1.into()) },
        MODEL,
    ),
    row("num-layers-at-start-in-bf16", "training.bf16_first_layers", Beside(keeps, &Number), MODEL)
        .when(keeps_layers)
        .has(SAVED),
    row("num-layers-at-end-in-bf16", "training.bf16_last_layers", Beside(keeps, &Number), MODEL)
        .when(keeps_layers)
        .has(SAVED),
];

/// Compute type and type of main gradients, where Megatron-Core keeps these.
fn types(plan: &Plan) -> Option<(Dtype, Dtype)> {
    (!is_fsdp(plan)).then_some((plan.training.dtype, plan.training.grad_dtype))
}

pub(super) const GRADIENTS: &[Row] = &[
    // Main gradients of Megatron-FSDP follow the parameters unless told otherwise.
    row(
        "bf16",
        "training.grad_dtype",
        Alone {
            write: |_| false,
            read: |there, said| Some(if there && shards(said) { "bf16" } else { "fp32" }.into()),
        },
        ARGUMENTS,
    )
    .usual("false"),
    row("megatron-fsdp-main-grads-dtype", "training.grad_dtype", Beside(shards, &Partly(&STATE_TYPES)), DDP)
        .when(is_fsdp)
        .bytes("sharded parameters, gathered units, buffers of gradients"),
    row("megatron-fsdp-main-params-dtype", "", Asked(true), ARGUMENTS)
        .no_bytes("the optimizer's copies are counted in fp32"),
    row("megatron-fsdp-grad-comm-dtype", "", Asked(true), ARGUMENTS)
        .no_bytes("gradients are counted in the type of the main ones on their way"),
    row(
        "grad-reduce-in-bf16",
        "training.grad_dtype",
        Alone {
            write: |plan| types(plan) == Some((Dtype::Bf16, Dtype::Bf16)),
            read: |there, said| (there && on(said, "bf16") && !shards(said)).then(|| "bf16".into()),
        },
        ARGUMENTS,
    )
    .has(TYPES),
    row(
        "accumulate-allreduce-grads-in-fp32",
        "training.grad_dtype",
        Alone {
            write: |plan| types(plan) == Some((Dtype::Fp16, Dtype::Fp32)),
            read: |there, said| {
                let low = on(said, "bf16") && on(said, "grad-reduce-in-bf16");
                (!there && on(said, "fp16") && !low && !shards(said)).then(|| "fp16".into())
            },
        },
        ARGUMENTS,
    )
    .usual("false")
    .has(TYPES),
    says(
        "training.grad_dtype",
        |plan| match types(plan) {
            None => Ok(()),
            Some((Dtype::Bf16, Dtype::Fp32 | Dtype::Bf16)) => Ok(()),
            Some((Dtype::Fp16, Dtype::Fp16 | Dtype::Fp32)) => Ok(()),
            Some((Dtype::Fp32, Dtype::Fp32)) => Ok(()),
            Some(_) => Err("main gradients are fp32, or of the compute type"),
        },
        ARGUMENTS,
    ),
];
