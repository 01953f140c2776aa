//! What the page shows a moment later.

use gloo::timers::callback::Timeout;
use leptos::prelude::*;

/// Children that are made in a task of their own, each `Later` in the order in which they were met. A browser compiles what it
/// runs for the first time: a page made in one task would be deaf for a quarter of a second.
#[component]
pub fn Later(children: Children) -> impl IntoView {
    let there = RwSignal::new(false);
    let mut children = Some(children);
    let appear = move || {
        // What was closed before it was there, nobody wants.
        let _ = there.try_set(true);
    };
    Timeout::new(0, appear).forget();
    move || if there.get() { children.take().map(|children| children()) } else { None }
}
