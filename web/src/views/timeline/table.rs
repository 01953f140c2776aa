//! The timeline as a table: a line for each stage; and as a file, a line for each action.

use std::fmt::Write;
use std::sync::Arc;

use leptos::prelude::*;
use planner::time::simulate::Timeline;
use planner::time::trace::action_name;

use crate::format;
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
    let head: Vec<_> = kinds.iter().map(|kind| view! { <th scope="col">{action_name(*kind)}</th> }).collect();
    let rows = line
        .stages
        .iter()
        .enumerate()
        .map(|(number, stage)| {
            let cells: Vec<_> =
                kinds.iter().map(|kind| view! { <td>{seconds(stage.seconds_of(*kind))}</td> }).collect();
            let idle = line.idle(number);
            let share = if line.seconds > 0.0 { 100.0 * idle / line.seconds } else { 0.0 };
            let last = stage.spans.last().map_or(0.0, |span| span.free);
            view! {
                <tr>
                    <th scope="row">{format!("Stage {number}")}</th>
                    {cells}
                    <td>{seconds(stage.sending)}</td>
                    <td>{seconds(idle)}</td>
                    <td>{format!("{} %", format::three(share))}</td>
                    <td>{seconds(last)}</td>
                </tr>
            }
        })
        .collect_view();
    let caption = match which {
        Which::Predicted => "Seconds of each stage, predicted",
        Which::Measured => "Seconds of each stage, measured",
    };
    view! {
        <div class="table-box" tabindex="0" role="region" aria-label=caption>
            <table>
                <caption>{caption}</caption>
                <thead><tr>
                    <th scope="col">"Stage"</th>{head}<th scope="col">"sending"</th><th scope="col">"idle"</th>
                    <th scope="col">"share"</th><th scope="col">"done at"</th>
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
}

/// Every action, as a file.
pub fn to_csv(line: &Timeline) -> String {
    let mut out = String::from("stage,action,microbatch,chunk,start_seconds,end_seconds,free_seconds\n");
    for (stage, row) in line.stages.iter().enumerate() {
        for span in &row.spans {
            let (name, action) = (action_name(span.action.kind), span.action);
            // Writing to a String can't fail.
            let _ = writeln!(
                out,
                "{stage},{name},{},{},{},{},{}",
                action.microbatch, action.chunk, span.start, span.end, span.free
            );
        }
    }
    out
}
