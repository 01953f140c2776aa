//! Measured beside predicted memory, for each rank and category, with the residual: the point of the whole page.

use std::sync::Arc;

use leptos::prelude::*;
use planner::run::RankRecord;
use planner::wire::{MeasuredMemory, RankClass, RunSummary};

use crate::chart::{Bars, ChartView, Drawing, Ink, Row, Segment, Unit};
use crate::format;
use crate::hub::hub;
use crate::kit::{Column, Line, Lines, Table};
use crate::testid;

/// Ranks that are compared in full; the others are as their stage's first.
const COMPARED: usize = 64;
/// Ranks that are drawn.
const DRAWN: usize = 8;

struct Category {
    hook: &'static str,
    name: &'static str,
    ink: Ink,
    predicted: fn(&RankClass) -> u64,
    measured: fn(&MeasuredMemory) -> u64,
    /// Whether the prediction is an estimate rather than a sum over shards.
    estimated: bool,
}

const CATEGORIES: &[Category] = &[
    Category {
        hook: "weights",
        name: "Weights",
        ink: Ink::Weights,
        predicted: |c| c.weights_bytes,
        measured: |m| m.weights_bytes,
        estimated: false,
    },
    Category {
        hook: "gradients",
        name: "Gradients",
        ink: Ink::Gradients,
        predicted: |c| c.gradients_bytes,
        measured: |m| m.gradients_bytes,
        estimated: false,
    },
    Category {
        hook: "optimizer",
        name: "Optimizer",
        ink: Ink::Optimizer,
        predicted: |c| c.optimizer_bytes,
        measured: |m| m.optimizer_bytes,
        estimated: false,
    },
    Category {
        hook: "activations",
        name: "Activations",
        ink: Ink::Activations,
        predicted: |c| c.activations_bytes,
        measured: |m| m.activations_bytes,
        estimated: true,
    },
    Category {
        hook: "transient",
        name: "Transient",
        ink: Ink::Transient,
        predicted: |c| c.transient_bytes,
        measured: |m| m.transient_bytes,
        estimated: true,
    },
    Category {
        hook: "peak",
        name: "Peak allocated",
        ink: Ink::Text,
        predicted: |c| c.peak_allocated_bytes,
        measured: |m| m.peak_allocated_bytes,
        estimated: true,
    },
];

/// Categories that add up to the peak.
const PARTS: usize = 5;

/// One rank's prediction and measurement.
#[derive(Clone, PartialEq)]
struct Pair {
    rank: u64,
    predicted: RankClass,
    measured: MeasuredMemory,
    /// Whether a step was measured: before one there are no activations to compare.
    stepped: bool,
}

/// What was measured of a rank: its last step, or its static memory before the first.
fn measured(known: &RankRecord) -> Option<(MeasuredMemory, bool)> {
    match (&known.last_step, &known.allocated) {
        (Some(step), _) => Some((step.memory.clone(), true)),
        (None, Some(memory)) => Some((memory.clone(), false)),
        (None, None) => None,
    }
}

/// The comparison.
#[component]
pub fn MemoryCompare(summary: Memo<Option<RunSummary>>) -> impl IntoView {
    let hub = hub();
    // The prediction is planner's answer to the plan that this run was started with.
    let plan =
        Memo::new(move |_| summary.with(|summary| summary.as_ref().map(|summary| summary.plan.clone())));
    let predicted = Memo::new(move |_| {
        let resolved = plan.with(|plan| plan.as_ref().map(planner::Plan::resolve))?.plan?;
        let memory = planner::estimate(&resolved.file).memory?;
        Some((Arc::new(resolved), memory.rank_classes))
    });
    let pairs = Memo::new(move |_| {
        predicted.with(|predicted| {
            let Some((plan, classes)) = predicted else { return Vec::new() };
            hub.record.with(|known| {
                let pair = |(rank, known): (&u64, &RankRecord)| {
                    let (measured, stepped) = measured(known)?;
                    let stage = planner::layout::coordinates(&plan.layout, *rank).pp;
                    let role = plan.role_of(*rank);
                    let of = |class: &&RankClass| class.stage == stage && class.role == role;
                    let predicted = classes.iter().find(of)?.clone();
                    Some(Pair { rank: *rank, predicted, measured, stepped })
                };
                // Those that are lost were measured under another plan.
                known.present().iter().filter_map(pair).take(COMPARED).collect::<Vec<_>>()
            })
        })
    });
    let title = Signal::derive(move || pairs.with(|pairs| finding(pairs)));
    let alternative = Signal::derive(move || {
        format!(
            "Bars of predicted and measured bytes per rank. {}. The table below has the figures",
            title.get()
        )
    });
    let draw = Signal::derive(move || {
        let bars = pairs.with(|pairs| bars(pairs));
        Arc::new(move |width| bars.draw(width)) as Arc<dyn Fn(u32) -> Drawing + Send + Sync>
    });
    let present = Memo::new(move |_| !pairs.with(Vec::is_empty));
    move || {
        present.get().then(|| {
            view! {
                <ChartView id="compare-chart" title=title alternative=alternative draw=draw export=true/>
                <p class="note">"Filled is predicted, outlined is measured"</p>
                <CompareTable pairs=pairs/>
            }
        })
    }
}

/// The title: whether the exact categories are equal.
fn finding(pairs: &[Pair]) -> String {
    let exact = || CATEGORIES.iter().filter(|category| !category.estimated);
    let differing = pairs
        .iter()
        .filter(|pair| exact().any(|c| (c.predicted)(&pair.predicted) != (c.measured)(&pair.measured)))
        .count();
    match differing {
        0 => format!(
            "Weights, gradients and optimizer state are as predicted to the byte on {}",
            format::counted(pairs.len() as u64, "rank")
        ),
        count => format!(
            "{count} of {} from the prediction in weights, gradients or optimizer state",
            match pairs.len() {
                1 => "1 rank differs".to_owned(),
                ranks => format!("{ranks} ranks differ"),
            }
        ),
    }
}

fn bars(pairs: &[Pair]) -> Bars {
    let row = |pair: &Pair, outlined: bool| {
        let segments = CATEGORIES[..PARTS]
            .iter()
            .map(|category| {
                let bytes = if outlined {
                    (category.measured)(&pair.measured)
                } else {
                    (category.predicted)(&pair.predicted)
                };
                let word = if outlined { "measured" } else { "predicted" };
                let label = format!("Rank {}, {} {word}: {}", pair.rank, category.name, format::bytes(bytes));
                Segment { ink: category.ink, size: bytes, key: String::new(), label }
            })
            .collect();
        let label = if outlined { "measured".to_owned() } else { format!("Rank {} predicted", pair.rank) };
        let short = if outlined { label.clone() } else { format!("Rank {}", pair.rank) };
        Row { label, short, segments, outlined }
    };
    let rows = pairs.iter().take(DRAWN).flat_map(|pair| [row(pair, false), row(pair, true)]).collect();
    Bars { rows, limit: None, axis: "Tensor bytes".to_owned(), unit: Unit::Bytes }
}

const COLUMNS: &[Column] = &[
    Column::new("Rank"),
    Column::word("Category"),
    Column::new("Predicted"),
    Column::new("Measured"),
    Column::new("Residual"),
];

#[component]
fn CompareTable(pairs: Memo<Vec<Pair>>) -> impl IntoView {
    let lines = Signal::derive(move || {
        pairs.with(|pairs| {
            let lines =
                pairs.iter().flat_map(|pair| CATEGORIES.iter().map(move |category| line(pair, category)));
            Lines::of(COLUMNS, lines.collect())
        })
    });
    Table::new("Measured and predicted bytes", "")
        .class("compare")
        .tall()
        .caption("Bytes per rank".to_owned())
        .over(lines)
}

fn line(pair: &Pair, category: &'static Category) -> Line {
    let rank = pair.rank;
    let predicted = (category.predicted)(&pair.predicted);
    let measured = (category.measured)(&pair.measured);
    // Before the first step nothing was measured but what is static.
    let comparable = pair.stepped || !category.estimated;
    let difference = measured as f64 - predicted as f64;
    let share = (comparable && predicted > 0).then(|| difference / predicted as f64);
    let (worth, said) = match (share, comparable) {
        (_, false) => (None, "after a step".to_owned()),
        (Some(share), _) => (Some(share), format::signed_percent(share)),
        (None, _) if measured == 0 => (Some(0.0), format::signed_percent(0.0)),
        (None, _) => (None, "predicted none".to_owned()),
    };
    let bytes = |line: Line, kind: &'static str, bytes: u64| {
        line.exact(bytes).shows(move || {
            let hook = format!("{kind}{}", category.hook);
            view! { <span data-testid=hook data-rank=rank data-bytes=bytes>{format::exact(bytes)}</span> }
                .into_any()
        })
    };
    let residual = said.clone();
    let shows = move || {
        // The small chart: a bar from the middle, full at 100 %.
        let bar = share.map(|share| {
            let share = share.clamp(-1.0, 1.0);
            view! { <span class="residual" aria-hidden="true" style=format!("--residual: {share:.4}")></span> }
        });
        let hook = format!("{}{}", testid::RESIDUAL, category.hook);
        view! { <span data-testid=hook data-rank=rank>{residual.clone()}</span>{bar} }.into_any()
    };
    let estimate = if category.estimated { ", estimate" } else { "" };
    let line = Line::new().exact(rank).naming().text(format!("{}{estimate}", category.name));
    bytes(bytes(line, testid::PREDICTED, predicted), testid::MEASURED, measured)
        .text(said)
        .worth(worth)
        .shows(shows)
        .class(if measured == predicted { "equal" } else { "differs" })
}
