//! Steps, seed and learning rate that a command line describes.

use serde_json::{Map, Value};

use super::super::Arguments;

/// The run section of a plan file. What can't be read here changes no byte and no second, and is left to the plan's
/// defaults.
pub fn run(arguments: &mut Arguments) -> Map<String, Value> {
    let mut section = Map::new();
    for (option, field) in [
        ("train-iters", "steps"),
        ("seed", "seed"),
        ("lr-warmup-iters", "warmup_steps"),
        ("lr-decay-iters", "lr_decay_steps"),
    ] {
        if let Ok(Some(value)) = arguments.number(option)
            && (value > 0 || !["steps", "lr_decay_steps"].contains(&field))
        {
            section.insert(field.to_owned(), value.into());
        }
    }
    for (option, field) in
        [("lr", "lr"), ("min-lr", "min_lr"), ("weight-decay", "weight_decay"), ("clip-grad", "clip_grad")]
    {
        if let Ok(Some(value)) = arguments.real(option)
            && value >= 0.0
        {
            section.insert(field.to_owned(), value.into());
        }
    }
    if let Some(style) = arguments.word("lr-decay-style")
        && ["constant", "linear", "cosine"].contains(&style.as_str())
    {
        section.insert("lr_schedule".to_owned(), style.into());
    }
    section
}
