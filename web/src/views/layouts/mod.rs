//! Every valid layout of the plan's model on its cluster; each is one click from being the plan.

mod estimates;
mod filters;
mod row;

use std::fmt::Display;
use std::sync::Arc;

use leptos::prelude::*;
use planner::finding::has_error;
use planner::resolve::valid_layouts_of;
use planner::rules::LayoutChoice;
use planner::wire::{PlanFile, RunFile};

use super::NotYet;
use super::session::session;
use crate::format;
use crate::kit::{Column, Line, Lines, Sheet, Table, rows_of_page};
use crate::state::store;
use crate::testid;
use estimates::{Estimate, Estimates, estimate};
pub use filters::Sifting;
use filters::{Filters, Kept};
use row::layout_line;

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

/// Columns before them.
const UNSORTED: &[Column] =
    &[Column::buttons("Choose"), Column::word("Verdict").unsorted(), Column::new("Memory, GiB").unsorted()];

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
fn write(choices: &[LayoutChoice], estimate: impl Fn(&LayoutChoice) -> Estimate, sheet: &mut Sheet) {
    let heads: Vec<&dyn Display> = AXES.iter().map(|(id, ..)| id as &dyn Display).collect();
    sheet.row(&[&heads[..], &[&"verdict", &"peak_bytes"]].concat());
    for choice in choices {
        let sizes = AXES.map(|(.., read)| read(choice));
        let sizes: Vec<&dyn Display> = sizes.iter().map(|size| size as &dyn Display).collect();
        let found = estimate(choice);
        let peak = found.peak_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        sheet.row(&[&sizes[..], &[&found.verdict.name(), &peak]].concat());
    }
}

/// What layouts are sorted by: as the columns are, with nothing for those that are not sorted by.
fn sorting(choices: &[LayoutChoice]) -> Lines {
    let cells = |choice: &LayoutChoice| {
        let line = (0..UNSORTED.len()).fold(Line::new(), |line, _| line.text(""));
        AXES.iter().fold(line, |line, (.., read)| line.exact(read(choice)))
    };
    let choices = choices.to_vec();
    Lines::written(Vec::new(), choices.len(), move |number| {
        choices.get(number).map_or_else(Line::default, cells)
    })
}

/// The view.
#[component]
pub fn LayoutsView() -> impl IntoView {
    let store = store();
    let question = Memo::new(move |_| question(&store.plan()));
    let all = Memo::new(move |_| question.with(valid_layouts_of).map(Arc::new));
    let current = Memo::new(move |_| store.answer.with(|answer| answer.plan.as_ref().and_then(key_of)));
    let kept = Kept::new(all);
    let order = session().layouts.order;
    let line = move |choice: &LayoutChoice, estimates| layout_line(store, choice, current, estimates);
    let shown = Memo::new(move |_| kept.choices.with(|choices| sorting(choices).sorted(order.by.get())));
    let own_place = move || {
        let own = current.get_untracked();
        let place = |choices: &Vec<LayoutChoice>| choices.iter().position(|choice| Some(key(choice)) == own);
        let number = kept.choices.with_untracked(place)?;
        shown.with_untracked(|shown| shown.iter().position(|&shown| shown == number))
    };
    let show_current = move || match own_place() {
        Some(place) => order.page.set(place / PAGE),
        None => store.notify("The plan's own layout is not in this list"),
    };
    // Opened, the view shows the plan's own layout.
    order.page.set(own_place().unwrap_or_default() / PAGE);
    let on_screen = Memo::new(move |_| {
        shown.with(|shown| {
            let numbers = &shown[rows_of_page(order.page.get(), shown.len(), PAGE)];
            kept.choices
                .with(|choices| numbers.iter().filter_map(|&number| choices.get(number).copied()).collect())
        })
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
    let file = Callback::new(move |mut sheet: Sheet| {
        let file = question.get_untracked();
        let estimate = |choice: &LayoutChoice| estimate(&file, *choice);
        kept.choices.with_untracked(|choices| write(choices, estimate, &mut sheet));
        sheet
    });
    let lines = Signal::derive(move || {
        let choices = kept.choices.get();
        let sizes = AXES.map(|(id, what, _)| Column::new(id).about(what).class("size"));
        let columns: Vec<Column> = UNSORTED.iter().copied().chain(sizes).collect();
        Lines::written(columns, choices.len(), move |number| {
            choices.get(number).map_or_else(Line::default, |choice| line(choice, estimates))
        })
    });
    let caption = "A click on a row makes it the plan, and holds the rest as it is; undo takes it back. Memory is that of the fullest GPU";
    let table = Table::new("Layouts", "")
        .caption(caption.to_owned())
        .pages("layouts", PAGE)
        .order(order)
        .places(shown)
        .file(file)
        .over(lines);
    let known = Memo::new(move |_| all.with(Option::is_some));
    view! {
        <div hidden=move || known.get()><NotYet what="The list of layouts"/></div>
        <div class="view-head" hidden=move || !known.get()>
            <h3>{title}</h3>
            <div class="row">
                <button on:click=move |_| show_current()>"Show the plan's"</button>
            </div>
        </div>
        {broken}
        <Filters kept=kept all=all page=order.page/>
        <div hidden=move || !known.get() data-testid=testid::LAYOUTS_TABLE data-count=move || count().to_string()
            data-kept=move || kept.choices.with(Vec::len).to_string()>
            {table}
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::wire::Verdict;

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
    fn the_file_has_the_axes_of_each_layout() {
        let choice = LayoutChoice { tp: 2, cp: 1, pp: 4, vpp: 3, ep: 16, etp: 5, dp: 8, edp: 7 };
        let estimate = |_: &LayoutChoice| Estimate { verdict: Verdict::No, peak_bytes: Some(1 << 40) };
        let mut sheet = Sheet::csv();
        write(&[choice], estimate, &mut sheet);
        let expected = "tp,cp,pp,vpp,ep,etp,dp,edp,verdict,peak_bytes\n2,1,4,3,16,5,8,7,no,1099511627776\n";
        assert_eq!(sheet.text(), expected);
    }
}
