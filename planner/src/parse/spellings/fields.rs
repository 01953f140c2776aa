//! The fields that each section of a plan file has.

use std::sync::OnceLock;

use crate::wire::Setting;

/// Every section with its fields.
pub(super) fn sections() -> &'static [(&'static str, Vec<&'static str>)] {
    static FIELDS: OnceLock<Vec<(&'static str, Vec<&'static str>)>> = OnceLock::new();
    FIELDS.get_or_init(|| {
        Setting::objects().map(|section| (section, Setting::fields_of(section).collect())).collect()
    })
}

/// The fields of a section.
pub(in crate::parse) fn of(section: &str) -> &'static [&'static str] {
    sections().iter().find(|(known, _)| *known == section).map_or(&[], |(_, fields)| fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_their_fields() {
        for (section, field) in [
            ("", "runtime"),
            ("", "layout"),
            ("layout", "tp"),
            ("layout", "fsdp"),
            ("layout.fsdp", "strategy"),
            ("training.offload", "fraction"),
            ("training.moe", "dispatcher"),
        ] {
            assert!(of(section).contains(&field), "{section}: {:?}", of(section));
        }
        assert!(sections().iter().all(|(_, fields)| fields.len() >= 2));
    }
}
