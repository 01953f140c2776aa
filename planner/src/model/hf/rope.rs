//! Rotation of queries and keys in a config.json: base and scaling of the angles, in `rope_scaling`, or in
//! `rope_parameters` as newer files have it, there also by kind of layer.

use serde_json::{Map, Value};

use super::reader::Reader;
use crate::model::{RopeKind, RopeScaling};

/// Settings inside that say no more than what other fields say, or nothing of text: there all sections of multimodal
/// positions are the same positions.
const BESIDE: &[&str] =
    &["type", "rope_type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved"];

/// Layers that have settings of their own.
const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];

/// What a config.json says of the angles of one kind of layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Angles {
    /// Their base, where it stands among the settings.
    pub(super) theta: Option<f64>,
    /// How they are scaled.
    pub(super) scaling: Option<RopeScaling>,
    /// What the base grows with, to the power of d / (d - 2) for heads of d channels, whatever the length (Hunyuan's
    /// `alpha`).
    pub(super) stretch: Option<f64>,
}

/// The field by which angles are others than those of `rope_theta`, and are not understood; none where all is.
pub(super) fn not_understood(reader: &Reader) -> Option<&'static str> {
    ["rope_scaling", "rope_parameters"].into_iter().find(|name| {
        let Some(value) = reader.present(name) else { return false };
        let Some(settings) = value.as_object() else { return true };
        let nested: Vec<&Value> = KINDS.iter().filter_map(|kind| settings.get(*kind)).collect();
        let all = nested.iter().map(|value| value.as_object()).collect::<Option<Vec<_>>>();
        match all {
            Some(all) if !all.is_empty() => all.into_iter().any(|one| scaling(reader, one).is_none()),
            Some(_) => scaling(reader, settings).is_none(),
            None => true,
        }
    })
}

/// The angles of layers of a kind, as the file has them; `full_attention` for those of a model that has one kind.
pub(super) fn angles(reader: &Reader, kind: &str) -> Angles {
    let settings = |name: &str| reader.present(name).and_then(Value::as_object);
    let Some(settings) = settings("rope_scaling").or_else(|| settings("rope_parameters")) else {
        return Angles::default();
    };
    let nested = KINDS.iter().any(|kind| settings.get(*kind).is_some_and(Value::is_object));
    let own = if nested { settings.get(kind).and_then(Value::as_object) } else { Some(settings) };
    let Some(own) = own else { return Angles::default() };
    let theta = own.get("rope_theta").and_then(Value::as_f64).filter(|&theta| theta > 0.0);
    Angles { theta, scaling: scaling(reader, own).flatten(), stretch: stretch(own) }
}

/// Hunyuan's `alpha`; its rule is called dynamic, and is none.
fn stretch(settings: &Map<String, Value>) -> Option<f64> {
    let word = settings.get("rope_type").or_else(|| settings.get("type"))?;
    let alpha = settings.get("alpha").and_then(Value::as_f64).filter(|&alpha| alpha > 0.0);
    alpha.filter(|_| word == "dynamic")
}

/// What settings say of scaling, as transformers' `modeling_rope_utils.py` reads them; none where they have a setting that
/// is not known for their rule, or lack one that it needs.
fn scaling(reader: &Reader, settings: &Map<String, Value>) -> Option<Option<RopeScaling>> {
    let word = settings.get("rope_type").or_else(|| settings.get("type"));
    let word = match word {
        None | Some(Value::Null) => "default",
        Some(word) => word.as_str()?,
    };
    let number = |name: &str| settings.get(name).and_then(Value::as_f64);
    let list = |name: &str| -> Option<Vec<f64>> {
        settings.get(name)?.as_array()?.iter().map(|factor| factor.as_f64().filter(|&f| f > 0.0)).collect()
    };
    let outside = |name: &str| reader.present(name).and_then(Value::as_f64);
    let original = || {
        let said = outside("original_max_position_embeddings").or(number("original_max_position_embeddings"));
        said.or_else(|| outside("max_position_embeddings")).filter(|&length| length >= 1.0)
    };
    let ratio = || Some(outside("max_position_embeddings")? / original()?);
    let factor = number("factor").filter(|&factor| factor > 0.0);
    let usual = RopeScaling { factor: factor.unwrap_or(1.0), ..RopeScaling::default() };
    let (known, found): (&[&str], RopeScaling) = match word {
        "default" | "mrope" => {
            let plain =
                settings.iter().all(|(name, value)| value.is_null() || BESIDE.contains(&name.as_str()));
            return plain.then_some(None);
        }
        "linear" => (&["factor"], RopeScaling { kind: RopeKind::Linear, factor: factor?, ..usual }),
        "dynamic" if stretch(settings).is_some() => {
            let plain = settings.iter().all(|(name, value)| {
                value.is_null()
                    || BESIDE.contains(&name.as_str())
                    || ["alpha", "factor"].contains(&name.as_str())
            });
            return plain.then_some(None);
        }
        "dynamic" => {
            let length = outside("max_position_embeddings").filter(|&length| length >= 1.0)?;
            let original_positions = Some(length as u64);
            (
                &["factor"],
                RopeScaling { kind: RopeKind::Dynamic, factor: factor?, original_positions, ..usual },
            )
        }
        "llama3" => {
            let bounds = [number("high_freq_factor")?, number("low_freq_factor")?];
            let scaling = RopeScaling {
                kind: RopeKind::Llama3,
                factor: factor?,
                original_positions: Some(original()? as u64),
                fast_slow: Some(bounds).filter(|[high, low]| high > low && *low > 0.0),
                ..usual
            };
            scaling.fast_slow?;
            (&["factor", "high_freq_factor", "low_freq_factor", "original_max_position_embeddings"], scaling)
        }
        "yarn" => {
            let (fast, slow) = (number("beta_fast"), number("beta_slow"));
            let (one, all) = (number("mscale"), number("mscale_all_dim"));
            let mut scaling = RopeScaling {
                kind: RopeKind::Yarn,
                factor: factor.or_else(ratio)?,
                original_positions: Some(original()? as u64),
                fast_slow: (fast.is_some() || slow.is_some()).then(|| {
                    let [usual_fast, usual_slow] = RopeScaling::YARN_BOUNDS;
                    [fast.unwrap_or(usual_fast), slow.unwrap_or(usual_slow)]
                }),
                mscale: (one.is_some() || all.is_some()).then(|| [one.unwrap_or(0.0), all.unwrap_or(0.0)]),
                untruncated: settings.get("truncate").and_then(Value::as_bool) == Some(false),
                ..usual
            };
            // Files also say the rule's own.
            let own = scaling.amplitude();
            scaling.attention_factor = number("attention_factor").filter(|said| (said - own).abs() > 1e-9);
            let known = &[
                "factor",
                "beta_fast",
                "beta_slow",
                "mscale",
                "mscale_all_dim",
                "attention_factor",
                "truncate",
                "original_max_position_embeddings",
                "max_position_embeddings",
                "llama_4_scaling_beta",
            ];
            (known, scaling)
        }
        "longrope" | "su" => {
            let scaling = RopeScaling {
                kind: RopeKind::Longrope,
                factor: factor.or_else(ratio)?,
                original_positions: Some(original()? as u64),
                attention_factor: number("attention_factor"),
                short_factors: list("short_factor")?,
                long_factors: list("long_factor")?,
                ..usual
            };
            let known = &[
                "factor",
                "attention_factor",
                "short_factor",
                "long_factor",
                "original_max_position_embeddings",
            ];
            (known, scaling)
        }
        "proportional" => (&["factor"], RopeScaling { kind: RopeKind::Proportional, ..usual }),
        _ => return None,
    };
    let understood = |(name, value): (&String, &Value)| {
        value.is_null() || BESIDE.contains(&name.as_str()) || known.contains(&name.as_str())
    };
    settings.iter().all(understood).then_some(Some(found))
}
