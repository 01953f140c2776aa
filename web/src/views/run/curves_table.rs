//! The curves of a run as a table, latest step first.

use leptos::prelude::*;
use planner::run::StepPoint;

use super::curves::drawn;
use crate::format;
use crate::hub::hub;
use crate::kit::{Cell, Column, Line, Lines, Table};
use crate::testid;

/// Rows on screen.
const PAGE: usize = 50;

/// The table.
#[component]
pub fn StepsTable() -> impl IntoView {
    let hub = hub();
    let lines = Signal::derive(move || {
        hub.record.with(|known| {
            // The numbers of steps alone: a step's line is written when it is on screen.
            let steps: Vec<u64> = known.steps.keys().rev().copied().collect();
            Lines::written(steps.len(), move |number| {
                hub.record.with_untracked(|known| {
                    let step = steps.get(number).copied().unwrap_or_default();
                    known.steps.get(&step).map_or_else(Line::default, |point| line(step, point))
                })
            })
        })
    });
    let mut columns = vec![Column::new("Step")];
    columns.extend(drawn().map(|(_, figure)| Column::new(figure.quantity)));
    let caption = Signal::stored("Steps, the latest first".to_owned());
    view! { <Table name="Steps of the run" hook=testid::CURVES_TABLE tall=true page=PAGE caption=caption columns=columns lines=lines what="steps"/> }
}

fn line(step: u64, point: &StepPoint) -> Line {
    let figures = drawn().map(|(place, figure)| {
        let value = point.values[place];
        Cell::number(value, format::figure_of_table(figure.shown, value))
    });
    let mut cells = vec![Cell::exact(step).as_head()];
    cells.extend(figures);
    Line::of(cells)
}
