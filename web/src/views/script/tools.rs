//! Copy, download, copy as a command line.

use leptos::prelude::*;

use crate::browser;
use crate::state::store;
use crate::testid;
use crate::texts;
use crate::texts::protocol::{Ask, Tell, Wanted};

/// The buttons.
#[component]
pub fn Tools(text: Memo<Option<String>>, wanted: Callback<(), Wanted>) -> impl IntoView {
    let store = store();
    let copy = move |text: String, done: &'static str| {
        leptos::task::spawn_local(async move {
            store.notify(match browser::copy(text).await {
                Ok(()) => done.to_owned(),
                Err(message) => message,
            });
        });
    };
    let copy_command = move |_| {
        let question = Ask::CommandLine(Box::new(wanted.run(())));
        leptos::task::spawn_local(async move {
            match texts::ask(&question).await {
                Some(Tell::CommandLine(Some(command))) => copy(command, "Command copied"),
                Some(_) => store.notify("What has an error is not copied as a command; see the findings"),
                None => store.notify(texts::ABSENT),
            }
        });
    };
    let save = move |_| {
        let name =
            store.answer.with_untracked(|answer| answer.plan.as_ref().and_then(|plan| plan.name.clone()));
        let file = format!("{}.sbatch", browser::file_stem(&name.unwrap_or_default()));
        text.with_untracked(|text| {
            if let Some(text) = text {
                browser::download(&file, "text/x-shellscript", text);
            }
        });
    };
    let copy_script = move |_| {
        if let Some(text) = text.get_untracked() {
            copy(text, "Script copied");
        }
    };
    let absent = move || text.with(Option::is_none);
    view! {
        <div class="row">
            <button data-testid=testid::SCRIPT_COPY disabled=absent on:click=copy_script>"Copy"</button>
            <button data-testid=testid::SCRIPT_COMMAND on:click=copy_command>"Copy as CLI"</button>
            <button data-testid=testid::SCRIPT_DOWNLOAD disabled=absent on:click=save>"Download"</button>
        </div>
    }
}
