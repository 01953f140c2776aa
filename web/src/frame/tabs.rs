//! The tabs of the views.

use leptos::ev::KeyboardEvent;
use leptos::prelude::*;

use crate::browser;
use crate::state::{View, store};
use crate::testid;

/// One tab per view; keys 1 to 9, and the arrow keys while a tab has the focus.
#[component]
pub fn Tabs() -> impl IntoView {
    let store = store();
    let arrows = move |event: KeyboardEvent| {
        let step = match event.key().as_str() {
            "ArrowRight" => 1,
            "ArrowLeft" => View::all().len() - 1,
            _ => return,
        };
        event.prevent_default();
        let place = (store.view.get_untracked().place() + step) % View::all().len();
        let Some(next) = View::all().nth(place) else { return };
        store.view.set(next);
        browser::focus(&format!("tab-{}", next.id()));
    };
    let tabs = View::all()
        .map(|view| {
            let selected = move || store.view.get() == view;
            view! {
                <button role="tab" class="tab" id=format!("tab-{}", view.id()) data-testid=testid::tab(view.id())
                    aria-selected=move || selected().to_string() aria-controls="view"
                    aria-keyshortcuts=view.key()
                    tabindex=move || if selected() { "0" } else { "-1" }
                    on:click=move |_| store.view.set(view)>
                    {view.title()}{view.key().map(|key| view! { <kbd aria-hidden="true">{key}</kbd> })}
                </button>
            }
        })
        .collect_view();
    // Also where a link, a key or another view has chosen.
    Effect::new(move |_| browser::show_in_row(&format!("tab-{}", store.view.get().id())));
    view! { <div class="tabs" role="tablist" aria-label="Views" on:keydown=arrows>{tabs}</div> }
}
