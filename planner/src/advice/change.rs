//! The fields in which two plan files differ.

use serde_json::Value;

use crate::json::value_of;
use crate::wire::{Change, PlanFile};

/// Fields that differ between `before` and `after`, by path. `filled` tells what stands where `before` says nothing.
pub(super) fn changes(before: &PlanFile, after: &PlanFile, filled: &PlanFile) -> Vec<Change> {
    let json = |file: &PlanFile| value_of(file);
    let (before, after, filled) = (json(before), json(after), json(filled));
    let mut found = Vec::new();
    differ(&before, &after, &filled, "", &mut found);
    found
}

fn differ(before: &Value, after: &Value, filled: &Value, path: &str, found: &mut Vec<Change>) {
    if before == after {
        return;
    }
    let nothing = serde_json::Map::new();
    let object = |value: &'_ Value| value.as_object().cloned();
    // A part of which nothing is set is left out of a file.
    if before.is_object() || after.is_object() {
        let before = object(before).unwrap_or_else(|| nothing.clone());
        let after = object(after).unwrap_or_else(|| nothing.clone());
        let filled = object(filled).unwrap_or(nothing);
        let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
        crate::order::sort(&mut names);
        names.dedup();
        for name in names {
            let of = |map: &serde_json::Map<String, Value>| map.get(name).cloned().unwrap_or(Value::Null);
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            differ(&of(&before), &of(&after), &of(&filled), &path, found);
        }
        return;
    }
    let from = if before.is_null() { filled } else { before };
    // To say what holds anyway is no change.
    if from == after {
        return;
    }
    found.push(Change { field: path.to_owned(), from: from.clone(), to: after.clone() });
}
