//! A run of another framework beside its prediction: step time, speed and memory, its GPUs and hosts.

use leptos::prelude::*;
use planner::run::{Compared, Comparison, compare};
use planner::wire::{GpuSample, Iteration, PlanOrigin, RunSource, RunSummary};

use crate::findings::coded;
use crate::format;
use crate::hub::hub;
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
    let rows = comparison.rows.iter().map(row).collect_view();
    let caption = format!("{} of {} iterations counted", comparison.counted, comparison.iterations);
    (!comparison.rows.is_empty()).then(|| {
        view! {
            <div class="table-box" tabindex="0" role="region" aria-label="Predicted and measured">
                <table class="compare" data-testid=testid::WATCHED_TABLE>
                    <caption>{caption}</caption>
                    <thead><tr>
                        <th scope="col">"Quantity"</th><th scope="col">"Predicted"</th>
                        <th scope="col">"Measured"</th><th scope="col">"Difference"</th><th scope="col">"From"</th>
                    </tr></thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
        }
    })
}

fn row(row: &Compared) -> impl IntoView + use<> {
    let difference = row.error.map_or_else(|| "-".to_owned(), format::signed_percent);
    view! {
        <tr>
            <th scope="row">{row.quantity.trim_end_matches("_bytes").replace('_', " ")}</th>
            <td>{shown(&row.quantity, row.predicted)}</td>
            <td data-quantity=row.quantity.clone() data-value=row.measured.map(|value| value.to_string())>
                {shown(&row.quantity, row.measured)}
            </td>
            <td>{difference}</td>
            <td class="word">{row.from.clone()}</td>
        </tr>
    }
}

fn shown(quantity: &str, value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(bytes) if quantity.ends_with("_bytes") => format::bytes(bytes.max(0.0) as u64),
        Some(seconds) if quantity == "step_seconds" => format::seconds(seconds),
        Some(share) if quantity == "mfu" => format!("{:.1}%", 100.0 * share),
        Some(value) => format::three(value),
    }
}

fn gpu_table(gpus: &[GpuSample]) -> impl IntoView + use<> {
    let rows = gpus.iter().map(gpu_row).collect_view();
    (!gpus.is_empty()).then(|| {
        view! {
            <div class="table-box" tabindex="0" role="region" aria-label="GPUs">
                <table>
                    <caption>"GPUs, as their driver tells"</caption>
                    <thead><tr>
                        <th scope="col">"GPU"</th><th scope="col">"Memory"</th><th scope="col">"Busy"</th>
                        <th scope="col">"Clock, MHz"</th><th scope="col">"Power, W"</th><th scope="col">"Temperature, °C"</th>
                        <th scope="col">"Held down by"</th>
                    </tr></thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
        }
    })
}

fn gpu_row(gpu: &GpuSample) -> impl IntoView + use<> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    view! {
        <tr>
            <th scope="row">{format!("{} {}", gpu.host, gpu.gpu)}</th>
            <td>{or_dash(gpu.memory_used_bytes.map(format::bytes))}</td>
            <td>{or_dash(gpu.utilization.map(|share| format!("{:.0}%", 100.0 * share)))}</td>
            <td>{or_dash(gpu.sm_clock_mhz.map(format::exact))}</td>
            <td>{or_dash(gpu.power_watts.map(format::three))}</td>
            <td>{or_dash(gpu.temperature_c.map(format::three))}</td>
            <td class="word">{gpu.throttled_by.join(", ")}</td>
        </tr>
    }
}
