//! Sizing of mixtures of experts: the rule of thumb on weights beside computed bytes, over expert-parallel sizes.

use leptos::prelude::*;
use planner::answer::{SizingRow, sizing_rows};
use planner::units::Bytes;
use planner::wire::SizingVerdict;

use super::with_verdict;
use crate::browser;
use crate::kit::{Column, Line, Lines, Table};
use crate::state::{Store, store};
use crate::testid;

const COLUMNS: &[Column] = &[
    Column::buttons("Choose"),
    Column::new("TP"),
    Column::new("EP"),
    Column::new("GPUs"),
    Column::new("Weights, GB"),
    Column::word("By weights good for"),
    Column::new("Training state, GiB"),
    Column::new("Peak, GiB"),
    Column::word("Computed"),
    Column::word("Both agree"),
];

fn serves(verdict: Option<SizingVerdict>) -> &'static str {
    match verdict {
        Some(SizingVerdict::Training) => "training",
        Some(SizingVerdict::Inference) => "inference",
        Some(SizingVerdict::RoundTrip) => "round trip",
        Some(SizingVerdict::None) => "nothing",
        None => "no limit known",
    }
}

/// The table, computed when it is opened.
#[component]
pub fn MemorySizing() -> impl IntoView {
    let store = store();
    let open = RwSignal::new(false);
    let has_experts = Memo::new(move |_| store.drawn_plan.get().is_some_and(|plan| plan.model.moe.is_some()));
    let rows = Memo::new_with_compare(
        move |_| {
            if open.get() && has_experts.get() {
                store.drawn_file.with(|file| sizing_rows(file))
            } else {
                Vec::new()
            }
        },
        |_, _| true,
    );
    let lines = Signal::derive(move || {
        Lines::of(COLUMNS, rows.get().into_iter().map(|row| line(store, row)).collect())
    });
    let table = move || {
        let caption = "Weights in GB of 10^9 bytes, as the rule of thumb counts; computed bytes in GiB. A click on a row makes it the plan";
        Table::new("Sizing of experts", testid::SIZING_TABLE).caption(caption.to_owned()).over(lines)
    };
    view! {
        <details hidden=move || !has_experts.get()
            on:toggle=move |event| open.set(browser::is_open(&event))>
            <summary data-testid=testid::SIZING>"Sizing of experts: rule of thumb and computed bytes"</summary>
            {move || open.get().then(table)}
        </details>
    }
}

fn line(store: Store, row: SizingRow) -> Line {
    let (tp, ep, gpus) = (row.tp, row.ep, row.gpus);
    let gb = Bytes(row.weights_bytes).gb_figure(2);
    let choose = move || {
        store.replace(row.file.clone());
        store.notify(format!("TP {tp}, EP {ep} on {gpus} GPUs is the plan now"));
    };
    let line = Line::new()
        .button("Use", format!("Use TP {tp}, EP {ep} on {gpus} GPUs"), choose)
        .exact(tp)
        .exact(ep)
        .exact(gpus)
        .number(row.weights_bytes as f64, gb)
        .text(serves(row.rule))
        .gib(row.training_bytes)
        .gib(row.peak_bytes);
    with_verdict(line, row.verdict)
        .text(if row.agrees { "yes" } else { "no" })
        .hook(testid::SIZING_ROW, format!("{tp}-{ep}-{gpus}"))
}
