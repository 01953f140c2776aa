//! A run of another framework beside its prediction: step time, speed and memory, its GPUs and hosts.

use leptos::prelude::*;
use planner::run::{Compared, Comparison, compare};
use planner::wire::{GpuSample, Iteration, PlanOrigin, RunSource, RunSummary};

use crate::findings::coded;
use crate::format;
use crate::hub::hub;
use crate::kit::{Column, Line, Lines, ROWS, Table};
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

const COLUMNS: &[Column] = &[
    Column::new("Quantity"),
    Column::new("Predicted"),
    Column::new("Measured"),
    Column::new("Difference"),
    Column::word("From"),
];
const GPUS: &[Column] = &[
    Column::new("GPU"),
    Column::new("Memory"),
    Column::new("Busy"),
    Column::new("Clock, MHz"),
    Column::new("Power, W"),
    Column::new("Temperature, °C"),
    Column::word("Held down by"),
];

fn table(comparison: &Comparison) -> impl IntoView + use<> {
    let lines = Lines::of(COLUMNS, comparison.rows.iter().map(line).collect());
    let other = comparison.of_other_batch().map_or(String::new(), |sentence| format!(". {sentence}"));
    let caption = format!("{} of {} iterations counted{other}", comparison.counted, comparison.iterations);
    (!comparison.rows.is_empty()).then(|| {
        Table::new("Predicted and measured", testid::WATCHED_TABLE)
            .class("compare")
            .caption(caption)
            .of(lines)
    })
}

fn line(row: &Compared) -> Line {
    let show = |value: f64| shown(&row.quantity, value);
    let (quantity, value) = (row.quantity.clone(), row.measured.map(|value| value.to_string()));
    let measured = row.measured.map_or_else(|| "-".to_owned(), show);
    Line::new()
        .head(row.quantity.trim_end_matches("_bytes").replace('_', " "))
        .number_or(row.predicted, &show, "-")
        .number_or(row.measured, &show, "-")
        .shows(move || {
            let (quantity, value) = (quantity.clone(), value.clone());
            view! { <span data-quantity=quantity data-value=value>{measured.clone()}</span> }.into_any()
        })
        .number_or(row.error, &format::signed_percent, "-")
        .text(row.from.clone())
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
    let lines = Lines::of(GPUS, gpus.iter().map(gpu_line).collect());
    let caption = "GPUs, as their driver tells".to_owned();
    (!gpus.is_empty()).then(|| Table::new("GPUs", "").caption(caption).pages("GPUs", ROWS).of(lines))
}

fn gpu_line(gpu: &GpuSample) -> Line {
    let whole = |value: Option<u64>| value.map(|value| value as f64);
    Line::new()
        .head(format!("{} {}", gpu.host, gpu.gpu))
        .number_or(whole(gpu.memory_used_bytes), &|bytes| format::bytes(bytes as u64), "-")
        .number_or(gpu.utilization, &|share| format!("{:.0}%", 100.0 * share), "-")
        .number_or(whole(gpu.sm_clock_mhz), &|mhz| format::exact(mhz as u64), "-")
        .number_or(gpu.power_watts, &format::three, "-")
        .number_or(gpu.temperature_c, &format::three, "-")
        .text(gpu.throttled_by.join(", "))
}
