//! How JSON is read and written, once for all types: errors say at which field, enums by their word, texts set in lines.

pub mod by_field;
pub(crate) mod by_word;
mod indented;
pub(crate) mod located;
pub(crate) mod tagged;

pub use indented::indented;
pub use located::{Located, read_json, read_value};
