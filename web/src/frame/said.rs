//! What a screen reader says of the answer.

use leptos::prelude::*;

use super::answer_line::in_words;
use crate::state::store;
use crate::testid;

/// One short sentence, said whenever another answer stands: while a plan is chosen the last one does. Everything else that changes with
/// the answer changes in silence.
#[component]
pub fn Said() -> impl IntoView {
    let store = store();
    let said = Memo::new(move |before: Option<&String>| match before {
        Some(before) if store.choosing.get() => before.clone(),
        _ => store.answer.with(|answer| in_words(answer)),
    });
    view! { <p class="visually-hidden" role="status" data-testid=testid::ANSWER_SAID>{said}</p> }
}
