//! Number entry: typed text may be anything, buttons and arrow keys step through valid values only.

use std::fmt::Display;

use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use planner::finding::{Finding, has_error};
use planner::layout::valid_values;

use super::{FieldRow, shown};
use crate::format;
use crate::state::paths::{self, Field};
use crate::state::store;

/// A whole number.
#[component]
pub fn Number(
    /// The field.
    field: Field<u64>,
    /// Text of the label.
    label: &'static str,
    /// Explains the field.
    #[prop(optional)]
    hint: &'static str,
    /// Whether planner knows the valid values, so that they can be stepped through.
    #[prop(optional)]
    steps: bool,
) -> impl IntoView {
    let store = store();
    let step = move |up: bool| {
        let mut values = valid_values(&store.plan_now(), field.path);
        let said = store.said_now();
        if said.choose.is_some() {
            // What is left open goes along.
            values.extend(valid_values(&said, field.path));
        }
        let current = untrack(|| shown(store, field).0).unwrap_or_default();
        let next = if up {
            values.iter().copied().filter(|value| *value > current).min()
        } else {
            values.iter().copied().filter(|value| *value < current).max()
        };
        match next {
            Some(value) => {
                store.edit(field.path, |plan| (field.set)(plan, Some(value)));
                // What was typed before gives way to the step.
                store.generation.update(|count| *count += 1);
            }
            None => {
                store.say(format!("No {} valid value for {label}", if up { "larger" } else { "smaller" }))
            }
        }
    };
    let entry = Entry { field, label, hint, parse: format::parse_whole, show: format::exact };
    view! { <TextEntry entry=entry step=steps.then(|| Callback::new(step))/> }
}

/// A decimal number.
#[component]
pub fn Decimal(
    /// The field.
    field: Field<f64>,
    /// Text of the label.
    label: &'static str,
    /// Explains the field.
    #[prop(optional)]
    hint: &'static str,
) -> impl IntoView {
    let entry =
        Entry { field, label, hint, parse: format::parse_decimal, show: |value: f64| value.to_string() };
    view! { <TextEntry entry=entry step=None/> }
}

/// How a field of some type is written and read.
struct Entry<T: 'static> {
    field: Field<T>,
    label: &'static str,
    hint: &'static str,
    parse: fn(&str) -> Result<T, String>,
    show: fn(T) -> String,
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Entry<T> {}

impl<T> Entry<T> {
    /// The value that a text stands for; an empty text is the default.
    fn read(&self, text: &str) -> Result<Option<T>, String> {
        if text.trim().is_empty() { Ok(None) } else { (self.parse)(text.trim()).map(Some) }
    }
}

#[component]
fn TextEntry<T>(entry: Entry<T>, step: Option<Callback<bool>>) -> impl IntoView
where
    T: Copy + PartialEq + Display + Send + Sync + 'static,
{
    let store = store();
    let Entry { field, label, hint, .. } = entry;
    // What is being typed. It is shown as long as it says the same as the plan, or says nothing readable.
    let draft = RwSignal::new(None::<String>);
    Effect::new(move |_| {
        store.generation.track();
        draft.set(None);
    });
    let value = Memo::new(move |_| shown(store, field));
    let text = move || {
        let (value, assumed) = value.get();
        let planned = value.map(entry.show).unwrap_or_default();
        match draft.get() {
            Some(text) => match entry.read(&text) {
                Err(_) => text,
                Ok(None) if assumed => text,
                Ok(read) if read == value => text,
                Ok(_) => planned,
            },
            None => planned,
        }
    };
    let local = Signal::derive(move || {
        let text = draft.get()?;
        entry.read(&text).err().map(|message| Finding::error(field.path, text, message))
    });
    let typed = move |text: String| {
        if let Ok(value) = entry.read(&text) {
            store.edit(field.path, |plan| (field.set)(plan, value));
        }
        draft.set(Some(text));
    };
    let settle = move |_| {
        if local.with_untracked(Option::is_none) {
            draft.set(None);
        }
    };
    let keys = move |event: KeyboardEvent| {
        if let Some(step) = step
            && matches!(event.key().as_str(), "ArrowUp" | "ArrowDown")
        {
            event.prevent_default();
            step.run(event.key() == "ArrowUp");
        }
    };
    let id = paths::element_id(field.path);
    let button = move |up: bool| {
        step.map(|step| {
            let name = format!("{} {label}", if up { "Larger" } else { "Smaller" });
            let hook = format!("{}-{}", paths::element_id(field.path), if up { "up" } else { "down" });
            view! {
                <button class="step" type="button" tabindex="-1" aria-label=name data-testid=hook on:click=move |_| step.run(up)>
                    {if up { "+" } else { "\u{2212}" }}
                </button>
            }
        })
    };
    view! {
        <FieldRow path=field.path label=label hint=hint local=local>
            <div class="entry" class:stepped=step.is_some()>
                {button(false)}
                <input type="text" inputmode="decimal" autocomplete="off" spellcheck="false"
                    id=id.clone() data-testid=id.clone()
                    class:assumed=move || value.get().1 && draft.with(Option::is_none)
                    aria-describedby=format!("{id}-findings")
                    aria-invalid=move || (has_error(&store.findings_at(field.path)) || local.get().is_some()).to_string()
                    prop:value=text
                    on:input=move |event| typed(event_target_value(&event))
                    on:blur=settle
                    on:keydown=keys/>
                {button(true)}
            </div>
        </FieldRow>
    }
}
