//! A number that can be asked where it comes from.

use leptos::prelude::*;

use crate::state::store;

/// A figure as a button: a click opens the panel that explains it.
#[component]
pub fn Figure(
    /// What to ask planner, such as `memory.peak_bytes`.
    #[prop(into)]
    key: String,
    /// The figure as it is shown.
    #[prop(into)]
    text: Signal<String>,
    /// Test hook.
    #[prop(optional, into)]
    hook: String,
) -> impl IntoView {
    let store = store();
    let hook = (!hook.is_empty()).then_some(hook);
    let asked = key.clone();
    view! {
        <button class="figure" data-testid=hook data-why=key.clone() title="Where this comes from"
            on:click=move |_| store.why.set(Some(asked.clone()))>{text}</button>
    }
}
