//! Controls of the form. Each edits one setting of the plan file, as its row in planner's table says, and shows that field's
//! findings below itself.

mod choice;
mod data;
mod entry;
mod modules;

use leptos::prelude::*;
use planner::finding::Finding;
use planner::rules::is_asked;
use planner::wire::{Kind, Objective, Part, Setting};
use serde_json::Value;

pub use choice::Select;

use crate::findings::FindingList;
use crate::state::paths;
use crate::state::{Store, store};
use crate::testid;

/// The field's value as the form shows it, and whether it is planner's default.
pub fn shown(store: Store, path: &str) -> (Value, bool) {
    store.values.with(|values| match at(&values.said, path) {
        Some(value) => (value.clone(), false),
        None => (at(&values.filled, path).cloned().unwrap_or_default(), true),
    })
}

/// What stands at a path, if anything does.
fn at<'a>(file: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(file, |place, key| place.get(key)).filter(|value| !value.is_null())
}

/// Whether the form has a setting for the plan that is shown.
pub fn is_shown(store: Store, setting: &Setting) -> bool {
    const TOKENS: &str = "training.train_tokens";
    // Beside the days that a training may take there are its tokens.
    let beside_days = setting.path == TOKENS && store.said().objective == Some(Objective::Deadline);
    !beside_days
        && store.answer.with(|answer| {
            let experts = answer.parameters.as_ref().is_some_and(|counts| counts.active != counts.total);
            match &answer.plan {
                Some(file) => is_asked(setting, file, experts),
                None => is_asked(setting, &store.said(), experts),
            }
        })
}

/// The settings of a part of the form that there are for the plan, below what the part is called.
#[component]
fn Fields(part: Part) -> impl IntoView {
    let store = store();
    let rows = Setting::of_part(part).map(|setting| (setting, Memo::new(move |_| is_shown(store, setting))));
    let rows: Vec<(&'static Setting, Memo<bool>)> = rows.collect();
    let any: Vec<Memo<bool>> = rows.iter().map(|(_, shown)| *shown).collect();
    let title = part.title();
    let heading = move || {
        let shown = !title.is_empty() && any.iter().any(|shown| shown.get());
        shown.then(|| view! { <h3 class="subheading">{title}</h3> })
    };
    let fields = rows
        .into_iter()
        .map(|(setting, shown)| move || shown.get().then(|| view! { <Control setting=setting/> }))
        .collect_view();
    view! {
        {heading}
        {fields}
    }
}

/// The settings of several parts.
pub fn all(parts: &'static [Part]) -> impl IntoView {
    parts.iter().map(|part| view! { <Fields part=*part/> }).collect_view()
}

/// The control of a setting.
#[component]
pub fn Control(setting: &'static Setting) -> impl IntoView {
    match setting.path {
        "cluster.gpu" => view! { <choice::GpuChoice setting=setting/> }.into_any(),
        "software.framework" => view! { <choice::FrameworkChoice setting=setting/> }.into_any(),
        "run.data" => view! { <data::DataChoice setting=setting/> }.into_any(),
        "run.evaluation.data" => view! { <data::HeldOut setting=setting/> }.into_any(),
        _ => match setting.kind {
            Kind::Whole { .. } | Kind::Real { .. } => view! { <entry::Number setting=setting/> }.into_any(),
            Kind::Switch => view! { <choice::Toggle setting=setting/> }.into_any(),
            Kind::Word(_) | Kind::Json(..) => view! { <choice::Choice setting=setting/> }.into_any(),
            Kind::Words(words) => view! { <modules::Modules setting=setting known=words/> }.into_any(),
            Kind::Text => view! { <entry::Text setting=setting/> }.into_any(),
        },
    }
}

/// What a field says when it is pointed at.
fn hint(setting: &Setting) -> String {
    format!("{}: {}", setting.path, setting.about())
}

/// A label, a control, and the findings of the field.
#[component]
pub fn FieldRow(
    /// Path of the field.
    path: &'static str,
    /// Text of the label.
    label: &'static str,
    /// Explains the field when it is pointed at.
    #[prop(optional, into)]
    hint: String,
    /// Findings that planner does not know of: text that is no number.
    #[prop(optional, into)]
    local: Signal<Option<Finding>>,
    /// The control; its element has the id of the path.
    children: Children,
) -> impl IntoView {
    let store = store();
    let findings = Signal::derive(move || {
        let mut findings = store.findings_at(path);
        findings.extend(local.get());
        findings
    });
    let id = paths::element_id(path);
    view! {
        <div class="field" class:invalid=move || findings.with(|f| planner::finding::has_error(f))>
            <label for=id.clone() title=hint>{label}<Pin path=path label=label/></label>
            <div class="control">{children()}</div>
            <FindingList findings=findings id=format!("{id}-findings")/>
        </div>
    }
}

/// Beside the label of a field that a search may choose: what it chose and why, or a button that gives it back.
#[component]
fn Pin(path: &'static str, label: &'static str) -> impl IntoView {
    let store = store();
    let axis = Setting::at_path(path).and_then(|setting| setting.axis);
    axis.map(|_| {
        let state = Memo::new(move |_| store.open.with(|open| open.get(path).copied()));
        let why = move || {
            store.answer.with(|answer| {
                let one = answer.chosen.iter().find(|one| path.starts_with(one.field.as_str()));
                one.map_or_else(|| "chosen".to_owned(), |one| format!("chosen: {}", one.why))
            })
        };
        move || match state.get() {
            None => ().into_any(),
            Some(true) => view! {
                <button class="pin pinned" type="button" data-testid=testid::pin(path) title="Held as it is; click to let it be chosen"
                    aria-label=format!("{label} is held; let it be chosen")
                    on:click=move |event| { event.prevent_default(); store.set_path(path, &serde_json::Value::Null) }>
                    "held"
                </button>
            }
            .into_any(),
            Some(false) => view! { <span class="pin" data-testid=testid::pin(path) title=why>"chosen"</span> }.into_any(),
        }
    })
}
