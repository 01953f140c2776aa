//! Which tensor-parallel plan Automodel takes for a model that it has none of its own for.
//!
//! `optimized_tp_plans.py` has plans by class of model; for Qwen3.5 that is transformers' plan, which splits attention and MLP and
//! leaves linear attention whole. For a class that it does not name, transformers' plan goes before the default one
//! (`_get_parallel_plan`, `components/distributed/parallelizer.py`).

use serde_json::Value;

use crate::import::write::Notes;
use planner::plan::Plan;
use planner::resolve::Resolved;
use planner::rules::TP_PLAN_OF_CLASS;
use planner::shard::tp_plan::model_type;
use planner::wire::PlanFile;
use planner::{Finding, Severity};

/// Types of models whose entry among Automodel's own plans is transformers' plan.
const BY_REGISTRY: [&str; 2] = ["qwen3_5", "qwen3_5_text"];

/// Has a plan take transformers' tensor-parallel plan where the runtime's own are of no such model, and transformers has one.
pub(super) fn choose(plan: &mut Value, notes: &mut Notes) {
    let has_one =
        plan["layout"]["tp"].as_u64().is_some_and(|tp| tp > 1) && plan["layout"]["tp_plan"].is_null();
    let is_rule = |finding: &Finding| finding.rule == TP_PLAN_OF_CLASS;
    if !has_one || resolved(plan).is_none_or(|resolved| !resolved.findings.iter().any(is_rule)) {
        return;
    }
    let mut other = plan.clone();
    other["layout"]["tp_plan"] = "hf".into();
    // It does not split the sequence, and Automodel takes no notice of a recipe that asks for it.
    let asks = other["layout"]["sp"] == true;
    other["layout"]["sp"] = false.into();
    let resolved = resolved(&other);
    let kind = resolved.as_ref().and_then(|resolved| model_type(resolved.plan.as_ref()?).map(str::to_owned));
    let is_registered = kind.is_some_and(|kind| BY_REGISTRY.contains(&kind.as_str()));
    // Of any other class a plan with a style that Automodel does not take is none.
    let is_against = |finding: &Finding| match finding.severity {
        Severity::Error => finding.field.starts_with("layout.tp"),
        Severity::Warning => finding.field == "layout.tp_plan" && !is_registered,
        Severity::Info => false,
    };
    if resolved.is_none_or(|resolved| resolved.findings.iter().any(is_against)) {
        return;
    }
    if asks {
        let message = "the plan that the model's class has in transformers does not split the sequence; it is counted whole";
        notes.warn("layout.sp", "distributed.sequence_parallel true", message);
    }
    *plan = other;
}

fn resolved(plan: &Value) -> Option<Resolved> {
    PlanFile::read(plan.clone()).ok().map(|file| Plan::resolve(&file))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{RECIPE, import, planned, says};

    #[test]
    fn a_model_with_linear_attention_takes_the_plan_of_transformers() {
        let dense = RECIPE.replace("meta-llama/Llama-3.1-70B", "Qwen/Qwen3.5-27B");
        assert_eq!(planned(import(&dense, ""), "/layout/tp_plan"), json!("hf"));
        assert_eq!(planned(import(RECIPE, ""), "/layout/tp_plan"), json!(null));
        let split = dense.replace("sequence_parallel: false", "sequence_parallel: true");
        assert_eq!(planned(import(&split, ""), "/layout/sp"), json!(false));
        says(&import(&split, ""), "does not split the sequence");
        // What Automodel has no such plan of is left to be refused.
        let latent = RECIPE.replace("meta-llama/Llama-3.1-70B", "deepseek-ai/DeepSeek-V3");
        assert_eq!(planned(import(&latent, ""), "/layout/tp_plan"), json!(null));
        let alone = dense.replace("tp_size: 4", "tp_size: 1");
        assert_eq!(planned(import(&alone, ""), "/layout/tp_plan"), json!(null));
        let file = import(&dense, "").file.expect("a plan");
        assert!(planner::plan::Plan::resolve(&file).plan.is_some());
    }
}
