//! What Bridge's recipes set: facts by the recipe's name.

use serde_json::Value;

/// Facts of recipes, as a plan file's training section has them.
pub const RECIPES: &str = include_str!("recipes.json");

/// Facts of a recipe; none where they are not known.
pub(super) fn facts(recipe: &str) -> Option<Value> {
    let file: Value = serde_json::from_str(RECIPES).ok()?;
    file.get("recipes")?.get(recipe).cloned()
}
