//! Runs: start the plan here, watch it beside its prediction, and look at earlier ones.

mod calibrate;
mod compare;
mod curves;
mod curves_table;
mod dead;
mod going_on;
mod list;
mod map;
mod phases;
mod ranks;
mod recovered;
mod saved;
mod start;
mod twin;
mod watched;

use leptos::prelude::*;
use planner::run::{FIGURES, Figure, StepPoint};
use planner::wire::RunState;

use crate::findings::coded;
use crate::format;
use crate::hub::{Connection, DETAIL, hub, state_word};
use crate::testid;
use calibrate::StepCompare;
use compare::MemoryCompare;
use curves::Curves;
pub use going_on::goes_on_with;
use list::RunList;
use phases::PhaseTable;
use ranks::{Output, RankStates};
use recovered::RecoveredLines;
use saved::SavedLine;
use start::StartCard;
use twin::TwinCard;
use watched::WatchedRun;

/// The view.
#[component]
pub fn RunView() -> impl IntoView {
    let hub = hub();
    // The connection changes every second while the hub is waited for, what is shown of it does not.
    let planning_only = Memo::new(move |_| {
        hub.connection.with(|connection| matches!(connection, Connection::Offline))
            && hub.runs.with(|runs| runs.is_empty())
    });
    view! {
        <ConnectionLine/>
        {move || if planning_only.get() {
            view! { <HowToConnect/> }.into_any()
        } else {
            view! {
                <StartCard/>
                <TwinCard/>
                <div class="run-columns">
                    <RunList/>
                    <RunDetail/>
                </div>
            }.into_any()
        }}
    }
}

/// How the page stands with the hub.
#[component]
fn ConnectionLine() -> impl IntoView {
    let hub = hub();
    let word = move || match hub.connection.get() {
        Connection::Offline => "offline",
        Connection::Connecting => "connecting",
        Connection::Connected { .. } => "connected",
        Connection::Waiting { .. } => "waiting",
        Connection::Refused { .. } => "refused",
    };
    let sentence = move || match hub.connection.get() {
        Connection::Offline => "Not connected to a hub; planning works without one".to_owned(),
        Connection::Connecting => "Connecting to the hub".to_owned(),
        Connection::Connected { host, .. } => format!("Connected to {host}"),
        Connection::Waiting { seconds } => {
            format!("The hub does not answer; next attempt in {seconds} s. A run goes on without it")
        }
        Connection::Refused { reason } => reason,
    };
    let problems = move || match hub.connection.get() {
        Connection::Connected { problems, .. } => problems,
        _ => Vec::new(),
    };
    view! {
        <div class="connection" role="status">
            <span class=move || format!("dot {}", word()) aria-hidden="true"></span>
            <span class="visually-hidden" data-testid=testid::HUB_STATE>{word}</span>
            <span>{move || coded(&sentence())}</span>
        </div>
        {move || problems().into_iter().map(|problem| view! { <p class="banner warning">{coded(&problem)}</p> }).collect_view()}
        {move || hub.error.get().map(|error| view! { <p class="banner error" role="alert">{coded(&error)}</p> })}
    }
}

/// The empty state.
#[component]
fn HowToConnect() -> impl IntoView {
    view! {
        <div class="empty">
            <h3>"Run this plan and see measured beside predicted"</h3>
            <p>"Start the hub on the machine that should run it, and open the address that it prints"</p>
            <pre class="code" tabindex="0">"shardplan serve"</pre>
            <p>"From a checkout of the sources, one command builds everything and does the same"</p>
            <pre class="code" tabindex="0">"cargo xtask run"</pre>
            <p class="note">"For a cluster, the Script view writes what sbatch takes"</p>
        </div>
    }
}

/// The run on screen.
#[component]
fn RunDetail() -> impl IntoView {
    let hub = hub();
    let summary = Memo::new(move |_| hub.shown_summary());
    let shown =
        Memo::new(move |_| summary.with(|summary| summary.as_ref().map(|summary| summary.info.id.clone())));
    let shown_run = move || {
        let Some(id) = shown.get() else {
            let text = if hub.starting.get() { "Starting" } else { "No run yet; start the plan above" };
            return view! { <p class="empty">{text}</p> }.into_any();
        };
        let state = move || summary.with(|summary| summary.as_ref().map(|summary| summary.state));
        let name = move || {
            summary
                .with(|summary| summary.as_ref().map(|summary| summary.info.name.clone()).unwrap_or_default())
        };
        let reason = move || {
            summary.with(|summary| summary.as_ref().map(|summary| summary.reason.clone()).unwrap_or_default())
        };
        let stop_id = id.clone();
        let resume_id = id.clone();
        // A Slurm job goes on by being queued again.
        let saved = move || {
            summary.with(|summary| {
                let summary = summary.as_ref().filter(|one| one.info.launcher.is_some())?;
                summary
                    .checkpoint
                    .filter(|_| !matches!(summary.state, RunState::Running | RunState::Completed))
            })
        };
        view! {
            <div class="view-head">
                <h3>{name}" "<span class="quiet-text">{id}</span></h3>
                <div class="row">
                    <span role="status" class=move || format!("state {}", state().map_or("", state_word)) data-testid=testid::RUN_STATE>
                        {move || state().map_or("", state_word)}
                    </span>
                    {move || saved().map(|step| {
                        let id = resume_id.clone();
                        view! {
                            <button data-testid=testid::RUN_RESUME disabled=move || !hub.can_run()
                                on:click=move |_| hub.resume(&id)>{format!("Go on after step {step}")}</button>
                        }
                    })}
                    <button class="danger" data-testid=testid::RUN_STOP
                        disabled=move || state() != Some(RunState::Running) || !hub.is_connected()
                        on:click=move |_| hub.stop(&stop_id)>"Stop"</button>
                </div>
            </div>
            <p class="reason" data-testid=testid::RUN_REASON hidden=move || reason().is_empty()>{move || coded(&reason())}</p>
            <RecoveredLines summary=summary/>
            <SavedLine summary=summary/>
            <MissingRecords/>
            <LatestFigures/>
            <StepCompare summary=summary/>
            <WatchedRun summary=summary/>
            <Curves/>
            <PhaseTable/>
            <MemoryCompare summary=summary/>
            <RankStates summary=summary/>
            <Output/>
        }
        .into_any()
    };
    // The same for every run: who has just asked for one is there already.
    view! { <section class="run-detail" id=DETAIL tabindex="-1" aria-label="Run">{shown_run}</section> }
}

/// Logs of which it is said one by one what they lack.
const LISTED_GAPS: usize = 8;

/// What the run's logs lack, where something could not be written or read.
#[component]
fn MissingRecords() -> impl IntoView {
    let hub = hub();
    let gaps = Memo::new(move |_| hub.record.with(|known| known.gaps.clone()));
    let unreadable = Memo::new(move |_| hub.record.with(|known| known.unreadable));
    let lines = move || {
        gaps.with(|gaps| {
            let more = gaps.len().saturating_sub(LISTED_GAPS);
            let listed = gaps.iter().take(LISTED_GAPS).map(|(log, gap)| format!("{log}: {}", gap.sentence()));
            let rest = (more > 0).then(|| format!("Records of {more} more logs are missing too"));
            listed.chain(rest).map(|line| view! { <p class="banner warning">{line}</p> }).collect_view()
        })
    };
    let torn = move || {
        let lines = unreadable.get();
        let what = if lines == 1 { "1 line" } else { &format!("{lines} lines") };
        (lines > 0).then(|| view! {
            <p class="note">{format!("{what} of the logs can't be read: cut short by a kill or a full disk")}</p>
        })
    };
    view! { <div data-testid=testid::RUN_MISSING>{lines}{torn}</div> }
}

/// Figures of the latest step.
#[component]
fn LatestFigures() -> impl IntoView {
    let hub = hub();
    let latest = Memo::new(move |_| hub.record.with(|known| known.latest()));
    let first =
        Memo::new(move |_| hub.record.with(|known| known.steps.first_key_value().map(|(_, point)| *point)));
    let step = move || latest.get().map(|(step, _)| step);
    let held_out = move || {
        let last =
            hub.record.with(|known| known.evaluations.last_key_value().map(|(step, loss)| (*step, *loss)));
        last.map(|(step, loss)| format!("{loss:.4} after step {}", format::exact(step)))
    };
    let merged = move || {
        hub.record.with(|known| known.merged).checked_sub(1).map(|_| {
            view! { <p class="note">"This page reads slower than the run writes; the run folder has every record"</p> }
        })
    };
    let figure = move |(place, figure): (usize, &'static Figure)| {
        let of = move |point: StepPoint| point.values[place];
        let value = move || latest.get().map(|(_, point)| of(point));
        let shown = move || match value() {
            Some(value) if value.is_nan() => figure.unsaid.to_owned(),
            Some(value) => format::figure(figure.shown, value),
            None => "-".to_owned(),
        };
        view! {
            <div class="fact"><span class="fact-label">{figure.label}</span>
                <span class="fact-value" data-testid=testid::of_figure(figure.key) data-value=move || value().map(|value| value.to_string())
                    data-first=move || first.get().map(|point| of(point).to_string())>{shown}</span></div>
        }
    };
    view! {
        <div class="fact-strip">
            <div class="fact"><span class="fact-label">"Step"</span>
                <span class="fact-value" data-testid=testid::STEP_VALUE data-value=move || step().map(|step| step.to_string())>
                    {move || step().map_or_else(|| "-".to_owned(), format::exact)}</span></div>
            {FIGURES.iter().enumerate().map(figure).collect_view()}
            {move || held_out().map(|text| view! {
                <div class="fact"><span class="fact-label">"Loss on held-out data"</span>
                    <span class="fact-value" data-testid=testid::HELD_OUT_LOSS>{text}</span></div>
            })}
        </div>
        {merged}
    }
}
