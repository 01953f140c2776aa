//! Copy, download, copy as a command line.

use leptos::prelude::*;

use crate::browser;
use crate::state::store;
use crate::testid;

/// The buttons.
#[component]
pub fn Tools(text: Memo<String>, command: Callback<(), Option<String>>) -> impl IntoView {
    let store = store();
    let copy = move |text: String, done: &'static str| {
        leptos::task::spawn_local(async move {
            store.say(match browser::copy(text).await {
                Ok(()) => done.to_owned(),
                Err(message) => message,
            });
        });
    };
    let copy_command = move |_| match command.run(()) {
        Some(text) => copy(text, "Command copied"),
        None => store.say("What has an error is not copied as a command; see the findings"),
    };
    let save = move |_| {
        let name =
            store.answer.with_untracked(|answer| answer.plan.as_ref().and_then(|plan| plan.name.clone()));
        let file = format!("{}.sbatch", browser::file_stem(&name.unwrap_or_default()));
        text.with_untracked(|text| browser::download(&file, "text/x-shellscript", text));
    };
    view! {
        <div class="row">
            <button data-testid=testid::SCRIPT_COPY on:click=move |_| copy(text.get_untracked(), "Script copied")>"Copy"</button>
            <button data-testid=testid::SCRIPT_COMMAND on:click=copy_command>"Copy as CLI"</button>
            <button data-testid=testid::SCRIPT_DOWNLOAD on:click=save>"Download"</button>
        </div>
    }
}
