//! Tensor-parallel plans in Hugging Face's sense: a map from module pattern to style.
//!
//! A user's map goes before the plan of the model's class, and that before transformers' own.

mod class;
mod hf;
mod pattern;
mod validate;

pub use crate::layout::{Placement, Style};
pub(crate) use class::class_plan;
pub use class::{Class, Plan as TpPlan};
pub(crate) use hf::known_sources;
pub use hf::{Era, Sources, UnknownStyle, merge};
pub use pattern::{glob, matches};
pub use validate::check;

use crate::layout::TpPlanSource;
use crate::plan::Plan;

/// `model_type` of the plan's config.json, where it has one.
pub fn model_type(plan: &Plan) -> Option<&str> {
    let model = &plan.file.model;
    let config = match (&model.hf_config, &model.preset) {
        (Some(config), _) => config,
        (None, Some(id)) => {
            crate::model::presets().iter().find(|preset| preset.id == *id)?.hf_config.as_ref()?
        }
        (None, None) => return None,
    };
    config.get("model_type")?.as_str()
}

/// The plan that is applied: empty without tensor parallelism. `Err` when transformers' plan has a style that the
/// parallelizer does not take; then the default plan is applied.
pub fn applied(plan: &Plan) -> Result<TpPlan, UnknownStyle> {
    if plan.layout.tp == 1 {
        return Ok(TpPlan::new());
    }
    let own = |class| class_plan(class, plan.layout.sp);
    match &plan.layout.tp_plan {
        TpPlanSource::Map(entries) => Ok(entries.clone()),
        TpPlanSource::HuggingFace => match model_type(plan).and_then(known_sources) {
            Some(sources) => merge(sources, "model", plan.model.tied_embeddings, Era::Current),
            None => Ok(own(Class::Default)),
        },
        TpPlanSource::Own if plan.runtime.facts().one_tensor_plan => {
            // Beside Megatron-Core's own modules Megatron-FSDP finds embedding and output layer split by vocabulary.
            Ok(own(if plan.software.builds_on_megatron_core() {
                Class::MegatronCore
            } else {
                Class::MegatronFsdp
            }))
        }
        TpPlanSource::Own => Ok(own(Class::of(model_type(plan)))),
    }
}

/// The plan that is applied, the default one where transformers' has an unknown style.
pub fn effective(plan: &Plan) -> TpPlan {
    applied(plan).unwrap_or_else(|_| class_plan(Class::Default, plan.layout.sp))
}

/// Whether every tensor-parallel rank ends up with all logits, where this tensor-parallel plan is applied: where the output layer is
/// whole, or its columns are gathered.
pub(crate) fn gathers_logits(plan: &Plan, tp_plan: &TpPlan) -> bool {
    let kept = |style| matches!(style, Style::Colwise { output: Placement::Shard(_), .. });
    plan.layout.tp == 1 || !style_of(tp_plan, "lm_head").is_some_and(kept)
}

/// Style of a module in a plan: the last entry that matches it.
pub(crate) fn style_of(plan: &[(String, Style)], module: &str) -> Option<Style> {
    plan.iter().rev().find(|(pattern, _)| matches(pattern, module)).map(|(_, style)| *style)
}
