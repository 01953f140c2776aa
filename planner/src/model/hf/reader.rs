//! Reading of fields, with a finding for whatever is wrong and a note of whatever was assumed.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::finding::{Finding, Severity};

/// Reads fields and remembers what was wrong.
pub(super) struct Reader {
    pub(super) config: Map<String, Value>,
    /// Path of `config` in a plan file.
    pub(super) path: String,
    pub(super) findings: Vec<Finding>,
    pub(super) assumed: Vec<String>,
    /// Keys that the model's class brought, as the file has none of them.
    pub(super) filled: Vec<&'static str>,
    /// Names of the fields that somebody asked for.
    pub(super) asked: RefCell<BTreeSet<String>>,
}

impl Reader {
    /// Of a config.json.
    pub(super) fn new(config: Map<String, Value>) -> Reader {
        Reader {
            config,
            path: "model.hf_config".to_owned(),
            findings: Vec::new(),
            assumed: Vec::new(),
            asked: RefCell::default(),
            filled: Vec::new(),
        }
    }

    /// Path of a field in a plan file.
    pub(super) fn field(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    pub(super) fn present(&self, name: &str) -> Option<&Value> {
        self.asked.borrow_mut().insert(name.to_owned());
        self.config.get(name).filter(|value| !value.is_null())
    }

    /// Whether somebody asked for the field.
    pub(super) fn was_asked(&self, name: &str) -> bool {
        self.asked.borrow().contains(name)
    }

    pub(super) fn wrong_type(&mut self, name: &str, wanted: &str) {
        let field = self.field(name);
        if self.is_refused(&field) {
            return;
        }
        let value = self.config.get(name).cloned().unwrap_or_default();
        let shown = short(&value);
        self.findings.push(
            Finding::error(
                &field,
                short_value(&value),
                format!("`{name}` in config.json is {shown}; it must be {wanted}"),
            )
            .rule("Hugging Face config.json"),
        );
    }

    /// Whether a field is refused already: one that several ask for is wrong once.
    fn is_refused(&self, field: &str) -> bool {
        self.findings.iter().any(|said| said.severity == Severity::Error && said.field == field)
    }

    pub(super) fn missing(&mut self, name: &str) {
        let field = self.field(name);
        if self.is_refused(&field) {
            return;
        }
        self.findings.push(
            Finding::error(
                &field,
                Value::Null,
                format!("config.json has no `{name}`, which this architecture needs; paste the whole file"),
            )
            .rule("Hugging Face config.json"),
        );
    }

    /// Notes that a field was absent and took a default.
    pub(super) fn assume(&mut self, name: &str) {
        let field = self.field(name);
        self.assumed.push(field);
    }

    /// Takes back that fields were assumed, of those noted after the first `from`: something else was taken for them.
    pub(super) fn take_back(&mut self, from: usize, names: &[&str]) {
        let later = self.assumed.split_off(from.min(self.assumed.len()));
        let fields: Vec<String> = names.iter().map(|name| self.field(name)).collect();
        self.assumed.extend(later.into_iter().filter(|field| !fields.contains(field)));
    }

    /// A positive whole number, if it is there.
    pub(super) fn some(&mut self, name: &str) -> Option<u64> {
        self.present(name).is_some().then(|| self.need(name))
    }

    /// An error that names the field and its value.
    pub(super) fn refuse(&mut self, name: &str, rule: &str, message: String) {
        let value = short_value(self.config.get(name).unwrap_or(&Value::Null));
        self.findings.push(Finding::error(&self.field(name), value, message).rule(rule));
    }

    /// Something worth knowing.
    pub(super) fn note(&mut self, name: &str, rule: &str, message: String) {
        let value = short_value(self.config.get(name).unwrap_or(&Value::Null));
        self.findings.push(Finding::info(&self.field(name), value, message).rule(rule));
    }

    /// The field inside the field, where both are there, read as a config of its own.
    pub(super) fn inside(&mut self, name: &str) -> Option<Reader> {
        let config = self.present(name)?.as_object()?.clone();
        let path = self.field(name);
        Some(Reader {
            config,
            path,
            findings: Vec::new(),
            assumed: Vec::new(),
            asked: RefCell::default(),
            filled: Vec::new(),
        })
    }

    /// Takes over what a reader of an inner config found.
    pub(super) fn absorb(&mut self, inner: Reader) {
        self.findings.extend(inner.findings);
        self.assumed.extend(inner.assumed);
    }

    /// A list of names, if it is there.
    pub(super) fn words(&mut self, name: &str) -> Option<Vec<String>> {
        let words = self.present(name)?.as_array().map(|items| {
            items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        match words {
            Some(Some(words)) if !words.is_empty() => Some(words),
            _ => {
                self.wrong_type(name, "a list of names");
                None
            }
        }
    }

    /// A positive whole number that must be there.
    pub(super) fn need(&mut self, name: &str) -> u64 {
        match self.present(name) {
            None => {
                self.missing(name);
                1
            }
            Some(value) => match value.as_u64().filter(|&number| number > 0) {
                Some(number) => number,
                None => {
                    self.wrong_type(name, "a whole number of at least 1");
                    1
                }
            },
        }
    }

    /// A whole number, or the default.
    pub(super) fn number(&mut self, name: &str, default: u64) -> u64 {
        match self.present(name).map(Value::as_u64) {
            None => {
                self.assume(name);
                default
            }
            Some(Some(number)) => number,
            Some(None) => {
                self.wrong_type(name, "a whole number of at least 0");
                default
            }
        }
    }

    pub(super) fn real(&mut self, name: &str, default: f64) -> f64 {
        match self.present(name).map(Value::as_f64) {
            None => {
                self.assume(name);
                default
            }
            Some(Some(number)) if number > 0.0 => number,
            Some(_) => {
                self.wrong_type(name, "a number above 0");
                default
            }
        }
    }

    pub(super) fn flag(&mut self, name: &str, default: bool) -> bool {
        match self.present(name).map(Value::as_bool) {
            None => {
                self.assume(name);
                default
            }
            Some(Some(flag)) => flag,
            Some(None) => {
                self.wrong_type(name, "true or false");
                default
            }
        }
    }

    pub(super) fn list(&mut self, name: &str) -> Vec<u64> {
        match self.present(name) {
            None => Vec::new(),
            Some(value) => {
                let items =
                    value.as_array().map(|items| items.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
                match items {
                    Some(Some(items)) => items,
                    _ => {
                        self.wrong_type(name, "a list of whole numbers");
                        Vec::new()
                    }
                }
            }
        }
    }
}

pub(super) fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 60 { format!("{}...", text.chars().take(57).collect::<String>()) } else { text }
}

pub(super) fn short_value(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        other => Value::String(short(other)),
    }
}
