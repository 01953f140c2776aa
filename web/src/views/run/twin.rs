//! Measuring a plan where its cluster is not: a twin that is cut by the same axes, small enough for this machine.

use leptos::prelude::*;
use planner::rules::executor_limits;
use planner::twin::{Scaled, Twin, device, twin};
use planner::wire::GoingOn;
use planner::{Finding, Plan};

use crate::findings::{FindingList, plain};
use crate::format;
use crate::hub::hub;
use crate::kit::{Column, Line, Lines, ROWS, Table};
use crate::state::store;
use crate::testid;

/// The card: what would run, what was made smaller, and a button.
#[component]
pub fn TwinCard() -> impl IntoView {
    let store = store();
    let hub = hub();
    // Making one takes long, and the connection changes every second while the hub is waited for.
    let gpus = Memo::new(move |_| hub.machine().unwrap_or_default().gpus);
    let made = Memo::new(move |_| {
        let gpus = gpus.get();
        store.resolved.with(|plan| plan.as_ref().map(|plan| make(plan, gpus)))
    });
    let made = move || made.get();
    let findings = Signal::derive(move || made().and_then(Result::err).unwrap_or_default());
    let twin = move || made().and_then(Result::ok);
    let ready = move || hub.can_run() && !hub.starting.get() && twin().is_some();
    let start = move |_| {
        if let Some(twin) = untrack(twin) {
            hub.start(twin.file, GoingOn::STOP);
        }
    };
    let sentence = move || twin().map_or_else(|| "This plan has no twin here".to_owned(), |twin| says(&twin));
    view! {
        <section class="card" aria-label="Measure a twin">
            <div>
                <h3>"Measure a twin of this plan here"</h3>
                <p data-testid=testid::TWIN_SAYS>{sentence}</p>
                <p class="note">"The same axes, kinds of layers and settings, with fewer layers and smaller sizes; predicted and measured are then compared below"</p>
                {move || twin().map(|twin| view! { <Smaller scaled=twin.scaled/> })}
            </div>
            <button data-testid=testid::TWIN_START disabled=move || !ready() on:click=start>
                {move || if hub.starting.get() { "Starting" } else { "Start the twin" }}
            </button>
            <FindingList findings=findings/>
        </section>
    }
}

/// The twin that the worker runs on a machine with `gpus` GPUs, or why there is none.
fn make(plan: &Plan, gpus: u64) -> Result<Twin, Vec<Finding>> {
    let (gpu, most) = device(plan, gpus);
    let made = twin(plan, gpu, most)?;
    let small = Plan::resolve(&made.file);
    let limits = small.plan.as_ref().map_or(small.findings, executor_limits);
    if planner::finding::has_error(&limits) { Err(limits) } else { Ok(made) }
}

fn says(twin: &Twin) -> String {
    let answer = planner::estimate(&twin.file);
    let (Some(memory), Some(groups)) = (&answer.memory, &answer.groups) else {
        return "This plan has no twin here".to_owned();
    };
    let place = if planner::cluster::is_cpu(&twin.file.cluster.gpu) { "CPU processes" } else { "GPUs" };
    format!(
        "{} on {place}, at most {} each",
        format::counted(groups.world, "rank"),
        format::bytes(memory.peak_bytes)
    )
}

const SMALLER: &[Column] = &[Column::new("Field"), Column::new("Plan"), Column::new("Twin")];

/// What is smaller, by field.
#[component]
fn Smaller(scaled: Vec<Scaled>) -> impl IntoView {
    let summary = format!("What is smaller ({})", scaled.len());
    let line = |Scaled { field, from, to }| Line::new().head(field).text(plain(&from)).text(plain(&to));
    let lines = Lines::of(SMALLER, scaled.into_iter().map(line).collect());
    let table = Table::new("What is smaller in the twin", "").pages("fields", ROWS).of(lines);
    view! {
        <details>
            <summary>{summary}</summary>
            {table}
        </details>
    }
}
