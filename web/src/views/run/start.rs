//! Starting the plan here: what would run, what it should take, and a button where this machine can start it.

use leptos::prelude::*;
use planner::finding::Severity;
use planner::startable::startable;
use planner::wire::{Answer, SparesBy, Verdict};

use crate::findings::{FindingList, coded, said};
use crate::format;
use crate::frame::VerdictMark;
use crate::hub::hub;
use crate::state::store;
use crate::testid;
use crate::views::session::session;

use super::going_on::GoingOnInputs;

/// The card.
#[component]
pub fn StartCard() -> impl IntoView {
    let store = store();
    let hub = hub();
    // What the worker would run: the plan where it knows its runtime, else the same layout under its own rules.
    let executed = Memo::new(move |_| store.resolved.get().map(|plan| plan.executed()));
    let compared = move || store.resolved.with(|plan| plan.as_ref().map(|plan| plan.compared_with()));
    let answer = Memo::new(move |_| executed.with(|executed| executed.as_ref().map(planner::estimate)));
    // Whether the hub's machine can; not known before it has said what it has.
    let judged = Memo::new(move |_| {
        let machine = hub.machine()?;
        store.resolved.with(|plan| plan.as_ref().map(|plan| startable(plan, &machine, 1)))
    });
    let can_start =
        Memo::new(move |_| judged.with(|judged| judged.as_ref().is_some_and(|judged| judged.can_start())));
    let verdict = Signal::derive(move || {
        answer.with(|answer| {
            let memory = answer.as_ref().and_then(|answer| answer.memory.as_ref());
            memory.map_or(Verdict::Invalid, |memory| memory.verdict)
        })
    });
    let findings = Memo::new(move |_| {
        let mut findings =
            judged.with(|judged| judged.as_ref().map(|judged| judged.findings.clone()).unwrap_or_default());
        findings.retain(|finding| finding.severity != Severity::Info);
        findings
    });
    let going_on = session().going_on;
    // A run without checkpoints has nothing to go on from.
    let refusal = Memo::new(move |_| {
        let asked = going_on.get();
        let saves =
            store.resolved.with(|plan| plan.as_ref().is_some_and(|plan| plan.run.checkpoint.is_some()));
        asked.refusal(saves, asked.spares, SparesBy::Gpus)
    });
    let start = move |_| {
        if let Some(plan) = executed.get_untracked() {
            hub.start(plan, going_on.get_untracked());
        }
    };
    let says = move || {
        if judged.with(Option::is_some) && !can_start.get() {
            return "This machine can't start it".to_owned();
        }
        answer.with(|answer| answer.as_ref().map_or_else(nothing, prediction))
    };
    let instead = move || {
        let instead = judged.with(|judged| judged.as_ref().map(|judged| judged.instead.clone()))?;
        let items = instead.into_iter().map(|one| view! { <li>{said(&one.in_words())}</li> });
        let items = items.collect::<Vec<_>>();
        (!items.is_empty()).then(|| {
            view! { <div data-testid=testid::RUN_INSTEAD><p>"Instead"</p><ul>{items}</ul></div> }
        })
    };
    view! {
        <section class="card" aria-label="Start a run">
            <div>
                <h3>"Run this plan here"</h3>
                <p data-testid=testid::RUN_SAYS>
                    <Show when=move || can_start.get()><VerdictMark verdict=verdict/>" "</Show>{says}
                </p>
                <p class="note">{move || compared().map(|text| coded(&text))}</p>
                <Show when=move || can_start.get()><GoingOnInputs going_on=going_on/></Show>
                {move || refusal.get().map(|why| view! { <p class="note" role="status">{coded(&why)}</p> })}
            </div>
            <Show when=move || can_start.get()>
                <button class="primary" data-testid=testid::RUN_START
                    disabled=move || !hub.can_run() || hub.starting.get() || refusal.with(Option::is_some) on:click=start>
                    {move || if hub.starting.get() { "Starting" } else { "Start" }}
                </button>
            </Show>
            <FindingList findings=findings/>
            {instead}
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
    let (ranks, steps) = (format::counted(groups.world, "rank"), format::counted(steps, "step"));
    format!("{ranks}, {steps}, at most {peak} per rank")
}
