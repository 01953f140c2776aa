//! Two records side by side: which fields differ, for how many plans, and one example of each.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Longest value that is shown.
const SHOWN: usize = 120;

/// A field that differs.
#[derive(Default)]
struct Difference {
    plans: usize,
    last: Option<usize>,
    example: String,
}

/// Prints how two records differ. Says whether they are equal.
#[expect(clippy::print_stdout, reason = "the differences are this program's data")]
pub fn compare(before: &Path, after: &Path) -> Result<bool> {
    let read =
        |path: &Path| std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()));
    let (before, after) = (read(before)?, read(after)?);
    let lines = |text: &str| text.lines().count();
    if lines(&before) != lines(&after) {
        println!("{} plans before, {} after", lines(&before), lines(&after));
    }
    let mut found: BTreeMap<String, Difference> = BTreeMap::new();
    let mut unequal = 0;
    for (number, (old, new)) in before.lines().zip(after.lines()).enumerate() {
        if old == new {
            continue;
        }
        unequal += 1;
        walk("", &serde_json::from_str(old)?, &serde_json::from_str(new)?, &mut |path, example| {
            let known = found.entry(path.to_owned()).or_default();
            if known.last != Some(number) {
                (known.plans, known.last) = (known.plans + 1, Some(number));
            }
            if known.example.is_empty() {
                known.example = format!("plan {number}: {example}");
            }
        });
    }
    for (path, one) in &found {
        println!("{:5} plans  {path}\n             {}", one.plans, one.example);
    }
    println!("{unequal} of {} plans differ", lines(&after));
    Ok(unequal == 0 && lines(&before) == lines(&after))
}

/// Tells of each place where two values differ; numbers of lists are left out of its path.
fn walk(path: &str, old: &Value, new: &Value, tell: &mut impl FnMut(&str, String)) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let at = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
                walk(&format!("{path}.{key}"), &at(old), &at(new), tell);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (old, new) in old.iter().zip(new) {
                walk(&format!("{path}[]"), old, new, tell);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            let gone = old.iter().find(|value| !new.contains(value));
            let come = new.iter().find(|value| !old.contains(value));
            tell(
                path,
                format!("{} items, {} now; gone {} come {}", old.len(), new.len(), shown(gone), shown(come)),
            );
        }
        (old, new) if old != new => tell(path, format!("{} -> {}", shown(Some(old)), shown(Some(new)))),
        _ => {}
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), |value| value.to_string().chars().take(SHOWN).collect())
}
