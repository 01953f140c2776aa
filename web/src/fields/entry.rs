//! Entry of numbers and texts: typed text may be anything, buttons and arrow keys step through valid values only.

use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use planner::finding::{Finding, has_error};
use planner::resolve::valid_values;
use planner::wire::{Kind, Setting};
use serde_json::Value;

use super::{FieldRow, hint, shown};
use crate::format;
use crate::state::paths;
use crate::state::store;

/// The value that a text stands for; an empty text is the default.
fn read(setting: &Setting, text: &str) -> Result<Value, String> {
    let text = text.trim();
    match setting.kind {
        _ if text.is_empty() => Ok(Value::Null),
        Kind::Whole { .. } => format::parse_whole(text).map(Value::from),
        _ => format::parse_decimal(text).map(Value::from),
    }
}

/// A value as it is typed.
fn written(value: &Value) -> String {
    match (value.as_u64(), value.as_f64()) {
        (Some(whole), _) => format::exact(whole),
        (None, Some(number)) => number.to_string(),
        (None, None) => String::new(),
    }
}

/// Whether two values are one number.
fn same(one: &Value, other: &Value) -> bool {
    one == other || one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| one == other)
}

/// A number.
#[component]
pub fn Number(setting: &'static Setting) -> impl IntoView {
    let store = store();
    let (path, label) = (setting.path, setting.label);
    let step = move |up: bool| {
        let mut values = valid_values(&store.plan_now(), path);
        let said = store.said_now();
        if said.choose.is_some() {
            // What is left open goes along.
            values.extend(valid_values(&said, path));
        }
        let current = untrack(|| shown(store, path).0).as_u64().unwrap_or_default();
        let next = if up {
            values.iter().copied().filter(|value| *value > current).min()
        } else {
            values.iter().copied().filter(|value| *value < current).max()
        };
        match next {
            Some(value) => {
                store.put(path, value.into());
                // What was typed before gives way to the step.
                store.generation.update(|count| *count += 1);
            }
            None => {
                store.notify(format!("No {} valid value for {label}", if up { "larger" } else { "smaller" }))
            }
        }
    };
    // What is being typed. It is shown as long as it says the same as the plan, or says nothing readable.
    let draft = RwSignal::new(None::<String>);
    Effect::new(move |_| {
        store.generation.track();
        draft.set(None);
    });
    let value = Memo::new(move |_| shown(store, path));
    let text = move || {
        let (value, assumed) = value.get();
        let planned = written(&value);
        match draft.get() {
            Some(text) => match read(setting, &text) {
                Err(_) => text,
                Ok(Value::Null) if assumed => text,
                Ok(read) if same(&read, &value) => text,
                Ok(_) => planned,
            },
            None => planned,
        }
    };
    let local = Signal::derive(move || {
        let text = draft.get()?;
        read(setting, &text).err().map(|message| Finding::error(path, text, message))
    });
    let typed = move |text: String| {
        if let Ok(value) = read(setting, &text) {
            store.put(path, value);
        }
        draft.set(Some(text));
    };
    let settle = move |_| {
        if local.with_untracked(Option::is_none) {
            draft.set(None);
        }
    };
    let keys = move |event: KeyboardEvent| {
        if setting.stepped && matches!(event.key().as_str(), "ArrowUp" | "ArrowDown") {
            event.prevent_default();
            step(event.key() == "ArrowUp");
        }
    };
    let id = paths::element_id(path);
    let button = move |up: bool| {
        setting.stepped.then(|| {
            let name = format!("{} {label}", if up { "Larger" } else { "Smaller" });
            let hook = format!("{}-{}", paths::element_id(path), if up { "up" } else { "down" });
            view! {
                <button class="step" type="button" tabindex="-1" aria-label=name data-testid=hook on:click=move |_| step(up)>
                    {if up { "+" } else { "\u{2212}" }}
                </button>
            }
        })
    };
    view! {
        <FieldRow path=path label=label hint=hint(setting) local=local>
            <div class="entry" class:stepped=setting.stepped>
                {button(false)}
                <input type="text" inputmode="decimal" autocomplete="off" spellcheck="false"
                    id=id.clone() data-testid=id.clone()
                    class:assumed=move || value.get().1 && draft.with(Option::is_none)
                    aria-describedby=format!("{id}-findings")
                    aria-invalid=move || (has_error(&store.findings_at(path)) || local.get().is_some()).to_string()
                    prop:value=text
                    on:input=move |event| typed(event_target_value(&event))
                    on:blur=settle
                    on:keydown=keys/>
                {button(true)}
            </div>
        </FieldRow>
    }
}

/// A text; an empty one is the default.
#[component]
pub fn Text(setting: &'static Setting) -> impl IntoView {
    let store = store();
    let path = setting.path;
    let text = move || shown(store, path).0.as_str().map(str::to_owned).unwrap_or_default();
    let typed = move |text: String| {
        let text = text.trim();
        store.put(path, if text.is_empty() { Value::Null } else { text.into() });
    };
    view! { <TextRow path=path label=setting.label hint=hint(setting) text=Signal::derive(text) typed=Callback::new(typed)/> }
}

/// A line of text that is read when it is left.
#[component]
pub fn TextRow(
    path: &'static str,
    label: &'static str,
    #[prop(into)] hint: String,
    text: Signal<String>,
    typed: Callback<String>,
) -> impl IntoView {
    let id = paths::element_id(path);
    view! {
        <FieldRow path=path label=label hint=hint>
            <input type="text" class="wide" id=id.clone() data-testid=id.clone() spellcheck="false" autocomplete="off"
                aria-describedby=format!("{id}-findings")
                prop:value=text on:change=move |event| typed.run(event_target_value(&event))/>
        </FieldRow>
    }
}
