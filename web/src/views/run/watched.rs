//! A run of another framework beside its prediction: step time, speed and memory, its GPUs and hosts.

use leptos::prelude::*;
use planner::run::{Compared, Comparison, compare};
use planner::wire::{GpuSample, Iteration, PlanOrigin, RunSource, RunSummary};

use crate::findings::coded;
use crate::format;
use crate::hub::hub;
use crate::kit::{Cell, Column, Line, Lines, Table};
use crate::testid;

/// Iterations that are compared; of a longer run the latest.
const COMPARED: usize = 4096;
/// GPUs that are listed.
const LISTED: usize = 64;

/// What was seen of the run on screen, where it is another framework's.
#[component]
pub fn WatchedRun(summary: Memo<Option<RunSummary>>) -> impl IntoView {
    let hub = hub();
    let source = Memo::new(move |_| {
        summary.with(|summary| summary.as_ref().and_then(|summary| summary.info.source.clone()))
    });
    let plan = Memo::new(move |_| {
        let has_plan =
            source.with(|source| source.as_ref().is_some_and(|source| source.plan != PlanOrigin::None));
        summary.with(|summary| summary.as_ref().filter(|_| has_plan).map(|summary| summary.plan.clone()))
    });
    let comparison = Memo::new(move |_| {
        hub.record.with(|known| {
            let latest = known.watched.iterations.values().rev().take(COMPARED);
            let mut iterations: Vec<Iteration> = latest.cloned().collect();
            iterations.reverse();
            plan.with(|plan| compare(plan.as_ref(), &iterations, known.watched.most_device_bytes))
        })
    });
    let gpus = Memo::new(move |_| {
        hub.record.with(|known| known.watched.gpus.values().take(LISTED).cloned().collect::<Vec<_>>())
    });
    let xids = Memo::new(move |_| hub.record.with(|known| known.watched.xids.clone()));
    let unread = Memo::new(move |_| hub.record.with(|known| known.watched.unread_bytes));
    move || {
        source.get().map(|source| {
            view! {
                <section aria-label="Prediction and measurement">
                    <p class="note">{about(&source)}</p>
                    {source.remarks.iter().map(|remark| view! { <p class="note">{coded(remark)}</p> }).collect_view()}
                    {move || comparison.with(table)}
                    {move || gpus.with(|gpus| gpu_table(gpus))}
                    {move || xids.get().into_iter().map(|(host, gpu, code)| view! {
                        <p class="banner warning">{format!("The driver reported Xid {code} of GPU {gpu} on {host}")}</p>
                    }).collect_view()}
                    {move || (unread.get() > 0).then(|| view! {
                        <p class="note">{format!("{} of output came faster than it could be read", format::bytes(unread.get()))}</p>
                    })}
                </section>
            }
        })
    }
}

fn about(source: &RunSource) -> String {
    let plan = match source.plan {
        PlanOrigin::File => "the plan is the file that was named",
        PlanOrigin::Recovered => "the plan was recovered from its command line or configuration",
        PlanOrigin::None => "there is no plan to compare with",
    };
    format!("A run of another program ({}), watched; {plan}", source.framework)
}

fn table(comparison: &Comparison) -> impl IntoView + use<> {
    let lines = Lines::of(comparison.rows.iter().map(line).collect());
    let caption = format!("{} of {} iterations counted", comparison.counted, comparison.iterations);
    let columns = vec![
        Column::new("Quantity"),
        Column::new("Predicted"),
        Column::new("Measured"),
        Column::new("Difference"),
        Column::word("From"),
    ];
    (!comparison.rows.is_empty()).then(|| {
        view! { <Table name="Predicted and measured" hook=testid::WATCHED_TABLE class="compare" caption=Signal::stored(caption) columns=columns lines=Signal::stored(lines) what="quantities"/> }
    })
}

fn line(row: &Compared) -> Line {
    let shown_or_dash = |value: Option<f64>| Cell::number_or(value, |value| shown(&row.quantity, value), "-");
    let (quantity, value, text) = (row.quantity.clone(), row.measured, shown_or_dash(row.measured));
    let measured = text.text_of().to_owned();
    Line::of(vec![
        Cell::head(row.quantity.trim_end_matches("_bytes").replace('_', " ")),
        shown_or_dash(row.predicted),
        text.shows(move || {
            let value = value.map(|value| value.to_string());
            view! { <span data-quantity=quantity.clone() data-value=value>{measured.clone()}</span> }
                .into_any()
        }),
        Cell::number_or(row.error, format::signed_percent, "-"),
        Cell::text(row.from.clone()),
    ])
}

fn shown(quantity: &str, value: f64) -> String {
    match quantity {
        bytes if bytes.ends_with("_bytes") => format::bytes(value.max(0.0) as u64),
        "step_seconds" => format::seconds(value),
        "mfu" => format!("{:.1}%", 100.0 * value),
        _ => format::three(value),
    }
}

fn gpu_table(gpus: &[GpuSample]) -> impl IntoView + use<> {
    let lines = Lines::of(gpus.iter().map(gpu_line).collect());
    let mut columns: Vec<Column> =
        ["GPU", "Memory", "Busy", "Clock, MHz", "Power, W", "Temperature, °C"].map(Column::new).into();
    columns.push(Column::word("Held down by"));
    let caption = "GPUs, as their driver tells".to_owned();
    (!gpus.is_empty()).then(|| {
        view! { <Table name="GPUs" caption=Signal::stored(caption) columns=columns lines=Signal::stored(lines) what="GPUs"/> }
    })
}

fn gpu_line(gpu: &GpuSample) -> Line {
    let number = |value: Option<f64>, show: fn(f64) -> String| Cell::number_or(value, show, "-");
    Line::of(vec![
        Cell::head(format!("{} {}", gpu.host, gpu.gpu)),
        number(gpu.memory_used_bytes.map(|bytes| bytes as f64), |bytes| format::bytes(bytes as u64)),
        number(gpu.utilization, |share| format!("{:.0}%", 100.0 * share)),
        number(gpu.sm_clock_mhz.map(|mhz| mhz as f64), |mhz| format::exact(mhz as u64)),
        number(gpu.power_watts, format::three),
        number(gpu.temperature_c, format::three),
        Cell::text(gpu.throttled_by.join(", ")),
    ])
}
