//! The timeline as a table: a line for each stage; and as a file, a line for each action.

use std::sync::Arc;

use leptos::prelude::*;
use planner::time::simulate::{StageTimeline, Timeline};
use planner::time::trace::action_name;

use crate::format;
use crate::kit::{Column, Line, Lines, ROWS, Sheet, Table};
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
    let time = |line: Line, value: f64| line.number(value, seconds(value));
    let stage = |(number, stage): (usize, &StageTimeline)| {
        let idle = line.idle(number);
        let share = if line.seconds > 0.0 { idle / line.seconds } else { 0.0 };
        let last = stage.spans.last().map_or(0.0, |span| span.free);
        let first = Line::new().head(format!("Stage {number}"));
        let actions = kinds.iter().map(|kind| stage.seconds_of(*kind));
        let line = actions.chain([stage.sending, idle]).fold(first, time);
        time(line.number(share, format!("{} %", format::three(100.0 * share))), last)
    };
    let heads = std::iter::once("Stage").chain(kinds.iter().map(|kind| action_name(*kind)));
    let heads = heads.chain(["sending", "idle", "share", "done at"]);
    let columns: Vec<Column> = heads.map(Column::new).collect();
    let lines = Lines::of(columns, line.stages.iter().enumerate().map(stage).collect());
    let name = match which {
        Which::Predicted => "Seconds of each stage, predicted",
        Which::Measured => "Seconds of each stage, measured",
    };
    Table::new(name, "").caption(name.to_owned()).pages("stages", ROWS).of(lines)
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
