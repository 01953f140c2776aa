//! Models by what frameworks' recipes and configurations are called.

use batch::launch::Writer;
use planner::model::{count, presets};
use planner::wire::{ModelFile, PlanFile};

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
    // The language model of GLM-4.5V.
    if wanted.contains("glm45v") {
        return Some("glm-4.5-air");
    }
    presets()
        .iter()
        .filter(|preset| wanted.contains(&plain(&preset.id)))
        .max_by_key(|preset| preset.id.len())
        .map(|preset| preset.id.as_str())
}

/// Says that a recipe or a configuration has the name of another model than the plan's; `what` names it.
pub(crate) fn other_model(writer: &mut Writer<'_>, name: Option<&str>, what: &str) {
    let (Some(name), Some(planned)) = (name, &writer.plan.file.model.preset) else { return };
    let Some(named) = preset_of(name).filter(|named| named != planned) else { return };
    let file = PlanFile {
        model: ModelFile { preset: Some(named.to_owned()), ..ModelFile::default() },
        ..writer.plan.file.clone()
    };
    // Versions of one model have names of their own.
    let other =
        planner::fill::fill(&file).plan.is_some_and(|other| count(&other.model) != count(&writer.plan.model));
    if other {
        let value = planned.clone();
        writer.differs(
            "model",
            value,
            &format!("{what} names the model, and by its name this one is another"),
        );
    }
}
