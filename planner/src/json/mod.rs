//! How JSON is read and written, once for all types: errors say at which field, enums by their word, texts set in lines.

pub mod by_field;
pub(crate) mod by_word;
mod indented;
pub(crate) mod located;
pub(crate) mod tagged;

use serde::Serialize;
use serde_json::Value;

pub use indented::indented;
pub use located::{Located, read_json, read_value};

/// A value as JSON has it; null where it has no JSON form.
///
/// Written by the serializer of messages and read back, for each serializer is compiled for every field of every format again: the
/// other one was a hundredth of what a browser is sent. Numbers of more than 15 digits are read as those of any plan file are.
pub fn value_of<T: Serialize>(value: &T) -> Value {
    let text = serde_json::to_string(value).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// A text without the byte order mark that editors on Windows put before UTF-8, and no reader of JSON takes.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}
