//! Fields of a plan file by their paths.

use serde_json::Value;

/// The value at a path of a filled plan file; null where there is none.
pub(crate) fn at<'a>(file: &'a Value, path: &str) -> &'a Value {
    const ABSENT: &Value = &Value::Null;
    path.split('.').try_fold(file, |at, part| at.get(part)).unwrap_or(ABSENT)
}

/// Whether a path is a field, or in it.
pub(crate) fn is_at(path: &str, field: &str) -> bool {
    path == field || path.strip_prefix(field).is_some_and(|rest| rest.starts_with('.'))
}

pub(crate) fn put(file: &mut Value, path: &str, value: Value) {
    let mut place = file;
    for part in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(serde_json::Map::new());
        }
        place = &mut place[part];
    }
    *place = value;
}
