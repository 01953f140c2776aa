//! Types that stand in a recipe's own sections: eight bits, and what an optimizer keeps its state in.

use serde_json::{Value, json};

use crate::import::settings::Settings;
use crate::import::write::Notes;
use planner::runtime::Runtime;

const COUNTED_BF16: &str = "no plan has it under this runtime; it is counted in bf16";

/// Puts eight bits into a plan: torchao's (the `fp8` section, `components/quantization/fp8.py`) or TransformerEngine's
/// (`model.backend.te_fp8`, `components/models/common/utils.py`).
pub(super) fn eight_bits(settings: &Settings, runtime: Runtime, plan: &mut Value, notes: &mut Notes) {
    if settings.text("model.backend.experts").is_some_and(|word| word.contains("mxfp8")) {
        let message =
            "experts alone in eight bits are not planned; they are counted as the rest of the model";
        notes.warn("training.dtype", "model.backend.experts in mxfp8", message);
    }
    let (name, said) = match (settings.flag("fp8.enabled"), engine(settings)) {
        (true, _) => {
            let name = settings.text("fp8.recipe_name").unwrap_or_else(|| "tensorwise".to_owned());
            let known = ["tensorwise", "rowwise", "rowwise_with_gw_hp"].contains(&name.as_str());
            let runs = known && !settings.flag("fp8.emulate");
            (runs.then_some("fp8_current"), format!("fp8 of {name}"))
        }
        (false, Some((name, said))) => (name, format!("model.backend.te_fp8 of {said}")),
        (false, None) => return,
    };
    let Some(name) = name.filter(|name| !runtime.facts().flat_units && *name != "fp8_blockwise") else {
        notes.warn("training.dtype", &said, COUNTED_BF16);
        return;
    };
    let training = &mut plan["training"];
    training["dtype"] = name.into();
    if !settings.flag("fp8.enabled") {
        return;
    }
    // With scales of rows weights are gathered as they are kept.
    if settings.flag("fp8.enable_fsdp_float8_all_gather") && said.ends_with("tensorwise") {
        training["fp8_param_gather"] = true.into();
    }
    let names = settings.text("fp8.filter_fqns").unwrap_or_default();
    let left: Vec<&str> = names
        .trim_matches(['[', ']'])
        .split(',')
        .map(|name| name.trim().trim_matches(['"', '\'']))
        .filter(|name| !name.is_empty())
        .collect();
    let output = |name: &str| "lm_head".contains(name);
    if !left.iter().any(|name| output(name)) {
        training["fp8_output"] = true.into();
    }
    let rest: Vec<&str> = left.into_iter().filter(|name| !output(name)).collect();
    if !rest.is_empty() {
        let message = "no plan says which modules stay in bf16; they are counted in eight bits";
        notes.warn("training.dtype", &format!("fp8.filter_fqns {}", rest.join(", ")), message);
    }
}

/// TransformerEngine's recipe: the plan's word for it, and the recipe's. A recipe is a word or one of TransformerEngine's classes.
fn engine(settings: &Settings) -> Option<(Option<&'static str>, String)> {
    settings.text("model.backend.te_fp8").or_else(|| settings.text("model.backend.te_fp8.recipe"))?;
    let said = settings
        .first(&["model.backend.te_fp8.recipe._target_", "model.backend.te_fp8.recipe"])
        .unwrap_or_else(|| "current".to_owned());
    let class = said.rsplit('.').next().unwrap_or_default();
    let name = match class {
        "current" | "Float8CurrentScaling" => Some("fp8_current"),
        "mxfp8" | "MXFP8BlockScaling" => Some("mxfp8"),
        "block" | "Float8BlockScaling" => Some("fp8_blockwise"),
        _ => None,
    };
    Some((name, class.to_owned()))
}

/// Puts the types of an optimizer's state into a plan, as far as it has words for them: FSDP2's plans have one type for what is kept
/// of parameters, gradients and moments.
pub(super) fn state(settings: &Settings, runtime: Runtime, plan: &mut Value, notes: &mut Notes) {
    let class = settings.text("optimizer._target_").unwrap_or_default();
    let class = class.rsplit('.').next().unwrap_or_default();
    let kept = plan["layout"]["fsdp"]["sharded_dtype"].as_str().unwrap_or("bf16").to_owned();
    if class.starts_with("FlashAdam") {
        let bits = settings.text("optimizer.master_weight_bits").unwrap_or_else(|| "24".to_owned());
        let message = format!(
            "no plan has its moments in 8 bits, nor weights of {bits} bits in two parts; all is counted in {kept}"
        );
        notes.warn("layout.fsdp.sharded_dtype", class, &message);
    }
    if class != "FusedAdam" {
        return;
    }
    let wide = |path: &str| settings.text(path).is_none_or(|word| word.contains("32"));
    let masters = settings.flag("optimizer.master_weights");
    let moments = ["exp_avg_dtype", "exp_avg_sq_dtype"].map(|name| wide(&format!("optimizer.{name}")));
    let field = "layout.fsdp.sharded_dtype";
    if runtime.facts().flat_units {
        if masters || moments != [true, true] {
            notes.warn(field, class, "types of its state are counted as Megatron-FSDP has them by itself");
        }
        return;
    }
    if kept == "bf16" && (masters || moments.contains(&true)) {
        plan["layout"]["fsdp"]["sharded_dtype"] = json!("fp32");
        let exact = masters && moments == [true, true];
        let message = match exact && !settings.flag("optimizer.store_param_remainders") {
            true => {
                "bf16 parameters and gradients beside fp32 copies and moments are as many bytes as fp32 ones, and are planned as those"
            }
            false => {
                "some of its state is fp32 and some is shorter, which no plan has; all is counted in fp32, which is more than it keeps"
            }
        };
        notes.warn(field, class, message);
    } else if kept == "fp32" && moments != [true, true] {
        notes.warn(field, class, "shorter moments are not planned; they are counted in fp32");
    }
}

/// Puts the loss into a plan: the type that it is computed in, and whether it takes logits as tensor-parallel ranks have them. A recipe
/// that names none leaves it to Automodel's own for the model.
pub(super) fn loss(settings: &Settings, runtime: Runtime, plan: &mut Value, notes: &mut Notes) {
    let Some(target) = settings.text("loss_fn._target_") else { return };
    let class = target.rsplit('.').next().unwrap_or_default();
    if runtime.facts().flat_units {
        return;
    }
    match class {
        "MaskedCrossEntropy" => {
            // Wider unless it says no (`components/loss/masked_ce.py`).
            let stays =
                settings.text("loss_fn.fp32_upcast").is_some() && !settings.flag("loss_fn.fp32_upcast");
            plan["layout"]["fsdp"]["loss_dtype"] = if stays { "bf16" } else { "fp32" }.into();
        }
        "TEParallelCrossEntropy" => plan["training"]["cross_entropy"] = "te".into(),
        _ => {
            let message = "no plan has this loss; it is counted as one that takes all logits";
            notes.warn("training.cross_entropy", &format!("loss_fn {class}"), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{RECIPE, import, planned, says};
    use crate::import::testing::is_planned;

    #[test]
    fn eight_bits_are_planned_where_fsdp2_has_them() {
        let with = |section: &str| format!("{RECIPE}\nfp8: {section}\n");
        let tensors = with(
            "{enabled: true, recipe_name: tensorwise, enable_fsdp_float8_all_gather: true, filter_fqns: [lm_head, router]}",
        );
        is_planned(import(&tensors, ""), "/training/dtype", &json!("fp8_current"));
        is_planned(import(&tensors, ""), "/training/fp8_param_gather", &json!(true));
        says(&import(&tensors, ""), "fp8.filter_fqns router");
        let rows = with("{enabled: true, recipe_name: rowwise, enable_fsdp_float8_all_gather: true}");
        is_planned(import(&rows, ""), "/training/dtype", &json!("fp8_current"));
        assert_eq!(planned(import(&rows, ""), "/training/fp8_param_gather"), json!(null));
        is_planned(import(&rows, ""), "/training/fp8_output", &json!(true));
        is_planned(
            import(&with("{enabled: false, recipe_name: rowwise}"), ""),
            "/training/dtype",
            &json!(null),
        );
        is_planned(import(RECIPE, "--fp8.enabled true"), "/training/dtype", &json!("fp8_current"));
        says(
            &import(&rows, "--distributed.strategy megatron_fsdp --distributed.tp_size 1"),
            "fp8 of rowwise",
        );
    }

    #[test]
    fn the_loss_is_planned_or_named() {
        let with = |section: &str| format!("{RECIPE}\nloss_fn: {section}\n");
        let at = "nemo_automodel.components.loss";
        let masked = |more: &str| with(&format!("{{_target_: {at}.masked_ce.MaskedCrossEntropy{more}}}"));
        let dtype = "/layout/fsdp/loss_dtype";
        is_planned(import(&masked(""), ""), dtype, &json!("fp32"));
        is_planned(import(&masked(", fp32_upcast: true"), ""), dtype, &json!("fp32"));
        is_planned(import(&masked(", fp32_upcast: false"), ""), dtype, &json!("bf16"));
        is_planned(import(&masked(""), "--loss_fn.fp32_upcast false"), dtype, &json!("bf16"));
        let split = with(&format!("{{_target_: {at}.te_parallel_ce.TEParallelCrossEntropy}}"));
        is_planned(import(&split, ""), "/training/cross_entropy", &json!("te"));
        let fused = with(&format!("{{_target_: {at}.linear_ce.FusedLinearCrossEntropy}}"));
        says(&import(&fused, ""), "loss_fn FusedLinearCrossEntropy");
    }

    #[test]
    fn eight_bits_of_transformer_engine_are_planned_or_named() {
        let with = |engine: &str| {
            RECIPE.replace("torch_dtype: float32", &format!("backend: {{linear: te, te_fp8: {engine}}}"))
        };
        is_planned(import(&with("{recipe: current}"), ""), "/training/dtype", &json!("fp8_current"));
        let class =
            "{recipe: {_target_: transformer_engine.common.recipe.Float8CurrentScaling, fp8_dpa: true}}";
        is_planned(import(&with(class), ""), "/training/dtype", &json!("fp8_current"));
        let blocks = import(&with("{recipe: block}"), "");
        says(&blocks, "model.backend.te_fp8 of block");
        assert_eq!(planned(blocks, "/training/dtype"), json!(null));
        let file = import(&with("{recipe: mxfp8}"), "").file.unwrap();
        assert_eq!(serde_json::to_value(&file).unwrap()["training"]["dtype"], "mxfp8");
    }

    #[test]
    fn state_is_counted_in_the_type_that_an_optimizer_keeps() {
        let fused = RECIPE
            .replace("  torch_dtype: float32\n", "")
            .replace("torch.optim.AdamW", "transformer_engine.pytorch.optimizers.fused_adam.FusedAdam");
        let path = "/layout/fsdp/sharded_dtype";
        let masters = import(&fused, "--optimizer.master_weights true");
        says(&masters, "as many bytes as fp32");
        is_planned(masters, path, &json!("fp32"));
        let short = "--optimizer.exp_avg_dtype torch.bfloat16 --optimizer.exp_avg_sq_dtype torch.bfloat16";
        assert_eq!(planned(import(&fused, short), path), json!(null));
        let both = import(&fused, &format!("{short} --optimizer.master_weights true"));
        says(&both, "more than it keeps");
        is_planned(both, path, &json!("fp32"));
        let flash = RECIPE.replace("torch.optim.AdamW", "flashoptim.FlashAdamW");
        says(&import(&flash, "--optimizer.master_weight_bits 32"), "32 bits in two parts");
    }
}
