//! All runs of the hub, newest first.

use leptos::prelude::*;
use planner::wire::RunSummary;

use crate::browser;
use crate::format;
use crate::hub::{hub, state_word};
use crate::testid;

/// Runs that are listed; the hub has all.
const LISTED: usize = 200;

/// The list.
#[component]
pub fn RunList() -> impl IntoView {
    let hub = hub();
    let items = move || {
        hub.runs
            .with(|runs| runs.iter().take(LISTED).map(|run| view! { <Item run=run.clone()/> }).collect_view())
    };
    let empty = move || hub.runs.with(|runs| runs.is_empty());
    view! {
        <nav class="run-list" aria-label="Runs">
            <h3>"Runs"</h3>
            <ul>{items}</ul>
            <p class="note" hidden=move || !empty()>"None yet"</p>
        </nav>
    }
}

#[component]
fn Item(run: RunSummary) -> impl IntoView {
    let hub = hub();
    let id = run.info.id.clone();
    let compared = id.clone();
    let current = move || hub.shown.with(|shown| shown.as_ref() == Some(&compared));
    let asked = id.clone();
    view! {
        <li>
            <button class="run-item" data-testid=testid::RUN_ITEM data-run=id.clone()
                aria-current=move || current().then_some("true") on:click=move |_| hub.show(&asked)>
                <span class="run-name">{run.info.name.clone()}</span>
                <span class=format!("state {}", state_word(run.state))>{state_word(run.state)}</span>
                <span class="quiet-text">{age(run.info.started_unix_ms)}", "{format::counted(run.info.world_size, "rank")}{attempt(run.info.attempts)}</span>
            </button>
        </li>
    }
}

/// Which start this is, where it is not the first.
fn attempt(number: u64) -> String {
    if number > 1 { format!(", attempt {number}") } else { String::new() }
}

/// How long ago, in the largest unit that fits.
fn age(unix_ms: u64) -> String {
    let seconds = ((browser::now_ms() - unix_ms as f64) / 1000.0).max(0.0) as u64;
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}
