//! Edits of a plan file by the path of a field.

use serde_json::Value;

use crate::finding::Finding;
use crate::wire::PlanFile;

/// The plan file with the field at `path` set to `value`; null for its default.
///
/// # Errors
/// When there is no such field, or the value does not suit it.
pub fn with_value(plan: &PlanFile, path: &str, value: &Value) -> Result<PlanFile, Box<Finding>> {
    let refused = |why: String| {
        Box::new(Finding::error(path, value.clone(), format!("{value} can't be put into {path}: {why}")))
    };
    let mut file = serde_json::to_value(plan).map_err(|error| refused(error.to_string()))?;
    let place = place_of(&mut file, path)
        .ok_or_else(|| refused("it leads below a field that has no parts".to_owned()))?;
    *place = value.clone();
    PlanFile::read(file).map_err(|error| refused(error.error.to_string()))
}

/// Where a plan file's JSON has a path; null where nothing is said there. None where the path leads through what is no part.
pub fn place_of<'a>(file: &'a mut Value, path: &str) -> Option<&'a mut Value> {
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
    let mut value = serde_json::to_value(plan).unwrap_or_default();
    drop_unsaid(&mut value);
    value
}

fn drop_unsaid(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(drop_unsaid);
        let is_said =
            |value: &Value| !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty());
        fields.retain(|_, value| is_said(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::parse_plan;

    #[test]
    fn what_is_said_reads_as_the_same_plan() {
        let text = r#"{"version":1,"model":{"preset":"tiny-moe"},"cluster":{"gpu":"cpu"},"layout":{"tp":2},"training":{"overlap":{"tp":false}}}"#;
        let plan = parse_plan(text).unwrap();
        let written = said(&plan);
        assert_eq!(serde_json::to_string(&written).unwrap().len(), text.len());
        assert_eq!(PlanFile::read(written).unwrap(), plan);
    }
}
