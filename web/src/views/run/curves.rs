//! Loss, step time and tokens per second against the step.

use std::sync::Arc;

use leptos::prelude::*;

use super::curves_table::StepsTable;
use crate::browser;
use crate::chart::{ChartView, Drawing, Lines};
use crate::format;
use crate::hub::{StepPoint, hub};
use crate::testid;

const HEIGHT: u32 = 190;

/// A curve: id, name, text at the axis, whether it starts at zero, its value at a step, how a value is written.
struct Curve {
    id: &'static str,
    name: &'static str,
    axis: &'static str,
    from_zero: bool,
    read: fn(&StepPoint) -> f64,
    show: fn(f64) -> String,
}

/// The id of the first.
const LOSS: &str = "loss-chart";

const CURVES: &[Curve] = &[
    Curve {
        id: LOSS,
        name: "Loss",
        axis: "Loss by step",
        from_zero: false,
        read: |point| point.loss,
        show: |value| format!("{value:.4}"),
    },
    Curve {
        id: "step-time-chart",
        name: "Step time",
        axis: "Seconds by step",
        from_zero: true,
        read: |point| point.seconds,
        show: format::seconds,
    },
    Curve {
        id: "tokens-chart",
        name: "Tokens per second",
        axis: "Tokens per second by step",
        from_zero: true,
        read: |point| point.tokens_per_second,
        show: format::three,
    },
];

/// The three charts.
#[component]
pub fn Curves() -> impl IntoView {
    let table = RwSignal::new(false);
    view! {
        <div class="curves">{CURVES.iter().map(|curve| view! { <CurveView curve=curve/> }).collect_view()}</div>
        <div class="row">
            <button data-testid=testid::CURVES_TOGGLE aria-expanded=move || table.get().to_string()
                on:click=move |_| table.update(|shown| *shown = !*shown)>
                {move || if table.get() { "Hide the table" } else { "Steps as a table" }}
            </button>
        </div>
        {move || table.get().then(|| view! { <StepsTable/> })}
    }
}

fn to_csv(points: &[(f64, f64)]) -> String {
    let mut text = String::from("step,value\n");
    for (step, value) in points {
        text.push_str(&format!("{step},{value}\n"));
    }
    text
}

#[component]
fn CurveView(curve: &'static Curve) -> impl IntoView {
    let hub = hub();
    let points = Memo::new(move |_| {
        hub.book.with(|book| {
            book.steps.iter().map(|(step, point)| (*step as f64, (curve.read)(point))).collect::<Vec<_>>()
        })
    });
    let title = Signal::derive(move || {
        points.with(|points| match (points.first(), points.last()) {
            (Some(first), Some(last)) if points.len() > 1 => {
                format!("{} {} to {}", curve.name, (curve.show)(first.1), (curve.show)(last.1))
            }
            (Some(only), _) => format!("{} {}", curve.name, (curve.show)(only.1)),
            _ => format!("{}, no step yet", curve.name),
        })
    });
    let alternative =
        Signal::derive(move || format!("Curve over {} steps. {}", points.with(Vec::len), title.get()));
    // Of the loss there may be one on held-out data, too.
    let beside = Memo::new(move |_| match curve.id {
        LOSS => hub.book.with(|book| {
            book.evaluations.iter().map(|(step, loss)| (*step as f64, *loss)).collect::<Vec<_>>()
        }),
        _ => Vec::new(),
    });
    let draw = Signal::derive(move || {
        let lines = Lines {
            points: points.get(),
            beside: beside.get(),
            axis: curve.axis.to_owned(),
            from_zero: curve.from_zero,
        };
        Arc::new(move |width| lines.draw(width, HEIGHT)) as Arc<dyn Fn(u32) -> Drawing + Send + Sync>
    });
    let save = move |_| {
        browser::download(
            &format!("{}.csv", curve.id),
            "text/csv",
            &points.with_untracked(|points| to_csv(points)),
        )
    };
    // What a watched program never says is no curve at zero.
    let said =
        move || points.with(|points| points.is_empty() || points.iter().any(|(_, value)| value.is_finite()));
    view! {
        <Show when=said>
            <ChartView id=curve.id title=title alternative=alternative draw=draw export=true>
                <button class="quiet" on:click=save>"CSV"</button>
            </ChartView>
        </Show>
    }
}
