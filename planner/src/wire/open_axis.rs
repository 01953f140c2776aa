//! Which settings a plan file may leave open.

use std::sync::LazyLock;

use super::Setting;

/// An axis that a plan file may leave open.
#[derive(Debug, Clone, Copy)]
pub struct OpenAxis {
    /// Its name in `choose`, the last part of its path where that says enough.
    pub name: &'static str,
    /// The field of a plan file.
    pub path: &'static str,
    /// Whether `all` opens it, too.
    pub in_all: bool,
}

/// What a plan file may leave open: the settings that have an axis.
pub static AXES: LazyLock<Vec<OpenAxis>> = LazyLock::new(|| {
    let of = |setting: &Setting| {
        setting.axis.map(|axis| OpenAxis { name: axis.name, path: setting.path, in_all: axis.in_all })
    };
    Setting::all().filter_map(of).collect()
});

impl OpenAxis {
    /// Whether a word of `choose` opens it: its name, its path, or `all`.
    pub fn is_meant(&self, word: &str) -> bool {
        self.name == word || self.path == word || (word == "all" && self.in_all)
    }
}
