//! The timeline as a table: a line for each stage; and as a file, a line for each action.

use std::sync::Arc;

use leptos::prelude::*;
use planner::time::simulate::{StageTimeline, Timeline};
use planner::time::trace::action_name;

use crate::format;
use crate::kit::{Cell, Column, Line, Lines, Sheet, Table};
use crate::testid;
use crate::timeline::scene::{Drawn, Which};
use crate::timeline::words::{KINDS, seconds};

/// A line for each stage.
#[component]
pub fn StageTable(drawn: Memo<Arc<Drawn>>) -> impl IntoView {
    move || {
        let drawn = drawn.get();
        let tables = drawn.lines().map(|(which, line)| one(which, line)).collect_view();
        view! { <div data-testid=testid::TIMELINE_TABLE>{tables}</div> }
    }
}

fn one(which: Which, line: &Timeline) -> impl IntoView + use<> {
    let kinds: Vec<_> = KINDS
        .into_iter()
        .filter(|kind| {
            line.stages.iter().any(|stage| stage.spans.iter().any(|span| span.action.kind == *kind))
        })
        .collect();
    let time = |value: f64| Cell::number(value, seconds(value));
    let stage = |(number, stage): (usize, &StageTimeline)| {
        let idle = line.idle(number);
        let share = if line.seconds > 0.0 { idle / line.seconds } else { 0.0 };
        let last = stage.spans.last().map_or(0.0, |span| span.free);
        let mut cells = vec![Cell::head(format!("Stage {number}"))];
        cells.extend(kinds.iter().map(|kind| time(stage.seconds_of(*kind))));
        cells.extend([
            time(stage.sending),
            time(idle),
            Cell::number(share, format!("{} %", format::three(100.0 * share))),
            time(last),
        ]);
        Line::of(cells)
    };
    let lines = Lines::of(line.stages.iter().enumerate().map(stage).collect());
    let mut columns = vec![Column::new("Stage")];
    columns.extend(kinds.iter().map(|kind| Column::new(action_name(*kind))));
    columns.extend(["sending", "idle", "share", "done at"].map(Column::new));
    let name = match which {
        Which::Predicted => "Seconds of each stage, predicted",
        Which::Measured => "Seconds of each stage, measured",
    };
    view! { <Table name=name caption=Signal::stored(name.to_owned()) columns=columns lines=Signal::stored(lines) what="stages"/> }
}

/// Every action, as a file.
pub fn write_actions(line: &Timeline, sheet: &mut Sheet) {
    sheet.row(&[
        &"stage",
        &"action",
        &"microbatch",
        &"chunk",
        &"start_seconds",
        &"end_seconds",
        &"free_seconds",
    ]);
    for (stage, row) in line.stages.iter().enumerate() {
        for span in &row.spans {
            let (name, action) = (action_name(span.action.kind), span.action);
            sheet.row(&[
                &stage,
                &name,
                &action.microbatch,
                &action.chunk,
                &span.start,
                &span.end,
                &span.free,
            ]);
        }
    }
}
