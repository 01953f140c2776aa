//! What to look at first: the fastest plan, the cheapest, the roomiest, the one on fewest GPUs.

use std::sync::Arc;

use leptos::prelude::*;
use planner::search::{Row, SearchAnswer};
use planner::wire::Objective;

use super::table::in_words;
use crate::format;
use crate::testid;

/// One line for each, which a click makes the plan.
#[component]
pub fn Bests(
    /// What was found.
    answer: Memo<Option<Arc<SearchAnswer>>>,
    /// Makes a row the plan.
    take: Callback<Row>,
) -> impl IntoView {
    move || {
        answer.with(|answer| {
            let bests = answer.as_ref().map(|answer| answer.bests()).unwrap_or_default();
            let one = |(objective, row): (Objective, &Row)| {
                let title = match objective {
                    Objective::Fastest | Objective::Deadline => "First",
                    other => format::objective(other),
                };
                let text = format!(
                    "{}{} s, {} GiB, {}: {}",
                    if row.simulated { "" } else { "about " },
                    format::three(row.step_seconds),
                    format::gib(row.peak_bytes),
                    format::counted(row.gpus, "GPU"),
                    in_words(&row.settings)
                );
                let row = row.clone();
                view! {
                    <li>
                        <button class="link" on:click=move |_| take.run(row.clone())>{title}</button>
                        " "{text}
                    </li>
                }
            };
            let lines = bests.into_iter().map(one).collect_view();
            view! { <ul class="bests" data-testid=testid::SEARCH_BESTS>{lines}</ul> }
        })
    }
}
