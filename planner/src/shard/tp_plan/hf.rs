//! Plans of transformers: how those of a class, an instance and its inner model become one.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::class::Plan;
use crate::data;
use crate::layout::{Placement, Style};

/// Whose rules complete a merged plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// NeMo Automodel of August 2025: embedding and output layer are touched only where they are not tied.
    Source,
    /// Automodel of August 2026: always.
    Current,
}

/// An entry whose style is not one that the parallelizer takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("style `{style}` of `{pattern}` is unknown")]
pub struct UnknownStyle {
    /// The module pattern.
    pub pattern: String,
    /// The style's name.
    pub style: String,
}

/// The plans of one model, as transformers has them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sources<'a> {
    /// The class's.
    pub class: &'a [(&'a str, &'a str)],
    /// The instance's.
    pub instance: &'a [(&'a str, &'a str)],
    /// The inner model's, without its prefix.
    pub inner: &'a [(&'a str, &'a str)],
}

/// One plan of three, later ones winning, with embedding and output layer completed.
pub fn merge(sources: Sources<'_>, prefix: &str, tied: bool, era: Era) -> Result<Plan, UnknownStyle> {
    let mut named: Vec<(String, &str)> = Vec::new();
    let mut put = |pattern: String, style| match named.iter_mut().find(|(known, _)| *known == pattern) {
        Some(entry) => entry.1 = style,
        None => named.push((pattern, style)),
    };
    for (pattern, style) in sources.class.iter().chain(sources.instance) {
        put((*pattern).to_owned(), *style);
    }
    for (pattern, style) in sources.inner {
        put(format!("{prefix}.{pattern}"), *style);
    }
    let touches_ends = !tied || era == Era::Current;
    let embedding = format!("{prefix}.embed_tokens");
    if touches_ends && named.iter().all(|(pattern, _)| *pattern != embedding) {
        named.push((embedding, "rowwise_rep"));
    }
    let heads: &[&str] =
        if era == Era::Current { &["lm_head", "language_model.lm_head"] } else { &["lm_head"] };
    let mut plan = Plan::new();
    for (pattern, name) in named {
        let style = match name {
            "colwise_rep" if touches_ends && heads.contains(&pattern.as_str()) => Style::Colwise {
                input: Placement::Replicate,
                output: Placement::Shard(-1),
                keep_dtensor: true,
            },
            name => match Style::parse(name) {
                Some(style) => style,
                None => return Err(UnknownStyle { pattern, style: name.to_owned() }),
            },
        };
        plan.push((pattern, style));
    }
    Ok(plan)
}

/// Attention and MLP of the Llama family.
const LLAMA_INNER: [(&str, &str); 7] = [
    ("layers.*.self_attn.q_proj", "colwise"),
    ("layers.*.self_attn.k_proj", "colwise"),
    ("layers.*.self_attn.v_proj", "colwise"),
    ("layers.*.self_attn.o_proj", "rowwise"),
    ("layers.*.mlp.gate_proj", "colwise"),
    ("layers.*.mlp.up_proj", "colwise"),
    ("layers.*.mlp.down_proj", "rowwise"),
];

/// The plans of transformers as they were recorded: of a class and of its inner model.
#[derive(Debug, Deserialize)]
struct Recorded<'a> {
    #[serde(borrow)]
    class: BTreeMap<&'a str, &'a str>,
    #[serde(borrow)]
    inner: BTreeMap<&'a str, &'a str>,
}

/// `data/transformers_tp_plans.json`, which `tests/python/tp_plans.py` prints.
#[derive(Debug, Default, Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    plans: BTreeMap<&'a str, Recorded<'a>>,
}

/// A class' plan and its inner model's.
type Pair = (Vec<(&'static str, &'static str)>, Vec<(&'static str, &'static str)>);

static RECORDED: LazyLock<BTreeMap<&'static str, Pair>> = LazyLock::new(|| {
    // A test reads the file too, so that it can't be broken.
    let record: Record<'static> = serde_json::from_str(data::text(data::File::TpPlans)).unwrap_or_default();
    let of = |plan: Recorded<'static>| (plan.class.into_iter().collect(), plan.inner.into_iter().collect());
    crate::order::map(record.plans.into_iter().map(|(kind, plan)| (kind, of(plan))))
});

/// The plan that transformers has for a `model_type`, where it is one of those known here: those of dense models as in
/// transformers 4, whose names of styles NeMo Automodel takes; those of others as in transformers 5.23.0, of which it
/// takes none with experts.
pub(crate) fn known_sources(model_type: &str) -> Option<Sources<'static>> {
    const HEAD: [(&str, &str); 1] = [("lm_head", "colwise_rep")];
    if let "llama" | "mistral" | "ministral" | "qwen2" | "qwen3" | "gemma" | "gemma2" | "gemma3_text"
    | "olmo2" | "granite" | "smollm3" = model_type
    {
        return Some(Sources { class: &HEAD, instance: &[], inner: &LLAMA_INNER });
    }
    let text = format!("{model_type}_text");
    let (class, inner) = RECORDED.get(model_type).or_else(|| RECORDED.get(text.as_str()))?;
    Some(Sources { class, instance: &[], inner })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Sources<'static> {
        Sources {
            class: &[("lm_head", "colwise_rep")],
            instance: &[],
            inner: &[("layers.*.q_proj", "colwise"), ("layers.*.o_proj", "rowwise")],
        }
    }

    fn style(plan: &Plan, pattern: &str) -> Option<Style> {
        plan.iter().find(|(known, _)| known == pattern).map(|(_, style)| *style)
    }

    #[test]
    fn f7_untied_plans_get_an_embedding_and_keep_the_head_apart() {
        for era in [Era::Source, Era::Current] {
            let plan = merge(small(), "model", false, era).unwrap();
            assert_eq!(style(&plan, "model.layers.*.q_proj"), Some(Style::COLWISE));
            assert_eq!(style(&plan, "model.layers.*.o_proj"), Some(Style::ROWWISE));
            assert_eq!(style(&plan, "model.embed_tokens"), Some(Style::ROWWISE_REP));
            let head = Style::Colwise {
                input: Placement::Replicate,
                output: Placement::Shard(-1),
                keep_dtensor: true,
            };
            assert_eq!(style(&plan, "lm_head"), Some(head));
        }
    }

    #[test]
    fn f7_tied_plans_stayed_as_they_were() {
        let plan = merge(small(), "model", true, Era::Source).unwrap();
        assert_eq!(style(&plan, "model.embed_tokens"), None);
        assert_eq!(style(&plan, "lm_head"), Some(Style::COLWISE_REP));
        let plan = merge(small(), "model", true, Era::Current).unwrap();
        assert_eq!(style(&plan, "model.embed_tokens"), Some(Style::ROWWISE_REP));
    }

    #[test]
    fn later_plans_win() {
        let sources = Sources {
            class: &[("model.layers.*.q_proj", "rowwise"), ("lm_head", "rowwise")],
            instance: &[("lm_head", "colwise")],
            inner: &[("layers.*.q_proj", "colwise"), ("embed_tokens", "colwise")],
        };
        let plan = merge(sources, "model", false, Era::Current).unwrap();
        assert_eq!(style(&plan, "model.layers.*.q_proj"), Some(Style::COLWISE));
        assert_eq!(style(&plan, "lm_head"), Some(Style::COLWISE));
        assert_eq!(style(&plan, "model.embed_tokens"), Some(Style::COLWISE));
        assert_eq!(plan.len(), 3);
    }

    #[test]
    fn f11_an_unknown_style_is_named() {
        let sources = known_sources("minimax_m2").unwrap();
        let error = merge(sources, "model", false, Era::Current).unwrap_err();
        assert_eq!(error.to_string(), "style `colwise_gather_output` of `lm_head` is unknown");
    }

    #[test]
    fn recorded_plans_are_known_and_name_the_style_that_is_not_taken() {
        assert_eq!(RECORDED.len(), 49, "{:?}", RECORDED.keys());
        let refused = |kind: &str| {
            let sources = known_sources(kind).unwrap_or_else(|| panic!("{kind}"));
            merge(sources, "model", false, Era::Current).map(|plan| plan.len()).map_err(|error| error.style)
        };
        for kind in ["deepseek_v3", "mixtral", "qwen3_moe", "glm4_moe", "qwen3_next", "qwen3_5_moe", "gemma4"]
        {
            assert!(refused(kind).is_err(), "{kind}");
        }
        assert_eq!(refused("phi3"), Err("colwise_gather_output".to_owned()));
        assert_eq!(refused("nemotron_h"), Err("embedding_rowwise".to_owned()));
        assert_eq!(refused("llama"), Ok(9));
        assert!(known_sources("gpt2").is_none());
        assert!(known_sources("falcon_h1").is_none(), "its class has an output layer's style alone");
    }
}
