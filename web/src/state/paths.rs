//! Fields by their path in the plan file, such as `training.optimizer.kind`.

use planner::finding::Finding;
use planner::json::value_of;
use planner::wire::PlanFile;
use serde_json::Value;

/// Id of the element that edits a field.
pub fn element_id(path: &str) -> String {
    crate::testid::field(path)
}

/// The section of the form in which a field is.
pub fn section_of(path: &str) -> Option<&'static str> {
    match path.split('.').next().unwrap_or_default() {
        "model" => Some("model"),
        "cluster" => Some("cluster"),
        "layout" | "choose" | "objective" | "deadline_days" => Some("layout"),
        "training" | "runtime" | "run" | "software" => Some("training"),
        _ => None,
    }
}

/// The plan with the field at `path` set to `value`.
///
/// # Errors
/// When there is no such field, or the value does not suit it.
pub fn with_value(plan: &PlanFile, path: &str, value: &Value) -> Result<PlanFile, Finding> {
    planner::parse::with_value(plan, path, value).map_err(|finding| *finding)
}

/// What takes the place of a list in which a finding is about one entry: the list with `value` for that entry. For
/// any other field, `value` itself.
pub fn mended(plan: &PlanFile, finding: &Finding, value: &Value) -> Value {
    let file = value_of(plan);
    let place = finding.field.split('.').try_fold(&file, |place, key| place.get(key));
    match place {
        Some(Value::Array(entries)) if !value.is_array() => {
            let entry = |entry: &Value| if *entry == finding.value { value.clone() } else { entry.clone() };
            entries.iter().map(entry).collect()
        }
        _ => value.clone(),
    }
}

/// Whether a finding is about a whole part of the plan, such as the model that a config.json describes, where the nearest values are of
/// one of its sizes and nothing by that path can be set to them.
pub fn is_part(plan: &PlanFile, finding: &Finding) -> bool {
    let file = value_of(plan);
    let place = finding.field.split('.').try_fold(&file, |place, key| place.get(key));
    place.is_some_and(Value::is_object) && !finding.nearest.iter().any(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_entry_of_a_list_is_mended() {
        let path = "training.recompute.modules";
        let plan = PlanFile { version: 1, ..PlanFile::default() };
        let plan = with_value(&plan, path, &json!(["mlp", "core_atn"])).unwrap();
        let finding = Finding::error(path, "core_atn", "");
        assert_eq!(mended(&plan, &finding, &json!("core_attn")), json!(["mlp", "core_attn"]));
        let finding = Finding::error("layout.tp", 3, "");
        assert_eq!(mended(&plan, &finding, &json!(4)), json!(4));
    }

    #[test]
    fn a_whole_part_is_not_set_to_a_number() {
        let plan = PlanFile { version: 1, ..PlanFile::default() };
        let plan = with_value(&plan, "model.hf_config", &json!({"num_attention_heads": 32})).unwrap();
        assert!(is_part(&plan, &Finding::error("model", 5, "").nearest([4, 2])));
        assert!(!is_part(&plan, &Finding::error("layout.tp", 5, "").nearest([4, 2])));
        assert!(!is_part(&plan, &Finding::error("training.recompute.modules", "mlq", "").nearest(["mlp"])));
    }

    #[test]
    fn a_field_is_set_by_its_path() {
        let plan = PlanFile { version: 1, ..PlanFile::default() };
        let plan = with_value(&plan, "layout.tp", &json!(4)).unwrap();
        assert_eq!(plan.layout.tp, Some(4));
        let plan = with_value(&plan, "model.preset", &json!("tiny-moe")).unwrap();
        assert_eq!(plan.model.preset.as_deref(), Some("tiny-moe"));
    }

    #[test]
    fn what_can_not_be_set_is_said() {
        let plan = PlanFile { version: 1, ..PlanFile::default() };
        assert_eq!(with_value(&plan, "layout.tq", &json!(4)).unwrap_err().field, "layout.tq");
        assert!(with_value(&plan, "layout.tp", &json!("four")).is_err());
        assert!(with_value(&plan, "layout.tp.x.y", &json!(1)).is_err());
    }
}
