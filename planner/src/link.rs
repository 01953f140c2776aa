//! A plan as a short text for a link's fragment: its JSON without nulls, deflated, in base64url.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use serde_json::Value;

use crate::finding::Finding;
use crate::json::value_of;
use crate::parse::parse_plan;
use crate::wire::PlanFile;

/// Longest link text that is read, in bytes.
const MAX_LINK_BYTES: usize = 1024 * 1024;
/// Largest plan that a link may unfold to, in bytes.
const MAX_PLAN_BYTES: usize = 4 * 1024 * 1024;

/// Why a link's text is not a plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LinkError {
    /// No `p=VERSION.TEXT`, or a version that this page doesn't know.
    #[error(
        "the link is of version `{0}`, and this page reads version 1; reload the page or ask for a new link"
    )]
    Version(String),
    /// Cut short or mistyped.
    #[error("the link is damaged ({0}); ask for it again, or export the plan as a file")]
    Damaged(&'static str),
    /// The plan inside is not valid.
    #[error("the link holds a plan that can't be read: {}", .0.first().map_or("", |finding| finding.message.as_str()))]
    Plan(Vec<Finding>),
}

/// The fragment of a link to this plan, without `#`: `p=1.TEXT`.
pub fn encode_link(plan: &PlanFile) -> String {
    let mut value = value_of(plan);
    strip_empty(&mut value);
    let json = value.to_string();
    format!("p=1.{}", URL_SAFE_NO_PAD.encode(compress_to_vec(json.as_bytes(), 9)))
}

/// The plan of a link's fragment (with or without `#`); what else it says, such as the view to open, is the page's.
///
/// # Errors
/// When it is of another version, damaged, too large, or holds no plan.
pub fn decode_link(fragment: &str) -> Result<PlanFile, LinkError> {
    let whole = fragment.trim_start_matches('#');
    let text = whole.split('&').find_map(|part| part.strip_prefix("p="));
    let text = text.ok_or_else(|| LinkError::Version(whole.chars().take(16).collect()))?;
    let (version, text) =
        text.split_once('.').ok_or_else(|| LinkError::Version(text.chars().take(16).collect()))?;
    if version != "1" {
        return Err(LinkError::Version(version.chars().take(16).collect()));
    }
    if text.len() > MAX_LINK_BYTES {
        return Err(LinkError::Damaged("it is over 1 MiB"));
    }
    let packed = URL_SAFE_NO_PAD.decode(text).map_err(|_| LinkError::Damaged("not base64url"))?;
    let json = decompress_to_vec_with_limit(&packed, MAX_PLAN_BYTES)
        .map_err(|_| LinkError::Damaged("not deflate data, or over 4 MiB"))?;
    let json = String::from_utf8(json).map_err(|_| LinkError::Damaged("not UTF-8"))?;
    parse_plan(&json).map_err(LinkError::Plan)
}

/// Drops nulls and then-empty objects, which is what makes a link short.
fn strip_empty(value: &mut Value) {
    if let Value::Object(map) = value {
        for (key, entry) in map.iter_mut() {
            // A pasted config.json stays as it is: a null in it can mean something.
            if key != "hf_config" {
                strip_empty(entry);
            }
        }
        map.retain(|_, entry| !entry.is_null() && entry.as_object().is_none_or(|inner| !inner.is_empty()));
    }
}
