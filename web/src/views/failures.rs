//! Failed GPUs: which are dead, and what could be done about it.

use std::sync::Arc;

use leptos::prelude::*;
use planner::Plan;
use planner::cluster::FailedGpu;
use planner::layout::{Coordinates, coordinates, place};
use planner::reduced::failed_ranks;
use planner::wire::Alternative;

use super::failure_study::FailureStudy;
use crate::browser;
use crate::findings::FindingList;
use crate::format;
use crate::kit::{Column, Line, Lines, Table};
use crate::state::{Store, store};
use crate::testid;

const FIELD: &str = "cluster.failed";

/// Below the rank map: marks the selected rank's GPU as dead or well again, and lists the alternatives side by side.
#[component]
pub fn Failures(
    /// The selected rank.
    selected: RwSignal<u64>,
    /// The plan whose ranks are shown.
    shown: Memo<Option<Arc<Plan>>>,
) -> impl IntoView {
    let store = store();
    let failed = move || store.plan().cluster.failed.clone().unwrap_or_default();
    let there = move || shown.with(Option::is_some);
    let is_failed = move || {
        let names = names(shown, selected.get());
        names.is_some_and(|names| failed().iter().any(|gpu| names.contains(gpu)))
    };
    let text = move || {
        let what = if is_failed() { "works again" } else { "failed" };
        format!("The GPU of rank {} {what}", selected.get())
    };
    // GPUs, not names: one may be named several times. Names that are no GPU of this cluster are counted as they stand.
    let count = move || {
        let known = shown.with(|plan| {
            plan.as_ref().map_or(0, |plan| failed_ranks(&plan.layout, &plan.cluster, &failed()).len())
        });
        if known == 0 { failed().len() } else { known }
    };
    let findings = Signal::derive(move || store.findings_at(FIELD));
    view! {
        <div class="row">
            <button id=testid::FAILED_MARK data-testid=testid::FAILED_MARK disabled=move || !there()
                on:click=move |_| toggle(store, shown, selected.get_untracked())>{text}</button>
            <Show when=move || !failed().is_empty()>
                <button data-testid=testid::FAILED_CLEAR on:click=move |_| {
                    browser::focus(testid::FAILED_MARK);
                    change(store, Vec::clear);
                }>
                    {move || format!("All {} failed GPUs work again", count())}
                </button>
            </Show>
        </div>
        <FindingList findings=findings id=testid::field(FIELD)/>
        <Alternatives/>
        <Show when=there>
            <FailureStudy shown=shown/>
        </Show>
    }
}

/// All names of the GPU of a rank, the one that is written first.
fn names(shown: Memo<Option<Arc<Plan>>>, rank: u64) -> Option<[FailedGpu; 3]> {
    shown.with(|plan| {
        plan.as_ref().map(|plan| {
            let at = place(&plan.cluster, rank);
            let Coordinates { dp, cp, pp, tp, .. } = coordinates(&plan.layout, rank);
            [
                FailedGpu::Place { node: at.node, gpu: at.gpu },
                FailedGpu::Rank { rank },
                FailedGpu::Coordinates { dp, cp, pp, tp },
            ]
        })
    })
}

/// Marks the GPU of a rank as failed, or as working again.
pub fn toggle(store: Store, shown: Memo<Option<Arc<Plan>>>, rank: u64) {
    let Some(names) = untrack(|| names(shown, rank)) else { return };
    change(store, |failed| {
        let before = failed.len();
        failed.retain(|gpu| !names.contains(gpu));
        if failed.len() == before {
            failed.push(names[0].clone());
        }
    });
}

fn change(store: Store, edit: impl FnOnce(&mut Vec<FailedGpu>)) {
    store.edit(FIELD, |file| {
        let mut failed = file.cluster.failed.take().unwrap_or_default();
        edit(&mut failed);
        file.cluster.failed = (!failed.is_empty()).then_some(failed);
    });
}

const WAYS: &[Column] = &[Column::new("Way"), Column::new("Throughput lost"), Column::word("How")];

/// What each way to live with the failures loses.
#[component]
fn Alternatives() -> impl IntoView {
    let store = store();
    let nonuniform = Memo::new(move |_| store.answer.with(|answer| answer.nonuniform.clone()));
    move || {
        nonuniform.get().map(|answer| {
            let caption = format!(
                "{} with {} of {} slots; ranks that stop: {}",
                format::counted(answer.reduced_replicas.len() as u64, "replica"),
                answer.reduced,
                answer.base,
                answer.inactive
            );
            let line = |other: Alternative| {
                Line::new()
                    .head(match other.name.as_str() {
                        "nonuniform_megatron_lm" => "nonuniform, Megatron-LM".to_owned(),
                        name => name.replace('_', ", "),
                    })
                    .number(other.loss, format!("{:.2} %", other.loss * 100.0))
                    .text(other.note)
            };
            let lines = Lines::of(WAYS, answer.alternatives.into_iter().map(line).collect());
            Table::new("Alternatives for failed GPUs", testid::FAILED_TABLE)
                .class("wraps")
                .caption(caption)
                .of(lines)
        })
    }
}
