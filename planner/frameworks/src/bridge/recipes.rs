//! What Bridge's recipes set: facts by the recipe's name.

use serde_json::Value;

use planner::model::presets;

/// Facts of recipes, as a plan file's training section has them.
pub const RECIPES: &str = include_str!("recipes.json");

/// The preset whose letters and digits a model's or a recipe's name contains; the longest of them.
pub fn preset_of(name: &str) -> Option<&'static str> {
    let plain = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
    };
    let wanted = plain(name);
    // Its recipe is of Qwen3.5's 27B.
    if wanted.contains("qwen3827b") {
        return Some("qwen3.5-27b");
    }
    presets()
        .iter()
        .filter(|preset| wanted.contains(&plain(&preset.id)))
        .max_by_key(|preset| preset.id.len())
        .map(|preset| preset.id.as_str())
}

/// Facts of a recipe; none where they are not known.
pub(super) fn facts(recipe: &str) -> Option<Value> {
    let file: Value = serde_json::from_str(RECIPES).ok()?;
    file.get("recipes")?.get(recipe).cloned()
}
