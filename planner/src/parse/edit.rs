//! Edits of a plan file by the path of a field.

use serde_json::Value;

use crate::finding::Finding;
use crate::json::value_of;
use crate::parse::parse_plan;
use crate::wire::PlanFile;

/// The plan file with the field at `path` set to `value`; null for its default.
///
/// # Errors
/// When there is no such field, or the value does not suit it.
pub fn with_value(plan: &PlanFile, path: &str, value: &Value) -> Result<PlanFile, Box<Finding>> {
    let refused = |why: String| {
        Box::new(Finding::error(path, value.clone(), format!("{value} can't be put into {path}: {why}")))
    };
    let mut file = value_of(plan);
    let place = place_of(&mut file, path)
        .ok_or_else(|| refused("it leads below a field that has no parts".to_owned()))?;
    *place = value.clone();
    let read = PlanFile::read(file).map_err(|error| refused(error.error.to_string()))?;
    Ok(PlanFile { remarks: plan.remarks.clone(), ..read })
}

/// The plan with values at paths as a person says them: they are read as those of a plan file are, in whatever words.
///
/// # Errors
/// What is wrong with one, at its field.
pub fn with_words(plan: &PlanFile, words: &[(String, Value)]) -> Result<PlanFile, Vec<Finding>> {
    // What is null would stand in the way of other words for it.
    let mut file = said(plan);
    for (path, value) in words {
        let Some(place) = place_of(&mut file, path) else {
            let message =
                format!("{value} can't be put into {path}: it leads below a field that has no parts");
            return Err(vec![Finding::error(path, value.clone(), message)]);
        };
        *place = value.clone();
    }
    let mut read = parse_plan(&file.to_string())?;
    read.remarks.splice(0..0, plan.remarks.iter().cloned());
    Ok(read)
}

/// Where a plan file's JSON has a path; null where nothing is said there. None where the path leads through what is no part.
pub(crate) fn place_of<'a>(file: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut place = file;
    for key in path.split('.') {
        // A part of which nothing is set is left out of the file.
        if place.is_null() {
            *place = Value::Object(serde_json::Map::new());
        }
        place = place.as_object_mut()?.entry(key).or_insert(Value::Null);
    }
    Some(place)
}

/// What a plan file says, without the fields that it leaves to their defaults.
pub fn said(plan: &PlanFile) -> Value {
    let mut value = value_of(plan);
    drop_unsaid(&mut value);
    value
}

/// Drops what is null and what is empty, but in a config.json: there it is said, and its families' default is something else.
fn drop_unsaid(value: &mut Value) {
    let Value::Object(fields) = value else { return };
    let is_kept = |name: &str| name == "hf_config";
    for (_, value) in fields.iter_mut().filter(|(name, _)| !is_kept(name)) {
        drop_unsaid(value);
    }
    let is_empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
    fields.retain(|name, value| !value.is_null() && (is_kept(name) || !is_empty(value)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_said_reads_as_the_same_plan() {
        let text = r#"{"version":1,"model":{"preset":"tiny-moe"},"cluster":{"gpu":"cpu"},"layout":{"tp":2},"training":{"overlap":{"tp":false}}}"#;
        let plan = parse_plan(text).unwrap();
        let written = said(&plan);
        assert_eq!(serde_json::to_string(&written).unwrap().len(), text.len());
        assert_eq!(PlanFile::read(written).unwrap(), plan);
    }

    #[test]
    fn what_a_config_says_is_null_stays_said() {
        let text = r#"{"version":1,"model":{"hf_config":{"model_type":"mistral","sliding_window":null,"rope_scaling":{"factor":null}}},"cluster":{"gpu":"cpu"}}"#;
        let plan = parse_plan(text).unwrap();
        assert_eq!(
            said(&plan)["model"]["hf_config"],
            plan.model.hf_config.clone().map(Value::Object).unwrap()
        );
        let read = with_words(&plan, &[("layout.tp".to_owned(), json!(2))]).unwrap();
        assert_eq!(read.model, plan.model);
        let read = with_value(&plan, "layout.tp", &json!(2)).unwrap();
        assert_eq!(read.model, plan.model);
    }

    #[test]
    fn words_are_read_as_in_a_plan_file() {
        let plan =
            parse_plan(r#"{"version":1,"model":{"preset":"tiny-moe"},"cluster":{"gpu":"cpu"}}"#).unwrap();
        let check = |path: &str, value: Value, expected: Value| {
            let read =
                with_words(&plan, &[(path.to_owned(), value)]).unwrap_or_else(|found| panic!("{found:?}"));
            let mut file = serde_json::to_value(&read).unwrap();
            assert_eq!(place_of(&mut file, path), Some(&mut expected.clone()), "{path}");
        };
        check("cluster.gpu", json!("NVIDIA H100 80GB HBM3"), json!("h100-sxm"));
        check("cluster.gpu", json!("h200"), json!("h200"));
        check("training.dtype", json!("BF16"), json!("bf16"));
        check("runtime", json!("FSDP2"), json!("fsdp2"));
        check("layout.tp", json!("8"), json!(8));
        let words = [("training.activation_checkpointing".to_owned(), json!(true))];
        let read = with_words(&plan, &words).unwrap();
        assert_eq!(read.training.recompute.granularity, Some(crate::settings::Granularity::Full));
        let wrong = |path: &str, value: Value, word: &str| {
            let found = with_words(&plan, &[(path.to_owned(), value)]).unwrap_err();
            assert!(found.iter().any(|finding| finding.message.contains(word)), "{found:?}");
        };
        wrong("layout.tp", json!("many"), "many");
        wrong("layout.tp.more", json!(1), "");
        wrong("cluster.gpus_of_a_node", json!(1), "gpus_of_a_node");
    }
}
