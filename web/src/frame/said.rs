//! What a screen reader says of the answer.

use gloo::timers::callback::Timeout;
use leptos::prelude::*;

use super::answer_line::{NOTHING, in_words};
use crate::state::store;
use crate::testid;

/// Milliseconds that an answer must stand: of what is typed the last digit counts, and a choice is waited for.
const REST_MS: u32 = 600;

/// One short sentence, said whenever another answer stands. Everything else that changes with the answer changes in silence.
#[component]
pub fn Said() -> impl IntoView {
    let store = store();
    let said = RwSignal::new(String::new());
    let timer = StoredValue::new_local(None::<Timeout>);
    Effect::new(move |_| {
        let answer = store.answer.get();
        let stands = !store.choosing.get();
        let text = if store.is_nothing_chosen() { NOTHING.to_owned() } else { in_words(&answer) };
        timer.set_value(stands.then(|| Timeout::new(REST_MS, move || said.set(text))));
    });
    view! { <p class="visually-hidden" role="status" data-testid=testid::ANSWER_SAID>{said}</p> }
}
