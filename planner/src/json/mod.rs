//! How JSON is read and written, once for all types: errors say at which field, enums by their word, texts set in lines.

pub mod by_field;
pub(crate) mod by_word;
mod indented;
pub(crate) mod located;
pub(crate) mod tagged;

pub use indented::indented;
pub use located::{Located, read_json, read_value};

/// A text without the byte order mark that editors on Windows put before UTF-8, and no reader of JSON takes.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}
