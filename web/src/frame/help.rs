//! The list of keys, and what the page does with what is typed.

use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::HtmlDialogElement;

use super::keys::SHORTCUTS;

const ID: &str = "help";

/// Opens it. The browser then keeps the focus in it, closes it on Escape, and gives the focus back.
pub fn open_help() {
    if let Some(dialog) = document().get_element_by_id(ID) {
        // It is open already otherwise.
        let _ = dialog.unchecked_into::<HtmlDialogElement>().show_modal();
    }
}

/// Opened by `?`.
#[component]
pub fn Help() -> impl IntoView {
    let rows = SHORTCUTS
        .iter()
        .map(|(keys, what)| view! { <div><dt><kbd>{*keys}</kbd></dt><dd>{*what}</dd></div> })
        .collect_view();
    view! {
        <dialog class="dialog" id=ID closedby="any" aria-labelledby="help-title" data-testid=crate::testid::HELP>
            <form class="panel-head" method="dialog">
                <h2 id="help-title">"Keys"</h2>
                <button class="quiet">"Close"</button>
            </form>
            <dl class="keys">{rows}</dl>
            <p class="note">
                "Planning happens in this browser. A plan leaves it only when you share a link, save a file, or start a run on your own hub"
            </p>
            <p class="note">
                "Memory is in GiB (base 1024), bandwidth and vendors' figures in GB (base 1000). Numbers can be typed as 8k, 8192, 8,192 or 8_192"
            </p>
        </dialog>
    }
}
