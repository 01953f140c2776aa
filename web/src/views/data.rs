//! The plan and the answer as files, the same bytes as the command line writes.

use leptos::prelude::*;

use crate::browser;
use crate::state::store;
use crate::testid;

/// Text of a JSON file: indented, with a newline at the end.
fn to_text<T: serde::Serialize>(value: &T) -> String {
    // Both are plain data with string keys, which always have a JSON form.
    planner::json::indented(value).map(|text| text + "\n").unwrap_or_default()
}

/// The view.
#[component]
pub fn DataView() -> impl IntoView {
    let store = store();
    let answer = Memo::new(move |_| {
        // Where nothing can be chosen the command has what stands in the way, and no answer.
        if let Some(findings) = store.none_chosen() {
            return to_text(&planner::wire::unanswered(&findings));
        }
        let mut answer = planner::advise(&store.plan(), false, None);
        // What a search says of the plan is known here alone.
        store.answer.with(|known| {
            answer.take_choice(&known.chosen);
            answer.assumed.clone_from(&known.assumed);
        });
        to_text(&answer)
    });
    let plan = Memo::new(move |_| to_text(&*store.said()));
    let stem = move || {
        let named =
            store.answer.with_untracked(|answer| answer.plan.as_ref().and_then(|plan| plan.name.clone()));
        browser::file_stem(&named.unwrap_or_default())
    };
    view! {
        <File title="Plan file" note="As it was entered; what is absent takes planner's default. Opens here, and in every command of shardplan"
            text=plan file_name=Signal::derive(move || format!("{}.plan.json", stem())) hook="data-plan"/>
        <File title="Answer" note="The same bytes as shardplan estimate PLAN --json"
            text=answer file_name=Signal::derive(move || format!("{}.estimate.json", stem())) hook=testid::DATA_JSON/>
    }
}

/// A text with copy and download.
#[component]
fn File(
    title: &'static str,
    note: &'static str,
    text: Memo<String>,
    file_name: Signal<String>,
    hook: &'static str,
) -> impl IntoView {
    let store = store();
    let copy = move |_| {
        let text = text.get_untracked();
        leptos::task::spawn_local(async move {
            store.notify(match browser::copy(text).await {
                Ok(()) => format!("{title} copied"),
                Err(message) => message,
            });
        });
    };
    let save = move |_| {
        text.with_untracked(|text| browser::download(&file_name.get_untracked(), "application/json", text))
    };
    view! {
        <section class="file">
            <div class="view-head">
                <h3>{title}</h3>
                <div class="row">
                    <button on:click=copy>"Copy"</button>
                    <button on:click=save>"Download"</button>
                </div>
            </div>
            <p class="note">{note}</p>
            <pre class="code" tabindex="0" data-testid=hook aria-label=title>{text}</pre>
        </section>
    }
}
