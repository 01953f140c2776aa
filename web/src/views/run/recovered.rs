//! How a run went on after ranks had died.

use leptos::prelude::*;
use planner::calibration::typical_seconds;
use planner::run::{RunRecord, Speed};
use planner::units::tokens_per_second;
use planner::wire::{Recovered, Recovering, RunState, RunSummary};

use crate::findings::coded;
use crate::format;
use crate::hub::hub;
use crate::kit::{Column, Line, Lines, Table};
use crate::testid;

/// Recoveries that are told one by one, the latest.
const LISTED: usize = 8;

/// A sentence for each recovery, how fast each attempt went, and the way back to the whole plan; nothing for a run that nothing happened to.
#[component]
pub fn RecoveredLines(summary: Memo<Option<RunSummary>>) -> impl IntoView {
    let hub = hub();
    let recoveries = Memo::new(move |_| hub.record.with(|known| known.recoveries.clone()));
    let lines = move || {
        recoveries.with(|all| {
            let told = all.values().skip(all.len().saturating_sub(LISTED));
            told.map(
                |(began, first)| view! { <p class="banner warning">{coded(&sentence(began, first.as_ref()))}</p> },
            )
            .collect_view()
        })
    };
    // The latest attempt goes on with less than the whole plan.
    let lacks = Memo::new(move |_| {
        let running = summary.with(|summary| {
            let running = summary.as_ref().filter(|summary| summary.state == RunState::Running)?;
            Some((running.info.id.clone(), running.info.attempts))
        })?;
        recoveries.with(|all| {
            let (attempt, (began, _)) = all.last_key_value()?;
            (*attempt >= running.1 && !began.dead.is_empty()).then_some(running.0)
        })
    });
    let back = move || {
        lacks.get().map(|run| {
            view! {
                <button data-testid=testid::RUN_WHOLE disabled=move || !hub.is_connected()
                    on:click=move |_| hub.return_to_whole(&run)>"The GPUs are back: return to the whole plan"</button>
            }
        })
    };
    let speeds = Memo::new(move |_| hub.record.with(rows));
    view! {
        <div data-testid=testid::RUN_RECOVERED>{lines}</div>
        {back}
        {move || speeds.with(|rows| table(rows))}
    }
}

/// How fast an attempt went, and was predicted to.
#[derive(Clone, PartialEq)]
struct Row {
    attempt: u64,
    ranks: Option<u64>,
    tokens: u64,
    predicted: Option<f64>,
    measured: f64,
}

/// The attempts of a run that went on after a failure, those that have done a step.
fn rows(known: &RunRecord) -> Vec<Row> {
    let Some((first, _)) = known.recoveries.values().next() else { return Vec::new() };
    let row = |(&attempt, steps): (&u64, &std::collections::BTreeMap<u64, Speed>)| {
        let began = known.recoveries.get(&attempt).map(|(began, _)| began);
        let predicted = match began {
            Some(began) => began.predicted_step_seconds,
            None => first.predicted_whole_step_seconds,
        };
        let measured = typical_seconds(steps.iter().map(|(step, speed)| (*step, speed.seconds)))?;
        let tokens = steps.last_key_value()?.1.tokens;
        Some(Row { attempt, ranks: began.map(|began| began.world_size), tokens, predicted, measured })
    };
    known.attempts.iter().filter_map(row).collect()
}

const ATTEMPTS: &[Column] = &[
    Column::new("Attempt"),
    Column::new("Ranks"),
    Column::new("Step, predicted"),
    Column::new("Step, measured"),
    Column::new("Tokens/s, predicted"),
    Column::new("Tokens/s, measured"),
    Column::new("Of the first"),
];

fn table(rows: &[Row]) -> impl IntoView + use<> {
    let rate = |row: &Row, seconds| tokens_per_second(row.tokens as f64, seconds).unwrap_or(f64::NAN);
    let first = rows.first().map(|row| rate(row, row.measured));
    let line = |row: &Row| {
        let measured = rate(row, row.measured);
        let line = Line::new().exact(row.attempt).naming();
        let line = match row.ranks {
            Some(ranks) => line.exact(ranks),
            None => line.text("all"),
        };
        line.number_or(row.predicted, &format::seconds, "-")
            .number(row.measured, format::seconds(row.measured))
            .number_or(row.predicted.map(|seconds| rate(row, seconds)), &format::three, "-")
            .number(measured, format::three(measured))
            .number_or(first.map(|first| measured / first), &|share| format!("{:.1}%", 100.0 * share), "")
            .hook(testid::RUN_ATTEMPT, row.attempt.to_string())
    };
    let lines = Lines::of(ATTEMPTS, rows.iter().map(line).collect());
    let caption = "Speed by attempt; the middle of the later half of its steps".to_owned();
    (!rows.is_empty()).then(|| {
        Table::new("Speed by attempt", testid::RUN_ATTEMPTS).class("compare").caption(caption).of(lines)
    })
}

/// How a run went on, or goes on as long as it has done no step since.
pub fn sentence(began: &Recovering, first: Option<&Recovered>) -> String {
    let from = match began.from_step {
        Some(step) => format!("after step {step}"),
        None => "from the beginning".to_owned(),
    };
    let what = if began.dead.is_empty() { "stop" } else { "failure" };
    let done = first.map_or_else(
        || "no step is done since".to_owned(),
        |done| format!("step {} was done {} after the {what}", done.step, format::seconds(done.seconds)),
    );
    let predicted = began.predicted_step_seconds.map_or_else(String::new, |seconds| {
        format!("; a step is predicted to take {}", format::seconds(seconds))
    });
    format!("Attempt {}, {from}: {}; {done}{predicted}", began.attempt, began.change)
}
