//! What a step takes, what it is spent on, and what follows from it.

use std::sync::Arc;

use leptos::prelude::*;
use planner::units::capital;
use planner::wire::TimeAnswer;

use crate::chart::{Bars, ChartView, Drawing, Ink, Legend, Row, Segment, Unit};
use crate::format;
use crate::frame::Figure;
use crate::kit::{Column, Line, Lines, ROWS, Table};
use crate::state::store;
use crate::testid;
use crate::timeline::words::seconds;
use crate::views::memory::Fact;

const LEGEND: &[(Ink, &str)] = &[
    (Ink::Compute, "Computing"),
    (Ink::Communication, "Communication that is not hidden"),
    (Ink::Waiting, "Waiting"),
    (Ink::Optimizer, "Once a step"),
];

/// What kind of work a part of the breakdown is.
fn ink(part: &str) -> Ink {
    match part {
        "tensor parallel" | "context parallel" | "expert parallel" | "pipeline sends" | "data parallel"
        | "host copies" => Ink::Communication,
        "host" | "bubble" => Ink::Waiting,
        "optimizer" | "fixed" => Ink::Optimizer,
        _ => Ink::Compute,
    }
}

/// The figures above the timeline.
#[component]
pub fn TimeFacts() -> impl IntoView {
    let store = store();
    move || {
        let time = store.drawn.with(|answer| answer.time.clone())?;
        let [low, high] = time.interval_seconds;
        let mut facts = vec![
            (
                "Step",
                "time.step_seconds",
                seconds(time.step_seconds),
                match &time.nearest {
                    Some(nearest) => {
                        format!(
                            "{} to {} likely; nearest measured: {}",
                            seconds(low),
                            seconds(high),
                            nearest.text
                        )
                    }
                    None => format!("{} to {} likely", seconds(low), seconds(high)),
                },
            ),
            (
                "Tokens per second",
                "time.tokens_per_second",
                format::three(time.tokens_per_second),
                String::new(),
            ),
            (
                "Model TFLOP/s per GPU",
                "time.model_tflops_per_gpu",
                format::three(time.model_tflops_per_gpu),
                String::new(),
            ),
        ];
        let percent = |share: f64| format!("{} %", format::three(100.0 * share));
        if let (Some(mfu), Some(hfu)) = (time.mfu, time.hfu) {
            facts.push(("MFU", "time.mfu", percent(mfu), String::new()));
            facts.push(("HFU", "time.hfu", percent(hfu), String::new()));
        }
        facts.push(("Bubble", "time.bubble", percent(time.bubble), String::new()));
        if let Some(days) = time.days {
            facts.push(("Training", "time.days", format!("{} days", format::three(days)), String::new()));
        }
        if let Some(hours) = time.gpu_hours {
            facts.push(("GPU hours", "time.gpu_hours", format::three(hours), String::new()));
        }
        if let Some(cost) = time.cost {
            facts.push(("Cost", "time.cost", format::three(cost), String::new()));
        }
        if let Some(goodput) = &time.goodput {
            let note = format!("checkpoint every {}", seconds(goodput.checkpoint_interval_s));
            facts.push(("Goodput", "time.goodput", percent(goodput.share), note));
        }
        let facts = facts
            .into_iter()
            .map(|(label, key, text, note)| {
                let note = (!note.is_empty()).then(|| view! { <span class="same">{note}</span> });
                view! { <Fact label=label><Figure key=key text=Signal::stored(text)/>{note}</Fact> }
            })
            .collect_view();
        Some(view! { <div class="fact-strip">{facts}</div><CalibrationNote/> })
    }
}

/// What calibrates the plan's seconds, or would if it were for this plan; with a way to take it off.
#[component]
fn CalibrationNote() -> impl IntoView {
    let store = store();
    move || {
        let name = store.plan().software.calibration.as_ref().map(|calibration| calibration.name.clone())?;
        let used =
            store.drawn.with(|answer| answer.time.as_ref().is_some_and(|time| time.calibration.is_some()));
        let text = match used {
            true => format!("Seconds are calibrated by {name}"),
            false => format!("The calibration {name} is not for this plan and changes nothing"),
        };
        let remove = move |_| store.edit("software.calibration", |plan| plan.software.calibration = None);
        Some(view! {
            <p class="note">
                <span data-testid=testid::CALIBRATION>{text}</span>" "
                <button class="link" data-testid=testid::CALIBRATION_REMOVE on:click=remove>"Remove"</button>
            </p>
        })
    }
}

/// The chart of what a step is spent on.
#[component]
pub fn Breakdown() -> impl IntoView {
    let store = store();
    let time = Memo::new(move |_| store.drawn.with(|answer| answer.time.clone()));
    let title = Signal::derive(move || time.with(|time| time.as_ref().map(finding).unwrap_or_default()));
    let alternative =
        Signal::derive(move || time.with(|time| time.as_ref().map(in_words).unwrap_or_default()));
    let draw = Signal::derive(move || {
        let bars = time.with(|time| time.as_ref().map(bars).unwrap_or_default());
        Arc::new(move |width| bars.draw(width)) as Arc<dyn Fn(u32) -> Drawing + Send + Sync>
    });
    let table = RwSignal::new(false);
    let present = Memo::new(move |_| time.with(Option::is_some));
    move || {
        present.get().then(|| {
            view! {
                <ChartView id=testid::BREAKDOWN_CHART title=title alternative=alternative draw=draw export=true>
                    <button class="quiet" aria-expanded=move || table.get().to_string()
                        on:click=move |_| table.update(|open| *open = !*open)>
                        {move || if table.get() { "Hide the table" } else { "Table" }}
                    </button>
                </ChartView>
                <Legend items=LEGEND/>
                {move || table.get().then(|| view! { <Parts time=time/><Parts time=time/> })}
            }
        })
    }
}

const PARTS: &[Column] = &[Column::new("Part of the step"), Column::new("Seconds"), Column::new("Share")];

/// Seconds of a step, part by part.
#[component]
fn Parts(time: Memo<Option<TimeAnswer>>) -> impl IntoView {
    let lines = Signal::derive(move || {
        let Some(time) = time.get() else { return Lines::default() };
        let line = |(name, seconds): (&str, f64)| {
            let share = seconds / time.step_seconds;
            Line::new()
                .head(capital(name))
                .number(seconds, seconds.to_string())
                .number(share, format!("{} %", format::three(100.0 * share)))
        };
        let sum = Line::new().head("Step").text(time.step_seconds.to_string()).text("100 %");
        Lines::of(PARTS, parts(&time).map(line).collect()).foot(sum)
    });
    Table::new("Seconds of a step", testid::BREAKDOWN_TABLE).pages("parts", ROWS).over(lines)
}

/// Parts that take any time, in the answer's order.
fn parts(time: &TimeAnswer) -> impl Iterator<Item = (&'static str, f64)> {
    time.breakdown.parts().into_iter().filter(|(_, seconds)| *seconds > 0.0)
}

/// The chart's title: what it shows, as a sentence.
fn finding(time: &TimeAnswer) -> String {
    let largest = parts(time).max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((name, value)) = largest else { return String::new() };
    let share = format::three(100.0 * value / time.step_seconds);
    format!("A step takes {}, {share} % of it in {name}", seconds(time.step_seconds))
}

fn in_words(time: &TimeAnswer) -> String {
    let parts: Vec<String> = parts(time).map(|(name, value)| format!("{name} {}", seconds(value))).collect();
    format!("Bars of seconds by what a step is spent on. {}. {}", finding(time), parts.join("; "))
}

fn bars(time: &TimeAnswer) -> Bars {
    let rows = parts(time)
        .map(|(name, value)| {
            let share = 100.0 * value / time.step_seconds;
            let segment = Segment {
                ink: ink(name),
                size: (value * 1e9) as u64,
                key: format!("time.breakdown.{}", name.replace([' ', '-'], "_")),
                label: format!(
                    "{}: {}, {} % of the step",
                    capital(name),
                    seconds(value),
                    format::three(share)
                ),
            };
            Row { label: capital(name), short: capital(name), segments: vec![segment], outlined: false }
        })
        .collect();
    Bars { rows, limit: None, axis: "Time of a step".to_owned(), unit: Unit::Nanoseconds }
}
