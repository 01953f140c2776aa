//! Keys that work everywhere: views by number, undo and redo, help, Escape.

use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use wasm_bindgen::JsCast;

use super::help::open_help;
use crate::state::{Store, View};

/// What `?` lists.
pub const SHORTCUTS: &[(&str, &str)] = &[
    ("1 to 9", "Choose a view"),
    ("The browser's Back, Forward", "Walk over edits and views"),
    ("Ctrl Z", "Undo"),
    ("Ctrl Shift Z, Ctrl Y", "Redo"),
    ("Up, down in a number", "Step through valid values"),
    ("Arrow keys in the rank map", "Choose a rank"),
    ("Arrow keys in the timeline", "Choose an action"),
    ("?", "This list"),
    ("Esc", "Close what is open"),
];

/// Listens as long as the page lives.
pub fn listen_to_keys(store: Store) {
    let listener = window_event_listener(leptos::ev::keydown, move |event| handle(&event, store));
    on_cleanup(move || listener.remove());
}

fn handle(event: &KeyboardEvent, store: Store) {
    let key = event.key();
    // The browser closes a dialog; no key reaches what lies behind it.
    if document().query_selector("dialog[open]").is_ok_and(|dialog| dialog.is_some()) {
        return;
    }
    if key == "Escape" {
        // The topmost thing closes first.
        if store.why.with_untracked(Option::is_some) {
            store.why.set(None);
        } else {
            store.sheet.set(false);
        }
        return;
    }
    if is_typing(event) {
        return;
    }
    if event.ctrl_key() || event.meta_key() {
        match (key.to_ascii_lowercase().as_str(), event.shift_key()) {
            ("z", false) => store.undo(),
            ("z", true) | ("y", _) => store.redo(),
            _ => return,
        }
        event.prevent_default();
        return;
    }
    if event.alt_key() {
        return;
    }
    if key == "?" {
        open_help();
        return;
    }
    if let Some(view) = View::all().find(|view| view.key().as_deref() == Some(key.as_str())) {
        store.view.set(view);
    }
}

/// Keys belong to a text box while one has the focus: its own undo is the one that is meant there.
fn is_typing(event: &KeyboardEvent) -> bool {
    let Some(element) = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok()) else {
        return false;
    };
    match element.tag_name().to_ascii_lowercase().as_str() {
        "textarea" | "select" => true,
        "input" => element.get_attribute("type").as_deref() != Some("checkbox"),
        _ => false,
    }
}
