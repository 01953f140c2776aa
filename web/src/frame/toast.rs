//! A short message, shown for a moment and read out.

use gloo::timers::callback::Timeout;
use leptos::prelude::*;

use crate::state::store;

const SHOWN_MS: u32 = 4000;

/// The place of short messages.
#[component]
pub fn Toast() -> impl IntoView {
    let store = store();
    let timer = StoredValue::new_local(None::<Timeout>);
    Effect::new(move |_| {
        if store.toast.with(Option::is_some) {
            timer.set_value(Some(Timeout::new(SHOWN_MS, move || store.toast.set(None))));
        }
    });
    view! {
        <div class="toast" role="status" aria-live="polite" class:shown=move || store.toast.with(Option::is_some)>
            {move || store.toast.get().unwrap_or_default()}
        </div>
    }
}
