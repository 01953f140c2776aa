//! A command line as names and values.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::number::plain_digits;

/// Options by name, without leading dashes and with `-` for `_`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arguments(BTreeMap<String, Vec<String>>);

/// Longest command line that is read, in words.
const MOST_WORDS: usize = 4096;

impl Arguments {
    /// Reads words as a shell gives them: `--name value...` or `--name=value`. Words before the first option are left
    /// out; of an option given twice the last counts.
    pub fn of_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Arguments {
        let mut found = Arguments::default();
        let mut last: Option<String> = None;
        for word in words.into_iter().take(MOST_WORDS) {
            if let Some(option) = word.strip_prefix("--") {
                let (name, value) = match option.split_once('=') {
                    Some((name, value)) => (name, vec![value.to_owned()]),
                    None => (option, Vec::new()),
                };
                let name = name.replace('_', "-");
                found.0.insert(name.clone(), value);
                last = Some(name);
            } else if let Some(values) = last.as_ref().and_then(|name| found.0.get_mut(name)) {
                values.push(word.to_owned());
            }
        }
        found
    }

    /// Reads a map as Megatron's test configurations keep it: true for an option alone, `[a b]` for several values.
    pub fn of_map(map: &Map<String, Value>) -> Arguments {
        let mut found = Arguments::default();
        for (name, value) in map {
            let values = match value {
                Value::Bool(false) | Value::Null => continue,
                Value::Bool(true) => Vec::new(),
                Value::String(text) => of_text(text),
                Value::Array(list) => list.iter().map(plain).collect(),
                other => vec![plain(other)],
            };
            found.0.insert(name.trim_start_matches('-').replace('_', "-"), values);
        }
        found
    }

    /// Whether an option that has no value is there.
    pub fn flag(&self, name: &str) -> bool {
        self.values(name)
            .is_some_and(|values| !values.first().is_some_and(|value| value.eq_ignore_ascii_case("false")))
    }

    /// The first value of an option.
    pub fn word(&self, name: &str) -> Option<String> {
        self.values(name)?.first().cloned()
    }

    /// A whole number.
    ///
    /// # Errors
    /// When the value is none.
    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.word(name) else { return Ok(None) };
        let digits = plain_digits(&text);
        let whole = digits.parse::<u64>().ok();
        // Some configurations write whole numbers as 1.0.
        let real =
            || digits.parse::<f64>().ok().filter(|value| value.fract() == 0.0 && (0.0..1e15).contains(value));
        match whole.or_else(|| real().map(|value| value as u64)) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("--{name} is `{text}`, which is not a whole number")),
        }
    }

    /// A real number.
    ///
    /// # Errors
    /// When the value is none.
    pub fn real(&self, name: &str) -> Result<Option<f64>, String> {
        let Some(text) = self.word(name) else { return Ok(None) };
        match plain_digits(&text).parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Some(value)),
            _ => Err(format!("--{name} is `{text}`, which is not a number")),
        }
    }

    /// Names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether an option is there.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The values of an option; none where it is not there.
    pub fn values(&self, name: &str) -> Option<&[String]> {
        self.0.get(name).map(Vec::as_slice)
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `[a b]` is a list of words; `([0]*4+[1]*9)` and everything else one value.
fn of_text(text: &str) -> Vec<String> {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) if !inner.contains('[') => {
            inner.split([' ', ',']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
        }
        _ => vec![text.to_owned()],
    }
}
