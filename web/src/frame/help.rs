//! The list of keys, and what the page does with what is typed.

use leptos::prelude::*;

use super::keys::SHORTCUTS;
use crate::browser;

/// Opened by `?`.
#[component]
pub fn Help(open: RwSignal<bool>) -> impl IntoView {
    let asker = StoredValue::new_local(None::<web_sys::HtmlElement>);
    Effect::new(move |was_open: Option<bool>| {
        let opens = open.get();
        if opens {
            asker.set_value(browser::focused());
            browser::focus("help-close");
        } else if was_open == Some(true) {
            asker.with_value(|asker| {
                if let Some(element) = asker {
                    let _ = element.focus();
                }
            });
        }
        opens
    });
    move || {
        open.get().then(|| {
            let rows = SHORTCUTS
                .iter()
                .map(|(keys, what)| view! { <div><dt><kbd>{*keys}</kbd></dt><dd>{*what}</dd></div> })
                .collect_view();
            view! {
                <div class="scrim" on:click=move |_| open.set(false)></div>
                <div class="dialog" role="dialog" aria-modal="true" aria-labelledby="help-title">
                    <div class="panel-head">
                        <h2 id="help-title">"Keys"</h2>
                        <button class="quiet" id="help-close" on:click=move |_| open.set(false)>"Close"</button>
                    </div>
                    <dl class="keys">{rows}</dl>
                    <p class="note">
                        "Planning happens in this browser. A plan leaves it only when you share a link, save a file, or start a run on your own hub"
                    </p>
                    <p class="note">
                        "Memory is in GiB (base 1024), bandwidth and vendors' figures in GB (base 1000). Numbers can be typed as 8k, 8192, 8,192 or 8_192"
                    </p>
                </div>
            }
        })
    }
}
