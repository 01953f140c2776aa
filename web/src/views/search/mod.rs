//! Search: every valid layout and setting for the plan's model, cluster and batch, ranked while one looks.

mod bests;
mod form;
mod front;
mod table;
mod why_not;

use std::sync::Arc;

use gloo::timers::callback::Timeout;
use leptos::prelude::*;
use planner::rules::LayoutChoice;
use planner::search::{Remedy, Request, Row, Settings};
use planner::software::with_framework_after;
use planner::wire::{PlanFile, RecomputeFile, RunFile};

use crate::findings::{FindingList, coded};
use crate::format;
use crate::search::{Engine, Phase};
use crate::state::store;
use crate::testid;
use crate::views::session::session;
use bests::Bests;
use form::Form;
pub use form::Wanted;
use front::FrontView;
use table::Rows;
use why_not::{Counts, WhyNot};

/// Milliseconds of quiet after a change before the search begins anew.
const QUIET: u32 = 250;

/// The plan file without what a search chooses anyway, so that taking a row asks nothing anew where it can.
fn question(file: &PlanFile) -> PlanFile {
    let one = LayoutChoice { tp: 1, cp: 1, pp: 1, vpp: 1, ep: 1, etp: 1, dp: 1, edp: 1 };
    let mut file = PlanFile { name: None, run: RunFile::default(), ..one.apply(file) };
    file.training.micro_batch_size = None;
    file.layout.dp_replicate = None;
    // Sets of several modules are no part of the space unless the plan names one.
    if file.training.recompute.modules.as_ref().is_none_or(|modules| modules.len() < 2) {
        file.training.recompute = RecomputeFile::default();
    }
    file
}

/// The view. The search runs while it is open.
#[component]
pub fn SearchView() -> impl IntoView {
    let store = store();
    let engine = expect_context::<Engine>();
    let wanted = session().search;
    let request = Memo::new(move |_| wanted.request(question(&store.plan())));
    // A row that was taken changes the plan, and not what was asked.
    let taken = StoredValue::new(None::<Arc<PlanFile>>);
    let timer = StoredValue::new_local(None::<Timeout>);
    let start = move || {
        if let Ok(request) = request.get_untracked() {
            engine.start(request);
        }
    };
    Effect::new(move |_| {
        // Read, not only tracked: a memo that nobody read before changes when the search reads it, and it would begin twice.
        request.with(|_| ());
        if taken.with_value(|taken| taken.as_ref() == Some(&store.plan_now())) {
            return;
        }
        engine.pause();
        timer.set_value(Some(Timeout::new(QUIET, start)));
    });
    on_cleanup(move || {
        timer.set_value(None);
        engine.rest();
    });
    let take = Callback::new(move |row: Row| {
        let before = store.plan_now();
        let plan = row.apply(&before);
        // The framework goes with the runtime and the GPU.
        let plan =
            if before.software.framework.is_some() { with_framework_after(&before, &plan) } else { plan };
        taken.set_value(Some(Arc::new(plan.clone())));
        store.replace(plan);
        store.notify(format!("Row {} is the plan now; undo takes it back", row.place));
    });
    let put = Callback::new(move |settings: Settings| {
        store.replace(settings.apply(&store.plan_now()));
        store.notify("These settings are the plan now; undo takes it back");
    });
    let help = Callback::new(move |remedy: Remedy| {
        wanted.follow(&remedy.changes);
        put.run(remedy.settings);
    });
    let phase = Memo::new(move |_| engine.state.with(|state| state.phase));
    let busy = move || matches!(phase.get(), Phase::Looking | Phase::Simulating);
    let answer = Memo::new(move |_| engine.state.with(|state| state.answer.clone()));
    // It is looked for once all rows stand.
    let own = move || {
        let done = phase.get() == Phase::Done;
        let own = answer.with(|answer| answer.as_ref().filter(|_| done)?.own_of(&store.plan()))?;
        Some(
            view! { <p class="note" data-testid=testid::SEARCH_OWN>{format!("The plan now is {}", own.in_words())}</p> },
        )
    };
    let says = move || {
        engine.state.with(|state| {
            let seconds = format!("{:.1} s", state.seconds);
            let candidates = state.answer.as_ref().map_or(0, |answer| answer.counts.candidates);
            let candidates = format::exact(candidates);
            match state.phase {
                Phase::Idle => "The search begins when the plan and the axes can be read".to_owned(),
                Phase::Looking => format!("{candidates} candidates so far"),
                Phase::Simulating => "Simulating the best".to_owned(),
                Phase::Done => format!("{candidates} candidates in {seconds}"),
                Phase::Cancelled => format!("Stopped after {seconds} and {candidates} candidates"),
                Phase::Failed => state.said.clone().unwrap_or_default(),
            }
        })
    };
    let mishap = move || {
        let said = engine.state.with(|state| state.said.clone().filter(|_| state.phase != Phase::Failed));
        said.map(|said| view! { <p class="note" role="status" data-testid=testid::SEARCH_MISHAP>{coded(&said)}</p> })
    };
    let findings = Signal::derive(move || engine.state.with(|state| state.findings.clone()));
    view! {
        <div class="view-head">
            <h3>"The best plans for this model and cluster"</h3>
            <div class="row">
                <button data-testid=testid::SEARCH_CANCEL disabled=move || !busy() on:click=move |_| engine.cancel()>"Stop"</button>
                <button data-testid=testid::SEARCH_AGAIN disabled=busy on:click=move |_| start()>"Search again"</button>
            </div>
        </div>
        <Form wanted=wanted/>
        <div class="row search-progress">
            <progress max="1" prop:value=move || engine.state.with(|state| state.progress)
                aria-label="Share of the search that is done" hidden=move || !busy()></progress>
            <p class="note" aria-live="polite" data-testid=testid::SEARCH_SAYS data-phase=move || format!("{:?}", phase.get()).to_ascii_lowercase()>{says}</p>
        </div>
        {mishap}
        <FindingList findings=findings id="search-findings".to_owned()/>
        <Bests answer=answer take=take/>
        <FrontView answer=answer/>
        <Rows answer=answer take=take help=help/>
        {own}
        <WhyNot engine=engine answer=answer put=put/>
        <Counts answer=answer/>
    }
}

/// The request of a form and a plan, or what can't be read.
type Asked = Result<Request, String>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_a_row_asks_the_same() {
        let file = PlanFile { version: 1, ..PlanFile::default() };
        let mut other =
            LayoutChoice { tp: 2, cp: 1, pp: 4, vpp: 2, ep: 1, etp: 2, dp: 8, edp: 8 }.apply(&file);
        other.training.micro_batch_size = Some(4);
        other.training.recompute.modules = Some(vec!["core_attn".to_owned()]);
        assert_eq!(question(&file), question(&other));
        other.training.recompute.modules = Some(vec!["core_attn".to_owned(), "mlp".to_owned()]);
        assert_ne!(question(&file), question(&other));
    }
}
