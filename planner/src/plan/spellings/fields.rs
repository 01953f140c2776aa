//! The fields that each section of a plan file has, as its reader names them when it refuses another: so no list of them
//! can fall behind.

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::place::put;
use crate::wire::PlanFile;

/// The sections, outer ones first.
pub(super) const SECTIONS: [&str; 17] = [
    "",
    "model",
    "cluster",
    "layout",
    "training",
    "software",
    "run",
    "layout.fsdp",
    "training.optimizer",
    "training.recompute",
    "training.offload",
    "training.overlap",
    "training.moe",
    "training.loss_scale",
    "run.checkpoint",
    "run.evaluation",
    "run.documents",
];

/// A name that no field has.
const NOBODY: &str = "?";

/// Every section with its fields.
pub(super) fn sections() -> &'static [(&'static str, Vec<String>)] {
    static FIELDS: OnceLock<Vec<(&'static str, Vec<String>)>> = OnceLock::new();
    FIELDS.get_or_init(|| SECTIONS.into_iter().map(|section| (section, asked(section))).collect())
}

/// The fields of a section.
pub(in crate::plan) fn of(section: &str) -> &'static [String] {
    sections().iter().find(|(known, _)| *known == section).map_or(&[], |(_, fields)| fields)
}

fn asked(section: &str) -> Vec<String> {
    let mut file = json!({"version": 1, "model": {}, "cluster": {"gpu": ""}});
    let path = if section.is_empty() { NOBODY.to_owned() } else { format!("{section}.{NOBODY}") };
    put(&mut file, &path, Value::Null);
    let Err(error) = PlanFile::read(file) else { return Vec::new() };
    let message = error.error.to_string();
    message.split('`').skip(1).step_by(2).filter(|name| *name != NOBODY).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_names_its_fields() {
        for (section, field) in [
            ("", "runtime"),
            ("layout", "tp"),
            ("layout.fsdp", "strategy"),
            ("training.offload", "fraction"),
            ("training.moe", "dispatcher"),
        ] {
            assert!(of(section).iter().any(|known| known == field), "{section}: {:?}", of(section));
        }
        assert!(sections().iter().all(|(_, fields)| fields.len() >= 2));
    }
}
