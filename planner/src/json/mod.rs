//! How JSON is read and written, once for all types: errors say at which field, enums by their word, texts set in lines.

mod indented;
pub(crate) mod located;
pub(crate) mod tagged;

pub use indented::indented;
pub use located::{Located, read_json, read_value};

/// A value as JSON in one line, by way of its fields and values, which plan files are compared by anyway: writing them without would
/// be compiled beside it for each type.
pub fn written(value: &impl serde::Serialize) -> String {
    // Plain data of ours, of which every value has a JSON form.
    serde_json::to_value(value).unwrap_or_default().to_string()
}
