//! The site as a file that a team shares: saved, and read.

use batch::launch::Site;
use gloo::file::Blob;
use leptos::prelude::*;
use wasm_bindgen::JsCast;

use crate::browser;
use crate::state::store;
use crate::testid;
use crate::texts;
use crate::texts::protocol::{Ask, Tell};

/// The largest file that is read, in bytes: as the command takes it.
const MAX_BYTES: f64 = 1024.0 * 1024.0;

/// The two buttons. `filled` counts how often the form was filled from elsewhere, so that it is drawn anew.
#[component]
pub fn SiteFile(site: RwSignal<Site>, filled: RwSignal<u64>) -> impl IntoView {
    let store = store();
    let reading = StoredValue::new_local(None::<gloo::file::callbacks::FileReader>);
    let save = move |_| {
        let question = Ask::SiteFile(Box::new(site.get_untracked()));
        leptos::task::spawn_local(async move {
            match texts::ask(&question).await {
                Some(Tell::SiteFile(text)) => browser::download("site.toml", "application/toml", &text),
                _ => store.notify(texts::ABSENT),
            }
        });
    };
    let take = move |text: String| {
        leptos::task::spawn_local(async move {
            match texts::ask(&Ask::ReadSite(text)).await {
                Some(Tell::Site(Ok(read))) => {
                    site.set(*read);
                    filled.update(|count| *count += 1);
                    store.notify("The site is the file's now");
                }
                Some(Tell::Site(Err(sentence))) => store.notify(sentence),
                _ => store.notify(texts::ABSENT),
            }
        });
    };
    let chosen = move |event: leptos::ev::Event| {
        let input = event.target().and_then(|target| target.dyn_into::<web_sys::HtmlInputElement>().ok());
        let Some(input) = input else { return };
        let file = input.files().and_then(|files| files.get(0));
        // The same file can be chosen again, after it was changed.
        input.set_value("");
        let Some(file) = file else { return };
        if file.size() > MAX_BYTES {
            store.notify("That is no site's file: it has more than a MiB");
            return;
        }
        let reader = gloo::file::callbacks::read_as_bytes(&Blob::from(file), move |read| match read {
            Ok(bytes) => take(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) => store.notify(format!("The file could not be read: {error}")),
        });
        reading.set_value(Some(reader));
    };
    view! {
        <div class="row">
            <button class="quiet" data-testid=testid::SITE_SAVE on:click=save>"Save the site"</button>
            <label class="button quiet">
                "Read a site..."
                <input class="visually-hidden" type="file" accept=".toml" data-testid=testid::SITE_FILE on:change=chosen/>
            </label>
        </div>
    }
}
