//! Reading TOML with errors that name the file and the line, and values of the expected kind.

use std::collections::BTreeMap;

use serde_json::json;
use toml::{Table, Value};

use planner::finding::{Finding, nearest_names};

/// The longest text that is read, in bytes. Headers and project files have some kilobytes, locks some megabytes.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Parses `text`, which stands in `path` from line `line_of(byte)` on.
pub(super) fn parse(path: &str, text: &str, line_of: impl Fn(usize) -> usize) -> Result<Table, Box<Finding>> {
    if text.len() > MAX_BYTES {
        let message = format!("this file has more than {MAX_BYTES} bytes, which is no settings file: {path}");
        return Err(Box::new(Finding::error("toml", text.len() as u64, message)));
    }
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let start = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1);
        let column = text.get(start..at).map_or(0, |before| before.chars().count()) + 1;
        let (line, message) = (line_of(at), error.message().trim().replace('\n', ", "));
        let message = format!("this is not TOML at line {line}, column {column}: {message}: {path}");
        Box::new(
            Finding::error("toml", line as u64, message).rule("columns are counted without the comment sign"),
        )
    })
}

/// Parses a whole file.
pub(super) fn parse_file(path: &str, text: &str) -> Result<Table, Box<Finding>> {
    parse(path, text, |at| text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1)
}

/// A table with the path of its fields, for messages.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    table: Option<&'a Table>,
    prefix: &'a str,
}

impl<'a> Fields<'a> {
    /// The fields of `table`, called `prefix.key`.
    pub(super) fn new(table: &'a Table, prefix: &'a str) -> Self {
        Fields { table: Some(table), prefix }
    }

    /// The table at `key`; an absent one has no fields. `prefix` is its full name.
    pub(super) fn table(self, key: &str, prefix: &'a str) -> Result<Fields<'a>, Box<Finding>> {
        match self.get(key) {
            None => Ok(Fields { table: None, prefix }),
            Some(Value::Table(table)) => Ok(Fields { table: Some(table), prefix }),
            Some(other) => Err(self.wrong(key, other, "a table")),
        }
    }

    /// The value at `key`.
    pub(super) fn get(self, key: &str) -> Option<&'a Value> {
        self.table?.get(key)
    }

    /// A text.
    pub(super) fn text(self, key: &str) -> Result<Option<String>, Box<Finding>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong(key, other, "a string")),
        }
    }

    /// A text that may be written as a number.
    pub(super) fn loose_text(self, key: &str) -> Result<Option<String>, Box<Finding>> {
        match self.get(key) {
            Some(Value::Integer(number)) => Ok(Some(number.to_string())),
            Some(Value::Float(number)) => Ok(Some(number.to_string())),
            _ => self.text(key),
        }
    }

    /// A switch.
    pub(super) fn flag(self, key: &str) -> Result<Option<bool>, Box<Finding>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Boolean(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong(key, other, "true or false")),
        }
    }

    /// A whole number from `low` to `high`.
    pub(super) fn number(self, key: &str, low: u64, high: u64) -> Result<Option<u64>, Box<Finding>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
        match number {
            Some(number) if (low..=high).contains(&number) => Ok(Some(number)),
            _ => Err(self.wrong(key, value, &format!("a whole number from {low} to {high}"))),
        }
    }

    /// A list of texts.
    pub(super) fn texts(self, key: &str) -> Result<Option<Vec<String>>, Box<Finding>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let Value::Array(items) = value else { return Err(self.wrong(key, value, "a list of strings")) };
        let texts: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
        match texts {
            Some(texts) => Ok(Some(texts)),
            None => {
                let wrong = items.iter().find(|item| !item.is_str()).unwrap_or(value);
                Err(self.wrong(key, wrong, "a list of strings, and one of its entries is not"))
            }
        }
    }

    /// A table of texts; numbers and switches are taken as they are written.
    pub(super) fn strings(self, key: &str) -> Result<BTreeMap<String, String>, Box<Finding>> {
        let Some(value) = self.get(key) else { return Ok(BTreeMap::new()) };
        let Value::Table(table) = value else { return Err(self.wrong(key, value, "a table of strings")) };
        let text = |(name, value): (&String, &Value)| match value {
            Value::String(text) => Ok((name.clone(), text.clone())),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Ok((name.clone(), value.to_string())),
            other => Err(self.wrong(&format!("{key}.{name}"), other, "a string")),
        };
        table.iter().map(text).collect()
    }

    /// What to say of a value of the wrong kind.
    pub(super) fn wrong(self, key: &str, value: &Value, expected: &str) -> Box<Finding> {
        let field = format!("{}.{key}", self.prefix);
        let shown = shown(value);
        let message = format!("{field} is {shown} ({}); it must be {expected}", value.type_str());
        Box::new(Finding::error(&field, shown, message))
    }

    /// What to say of a word that is none of `allowed`.
    pub(super) fn unknown_word(self, key: &str, word: &str, allowed: &[&str]) -> Box<Finding> {
        let field = format!("{}.{key}", self.prefix);
        let message = format!("{field} is {}, and must be one of: {}", json!(word), allowed.join(", "));
        Box::new(Finding::error(&field, word, message).nearest(nearest_names(
            word,
            allowed.iter().copied(),
            2,
        )))
    }
}

/// A value for a message: short, and on one line.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => json!(text).to_string(),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Table(table) => format!("a table of {}", table.len()),
        other => other.to_string(),
    };
    text.chars().take(80).collect()
}
