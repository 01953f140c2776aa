//! The recipe of mixed precision that a job of Bridge names: the type, and what else it sets with it. It is taken whole, whatever
//! the model's recipe has in its own.

use serde_json::Value;

use super::rows::row;
use crate::Kind::{Follows, Own, Partly, Words};
use crate::kind::{NULL, Options};
use crate::{Kind, Row};
use planner::plan::Plan;
use planner::settings::Precision;
use planner::units::Dtype;

const SOURCE: &str = "src/megatron/bridge/training/mixed_precision.py";

/// Recipes of mixed precision, by the type that a plan has.
const DTYPES: &[(&str, &str)] = &[
    ("bf16_mixed", "bf16"),
    ("fp16_mixed", "fp16"),
    ("bf16_with_fp8_delayed_scaling_mixed", "fp8_delayed"),
    ("bf16_with_fp8_current_scaling_mixed", "fp8_current"),
    ("bf16_with_fp8_subchannel_scaling_mixed", "fp8_blockwise"),
    ("bf16_with_mxfp8_mixed", "mxfp8"),
    ("bf16_with_nvfp4_mixed", "nvfp4"),
];
const LACKS: &str = "there is no recipe of mixed precision for it; the recipe's holds";
const NAMES: Kind = Words { known: DTYPES, lacks: LACKS };

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

fn is_low(plan: &Plan) -> bool {
    plan.training.low_precision.is_some()
}

/// The class whose fields a recipe of mixed precision is.
const CLASS: &str = "megatron.bridge.training.mixed_precision.MixedPrecisionConfig";

/// The type whose recipe of mixed precision a plan has.
fn dtype(plan: &Plan) -> Precision {
    plan.file.training.dtype.unwrap_or(Precision::Bf16)
}

/// Whether a plan is as the recipe that has its type's name.
fn is_named(plan: &Plan, named: &Named) -> bool {
    let training = &plan.training;
    training.grad_dtype == named.gradients
        && (!is_low(plan)
            || (training.fp8_param_gather == named.gathers_low
                && [training.bf16_first_layers, training.bf16_last_layers] == [named.bf16_ends; 2]
                && !training.fp8_attention))
}

/// Whether gradients are of a type that a recipe can have: fp32, or that of computing.
fn has_gradients(plan: &Plan) -> bool {
    let half = if dtype(plan) == Precision::Fp16 { Dtype::Fp16 } else { Dtype::Bf16 };
    [Dtype::Fp32, half].contains(&plan.training.grad_dtype)
}

/// The recipe of a plan: its name, or the fields of its class where none of the names has what the plan has, for a recipe is taken whole.
fn recipe(plan: &Plan) -> Result<String, &'static str> {
    let Some(named) = named(dtype(plan)) else { return Err(LACKS) };
    if is_named(plan, &named) || !has_gradients(plan) {
        let name = DTYPES.iter().find(|(_, own)| *own == dtype(plan).name());
        return name.map(|(name, _)| (*name).to_owned()).ok_or(LACKS);
    }
    let training = &plan.training;
    let half = dtype(plan) == Precision::Fp16;
    let wide = training.grad_dtype == Dtype::Fp32;
    let computed = if half { "fp16:true" } else { "bf16:true" };
    let class = if half { "torch.float16" } else { "torch.bfloat16" };
    let mut fields = vec![format!("_target_:{CLASS}"), computed.to_owned()];
    fields.extend(
        ["params_dtype", "pipeline_dtype"].map(|name| format!("{name}:{{_target_:{class},_call_:false}}")),
    );
    fields.push(format!("grad_reduce_in_fp32:{wide}"));
    // As `mixed_precision.py` has them for each type.
    let low = match dtype(plan) {
        Precision::Fp8Delayed => {
            "fp8:hybrid,fp8_recipe:delayed,fp8_amax_history_len:1024,fp8_amax_compute_algo:max"
        }
        Precision::Fp8Current => "fp8:hybrid,fp8_recipe:tensorwise",
        Precision::Fp8Blockwise => "fp8:hybrid,fp8_recipe:blockwise",
        Precision::Mxfp8 => "fp8:e4m3,fp8_recipe:mxfp8",
        Precision::Nvfp4 => "fp4:e2m1,fp4_recipe:nvfp4,fp4_param_gather:true",
        _ => "",
    };
    if !low.is_empty() {
        fields.push(low.to_owned());
        fields.push(format!("fp8_param_gather:{}", training.fp8_param_gather));
        if dtype(plan) == Precision::Mxfp8 {
            fields.push(format!("reuse_grad_buf_for_mxfp8_param_ag:{}", training.fp8_param_gather));
        }
        let [first, last] = [training.bf16_first_layers, training.bf16_last_layers];
        if first + last > 0 {
            fields.push(format!(
                "first_last_layers_bf16:true,num_layers_at_start_in_bf16:{first},num_layers_at_end_in_bf16:{last}"
            ));
        }
        if training.fp8_attention {
            fields.push("fp8_dot_product_attention:true".to_owned());
        }
    }
    Ok(format!("{{{}}}", fields.join(",")))
}

/// The value of a field of the class, as [`recipe`] writes it; none where a word is a name.
fn field<'a>(word: &'a str, name: &str) -> Option<&'a str> {
    let fields = word.strip_prefix('{')?.strip_suffix('}')?.split(',').map(str::trim);
    let mut values = fields.filter_map(|field| field.strip_prefix(name)?.trim_start().strip_prefix(':'));
    Some(values.next().unwrap_or_default().trim())
}

fn read_dtype(word: &str, said: Options) -> Result<Option<Value>, &'static str> {
    let Some(low) = field(word, "fp8") else { return Partly(&NAMES).read(word, said) };
    let of = |name| field(word, name).unwrap_or_default();
    let known = |value: &str| !["", NULL, "false"].contains(&value);
    let name = match (known(of("fp4")), known(low), of("fp8_recipe")) {
        (true, ..) => "nvfp4",
        (_, false, _) if known(of("fp16")) => "fp16",
        (_, false, _) => "bf16",
        (.., "delayed") => "fp8_delayed",
        (.., "blockwise") => "fp8_blockwise",
        (.., "mxfp8") => "mxfp8",
        _ => "fp8_current",
    };
    Ok(Some(name.into()))
}

/// What a recipe of mixed precision sets besides the type: a name's fact, or what a class's field is.
fn besides(
    word: &str,
    said: Options,
    name: &str,
    of_field: impl Fn(&str) -> Value,
    of_name: impl Fn(&Named) -> Value,
) -> Result<Option<Value>, &'static str> {
    match field(word, name) {
        Some(value) => Ok(Some(of_field(value))),
        None => of_named(word, said, of_name),
    }
}

/// The number in a field of the class, where the ends of a model are in bf16 at all.
fn ends(word: &str, said: Options, name: &str) -> Result<Option<Value>, &'static str> {
    let there = field(word, "first_last_layers_bf16") == Some("true");
    let number = |text: &str| if there { text.parse::<u64>().unwrap_or(0) } else { 0 };
    besides(word, said, name, |text| number(text).into(), |named| named.bf16_ends.into())
}

/// Written with the recipe; `what` says why not where a type has none.
fn with_recipe(plan: &Plan, what: &'static str) -> Result<Option<String>, &'static str> {
    if named(dtype(plan)).is_some() { Ok(None) } else { Err(what) }
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
    // A recipe that is an object takes no other class's fields over its own, so it is taken away first.
    row(
        "mixed_precision",
        "",
        Follows(|plan| recipe(plan).is_ok_and(|word| word.starts_with('{')).then(|| NULL.to_owned())),
        SOURCE,
    ),
    row(
        "mixed_precision",
        "training.dtype",
        Own { write: |plan| recipe(plan).map(Some), read: read_dtype },
        SOURCE,
    ),
    row(
        "mixed_precision",
        "training.grad_dtype",
        Own {
            write: |plan| if has_gradients(plan) { with_recipe(plan, GRADIENTS) } else { Err(GRADIENTS) },
            read: |word, said| {
                let narrow = if field(word, "fp16") == Some("true") { "fp16" } else { "bf16" };
                let of = |text: &str| if text == "false" { narrow } else { "fp32" }.into();
                besides(word, said, "grad_reduce_in_fp32", of, |named| named.gradients.name().into())
            },
        },
        SOURCE,
    ),
    row(
        "mixed_precision",
        "training.fp8_param_gather",
        Own {
            write: |plan| with_recipe(plan, GATHERS),
            read: |word, said| {
                let of = |text: &str| (text == "true").into();
                besides(word, said, "fp8_param_gather", of, |named| named.gathers_low.into())
            },
        },
        SOURCE,
    )
    .when(is_low),
    row(
        "mixed_precision",
        "training.bf16_first_layers",
        Own {
            write: |plan| with_recipe(plan, ENDS),
            read: |word, said| ends(word, said, "num_layers_at_start_in_bf16"),
        },
        SOURCE,
    )
    .when(is_low),
    row(
        "mixed_precision",
        "training.bf16_last_layers",
        Own {
            write: |plan| with_recipe(plan, ENDS),
            read: |word, said| ends(word, said, "num_layers_at_end_in_bf16"),
        },
        SOURCE,
    )
    .when(is_low),
    row(
        "mixed_precision",
        "training.fp8_attention",
        Own {
            write: |plan| with_recipe(plan, ATTENTION),
            read: |word, said| {
                let of = |text: &str| (text == "true").into();
                besides(word, said, "fp8_dot_product_attention", of, |_| false.into())
            },
        },
        SOURCE,
    )
    .when(is_low),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bridge::rows::table;

    fn plan(training: &Value) -> Option<Plan> {
        let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "b200", "nodes": 2},
            "training": training});
        Plan::resolve(&planner::parse_plan(&file.to_string()).unwrap()).plan
    }

    fn words(plan: &Plan) -> Vec<String> {
        let written = table().write(plan);
        let own = written.options.into_iter().filter(|(row, _)| row.option == "mixed_precision");
        own.map(|(_, word)| word).collect()
    }

    #[test]
    fn a_name_is_taken_where_it_has_what_the_plan_has() {
        for (training, name) in [
            (json!({}), "bf16_mixed"),
            (json!({"dtype": "fp16", "grad_dtype": "fp16"}), "fp16_mixed"),
            (json!({"dtype": "fp8_blockwise"}), "bf16_with_fp8_subchannel_scaling_mixed"),
            (json!({"dtype": "mxfp8", "fp8_param_gather": true}), "bf16_with_mxfp8_mixed"),
        ] {
            assert_eq!(words(&plan(&training).unwrap()), [name], "{training}");
        }
    }

    #[test]
    fn gradients_that_no_recipe_has_are_told_beside_the_types_name() {
        let plan = plan(&json!({"dtype": "fp16", "grad_dtype": "bf16"})).unwrap();
        assert_eq!(words(&plan), ["fp16_mixed"]);
        let missing = table().write(&plan).missing;
        assert!(missing.iter().any(|missing| missing.field == "training.grad_dtype"), "{missing:?}");
    }

    #[test]
    fn what_no_name_has_is_the_class_and_comes_back() {
        let mut classes = 0;
        for dtype in ["bf16", "fp16", "fp8_delayed", "fp8_current", "fp8_blockwise", "mxfp8", "nvfp4"] {
            let half = if dtype == "fp16" { "fp16" } else { "bf16" };
            for (gradients, gathers, [first, last]) in
                [("fp32", false, [0, 0]), (half, true, [0, 0]), (half, false, [2, 3]), ("fp32", true, [0, 4])]
            {
                let mut training = json!({"dtype": dtype, "grad_dtype": gradients});
                if dtype.contains("fp8") || dtype == "nvfp4" {
                    training["fp8_param_gather"] = (gathers && dtype != "nvfp4").into();
                    training["bf16_first_layers"] = first.into();
                    training["bf16_last_layers"] = last.into();
                }
                // Some types take no other ends or gathers.
                let Some(plan) = plan(&training) else { continue };
                let words = words(&plan);
                let word = words.last().unwrap();
                let class = word.starts_with('{');
                assert_eq!(words.len(), if class { 2 } else { 1 }, "{training}: {words:?}");
                assert!(!class || words[0] == NULL, "{words:?}");
                classes += usize::from(class);
                let mut read = json!({"training": {}});
                let said = |option: &str| (option == "mixed_precision").then(|| word.clone());
                table().read(&said, &mut read).unwrap();
                let own = &plan.training;
                assert_eq!(read["training"]["dtype"], dtype, "{word}");
                assert_eq!(read["training"]["grad_dtype"], own.grad_dtype.name(), "{word}");
                if is_low(&plan) {
                    assert_eq!(read["training"]["fp8_param_gather"], own.fp8_param_gather, "{word}");
                    assert_eq!(read["training"]["bf16_first_layers"], own.bf16_first_layers, "{word}");
                    assert_eq!(read["training"]["bf16_last_layers"], own.bf16_last_layers, "{word}");
                }
            }
        }
        assert!(classes > 10, "{classes}");
    }
}
