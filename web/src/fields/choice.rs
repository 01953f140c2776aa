//! Choices from a list, and switches.

use leptos::prelude::*;
use serde::Serialize;

use super::{FieldRow, shown};
use crate::state::paths::{self, Field};
use crate::state::store;

/// A choice from a list of values that have names.
#[component]
pub fn Choice<T>(
    /// The field.
    field: Field<T>,
    /// Text of the label.
    label: &'static str,
    /// Explains the field.
    #[prop(optional)]
    hint: &'static str,
    /// Values with their names.
    options: &'static [(T, &'static str)],
) -> impl IntoView
where
    T: Clone + PartialEq + Serialize + Send + Sync + 'static,
{
    let store = store();
    let current = Signal::derive(move || {
        shown(store, field).0.map(|value| name_of(&value, options)).unwrap_or_default()
    });
    let choose = move |name: String| {
        if let Some((value, _)) = options.iter().find(|(_, option)| *option == name) {
            store.edit(field.path, |plan| (field.set)(plan, Some(value.clone())));
        }
    };
    let options = options.iter().map(|(_, name)| ((*name).to_owned(), (*name).to_owned())).collect();
    view! {
        <FieldRow path=field.path label=label hint=hint>
            <Select path=field.path hook=paths::element_id(field.path) options=options current=current choose=Callback::new(choose)/>
        </FieldRow>
    }
}

/// The name of a value; what is not on offer here (a link may hold it) has the name that it has in plan files.
fn name_of<T: PartialEq + Serialize>(value: &T, options: &[(T, &'static str)]) -> String {
    match options.iter().find(|(option, _)| option == value) {
        Some((_, name)) => (*name).to_owned(),
        None => serde_json::to_value(value)
            .ok()
            .and_then(|name| name.as_str().map(str::to_owned))
            .unwrap_or_default(),
    }
}

/// A select box. A current value that is not among the options is shown as it is.
#[component]
pub fn Select(
    /// Path of the field, for the element's id.
    path: &'static str,
    /// Test hook.
    #[prop(into)]
    hook: String,
    /// Values and what is shown for them.
    options: Vec<(String, String)>,
    /// The chosen value.
    #[prop(into)]
    current: Signal<String>,
    /// What to do with another.
    choose: Callback<String>,
) -> impl IntoView {
    let id = paths::element_id(path);
    let known: Vec<String> = options.iter().map(|(value, _)| value.clone()).collect();
    let stranger = move || {
        let current = current.get();
        (!known.contains(&current))
            .then(|| view! { <option value=current.clone() prop:selected=true>{current.clone()}</option> })
    };
    let items = options
        .into_iter()
        .map(|(value, text)| {
            let this = value.clone();
            view! { <option value=value prop:selected=move || current.with(|current| *current == this)>{text}</option> }
        })
        .collect_view();
    view! {
        <select id=id.clone() data-testid=hook aria-describedby=format!("{id}-findings")
            on:change=move |event| choose.run(event_target_value(&event))>
            {stranger}
            {items}
        </select>
    }
}

/// A switch.
#[component]
pub fn Toggle(
    /// The field.
    field: Field<bool>,
    /// Text of the label.
    label: &'static str,
    /// Explains the field.
    #[prop(optional)]
    hint: &'static str,
) -> impl IntoView {
    let store = store();
    let on = Memo::new(move |_| shown(store, field).0.unwrap_or_default());
    let id = paths::element_id(field.path);
    view! {
        <FieldRow path=field.path label=label hint=hint>
            <input type="checkbox" id=id.clone() data-testid=id.clone() prop:checked=on
                aria-describedby=format!("{id}-findings")
                on:change=move |event| {
                    let checked = event_target_checked(&event);
                    store.edit(field.path, |plan| (field.set)(plan, Some(checked)));
                }/>
        </FieldRow>
    }
}
