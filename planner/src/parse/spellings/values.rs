//! Words that people have for the values of fields.

mod tables;

use serde_json::Value;

use super::{Spelled, at, fold, numbers, put, take};
use crate::cluster::{Meant, meant_gpu};
use crate::finding::clip;
use crate::model::preset_of_hub;
use crate::model::presets;
use crate::software::Product;
pub(super) use tables::DEEPSPEED;
use tables::{FRAMEWORKS, KINDS};

/// What a word means.
#[derive(Debug, Clone, Copy)]
pub(super) enum Word {
    /// Exactly this value.
    Is(&'static str),
    /// No value: what to write, as the end of a sentence.
    Says(&'static str),
}

/// Values of one kind.
pub(super) struct Kind {
    /// Paths of the fields that have them.
    pub(super) fields: &'static [&'static str],
    /// The plan file's own.
    pub(super) takes: &'static [&'static str],
    /// Other words, between spaces.
    pub(super) words: &'static [(&'static str, Word)],
}

/// Replaces what means exactly a value by it, and refuses what is known to be none.
pub(super) fn normalise(spelled: &mut Spelled) {
    for kind in KINDS {
        for field in kind.fields {
            word(spelled, field, kind);
        }
    }
    preset(spelled);
    gpu(spelled);
    framework(spelled);
}

fn word(spelled: &mut Spelled, field: &str, kind: &Kind) {
    let written = match at(&spelled.root, field) {
        Some(Value::String(word)) => word.clone(),
        // `"dtype": 32`, `"strategy": 3.0`, `"offload": true`.
        Some(plain @ Value::Number(_)) => match numbers::whole(plain) {
            Some(whole) => whole.to_string(),
            None => return,
        },
        Some(plain @ Value::Bool(_)) => plain.to_string(),
        _ => return,
    };
    if kind.takes.contains(&written.as_str()) {
        return;
    }
    let folded = fold(&written);
    let own = kind.takes.iter().find(|own| fold(own) == folded).map(|own| Word::Is(own));
    let other = || {
        kind.words
            .iter()
            .find(|(words, _)| words.split(' ').any(|word| is_written(word, &written, &folded)))
            .map(|(_, word)| *word)
    };
    match own.or_else(other) {
        Some(Word::Is(value)) => {
            let said = format!("`{}` is read as {value}", clip(&written));
            replace(spelled, field, value, said);
        }
        Some(Word::Says(sentence)) => {
            let message = format!("{field} is `{}`: {sentence}", clip(&written));
            let value = take(&mut spelled.root, field).unwrap_or_default();
            spelled.refuse(field, &value, message);
        }
        None => {}
    }
}

/// Whether a word of the tables is the written one, whose letters and digits alone are `folded`. Of a number signs count, too: -1 is not 1.
fn is_written(word: &str, written: &str, folded: &str) -> bool {
    match word.bytes().all(|byte| byte.is_ascii_digit()) {
        true => word == written.trim(),
        false => fold(word) == folded,
    }
}

/// Puts a value where another word for it stands.
fn replace(spelled: &mut Spelled, field: &str, value: &str, message: String) {
    let written = at(&spelled.root, field).cloned().unwrap_or_default();
    put(&mut spelled.root, field, value.into());
    spelled.remark(field, &written, &value.into(), message);
}

/// Presets by the names that models have on Hugging Face, in any writing, and by the beginning of one name alone, such as
/// `qwen3-235b`.
fn preset(spelled: &mut Spelled) {
    let field = "model.preset";
    let Some(Value::String(written)) = at(&spelled.root, field).cloned() else { return };
    if presets().iter().any(|preset| preset.id == written) {
        return;
    }
    let folded = fold(&written);
    let same = || presets().iter().find(|preset| fold(&preset.id) == folded).map(|preset| preset.id.as_str());
    if let Some(id) = preset_of_hub(&written).or_else(same).or_else(|| begun(&written)) {
        replace(spelled, field, id, format!("`{}` is read as the preset {id}", clip(&written)));
    }
}

/// The only preset whose name goes on, by whole words, where `written` ends; none where that says no size or version.
fn begun(written: &str) -> Option<&'static str> {
    let beginning = fold(written);
    if !beginning.contains(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    let goes_on = |id: &&str| id.match_indices('-').any(|(at, _)| fold(&id[..at]) == beginning);
    let mut begins = presets().iter().map(|preset| preset.id.as_str()).filter(goes_on);
    begins.next().filter(|_| begins.next().is_none())
}

/// Frameworks by any of their names, before a version or none; the runtime is theirs where none is said.
fn framework(spelled: &mut Spelled) {
    const FIELD: &str = "software.framework";
    let Some(Value::String(written)) = at(&spelled.root, FIELD).cloned() else { return };
    let is_version = |word: &&str| word.contains(|letter: char| letter.is_ascii_digit()) || *word == "main";
    let (name, version) = match written.trim().rsplit_once(' ').filter(|(_, last)| is_version(last)) {
        Some((name, version)) => (name, Some(version)),
        None => (written.trim(), None),
    };
    let folded = fold(name);
    let alias = FRAMEWORKS.iter().find(|(words, _)| words.split(' ').any(|word| fold(word) == folded));
    let own = Product::ALL.into_iter().find(|product| fold(product.name()) == folded);
    let Some(product) = own.or(alias.map(|(_, product)| *product)) else { return };
    let text =
        version.map_or_else(|| product.name().to_owned(), |version| format!("{} {version}", product.name()));
    if text != written && !product.name().eq_ignore_ascii_case(name) {
        replace(spelled, FIELD, &text, format!("`{}` is read as {text}", clip(&written)));
    }
    let usual =
        product.runtimes().first().filter(|_| at(&spelled.root, "runtime").is_none_or(Value::is_null));
    if let Some(runtime) = usual.map(|runtime| runtime.name()).filter(|runtime| *runtime != "megatron") {
        put(&mut spelled.root, "runtime", runtime.into());
        let message = format!("no runtime is said, and {} trains with {runtime}", product.name());
        spelled.remark("runtime", &Value::Null, &runtime.into(), message);
    }
}

/// GPUs by the names that people and drivers give them, with how many there are of them.
fn gpu(spelled: &mut Spelled) {
    let field = "cluster.gpu";
    let Some(Value::String(written)) = at(&spelled.root, field).cloned() else { return };
    match meant_gpu(&written) {
        None => {}
        Some(Meant::Says(sentence)) => {
            // The id stays: without one there is no cluster, and the reader would say only that.
            spelled.refuse(
                field,
                &written.clone().into(),
                format!("cluster.gpu is `{}`: {sentence}", clip(&written)),
            );
        }
        Some(Meant::Gpu { id, count, memory_gib }) => {
            let mut said = format!("`{}` is read as {id}", clip(&written));
            if let Some(gib) = memory_gib {
                spelled.set("cluster.memory_gib", gib.into(), &written);
                said.push_str(&format!(" with {gib} GiB"));
            }
            if let Some(count) = count {
                spelled.counts.push(super::counts::Said::of_gpu(count));
                said.push_str(&format!(", {count} of them"));
            }
            replace(spelled, field, id, said);
        }
    }
}

/// All kinds, for tests.
#[cfg(test)]
pub(super) fn kinds() -> &'static [Kind] {
    KINDS
}
