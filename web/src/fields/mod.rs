//! Controls of the form. Each edits one field of the plan file and shows that field's findings below itself.

mod choice;
mod modules;
mod number;

use leptos::prelude::*;
use planner::finding::Finding;
use planner::search::AXES;

pub use choice::{Choice, Select, Toggle};
pub use modules::Modules;
pub use number::{Decimal, Number};

use crate::findings::FindingList;
use crate::state::paths::{self, Field};
use crate::state::{Store, store};
use crate::testid;

/// The field's value as the form shows it, and whether it is planner's default.
pub fn shown<T: Clone>(store: Store, field: Field<T>) -> (Option<T>, bool) {
    match (field.get)(&store.said()) {
        Some(value) => (Some(value), false),
        None => (store.answer.with(|answer| answer.plan.as_ref().and_then(field.get)), true),
    }
}

/// A label, a control, and the findings of the field.
#[component]
pub fn FieldRow(
    /// Path of the field.
    path: &'static str,
    /// Text of the label.
    label: &'static str,
    /// Explains the field when it is pointed at.
    #[prop(optional)]
    hint: &'static str,
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
    let axis = AXES.iter().find(|axis| axis.path == path);
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
