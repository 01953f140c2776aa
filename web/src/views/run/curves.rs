//! The figures of a run that are drawn against the step.

use std::sync::Arc;

use leptos::prelude::*;
use planner::run::{Drawn, FIGURES, Figure, LOSS};

use super::curves_table::StepsTable;
use crate::browser;
use crate::chart::{ChartView, Drawing, Lines};
use crate::format;
use crate::hub::hub;
use crate::kit::Sheet;
use crate::testid;

const HEIGHT: u32 = 190;

/// The charts.
#[component]
pub fn Curves() -> impl IntoView {
    let table = RwSignal::new(false);
    view! {
        <div class="curves">{drawn().map(|(place, figure)| view! { <CurveView place=place figure=figure/> }).collect_view()}</div>
        <div class="row">
            <button data-testid=testid::CURVES_TOGGLE aria-expanded=move || table.get().to_string()
                on:click=move |_| table.update(|shown| *shown = !*shown)>
                {move || if table.get() { "Hide the table" } else { "Steps as a table" }}
            </button>
        </div>
        {move || table.get().then(|| view! { <StepsTable/> })}
    }
}

/// Figures with a curve, and where they stand among all.
pub fn drawn() -> impl Iterator<Item = (usize, &'static Figure)> {
    FIGURES.iter().enumerate().filter(|(_, figure)| figure.drawn != Drawn::No)
}

#[component]
fn CurveView(place: usize, figure: &'static Figure) -> impl IntoView {
    let hub = hub();
    let points = Memo::new(move |_| {
        hub.record.with(|known| {
            known.steps.iter().map(|(step, point)| (*step as f64, point.values[place])).collect::<Vec<_>>()
        })
    });
    let title = Signal::derive(move || {
        points.with(|points| match (points.first(), points.last()) {
            (Some(first), Some(last)) if points.len() > 1 => {
                format!(
                    "{} {} to {}",
                    figure.label,
                    format::figure(figure.shown, first.1),
                    format::figure(figure.shown, last.1)
                )
            }
            (Some(only), _) => format!("{} {}", figure.label, format::figure(figure.shown, only.1)),
            _ => format!("{}, no step yet", figure.label),
        })
    });
    let alternative = Signal::derive(move || {
        format!("Curve over {}. {}", format::counted(points.with(Vec::len) as u64, "step"), title.get())
    });
    // Of the loss there may be one on held-out data, too.
    let beside = Memo::new(move |_| match place {
        LOSS => hub.record.with(|known| {
            known.evaluations.iter().map(|(step, loss)| (*step as f64, *loss)).collect::<Vec<_>>()
        }),
        _ => Vec::new(),
    });
    let draw = Signal::derive(move || {
        let lines = Lines {
            points: points.get(),
            beside: beside.get(),
            axis: format!("{} by step", figure.quantity),
            from_zero: figure.drawn == Drawn::FromZero,
        };
        Arc::new(move |width| lines.draw(width, HEIGHT)) as Arc<dyn Fn(u32) -> Drawing + Send + Sync>
    });
    let save = move |_| {
        let mut sheet = Sheet::csv();
        sheet.row(&[&"step", &"value"]);
        points.with_untracked(|points| points.iter().for_each(|(step, value)| sheet.row(&[step, value])));
        browser::download(&format!("{}.csv", figure.key), "text/csv", &sheet.text());
    };
    // What a watched program never says is no curve at zero.
    let said =
        move || points.with(|points| points.is_empty() || points.iter().any(|(_, value)| value.is_finite()));
    view! {
        <Show when=said>
            <ChartView id=figure.key title=title alternative=alternative draw=draw export=true>
                <button class="quiet" on:click=save>"CSV"</button>
            </ChartView>
        </Show>
    }
}
