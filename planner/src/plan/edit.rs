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
    let mut place = &mut file;
    for key in path.split('.') {
        // A part of which nothing is set is left out of the file.
        if place.is_null() {
            *place = Value::Object(serde_json::Map::new());
        }
        let Value::Object(object) = place else {
            return Err(refused(format!("there is nothing below {key}")));
        };
        place = object.entry(key).or_insert(Value::Null);
    }
    *place = value.clone();
    PlanFile::read(file).map_err(|error| refused(error.into_inner().to_string()))
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
