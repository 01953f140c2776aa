//! Taking a GPU of a running run for lost, to see how it goes on.

use leptos::html::Button;
use leptos::prelude::*;
use planner::wire::RunSummary;

use super::going_on::goes_on_with;
use crate::hub::hub;
use crate::testid;

/// Asks for a word before a rank's process is killed.
#[component]
pub fn ConfirmDead(
    /// The rank that was pointed at.
    asked: RwSignal<Option<u64>>,
    summary: Memo<Option<RunSummary>>,
) -> impl IntoView {
    let hub = hub();
    let cancel = NodeRef::<Button>::new();
    // The keyboard goes on where the question stands, at the answer that does nothing.
    Effect::new(move |_| {
        if asked.with(Option::is_some)
            && let Some(button) = cancel.get()
        {
            let _ = button.focus();
        }
    });
    let then = move || {
        let going_on = summary.with(|summary| summary.as_ref().map(|summary| summary.info.going_on))?;
        Some(goes_on_with(going_on.on_failure).map_or_else(
            || "The run ends with it, as it was started to".to_owned(),
            |with| format!("The run then goes on with {with}, from its newest checkpoint"),
        ))
    };
    let end = move |rank| {
        let run = summary.with_untracked(|summary| summary.as_ref().map(|summary| summary.info.id.clone()));
        if let Some(run) = run {
            hub.mark_dead(&run, rank);
        }
        asked.set(None);
    };
    move || {
        asked.get().map(|rank| {
            view! {
                <div class="card" role="alertdialog" aria-label="End a rank"
                    on:keydown=move |event| if event.key() == "Escape" { asked.set(None) }>
                    <p>{format!("Kill the process of rank {rank}, as if its GPU had failed?")}" "{then}</p>
                    <div class="row">
                        <button node_ref=cancel on:click=move |_| asked.set(None)>"Cancel"</button>
                        <button class="danger" data-testid=testid::MARK_DEAD_NOW on:click=move |_| end(rank)>"Kill it"</button>
                    </div>
                </div>
            }
        })
    }
}
