//! Light, dark, or as the system has it. The choice is kept in local storage; the colours are CSS variables.

use gloo::utils::document;

use crate::browser::Kept;

const KEY: &str = "shardplan.theme";

/// A choice of theme.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Theme {
    /// As the system has it.
    #[default]
    System,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl Theme {
    /// What was chosen earlier.
    pub fn stored() -> Theme {
        let kept = Kept::ForGood.get(KEY).unwrap_or_default();
        // Earlier versions kept it in quotes.
        match kept.trim_matches('"') {
            "light" => Theme::Light,
            "dark" => Theme::Dark,
            _ => Theme::System,
        }
    }

    /// The name in storage, in the page's `data-theme`, and on the button.
    pub fn name(self) -> &'static str {
        match self {
            Theme::System => "system",
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }

    /// The one that the button goes to.
    pub fn next(self) -> Theme {
        match self {
            Theme::System => Theme::Light,
            Theme::Light => Theme::Dark,
            Theme::Dark => Theme::System,
        }
    }

    /// Puts it on the page and keeps it.
    pub fn apply(self) {
        if let Some(root) = document().document_element() {
            let _ = root.set_attribute("data-theme", self.name());
        }
        // Without storage the choice holds for this visit.
        Kept::ForGood.put(KEY, self.name());
    }
}
