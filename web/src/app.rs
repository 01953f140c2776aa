//! The frame: answer line, inputs at the left, one view at a time, and the panel that explains a number.

use gloo::timers::callback::Timeout;
use leptos::prelude::*;
use planner::finding::{Finding, Severity};

use crate::browser;
use crate::findings::{FindingList, coded};
use crate::frame::{AnswerLine, Help, Later, Said, Tabs, Toast, WhyPanel, lend_focus, listen_to_keys};
use crate::hub::Hub;
use crate::search::Engine;
use crate::sections::Inputs;
use crate::state::paths::section_of;
use crate::state::{Store, View, choosing, start, store};
use crate::testid;
use crate::views::{
    DataView, DiagnoseView, LayoutsView, LintPanel, MemoryView, RanksView, RunView, ScriptView, SearchView,
    Session, ShardsView, TimelineView,
};

/// The page.
#[component]
pub fn App() -> impl IntoView {
    let start::Address { plan, view, notices } = start::from_address();
    let store = Store::new(plan.unwrap_or_else(start::example), view, notices);
    provide_context(store);
    let hub = Hub::new();
    provide_context(hub);
    provide_context(Session::new());
    let engine = Engine::new();
    provide_context(engine);
    engine.warm();
    start::keep_address(store, hub);
    choosing::follow(store, Engine::new());
    hub.connect();
    Effect::new(move |_| store.view.get().keep());
    // In a task of its own before anything wants it, since nothing else takes as long.
    Timeout::new(0, move || store.answer.with_untracked(|_| ())).forget();
    let unchosen = Memo::new(move |_| store.is_unchosen());
    listen_to_keys(store);
    lend_focus(store.sheet.into(), "sheet-done");
    view! {
        <Said/>
        <a class="skip" href="#view" on:click=|event| { event.prevent_default(); browser::focus("view"); }>
            "Skip to the view"
        </a>
        <Later><AnswerLine/><Notices/></Later>
        <div class="frame">
            <aside class="inputs" class:open=store.sheet aria-label="Inputs">
                <div class="sheet-head">
                    <h2>"Plan"</h2>
                    <button class="quiet" id="sheet-done" on:click=move |_| store.sheet.set(false)>"Done"</button>
                </div>
                <Later><Inputs/></Later>
            </aside>
            <main>
                <Tabs/>
                <div class="view" id="view" role="tabpanel" tabindex="-1" aria-labelledby=move || format!("tab-{}", store.view.get().id())>
                    <Drawn/>
                    <Later>
                        {move || match store.view.get() {
                            // Its pictures would be of a plan that nobody chose.
                            view if unchosen.get() && view.is_of_plan() => ().into_any(),
                            View::Memory => view! { <MemoryView/> }.into_any(),
                            View::Timeline => view! { <TimelineView/> }.into_any(),
                            View::Ranks => view! { <RanksView/> }.into_any(),
                            View::Layouts => view! { <LayoutsView/> }.into_any(),
                            View::Search => view! { <SearchView/> }.into_any(),
                            View::Shards => view! { <ShardsView/> }.into_any(),
                            View::Script => view! { <ScriptView/><LintPanel/> }.into_any(),
                            View::Run => view! { <RunView/> }.into_any(),
                            View::Diagnose => view! { <DiagnoseView/> }.into_any(),
                            View::Data => view! { <DataView/> }.into_any(),
                        }}
                    </Later>
                </div>
            </main>
        </div>
        <button class="sheet-open" data-testid=testid::SHEET_OPEN on:click=move |_| store.sheet.set(true)>"Edit the plan"</button>
        <WhyPanel/>
        <Help/>
        <Toast/>
    }
}

/// What is wrong with a link or a file that was opened, and with the plan as a whole.
#[component]
fn Notices() -> impl IntoView {
    let store = store();
    let findings = Signal::derive(move || {
        let mut findings = store.notices.get();
        // Remarks on the answer stand below the memory chart; here is what must be seen from every view.
        let of_file = |f: &&Finding| section_of(&f.field).is_none() && f.severity != Severity::Info;
        store.answer.with(|answer| findings.extend(answer.findings.iter().filter(of_file).cloned()));
        findings
    });
    let dismiss = move || {
        (!store.notices.with(Vec::is_empty)).then(|| {
            view! { <button class="quiet" on:click=move |_| store.notices.set(Vec::new())>"Dismiss"</button> }
        })
    };
    view! {
        <div class="notices" role="status" hidden=move || findings.with(Vec::is_empty)>
            <FindingList findings=findings/>
            {dismiss}
        </div>
    }
}

/// What must be known of a picture: that it is of an earlier plan, because this one has errors or is being chosen.
#[component]
fn Drawn() -> impl IntoView {
    let store = store();
    let late = Memo::new(move |_| store.is_drawn_late());
    let of_plan = move || store.view.get().is_of_plan();
    move || {
        let said = match (store.choosing.get(), late.get() && of_plan(), store.unable.get()) {
            (true, ..) if of_plan() && !store.is_unchosen() => {
                "Choosing the best plan; until then this is the plan before".to_owned()
            }
            (true, ..) => "Choosing the best plan".to_owned(),
            (_, true, _) => {
                "This is the last plan without errors; the findings say what to change".to_owned()
            }
            (_, _, Some(why)) => {
                format!("What is left open is at its default, because nothing can be chosen here: {why}")
            }
            _ => return None,
        };
        Some(view! { <p class="note drawn" role="status" data-testid=testid::DRAWN>{coded(&said)}</p> })
    }
}
