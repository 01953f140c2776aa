//! How a run went on after ranks had died.

use leptos::prelude::*;
use planner::wire::{Recovered, Recovering};

use crate::format;
use crate::hub::hub;
use crate::testid;

/// Recoveries that are told one by one, the latest.
const LISTED: usize = 8;

/// A sentence for each recovery; none for a run that nothing happened to.
#[component]
pub fn RecoveredLines() -> impl IntoView {
    let hub = hub();
    let recoveries = Memo::new(move |_| hub.book.with(|book| book.recoveries.clone()));
    let lines = move || {
        recoveries.with(|all| {
            let told = all.values().skip(all.len().saturating_sub(LISTED));
            told.map(
                |(began, first)| view! { <p class="banner warning">{sentence(began, first.as_ref())}</p> },
            )
            .collect_view()
        })
    };
    view! { <div data-testid=testid::RUN_RECOVERED>{lines}</div> }
}

fn sentence(began: &Recovering, first: Option<&Recovered>) -> String {
    let from = match began.from_step {
        Some(step) => format!("after step {step}"),
        None => "from the beginning".to_owned(),
    };
    let what = if began.dead.is_empty() { "stop" } else { "failure" };
    let done = first.map_or_else(
        || "no step is done since".to_owned(),
        |done| format!("step {} was done {} after the {what}", done.step, format::seconds(done.seconds)),
    );
    let predicted = began.predicted_step_seconds.map_or_else(String::new, |seconds| {
        format!("; a step is predicted to take {}", format::seconds(seconds))
    });
    format!("Attempt {}, {from}: {}; {done}{predicted}", began.attempt, began.change)
}
