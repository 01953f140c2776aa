//! Starting the plan here: what would run, what it should take, and a button.

use leptos::prelude::*;
use planner::Plan;
use planner::finding::Severity;
use planner::layout::executor_limits;
use planner::wire::{Answer, Verdict};

use crate::findings::FindingList;
use crate::format;
use crate::frame::VerdictMark;
use crate::hub::hub;
use crate::state::store;
use crate::testid;

/// The card.
#[component]
pub fn StartCard() -> impl IntoView {
    let store = store();
    let hub = hub();
    // What the worker would run: the same layout under the worker's own rules.
    let native = Memo::new(move |_| store.resolved.get().map(|plan| plan.native()));
    let answer = Memo::new(move |_| native.with(|native| native.as_ref().map(planner::estimate)));
    let verdict = Signal::derive(move || {
        answer.with(|answer| {
            answer
                .as_ref()
                .and_then(|answer| answer.memory.as_ref())
                .map_or(Verdict::Invalid, |memory| memory.verdict)
        })
    });
    // What planner finds wrong with the native plan, and what the executor can't run yet.
    let findings = Memo::new(move |_| {
        let mut findings =
            answer.with(|answer| answer.as_ref().map(|answer| answer.findings.clone()).unwrap_or_default());
        let resolved =
            native.with(|native| native.as_ref().map(Plan::resolve)).and_then(|resolved| resolved.plan);
        findings.extend(resolved.as_ref().map(executor_limits).unwrap_or_default());
        findings.retain(|finding| finding.severity == Severity::Error);
        findings
    });
    let sound = move || verdict.get() != Verdict::Invalid && findings.with(Vec::is_empty);
    let ready = move || hub.is_connected() && !hub.starting.get() && sound();
    let start = move |_| {
        if let Some(plan) = native.get_untracked() {
            hub.start(plan);
        }
    };
    let sentence = move || answer.with(|answer| answer.as_ref().map_or_else(nothing, prediction));
    view! {
        <section class="card" aria-label="Start a run">
            <div>
                <h3>"Run this plan here"</h3>
                <p><VerdictMark verdict=verdict/>" "{sentence}</p>
                <p class="note">"The worker runs the same layout under its own rules, runtime native; this is the prediction for that"</p>
            </div>
            <button class="primary" data-testid=testid::RUN_START disabled=move || !ready() on:click=start>
                {move || if hub.starting.get() { "Starting" } else { "Start" }}
            </button>
            <FindingList findings=findings/>
        </section>
    }
}

fn nothing() -> String {
    "The plan has errors; the findings at the left say what to change".to_owned()
}

fn prediction(answer: &Answer) -> String {
    let (Some(memory), Some(groups)) = (&answer.memory, &answer.groups) else { return nothing() };
    let peak = format::bytes(memory.peak_bytes);
    let steps = answer.plan.as_ref().and_then(|plan| plan.run.steps).unwrap_or_default();
    format!("{} ranks, {} steps, at most {peak} per rank", format::exact(groups.world), format::exact(steps))
}
