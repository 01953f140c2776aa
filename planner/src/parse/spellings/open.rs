//! What is left open: the names that people have for the axes of `choose`, and `auto` where a value stands.

use serde_json::{Value, json};

use super::names::{self, Meaning};
use super::{Spelled, at, fold, numbers, put, take};
use crate::finding::clip;
use crate::wire::{AXES, OpenAxis};

/// Makes `choose` of what people write for it, and takes `auto` for an axis that is left open.
pub(super) fn settle(spelled: &mut Spelled) {
    let written = at(&spelled.root, "choose").cloned().unwrap_or_default();
    let mut open = match &written {
        Value::String(words) => words_of(words),
        Value::Array(words) => {
            words.iter().flat_map(|word| word.as_str().map(words_of).unwrap_or_default()).collect()
        }
        Value::Null => Vec::new(),
        other => match numbers::switch(other) {
            Some(true) => vec!["all".to_owned()],
            Some(false) => Vec::new(),
            None => return,
        },
    };
    let said = open.len();
    for axis in AXES.iter().filter(|axis| axis.in_all) {
        let is_auto =
            at(&spelled.root, axis.path).and_then(Value::as_str).is_some_and(|word| fold(word) == "auto");
        if is_auto {
            take(&mut spelled.root, axis.path);
            open.push(axis.name.to_owned());
        }
    }
    let own = match &written {
        Value::Array(words) => words.iter().all(|word| word.as_str().is_some_and(is_known)),
        Value::String(word) => is_known(word),
        Value::Null => true,
        _ => false,
    };
    if own && open.len() == said {
        return;
    }
    let value = match &open[..] {
        [] => Value::Null,
        names if names.iter().any(|name| name == "all") && names.len() == 1 => json!("all"),
        names => json!(names),
    };
    put(&mut spelled.root, "choose", value.clone());
    let written = if own { json!("auto") } else { written };
    let message = format!("{} is read as choose {}", clip(&written.to_string()), clip(&value.to_string()));
    spelled.remark("choose", &written, &value, message);
}

/// Whether `choose` takes a word as it is.
fn is_known(word: &str) -> bool {
    word == "all" || AXES.iter().any(|axis| axis.is_meant(word))
}

/// The axes that words mean, between spaces, commas or bars; a word that means none stays, and is refused where it is read.
fn words_of(words: &str) -> Vec<String> {
    let one = axes_of(words);
    if !one.is_empty() {
        return one;
    }
    let each = words.split([' ', ',', '|', ';', '+']).filter(|word| !word.is_empty());
    each.flat_map(|word| {
        let found = axes_of(word);
        if found.is_empty() { vec![word.to_owned()] } else { found }
    })
    .collect()
}

/// The names of the axes that a word means: one by its name, path or another name of its field; those of a section; all.
fn axes_of(word: &str) -> Vec<String> {
    let folded = fold(word);
    if ["all", "auto", "everything", "any", "true", "yes", "on"].contains(&folded.as_str()) {
        return vec!["all".to_owned()];
    }
    let by = |is: &dyn Fn(&&OpenAxis) -> bool| -> Vec<String> {
        AXES.iter().filter(is).map(|axis| axis.name.to_owned()).collect()
    };
    let own = by(&|axis| fold(axis.name) == folded || fold(axis.path) == folded);
    if !own.is_empty() {
        return own;
    }
    let section =
        by(&|axis| axis.in_all && axis.path.split('.').next().is_some_and(|section| section == folded));
    if !section.is_empty() {
        return section;
    }
    let Some(Meaning::Field(field)) = names::meaning("", word) else { return Vec::new() };
    by(&|axis| axis.path == field || axis.path.strip_suffix(".granularity") == Some(field.as_str()))
}
