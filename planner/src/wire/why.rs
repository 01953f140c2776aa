//! Where a number comes from.

use serde::{Deserialize, Serialize};

/// The origin of one number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// What the number is.
    pub title: String,
    /// How it is computed, in words and symbols.
    pub formula: String,
    /// What went in: name and value. A name that is a path of the plan file can be linked to its field.
    pub inputs: Vec<(String, String)>,
    /// Where the formula and its constants come from.
    pub source: String,
    /// How far it can be trusted.
    pub note: String,
}
