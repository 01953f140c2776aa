//! Sizing of mixtures of experts: the rule of thumb on weights beside computed bytes, over expert-parallel sizes.

use leptos::prelude::*;
use planner::answer::{SizingRow, sizing_rows};
use planner::units::Bytes;
use planner::wire::{SizingVerdict, Verdict};

use crate::browser;
use crate::format;
use crate::frame::VerdictMark;
use crate::state::store;
use crate::testid;

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
    let table = move || {
        let lines = rows.get().into_iter().map(|row| view! { <Line row=row/> }).collect_view();
        view! {
            <div class="table-box" tabindex="0" role="region" aria-label="Sizing of experts">
                <table data-testid=testid::SIZING_TABLE>
                    <caption>"Weights in GB of 10^9 bytes, as the rule of thumb counts; computed bytes in GiB. A click on a row makes it the plan"</caption>
                    <thead><tr>
                        <th scope="col"><span class="visually-hidden">"Choose"</span></th>
                        <th scope="col">"TP"</th><th scope="col">"EP"</th><th scope="col">"GPUs"</th>
                        <th scope="col">"Weights, GB"</th><th scope="col" class="word">"By weights good for"</th>
                        <th scope="col">"Training state, GiB"</th><th scope="col">"Peak, GiB"</th>
                        <th scope="col" class="word">"Computed"</th><th scope="col" class="word">"Both agree"</th>
                    </tr></thead>
                    <tbody>{lines}</tbody>
                </table>
            </div>
        }
    };
    view! {
        <details hidden=move || !has_experts.get()
            on:toggle=move |event| open.set(browser::is_open(&event))>
            <summary data-testid=testid::SIZING>"Sizing of experts: rule of thumb and computed bytes"</summary>
            {move || open.get().then(table)}
        </details>
    }
}

#[component]
fn Line(row: SizingRow) -> impl IntoView {
    let store = store();
    let (tp, ep, gpus) = (row.tp, row.ep, row.gpus);
    let agree = if row.agrees { "yes" } else { "no" };
    let (peak, verdict): (u64, Verdict) = (row.peak_bytes, row.verdict);
    let gb = Bytes(row.weights_bytes).gb_figure(2);
    let (rule, state) = (serves(row.rule), format::gib(row.training_bytes));
    let choose = move |_| {
        store.replace(row.file.clone());
        store.say(format!("TP {tp}, EP {ep} on {gpus} GPUs is the plan now"));
    };
    view! {
        <tr data-testid=testid::SIZING_ROW data-layout=format!("{tp}-{ep}-{gpus}")>
            <td class="word"><button class="link" aria-label=format!("Use TP {tp}, EP {ep} on {gpus} GPUs") on:click=choose>"Use"</button></td>
            <td>{tp}</td><td>{ep}</td><td>{gpus}</td><td>{gb}</td><td class="word">{rule}</td>
            <td>{state}</td><td>{format::gib(peak)}</td>
            <td class="word"><VerdictMark verdict=Signal::stored(verdict)/></td>
            <td class="word">{agree}</td>
        </tr>
    }
}
