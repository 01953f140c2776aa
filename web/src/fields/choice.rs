//! Choices from a list, and switches.

use leptos::prelude::*;
use planner::cluster::gpus;
use planner::software::Named;
use planner::wire::{Kind, Setting};
use serde_json::Value;

use super::{FieldRow, hint, shown};
use crate::state::paths;
use crate::state::store;

/// What a list offers for what a plan file has no word for.
const UNSAID: &str = "as usual";

/// A choice of one of the words that a setting takes.
#[component]
pub fn Choice(setting: &'static Setting) -> impl IntoView {
    let store = store();
    let path = setting.path;
    let current = Signal::derive(move || match shown(store, path).0 {
        Value::Null => String::new(),
        Value::String(word) => word,
        Value::Object(_) => "from the plan file".to_owned(),
        other => other.to_string(),
    });
    let choose = move |word: String| {
        store.put(path, if word.is_empty() { Value::Null } else { Value::from(word) });
    };
    // What may be said in another form may be left unsaid, too.
    let unsaid = matches!(setting.kind, Kind::Json(..)).then(|| (String::new(), UNSAID.to_owned()));
    let words = setting.words().iter().map(|word| ((*word).to_owned(), (*word).to_owned()));
    let options = unsaid.into_iter().chain(words).collect();
    view! {
        <FieldRow path=path label=setting.label hint=hint(setting)>
            <Select path=path hook=paths::element_id(path) options=options current=current choose=Callback::new(choose)/>
        </FieldRow>
    }
}

/// The GPU, of those in the catalogue.
#[component]
pub fn GpuChoice(setting: &'static Setting) -> impl IntoView {
    let store = store();
    let path = setting.path;
    let current = Signal::derive(move || store.said().cluster.gpu.clone());
    let choose = move |id: String| store.edit(path, |plan| plan.cluster.gpu = id);
    let options = gpus().iter().map(|gpu| (gpu.id.to_owned(), gpu.title.to_owned())).collect();
    view! {
        <FieldRow path=path label=setting.label hint=hint(setting)>
            <Select path=path hook=paths::element_id(path) options=options current=current choose=Callback::new(choose)/>
        </FieldRow>
    }
}

/// The framework that trains, with its version.
#[component]
pub fn FrameworkChoice(setting: &'static Setting) -> impl IntoView {
    let store = store();
    let path = setting.path;
    let current = Signal::derive(move || store.said().software.framework.clone().unwrap_or_default());
    let choose = move |name: String| {
        store.edit(path, |plan| plan.software.framework = (!name.is_empty()).then_some(name));
    };
    let named = Named::known().into_iter().map(|name| (name.clone(), name));
    let options = std::iter::once((String::new(), "none".to_owned())).chain(named).collect();
    view! {
        <FieldRow path=path label=setting.label hint=hint(setting)>
            <Select path=path hook=paths::element_id(path) options=options current=current choose=Callback::new(choose)/>
        </FieldRow>
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
pub fn Toggle(setting: &'static Setting) -> impl IntoView {
    let store = store();
    let path = setting.path;
    let on = Memo::new(move |_| shown(store, path).0 == Value::Bool(true));
    let id = paths::element_id(path);
    view! {
        <FieldRow path=path label=setting.label hint=hint(setting)>
            <input type="checkbox" id=id.clone() data-testid=id.clone() prop:checked=on
                aria-describedby=format!("{id}-findings")
                on:change=move |event| store.put(path, event_target_checked(&event).into())/>
        </FieldRow>
    }
}
