//! The curves of a run as a table, latest step first.

use leptos::prelude::*;
use planner::run::StepPoint;

use super::curves::drawn;
use crate::format;
use crate::hub::hub;
use crate::kit::{Column, Line, Lines, Table};
use crate::testid;

/// Rows on screen.
const PAGE: usize = 50;

/// The table.
#[component]
pub fn StepsTable() -> impl IntoView {
    let hub = hub();
    let lines = Signal::derive(move || {
        hub.record.with(|known| {
            let heads = std::iter::once("Step").chain(drawn().map(|(_, figure)| figure.quantity));
            let columns: Vec<Column> = heads.map(Column::new).collect();
            // The numbers of steps alone: a step's line is written when it is on screen.
            let steps: Vec<u64> = known.steps.keys().rev().copied().collect();
            Lines::written(columns, steps.len(), move |number| {
                hub.record.with_untracked(|known| {
                    let step = steps.get(number).copied().unwrap_or_default();
                    known.steps.get(&step).map_or_else(Line::default, |point| line(step, point))
                })
            })
        })
    });
    Table::new("Steps of the run", testid::CURVES_TABLE)
        .tall()
        .pages("steps", PAGE)
        .caption("Steps, the latest first".to_owned())
        .over(lines)
}

fn line(step: u64, point: &StepPoint) -> Line {
    drawn().fold(Line::new().exact(step).naming(), |line, (place, figure)| {
        let value = point.values[place];
        line.number(value, format::figure_of_table(figure.shown, value))
    })
}
