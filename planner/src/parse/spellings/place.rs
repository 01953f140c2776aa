//! Values by the path of a field, and words without what people write differently.

use serde_json::{Map, Value};

/// The value at a path such as `layout.tp` or `cluster.failed[0].gpu`; the whole for an empty path.
pub(in crate::parse) fn at<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    parts(path).try_fold(root, |place, key| match place {
        Value::Array(entries) => entries.get(key.parse::<usize>().ok()?),
        object => object.get(key),
    })
}

/// The same, to be changed.
pub(super) fn at_mut<'a>(root: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    parts(path).try_fold(root, |place, key| match place {
        Value::Array(entries) => entries.get_mut(key.parse::<usize>().ok()?),
        object => object.get_mut(key),
    })
}

/// Takes the value at a path out.
pub(super) fn take(root: &mut Value, path: &str) -> Option<Value> {
    let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
    at_mut(root, section)?.as_object_mut()?.remove(key)
}

/// Puts a value at a path, making the sections that it is in; false where something else stands in its way.
pub(in crate::parse) fn put(root: &mut Value, path: &str, value: Value) -> bool {
    let mut place = root;
    for key in parts(path) {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        place = match place {
            Value::Object(object) => object.entry(key).or_insert(Value::Null),
            Value::Array(entries) => match key.parse::<usize>().ok().and_then(|at| entries.get_mut(at)) {
                Some(entry) => entry,
                None => return false,
            },
            _ => return false,
        };
    }
    *place = value;
    true
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[', ']']).filter(|part| !part.is_empty())
}

/// A word's letters and digits: `--tensor-model-parallel-size` and `tensorModelParallelSize` are one.
pub(super) fn fold(word: &str) -> String {
    word.chars()
        .filter(|letter| letter.is_ascii_alphanumeric())
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}
