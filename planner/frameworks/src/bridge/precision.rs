//! The recipe of mixed precision that a job of Bridge names: the type, and what else it sets with it. It is taken whole, whatever
//! the model's recipe has in its own.

use serde_json::Value;

use super::rows::row;
use crate::Kind::{Own, Partly, Words};
use crate::kind::Options;
use crate::{Kind, Row};
use planner::plan::Plan;
use planner::settings::Precision;
use planner::units::{Bytes, Dtype};
use planner::wire::Verdict;

const SOURCE: &str = "src/megatron/bridge/training/mixed_precision.py";

/// Recipes of mixed precision, by the type that a plan has.
const NAMES: Kind = Words {
    known: &[
        ("bf16_mixed", "bf16"),
        ("fp16_mixed", "fp16"),
        ("bf16_with_fp8_delayed_scaling_mixed", "fp8_delayed"),
        ("bf16_with_fp8_current_scaling_mixed", "fp8_current"),
        ("bf16_with_fp8_subchannel_scaling_mixed", "fp8_blockwise"),
        ("bf16_with_mxfp8_mixed", "mxfp8"),
        ("bf16_with_nvfp4_mixed", "nvfp4"),
    ],
    lacks: "there is no recipe of mixed precision for it; the recipe's holds",
};

/// What a recipe of mixed precision sets besides the type.
struct Named {
    /// Type of the gradients.
    gradients: Dtype,
    /// Whether parameters are gathered in 8 bits.
    gathers_low: bool,
    /// First layers, and last ones, in bf16.
    bf16_ends: u64,
}

/// What the recipe for a type sets; none where there is none, and the model's recipe has its own.
fn named(dtype: Precision) -> Option<Named> {
    let (gradients, gathers_low, bf16_ends) = match dtype {
        Precision::Fp16 => (Dtype::Fp16, false, 0),
        Precision::Bf16 | Precision::Fp8Blockwise | Precision::Nvfp4 => (Dtype::Fp32, false, 0),
        Precision::Fp8Delayed | Precision::Mxfp8 => (Dtype::Fp32, true, 0),
        Precision::Fp8Current => (Dtype::Fp32, true, 1),
        Precision::Fp32 | Precision::Fp64 => return None,
    };
    Some(Named { gradients, gathers_low, bf16_ends })
}

/// What the plan's fullest GPU takes with gradients as the named recipe of mixed precision has them, where those are wider than the
/// plan's, in a sentence.
pub(super) fn with_named_gradients(plan: &Plan) -> Option<String> {
    let gradients = named(plan.file.training.dtype.unwrap_or(Precision::Bf16))?.gradients;
    let mut file = plan.file.clone();
    file.training.grad_dtype = Some(gradients);
    let [own, other] = [&plan.file, &file].map(|file| planner::estimate(file).memory);
    let (own, other) = (own?.peak_bytes, other?);
    (own < other.peak_bytes).then(|| {
        let verdict = match other.verdict {
            Verdict::Fits => "fits",
            Verdict::Tight => "is tight",
            Verdict::No | Verdict::Invalid => "does not fit",
        };
        format!(
            "gradients are {} in the recipe of mixed precision that the script names, and the fullest GPU then takes {} in place of {}, which {verdict}; \
             a recipe of your own with grad_reduce_in_fp32=False has the plan's",
            gradients.name(),
            Bytes(other.peak_bytes).in_words(),
            Bytes(own).in_words()
        )
    })
}

fn is_low(plan: &Plan) -> bool {
    plan.training.low_precision.is_some()
}

/// Nothing is written where a plan is as the recipe of mixed precision that it names; `what` says where it is not.
fn as_named(
    plan: &Plan,
    is_so: impl Fn(&Named) -> bool,
    what: &'static str,
) -> Result<Option<String>, &'static str> {
    let dtype = plan.file.training.dtype.unwrap_or(Precision::Bf16);
    if named(dtype).is_some_and(|named| is_so(&named)) { Ok(None) } else { Err(what) }
}

/// What the recipe of mixed precision with a name sets, where it is one of a plan's.
fn of_named(
    word: &str,
    said: Options,
    fact: impl Fn(&Named) -> Value,
) -> Result<Option<Value>, &'static str> {
    let dtype = Partly(&NAMES).read(word, said)?;
    let dtype = dtype.as_ref().and_then(Value::as_str);
    let dtype = dtype.and_then(|word| Precision::ALL.into_iter().find(|dtype| dtype.name() == word));
    Ok(dtype.and_then(named).map(|named| fact(&named)))
}

const GRADIENTS: &str = "the recipe of mixed precision decides in which type gradients are reduced";
const GATHERS: &str = "the recipe of mixed precision decides in which type parameters are gathered";
const ENDS: &str = "the recipe of mixed precision decides which layers stay in bf16";
const ATTENTION: &str = "the recipe of mixed precision decides in which type attention multiplies";

pub(super) const ROWS: &[Row] = &[
    row("mixed_precision", "training.dtype", Partly(&NAMES), SOURCE),
    row(
        "mixed_precision",
        "training.grad_dtype",
        Own {
            write: |plan| as_named(plan, |named| plan.training.grad_dtype == named.gradients, GRADIENTS),
            read: |word, said| of_named(word, said, |named| named.gradients.name().into()),
        },
        SOURCE,
    ),
    row(
        "mixed_precision",
        "training.fp8_param_gather",
        Own {
            write: |plan| {
                as_named(plan, |named| plan.training.fp8_param_gather == named.gathers_low, GATHERS)
            },
            read: |word, said| of_named(word, said, |named| named.gathers_low.into()),
        },
        SOURCE,
    )
    .when(is_low),
    row(
        "mixed_precision",
        "training.bf16_first_layers",
        Own {
            write: |plan| as_named(plan, |named| plan.training.bf16_first_layers == named.bf16_ends, ENDS),
            read: |word, said| of_named(word, said, |named| named.bf16_ends.into()),
        },
        SOURCE,
    )
    .when(is_low),
    row(
        "mixed_precision",
        "training.bf16_last_layers",
        Own {
            write: |plan| as_named(plan, |named| plan.training.bf16_last_layers == named.bf16_ends, ENDS),
            read: |word, said| of_named(word, said, |named| named.bf16_ends.into()),
        },
        SOURCE,
    )
    .when(is_low),
    row(
        "mixed_precision",
        "training.fp8_attention",
        Own {
            write: |plan| as_named(plan, |_| !plan.training.fp8_attention, ATTENTION),
            read: |word, said| of_named(word, said, |_| false.into()),
        },
        SOURCE,
    )
    .when(is_low),
];
