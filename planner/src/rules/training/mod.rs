//! Rules of training settings, each once: which settings go together, with which model, and with which layout.
//!
//! What depends on the layout is looked at by the layout generator too, so that it offers no layout that is refused.
//! Sources are Megatron-Core's `transformer_config`, `model_parallel_config` and `optimizer_config`, and Megatron-LM's
//! `validate_args`, unless a rule says otherwise.

mod experts;
mod graphs;
mod kernels;
mod model;
mod modules;
mod optimizer;
mod overlap;
mod precision;
mod recompute;
#[cfg(test)]
mod tests;

use crate::finding::{clip, nearest_names};
use crate::rules::{Broken, Owner, Shape};

/// Rules that look at the layout besides the settings.
pub(crate) fn with_layout(shape: &Shape<'_>, broken: &mut Broken) {
    precision::with_layout(shape, broken);
    optimizer::with_layout(shape, broken);
    recompute::with_layout(shape, broken);
    experts::with_layout(shape, broken);
    modules::with_layout(shape, broken);
    overlap::with_layout(shape, broken);
    model::with_layout(shape, broken);
    kernels::with_layout(shape, broken);
}

/// Of those, the ones that look at the rank grid and the micro batch.
pub(crate) fn with_grid(shape: &Shape<'_>, broken: &mut Broken) {
    precision::with_layout(shape, broken);
    optimizer::with_layout(shape, broken);
    recompute::with_layout(shape, broken);
    experts::with_layout(shape, broken);
    modules::with_layout(shape, broken);
    model::with_layout(shape, broken);
    kernels::with_layout(shape, broken);
}

/// Of those, the ones that look at the chunks of a stage too.
pub(crate) fn with_pipeline(shape: &Shape<'_>, broken: &mut Broken) {
    overlap::with_layout(shape, broken);
}

/// Rules that hold or not whatever the layout is.
pub(crate) fn alone(shape: &Shape<'_>, broken: &mut Broken) {
    precision::alone(shape, broken);
    optimizer::alone(shape, broken);
    recompute::alone(shape, broken);
    experts::alone(shape, broken);
    overlap::alone(shape, broken);
    modules::alone(shape, broken);
    graphs::alone(shape, broken);
    kernels::alone(shape, broken);
    model::alone(shape, broken);
}

/// Whether Megatron-Core's own rules are asked.
fn is_megatron(shape: &Shape<'_>) -> bool {
    shape.is_of(Owner::MegatronCore)
}

/// Whether a list of modules names this one.
fn names(list: &[String], module: &str) -> bool {
    list.iter().any(|name| name == module)
}

/// Refuses each listed module that has something wrong with it, and offers the known ones that have not.
fn refuse_names(
    field: &'static str,
    rule: &'static str,
    listed: &[String],
    known: &[&str],
    broken: &mut Broken,
    wrong: impl Fn(&str) -> Option<&'static str>,
) {
    for module in listed {
        if let Some(why) = wrong(module) {
            let text = format!("`{}` {why}; known are {}", clip(module), known.join(", "));
            let right = known.iter().copied().filter(|name| wrong(name).is_none() && !names(listed, name));
            broken.refuse(field, clip(module), rule, text, nearest_names(module, right, 2));
        }
    }
}
