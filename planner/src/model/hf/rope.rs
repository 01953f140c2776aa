//! Scaling of rotary angles in a config.json: `rope_scaling`, which newer files keep in `rope_parameters`.

use serde_json::Value;

use super::reader::Reader;

/// Settings inside that say no more than what other fields say, or nothing of text: there all sections of multimodal
/// positions are the same positions.
const BESIDE: &[&str] =
    &["type", "rope_type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved"];

/// The field by which angles are others than those of `rope_theta`; none where they are those.
pub(super) fn scaled_by(reader: &Reader) -> Option<&'static str> {
    ["rope_scaling", "rope_parameters"]
        .into_iter()
        .find(|name| reader.present(name).is_some_and(|value| !says_nothing(value)))
}

fn says_nothing(value: &Value) -> bool {
    let Some(settings) = value.as_object() else { return false };
    let kind = settings.get("rope_type").or_else(|| settings.get("type"));
    let usual = kind.is_none_or(|kind| matches!(kind.as_str(), Some("default" | "mrope")));
    usual && settings.iter().all(|(name, value)| value.is_null() || BESIDE.contains(&name.as_str()))
}
