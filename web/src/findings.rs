//! Findings on screen: a shape and a word for the severity, the sentence, and the nearest values as buttons.

use leptos::prelude::*;
use planner::finding::{Finding, Severity};
use planner::search::open_everything;
use planner::units::capital;
use planner::wire::AXES;
use serde_json::Value;

use crate::state::{paths, store};
use crate::testid;

/// The severity as a word, for readers and for styles.
pub fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "info",
    }
}

/// A list of findings; nothing when there are none.
#[component]
pub fn FindingList(
    /// The findings.
    #[prop(into)]
    findings: Signal<Vec<Finding>>,
    /// Id, for the field that they describe.
    #[prop(optional, into)]
    id: String,
) -> impl IntoView {
    let id = (!id.is_empty()).then_some(id);
    move || {
        let findings = findings.get();
        (!findings.is_empty()).then(|| {
            view! {
                <ul class="findings" id=id.clone()>
                    {findings.into_iter().map(|finding| view! { <FindingItem finding=finding/> }).collect_view()}
                </ul>
            }
        })
    }
}

/// One finding.
#[component]
fn FindingItem(finding: Finding) -> impl IntoView {
    let store = store();
    let severity = word(finding.severity);
    // Only fields of the plan can be set by a click; a script's site values are typed beside it.
    let settable = (paths::section_of(&finding.field).is_some() || finding.field == "version")
        && !paths::is_part(&store.said_now(), &finding);
    let nearest = finding
        .nearest
        .iter()
        .cloned()
        .map(|value| {
            let about = finding.clone();
            let path = finding.field.clone();
            let text = plain(&value);
            let label = format!("Set {path} to {text}");
            view! {
                <button class="chip" data-testid=testid::FINDING_NEAREST aria-label=label
                    on:click=move |_| {
                        store.set_path(&path, &paths::mended(&store.plan_now(), &about, &value));
                        store.go_to_field(&path);
                    }>{text}</button>
            }
        })
        .collect_view();
    // Whoever said this one value keeps it, and the rest follows, where it does not already.
    let axis = AXES.iter().find(|axis| axis.in_all && axis.path == finding.field);
    let axis = axis.filter(|_| finding.severity == Severity::Error);
    let opened = axis.map(|axis| open_everything(&store.said_now(), axis.path));
    let rest = opened.filter(|opened| *opened != *store.said_now()).map(|opened| {
        view! {
            <button class="chip" data-testid=testid::CHOOSE_REST
                on:click=move |_| store.replace(opened.clone())>"Keep it, choose the rest"</button>
        }
    });
    let rule = (!finding.rule.is_empty()).then(|| view! { <p class="rule">{said(&finding.rule)}</p> });
    view! {
        <li class=format!("finding {severity}") data-testid=testid::FINDING data-field=finding.field.clone() data-severity=severity>
            <Shape severity=finding.severity/>
            <div>
                <p>{said(&finding.message)}</p>
                {(!finding.nearest.is_empty() && settable).then(|| view! { <p class="nearest"><span>"Nearest"</span>{nearest}</p> })}
                {rest.map(|rest| view! { <p class="nearest">{rest}</p> })}
                {rule}
            </div>
        </li>
    }
}

/// A mark that differs in shape, not only in colour.
#[component]
pub fn Shape(severity: Severity) -> impl IntoView {
    let (path, label) = match severity {
        Severity::Error => ("M4.5 1h7L15 4.5v7L11.5 15h-7L1 11.5v-7z M5 5l6 6 M11 5l-6 6", "Error"),
        Severity::Warning => ("M8 1.5L15 14.5H1z M8 6v4 M8 12v1", "Warning"),
        Severity::Info => ("M8 1a7 7 0 1 0 .01 0z M8 7v5 M8 4v1", "Note"),
    };
    view! {
        <svg class=format!("shape {}", word(severity)) viewBox="0 0 16 16" width="14" height="14" role="img" aria-label=label>
            <path d=path fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round" stroke-linecap="round"/>
        </svg>
    }
}

/// The text with a capital first letter, as sentences on the page begin. A name such as `layout.tp` stays as it is.
pub fn sentence(text: &str) -> String {
    let first_word = text.split_whitespace().next().unwrap_or_default().trim_end_matches([',', ';', ':']);
    if !first_word.chars().all(|c| c.is_ascii_lowercase() || c == '-') {
        return text.to_owned();
    }
    capital(text)
}

/// A sentence as the page draws it: with its capital, and code as code.
pub fn said(text: &str) -> AnyView {
    coded(&sentence(text))
}

/// A text with what stands between backticks drawn as code.
pub fn coded(text: &str) -> AnyView {
    let parts = parts(text).into_iter().map(|(is_code, part)| {
        let part = part.to_owned();
        if is_code { view! { <code>{part}</code> }.into_any() } else { part.into_any() }
    });
    parts.collect::<Vec<_>>().into_any()
}

/// The parts of a text, each with whether it is code. Backticks that are no pairs around something stand for themselves.
fn parts(text: &str) -> Vec<(bool, &str)> {
    let parts: Vec<(bool, &str)> =
        text.split('`').enumerate().map(|(number, part)| (number % 2 == 1, part)).collect();
    let pairs = parts.len() % 2 == 1 && parts.iter().all(|(is_code, part)| !is_code || !part.is_empty());
    if pairs { parts } else { vec![(false, text)] }
}

/// A value of a plan file as text.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_begin_with_a_capital_and_names_stay() {
        assert_eq!(sentence("the executor runs dp x tp"), "The executor runs dp x tp");
        assert_eq!(sentence("layout.tp is 0"), "layout.tp is 0");
        assert_eq!(sentence("`foo` is not known"), "`foo` is not known");
        assert_eq!(sentence("64 GPUs"), "64 GPUs");
        assert_eq!(sentence(""), "");
    }

    #[test]
    fn what_stands_between_backticks_is_code() {
        assert_eq!(
            parts("run `shardplan verify` here"),
            [(false, "run "), (true, "shardplan verify"), (false, " here")]
        );
        assert_eq!(
            parts("`a` and `b`"),
            [(false, ""), (true, "a"), (false, " and "), (true, "b"), (false, "")]
        );
        for plain in ["", "no code", "one ` alone", "three ``` of them", "nothing `` between"] {
            assert_eq!(parts(plain), [(false, plain)]);
        }
    }
}
