//! Every valid layout of the plan's model on its cluster; each is one click from being the plan.

mod estimates;
mod filters;
mod row;

use std::sync::Arc;

use leptos::prelude::*;
use planner::finding::has_error;
use planner::resolve::valid_layouts_of;
use planner::rules::LayoutChoice;
use planner::wire::{PlanFile, RunFile, Verdict};

use super::NotYet;
use super::pager::{Pager, rows_of_page};
use crate::browser;
use crate::format;
use crate::state::store;
use crate::testid;
use estimates::{Estimate, Estimates, estimate};
pub use filters::Sifting;
use filters::{Filters, Kept};
use row::LayoutRow;

/// Rows on screen.
const PAGE: usize = 50;

/// Id, what it is, reader.
type Axis = (&'static str, &'static str, fn(&LayoutChoice) -> u64);

/// The columns, in the order in which layouts are sorted.
const AXES: [Axis; 8] = [
    ("tp", "Tensor parallel", |choice| choice.tp),
    ("cp", "Context parallel", |choice| choice.cp),
    ("pp", "Pipeline stages", |choice| choice.pp),
    ("vpp", "Chunks per stage", |choice| choice.vpp),
    ("ep", "Expert parallel", |choice| choice.ep),
    ("etp", "Expert tensor parallel", |choice| choice.etp),
    ("dp", "Data parallel", |choice| choice.dp),
    ("edp", "Data parallel of experts", |choice| choice.edp),
];

/// What tells layouts of one model on one cluster apart; the other two sizes follow.
type Key = [u64; 6];

fn key(choice: &LayoutChoice) -> Key {
    [choice.tp, choice.cp, choice.pp, choice.vpp, choice.ep, choice.etp]
}

/// The layout of a plan file in which every field is filled.
fn key_of(file: &PlanFile) -> Option<Key> {
    let layout = &file.layout;
    Some([layout.tp?, layout.cp?, layout.pp?, layout.vpp?, layout.ep?, layout.etp?])
}

/// The plan file without what the layouts don't depend on, so that choosing one asks nothing anew.
fn question(file: &PlanFile) -> PlanFile {
    let one = LayoutChoice { tp: 1, cp: 1, pp: 1, vpp: 1, ep: 1, etp: 1, dp: 1, edp: 1 };
    PlanFile { name: None, run: RunFile::default(), ..one.apply(file) }
}

/// Axes, verdict and memory of the fullest GPU in bytes (empty where it can't be computed), layout by layout.
fn to_csv(choices: &[LayoutChoice], estimate: impl Fn(&LayoutChoice) -> Estimate) -> String {
    let line = |cells: Vec<String>| cells.join(",") + "\n";
    let heads = AXES.iter().map(|(id, ..)| *id).chain(["verdict", "peak_bytes"]);
    let mut text = line(heads.map(str::to_owned).collect());
    for choice in choices {
        let mut cells: Vec<String> = AXES.iter().map(|(.., read)| read(choice).to_string()).collect();
        let found = estimate(choice);
        cells.push(verdict_name(found.verdict).to_owned());
        cells.push(found.peak_bytes.map(|bytes| bytes.to_string()).unwrap_or_default());
        text.push_str(&line(cells));
    }
    text
}

/// The verdict as answers write it.
fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fits => "fits",
        Verdict::Tight => "tight",
        Verdict::No => "no",
        Verdict::Invalid => "invalid",
    }
}

/// The view.
#[component]
pub fn LayoutsView() -> impl IntoView {
    let store = store();
    let question = Memo::new(move |_| question(&store.plan()));
    let all = Memo::new(move |_| question.with(valid_layouts_of).map(Arc::new));
    let current = Memo::new(move |_| store.answer.with(|answer| answer.plan.as_ref().and_then(key_of)));
    let kept = Kept::new(all);
    let page = RwSignal::new(0usize);
    let show_current = move || {
        let place = kept.choices.with_untracked(|choices| {
            choices.iter().position(|choice| Some(key(choice)) == current.get_untracked())
        });
        match place {
            Some(place) => page.set(place / PAGE),
            None => store.say("The plan's own layout is not in this list"),
        }
    };
    // Opened, the view shows the plan's own layout.
    let own = kept.choices.with_untracked(|choices| {
        choices.iter().position(|choice| Some(key(choice)) == current.get_untracked())
    });
    page.set(own.unwrap_or_default() / PAGE);
    let on_screen = Memo::new(move |_| {
        kept.choices.with(|choices| choices[rows_of_page(page.get(), choices.len(), PAGE)].to_vec())
    });
    let estimates = Estimates::new(question, on_screen);
    let count = move || all.with(|all| all.as_ref().map_or(0, |all| all.len()));
    let title = move || {
        let gpus = store.answer.with(|answer| {
            let cluster = answer.plan.as_ref().map(|plan| &plan.cluster)?;
            cluster.nodes?.checked_mul(cluster.gpus_per_node?)
        });
        let gpus = gpus.map(|gpus| format!(" on {} GPUs", format::exact(gpus))).unwrap_or_default();
        match count() {
            0 => format!("No layout of this model{gpus} is valid"),
            1 => format!("One layout of this model{gpus} is valid"),
            count => format!("{} layouts of this model{gpus} are valid", format::exact(count as u64)),
        }
    };
    let broken = move || {
        store.answer.with(|answer| has_error(&answer.findings)).then(|| {
            view! { <p class="note">"The plan breaks a rule as it is; the findings at the left say which. No layout below breaks one of layouts"</p> }
        })
    };
    let save = move |_| {
        let file = question.get_untracked();
        let estimate = |choice: &LayoutChoice| estimate(&file, *choice);
        kept.choices.with_untracked(|choices| {
            browser::download("layouts.csv", "text/csv", &to_csv(choices, estimate))
        })
    };
    let head = move || {
        AXES.iter().enumerate().map(|(place, (id, what, _))| kept.head(place, id, what)).collect_view()
    };
    let rows = move || {
        let row = |choice| view! { <LayoutRow choice=choice current=current estimates=estimates/> };
        on_screen.get().into_iter().map(row).collect_view()
    };
    let known = Memo::new(move |_| all.with(Option::is_some));
    let table = move || {
        view! {
            <div class="table-box layouts" tabindex="0" role="region" aria-label="Valid layouts">
                <table data-testid=testid::LAYOUTS_TABLE data-count=move || count().to_string()
                    data-kept=move || kept.choices.with(Vec::len).to_string()>
                    <caption>"A click on a row makes it the plan; undo takes it back. Memory is that of the fullest GPU"</caption>
                    <thead><tr><th scope="col"><span class="visually-hidden">"Choose"</span></th><th scope="col" class="word">"Verdict"</th><th scope="col">"Memory, GiB"</th>{head()}</tr></thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
        }
    };
    view! {
        <div hidden=move || known.get()><NotYet what="The list of layouts"/></div>
        <div class="view-head" hidden=move || !known.get()>
            <h3>{title}</h3>
            <div class="row">
                <button on:click=move |_| show_current()>"Show the plan's"</button>
                <button data-testid=testid::LAYOUTS_CSV on:click=save>"CSV"</button>
            </div>
        </div>
        {broken}
        <Filters kept=kept all=all page=page/>
        <Pager page=page rows=Signal::derive(move || kept.choices.with(Vec::len)) size=PAGE what="layouts"/>
        <div hidden=move || !known.get()>{table()}</div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_the_same_for_every_layout_of_a_plan() {
        let file = PlanFile { version: 1, name: Some("one".to_owned()), ..PlanFile::default() };
        let choice = LayoutChoice { tp: 2, cp: 1, pp: 4, vpp: 1, ep: 1, etp: 2, dp: 8, edp: 8 };
        let chosen = choice.apply(&file);
        assert_eq!(question(&file), question(&chosen));
        assert_eq!(key_of(&chosen), Some(key(&choice)));
        assert_eq!(key_of(&file), None);
    }

    #[test]
    fn the_csv_has_the_axes_of_each_layout() {
        let choice = LayoutChoice { tp: 2, cp: 1, pp: 4, vpp: 3, ep: 16, etp: 5, dp: 8, edp: 7 };
        let estimate = |_: &LayoutChoice| Estimate { verdict: Verdict::No, peak_bytes: Some(1 << 40) };
        assert_eq!(
            to_csv(&[choice], estimate),
            "tp,cp,pp,vpp,ep,etp,dp,edp,verdict,peak_bytes\n2,1,4,3,16,5,8,7,no,1099511627776\n"
        );
    }
}
