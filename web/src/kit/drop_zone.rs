//! Where files are dropped, or a text; and the button that asks for files.

use leptos::ev::DragEvent;
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::{FileList, HtmlInputElement};

/// A place to drop in what is read: files, or a text that was dragged.
#[component]
pub fn DropZone(
    /// Of its look.
    class: &'static str,
    /// Id of what names it, if it is a region.
    #[prop(optional)]
    named_by: &'static str,
    /// Takes files, at least one.
    files: Callback<FileList>,
    /// Takes a text.
    text: Callback<String>,
    /// What stands in it.
    children: Children,
) -> impl IntoView {
    let over = RwSignal::new(false);
    let dropped = move |event: DragEvent| {
        event.prevent_default();
        over.set(false);
        let Some(transfer) = event.data_transfer() else { return };
        match transfer.files().filter(|files| files.length() > 0) {
            Some(dropped) => files.run(dropped),
            None => {
                if let Ok(dropped) = transfer.get_data("text/plain") {
                    text.run(dropped);
                }
            }
        }
    };
    let (role, named_by) = if named_by.is_empty() { (None, None) } else { (Some("region"), Some(named_by)) };
    view! {
        <div class=class class:over=over role=role aria-labelledby=named_by
            on:dragover=move |event| { event.prevent_default(); over.set(true) }
            on:dragleave=move |_| over.set(false)
            on:drop=dropped>
            {children()}
        </div>
    }
}

/// Asks for files.
#[component]
pub fn FileButton(
    /// What stands on it.
    text: &'static str,
    /// Test hook.
    hook: &'static str,
    /// Whether it takes several.
    #[prop(optional)]
    several: bool,
    /// Kinds of files to show, as the browser takes them.
    #[prop(optional)]
    accept: &'static str,
    /// Takes files, at least one.
    files: Callback<FileList>,
) -> impl IntoView {
    let chosen = move |event: leptos::ev::Event| {
        let input = event.target().and_then(|target| target.dyn_into::<HtmlInputElement>().ok());
        let Some(input) = input else { return };
        if let Some(list) = input.files().filter(|files| files.length() > 0) {
            files.run(list);
        }
        // The same files can be chosen again after they were changed.
        input.set_value("");
    };
    let accept = (!accept.is_empty()).then_some(accept);
    view! {
        <label class="button quiet">
            {text}
            <input class="visually-hidden" type="file" multiple=several accept=accept data-testid=hook on:change=chosen/>
        </label>
    }
}
